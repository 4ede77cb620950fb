"""A heat map painted over its film: the picture that a reader sees.

Knows colours, legend, caption and footer. Leaves making maps to ``heatmaps`` and choosing
films to its callers. Pillow and numpy alone: no TensorFlow, no display.

The colours are viridis', which readers with any colour vision, and a grey printer, see as
steps of one order. A line marks half of the map's maximum.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from PIL import Image, ImageDraw, ImageFont

NOT_CLINICAL = "Not for clinical use"
WHOLE = (0.0, 0.0, 1.0, 1.0)

# Every 16th colour of matplotlib's viridis (CC0, van der Walt and Smith 2015), and its last.
_VIRIDIS = np.array([
    (68, 1, 84), (72, 24, 106), (71, 45, 123), (66, 64, 134), (59, 82, 139), (51, 99, 141),
    (44, 114, 142), (38, 130, 142), (33, 145, 140), (31, 160, 136), (40, 174, 128),
    (63, 188, 115), (94, 201, 98), (132, 212, 75), (173, 220, 48), (216, 226, 25),
    (253, 231, 37),
])  # fmt: skip
_STEPS = np.array([*range(0, 256, 16), 255]) / 255
_STRONGEST = 0.65  # how much of the film the colour hides where the map is highest
_PAPER, _INK, _FAINT = (17, 17, 17), (240, 240, 240), (170, 170, 170)
_LINE = (255, 255, 255)
_GAP = 10  # px


@dataclass(frozen=True)
class Caption:
    """What is written around a picture.

    Attributes:
        finding: its name, as in `labels.FINDINGS`.
        probability: 0 .. 1.
        film: name of the film.
        notes: more lines, such as that the probability is not calibrated.
    """

    finding: str
    probability: float
    film: str
    notes: tuple[str, ...] = ()


def colour(values: np.ndarray) -> np.ndarray:
    """Return the colours of values in 0 .. 1: uint8 [..., 3]."""
    channels = [np.interp(values, _STEPS, _VIRIDIS[:, channel]) for channel in range(3)]
    return np.rint(np.stack(channels, axis=-1)).astype(np.uint8)


def spread(
    heat: np.ndarray, *, width: int, height: int, covered: tuple[float, ...] = WHOLE
) -> np.ndarray:
    """Return a coarse map drawn out smoothly over a film: float32 [height, width], 0 or more.

    Args:
        heat: float32 [h, w], 0 or more; its cells cover the looked-at part evenly.
        width: of the film, px.
        height: of the film, px.
        covered: left, top, right and bottom of the part of the film that the network looked
            at, as shares of its width and height; elsewhere the map is 0.
    """
    left, right = round(covered[0] * width), round(covered[2] * width)
    top, bottom = round(covered[1] * height), round(covered[3] * height)
    smooth = Image.fromarray(heat.astype(np.float32)).resize(
        (max(1, right - left), max(1, bottom - top)), Image.Resampling.BICUBIC
    )
    out = np.zeros((height, width), np.float32)
    # Cubic interpolation swings below 0 and above the maximum beside a peak.
    out[top:bottom, left:right] = np.clip(np.asarray(smooth), 0, heat.max(initial=0))
    return out


def paint(film: np.ndarray, *, heat: np.ndarray) -> np.ndarray:
    """Return a film with a map of its own size over it: uint8 [H, W, 3].

    Args:
        film: uint8 [H, W].
        heat: float32 [H, W], 0 or more; the colours span 0 to its maximum.
    """
    grey = np.repeat(film[..., None], 3, axis=-1).astype(np.float32)
    highest = float(heat.max(initial=0))
    if highest <= 0:
        return grey.astype(np.uint8)
    share = heat / highest
    alpha = (_STRONGEST * share)[..., None]
    painted = (1 - alpha) * grey + alpha * colour(share)
    painted[_edge(share >= 0.5)] = _LINE
    return np.rint(painted).astype(np.uint8)


def _edge(inside: np.ndarray) -> np.ndarray:
    """Return the cells inside that have a neighbour outside."""
    kept = inside.copy()
    kept[1:] &= inside[:-1]
    kept[:-1] &= inside[1:]
    kept[:, 1:] &= inside[:, :-1]
    kept[:, :-1] &= inside[:, 1:]
    return inside & ~kept


def draw_overlay(
    film: np.ndarray,
    *,
    heat: np.ndarray,
    caption: Caption,
    covered: tuple[float, ...] = WHOLE,
    panel_px: int = 512,
    beside: bool = True,
) -> Image.Image:
    """Return the picture of a finding: the film, the map over it, legend, caption, footer.

    Args:
        film: uint8 [H, W], at any size.
        heat: float32 [h, w], 0 or more.
        caption: what to write.
        covered: the part of the film that the network looked at, as in `spread`.
        panel_px: longer side of the film in the picture.
        beside: show the bare film to the left.
    """
    scale = panel_px / max(film.shape)
    width, height = (max(1, round(side * scale)) for side in film.shape[::-1])
    method = Image.Resampling.LANCZOS if scale < 1 else Image.Resampling.BICUBIC
    bare = np.asarray(Image.fromarray(film).resize((width, height), method))
    over = paint(bare, heat=spread(heat, width=width, height=height, covered=covered))
    panels = [np.repeat(bare[..., None], 3, axis=-1)] * beside + [over]
    size = max(12, panel_px // 32)
    title = f"{caption.finding.replace('_', ' ')}  {caption.probability:.3f}"
    notes = [_printable(line) for line in (caption.film, *caption.notes)]
    return _arrange(panels, title=title, notes=notes, highest=float(heat.max(initial=0)), size=size)


def _arrange(
    panels: list[np.ndarray], *, title: str, notes: list[str], highest: float, size: int
) -> Image.Image:
    """Return the panels side by side, with the legend to the right and text above and below."""
    height, width = panels[0].shape[:2]
    line = round(size * 1.4)
    head, legend = round(size * 1.9) + _GAP, size * 5
    total = (len(panels) * (width + _GAP) + _GAP + legend,
             head + height + _GAP // 2 + line * (len(notes) + 1) + _GAP // 2)  # fmt: skip
    canvas = Image.new("RGB", total, _PAPER)
    draw = ImageDraw.Draw(canvas)
    draw.text((_GAP, _GAP // 2), title, fill=_INK, font=_font(round(size * 1.4)))
    for number, panel in enumerate(panels):
        canvas.paste(Image.fromarray(panel), (_GAP + number * (width + _GAP), head))
    place = (_GAP + len(panels) * (width + _GAP), head)
    _draw_legend(canvas, draw, place=place, height=height, highest=highest, size=size)
    below = head + height + _GAP // 2
    for number, text in enumerate((*notes, NOT_CLINICAL)):
        fitting = _shorten(text, font=_font(size), width=total[0] - 2 * _GAP)
        fill = _FAINT if number < len(notes) else _INK
        draw.text((_GAP, below + number * line), fitting, fill=fill, font=_font(size))
    return canvas


def _draw_legend(
    canvas: Image.Image,
    draw: ImageDraw.ImageDraw,
    *,
    place: tuple[int, int],
    height: int,
    highest: float,
    size: int,
) -> None:
    left, top = place
    if highest <= 0:
        draw.multiline_text((left, top), "nothing\nspeaks\nfor it", fill=_FAINT, font=_font(size))
        return
    shares = np.linspace(1, 0, height)[:, None]
    bar = np.repeat(colour(shares), size, axis=1)
    canvas.paste(Image.fromarray(bar), (left, top))
    middle = top + height // 2
    draw.line([(left, middle), (left + size - 1, middle)], fill=_LINE)
    marks = ((top, "most"), (middle - size // 2, "half"), (top + height - size - 2, "none"))
    for y, text in marks:
        draw.text((left + size + 4, y), text, fill=_FAINT, font=_font(size))


def _shorten(text: str, *, font: ImageFont.FreeTypeFont, width: int) -> str:
    """Return a text that is cut in its middle until it fits."""
    kept = len(text)
    shown = text
    while font.getlength(shown) > width and kept > 8:
        kept -= 1
        shown = f"{text[: kept // 2]}...{text[len(text) - kept // 2 :]}"
    return shown


def _printable(text: str) -> str:
    """Return a text with what the built-in font lacks replaced."""
    return text.encode("latin-1", "replace").decode("latin-1")


@cache
def _font(size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.load_default(size)
