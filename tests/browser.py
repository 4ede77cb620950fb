"""A real browser without a screen: Debian's Chromium, driven through its own protocol.

Knows how to open a file at a width and in a colour scheme, and what the page then asked for and
complained of. Leaves what a page must hold to the tests.
"""

import base64
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

# Each text's colour and the colour behind it, as the reader sees them.
COLOURS = """
const behind = (e) => { for (; e; e = e.parentElement) {
  const c = getComputedStyle(e).backgroundColor;
  if (c !== 'rgba(0, 0, 0, 0)') return c; } return 'rgb(255, 255, 255)'; };
return [...document.querySelectorAll('body *')].filter((e) =>
  [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) && e.getClientRects().length
).map((e) => [e.tagName + '.' + (e.getAttribute('class') || ''),
  e.namespaceURI.endsWith('svg') ? getComputedStyle(e).fill : getComputedStyle(e).color,
  behind(e)]);
"""


@dataclass(frozen=True)
class Visit:
    """What a page did when it was opened: addresses it asked for, what the console shows."""

    requests: list[str]
    complaints: list[str]


class Browser:
    """Chromium with one window."""

    def __init__(self, driver) -> None:
        self.driver = driver

    def open(self, path: Path, *, width: int = 1200, dark: bool = False, media: str = "") -> Visit:
        """Open a file as a screen of a width (a phone's below 500 px) shows it."""
        self.driver.get_log("performance")
        self.driver.get_log("browser")
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self._tell("Emulation.setDeviceMetricsOverride", screen)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._tell("Emulation.setEmulatedMedia", {"media": media, "features": [scheme]})
        self.driver.get(path.resolve().as_uri())
        return Visit(self._list_requests(), [one["message"] for one in self._log("browser")])

    def ask(self, script: str):
        """Return what a script in the page returns."""
        return self.driver.execute_script(script)

    def print(self) -> bytes:
        """Return the page as PDF, on A4."""
        paper = {"paperWidth": 8.27, "paperHeight": 11.69, "printBackground": True}
        return base64.b64decode(self._tell("Page.printToPDF", paper)["data"])

    def contrasts(self) -> dict[str, float]:
        """Return the smallest contrast of text to what is behind it, by kind of element."""
        found: dict[str, float] = {}
        for kind, ink, paper in self.ask(COLOURS):
            found[kind] = min(contrast(ink, paper), found.get(kind, 21.0))
        return found

    def _tell(self, command: str, values: dict) -> dict:
        return self.driver.execute_cdp_cmd(command, values)

    def _log(self, kind: str) -> list[dict]:
        return self.driver.get_log(kind)

    def _list_requests(self) -> list[str]:
        messages = (json.loads(entry["message"])["message"] for entry in self._log("performance"))
        asked = (m["params"] for m in messages if m["method"] == "Network.requestWillBeSent")
        addresses = (one["request"]["url"] for one in asked)
        return [address for address in addresses if not address.startswith("data:")]


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two CSS colours, 1 .. 21 (WCAG 2.2, relative luminance)."""

    def luminance(colour: str) -> float:
        parts = [float(p) / 255 for p in colour.strip("rgba()").split(",")[:3]]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.fixture(scope="session")
def browser():
    """Return Chromium; skip where there is none."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("no chromium and chromedriver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(flag)
    options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    running = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield Browser(running)
    running.quit()
