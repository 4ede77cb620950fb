"""The distribution's archive: which exact packages it offers for a stack today.

Knows how apt is asked without touching this machine: folders, sources and a package
state of its own, so that Debian 12 and 13 resolve alike on either. Leaves pip's side to
``containers.lock`` and fetching the files to ``containers.packages``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import unquote

from env.errors import EXIT_FAILED, UserError
from env.lock import SystemPackage
from env.stack import Stack

ARCHITECTURE = "amd64"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
MIRROR_VARIABLE = "CHEXNET_DEBIAN_MIRROR"
# What mmdebstrap's variant minbase is; building one from a lock proves it.
BASE_PATTERNS = ("?essential", "?priority(required)", "apt")
# Our own folders for everything, and nothing of this machine's configuration.
_APT_CONF = """\
Dir "{folder}";
Dir::State "{folder}/state";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache";
Dir::Etc "{folder}/etc";
Dir::Log "{folder}/log";
APT::Architecture "{architecture}";
APT::Architectures {{ "{architecture}"; }};
APT::Install-Recommends "false";
APT::Sandbox::User "";
APT::Update::Error-Mode "any";
Acquire::Languages "none";
Acquire::Retries "2";
{proxies}
"""


@dataclass(frozen=True)
class Resolution:
    """What the archive offers for a stack.

    Attributes:
        packages: every package of base, build and run stage, sorted by name.
        date: of the newest signed index that was read (ISO 8601, UTC).
    """

    packages: tuple[SystemPackage, ...]
    date: str


def resolve_system(stack: Stack) -> Resolution:
    """Ask the archive for the packages of a stack; nothing is installed.

    The base is resolved first, on an empty machine, then each stage on that base.

    Raises:
        UserError: there is no apt or no mirror here, the archive does not answer, or it
            has not got what the stack asks for (exit code 1); apt's words are shown.
    """
    with tempfile.TemporaryDirectory(prefix="chexnet-apt-") as name:
        apt = _Apt(Path(name), stack)
        apt.run("update", ("apt-get", "-qq", "update"))
        base = apt.resolve(BASE_PATTERNS)
        stanzas = apt.show(base)
        apt.install(stanzas[key] for key in sorted(base))
        stages = {group: apt.resolve(getattr(stack.system, group)) for group in ("build", "run")}
        groups: dict[tuple[str, str], tuple[str, ...]] = dict.fromkeys(base, ("base",))
        for group, found in stages.items():
            for key in found:
                groups[key] = (*groups.get(key, ()), group)
        paths = base | stages["build"] | stages["run"]
        stanzas |= apt.show(set(paths) - set(base))
        packages = tuple(
            _package(stanzas[key], path=paths[key], groups=groups[key]) for key in sorted(groups)
        )
        return Resolution(packages, apt.date())


def find_mirror(environ: Mapping[str, str] = os.environ) -> str:
    """Return where this machine takes Debian from, so that a site's mirror is asked.

    Raises:
        UserError: no mirror is named and apt's sources have none.
    """
    named = environ.get(MIRROR_VARIABLE)
    if named:
        return named.rstrip("/")
    with suppress(OSError):
        form = "$(COMPONENT) $(REPO_URI)"
        done = subprocess.run(
            ("apt-get", "indextargets", "--format", form, "Created-By: Packages"),
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        for line in done.stdout.splitlines():
            section, _, uri = line.partition(" ")
            if section == "main" and uri.rstrip("/").endswith("debian"):
                return uri.rstrip("/")
    raise UserError("a mirror of Debian", found="none in apt's sources",
                    fix=f"set {MIRROR_VARIABLE}, e.g. to http://MIRROR/debian")  # fmt: skip


def mirror_url(mirror: str, path: str) -> str:
    """Return the address of a locked package's file.

    Security updates lie beside the archive, in ``debian-security``.

    Args:
        mirror: as ``find_mirror`` returns it.
        path: a ``SystemPackage``'s.
    """
    return f"{mirror.rpartition('/')[0]}/{path}"


class _Apt:
    """apt with folders of its own."""

    def __init__(self, folder: Path, stack: Stack) -> None:
        if shutil.which("apt-get") is None or not KEYRING.exists():
            raise UserError("apt-get and Debian's keys, to ask the archive",
                            found=f"no apt-get on PATH, or no {KEYRING}",
                            fix="do this on Debian 12 or 13")  # fmt: skip
        self._folder = folder
        self._root = find_mirror().rpartition("/")[0]
        for name in ("etc/preferences.d", "etc/apt.conf.d", "state/lists/partial",
                     "cache/archives/partial"):  # fmt: skip
            (folder / name).mkdir(parents=True)
        (folder / "status").touch()
        settings = {"folder": folder, "architecture": ARCHITECTURE, "proxies": _proxies()}
        (folder / "apt.conf").write_text(_APT_CONF.format(**settings), encoding="utf-8")
        (folder / "etc" / "sources.list").write_text(
            "".join(f"deb [signed-by={KEYRING}] {self._root}/{line}\n" for line in sources(stack)),
            encoding="utf-8",
        )

    def run(self, purpose: str, command: Sequence[str]) -> str:
        """Return what an apt command prints."""
        variables = os.environ | {"APT_CONFIG": str(self._folder / "apt.conf"), "LC_ALL": "C"}
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-8:])
            raise UserError(f"the distribution's archive to answer ({purpose})",
                            found=f"apt: {said}",
                            fix="correct the names in env/stacks.toml, or the way to the mirror "
                            f"({MIRROR_VARIABLE}, http_proxy)", exit_code=EXIT_FAILED)  # fmt: skip
        return done.stdout

    def resolve(self, wanted: Sequence[str]) -> dict[tuple[str, str], str]:
        """Return what installing some packages brings: path by name and version."""
        lines = self.run("resolve", ("apt-get", "-qq", "--print-uris", "-y", "install", *wanted))
        found = {}
        for line in lines.splitlines():
            uri, file, *_ = line.split(" ")
            name, version, _ = file.removesuffix(".deb").split("_")
            found[name, unquote(version)] = unquote(uri.strip("'")).removeprefix(f"{self._root}/")
        return found

    def show(self, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], dict[str, str]]:
        """Return the archive's own record of some packages, by name and version."""
        wanted = sorted(f"{name}={version}" for name, version in keys)
        if not wanted:
            return {}
        records = map(
            read_record, self.run("look up", ("apt-cache", "show", *wanted)).split("\n\n")
        )
        return {(r["Package"], r["Version"]): r for r in records if r}

    def install(self, records: Iterable[Mapping[str, str]]) -> None:
        """Let apt believe that some packages are installed."""
        stanzas = (
            "".join(f"{key}: {value}\n" for key, value in (record | _INSTALLED).items())
            for record in records
        )
        (self._folder / "status").write_text("\n".join(stanzas), encoding="utf-8")

    def date(self) -> str:
        """Return the date of the newest index."""
        dates = [
            parsedate_to_datetime(line.partition(":")[2].strip())
            for index in (self._folder / "state" / "lists").glob("*InRelease")
            for line in index.read_text(encoding="utf-8").splitlines()
            if line.startswith("Date:")
        ]
        return max(dates).strftime("%Y-%m-%dT%H:%M:%SZ")


_INSTALLED = {"Status": "install ok installed"}


def sources(stack: Stack) -> tuple[str, ...]:
    """Return apt's sources of a stack, as they follow the mirror's address."""
    codename, sections = stack.base.codename, " ".join(stack.base.sections)
    return (
        f"debian {codename} {sections}",
        f"debian {codename}-updates {sections}",
        f"debian-security {codename}-security {sections}",
    )


def read_record(text: str) -> dict[str, str]:
    """Return the fields of one record of Debian's; longer values keep their lines."""
    fields: dict[str, str] = {}
    key = ""
    for line in text.splitlines():
        if line[:1] in {" ", "\t"} and key:
            fields[key] += "\n" + line
        elif ":" in line:
            key, _, value = line.partition(":")
            fields[key] = value.strip()
    return fields


def _package(record: Mapping[str, str], *, path: str, groups: tuple[str, ...]) -> SystemPackage:
    return SystemPackage(
        name=record["Package"], version=record["Version"], architecture=record["Architecture"],
        sha256=record["SHA256"], size_bytes=int(record["Size"]), path=path, groups=groups,
    )  # fmt: skip


def _proxies() -> str:
    """Return this machine's own proxy settings of apt: how to get there, never what to take."""
    done = subprocess.run(("apt-config", "dump"), capture_output=True, text=True, check=False)
    known = ("Acquire::http::Proxy", "Acquire::https::Proxy")
    return "\n".join(line for line in done.stdout.splitlines() if line.startswith(known))
