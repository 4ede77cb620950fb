"""The presets side by side: what each is, where it comes from, what to expect of it.

Knows the header of a preset's file and how presets are shown. Leaves reading their values, and
what overrides them, to ``config``.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from chexnet.config import DEFAULT_PRESET, KEYS, PRESETS_DIR, TrainConfig, list_presets, load_config

SCHEMA_VERSION = 1
HEADER = ("What", "Source", "Expected", "Note")
# The order in which a reader asks for them.
ORDER = ("lab", "paper", "best", "demo")
_HEADING = """\
# Presets

Made by `invoke presets --markdown` from [chexnet/presets](../chexnet/presets); do not edit.
`invoke train --set preset=NAME` begins from one; `--config FILE` and `--set KEY=VALUE`
change it, and [training.md](training.md) says what the keys mean. `invoke presets` shows the same
for the program at hand.

A figure from elsewhere is what its source claims for its own split. Splits move the mean AUROC
by 0.03: compare only what was scored on the same films.
"""


@dataclass(frozen=True)
class Preset:
    """A preset.

    Attributes:
        name: of its file, without the suffix.
        about: what its header says, by the words of `HEADER`.
        config: its values.
    """

    name: str
    about: dict[str, str]
    config: TrainConfig


def load_presets() -> list[Preset]:
    """Return every preset, the default first."""
    rank = {name: place for place, name in enumerate(ORDER)}
    names = sorted(list_presets(), key=lambda name: (rank.get(name, len(ORDER)), name))
    return [
        Preset(name, read_header(PRESETS_DIR / f"{name}.toml"),
               load_config(settings=[f"preset={name}"]))
        for name in names
    ]  # fmt: skip


def read_header(path: Path) -> dict[str, str]:
    """Return what the comment at the head of a preset's file says.

    Its lines read ``# Word: text``; a line without a word goes on with the one before.

    Raises:
        ValueError: a word of `HEADER` is missing.
    """
    about: dict[str, str] = {}
    word = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        text = line.removeprefix("#").strip()
        first, colon, rest = text.partition(":")
        if colon and first in HEADER:
            word, text = first, rest.strip()
        about[word] = f"{about.get(word, '')} {text}".strip()
    missing = [word for word in HEADER if not about.get(word)]
    if missing:
        raise ValueError(f"{path}: its header does not say {', '.join(missing)}")
    return about


def presets_as_json(presets: Sequence[Preset]) -> dict[str, Any]:
    """Return all that is known of the presets; the schema lies in ``presets.schema.json``."""
    rows = [
        {
            "name": one.name,
            "default": one.name == DEFAULT_PRESET,
            **{word.lower(): one.about[word] for word in HEADER},
            "values": dataclasses.asdict(one.config),
        }
        for one in presets
    ]
    return {"schema_version": SCHEMA_VERSION, "presets": rows}


def print_presets(presets: Sequence[Preset], *, console: Console) -> None:
    """Print what each preset is and what to expect of it, then the keys that differ."""
    for one in presets:
        default = " (default)" if one.name == DEFAULT_PRESET else ""
        console.print(f"{one.name}{default}", style="bold", highlight=False)
        for word in ("What", "Expected"):
            text = Padding(Text(f"{word.lower()}: {one.about[word]}"), (0, 0, 0, 2))
            console.print(text)
    table = Table(box=None, pad_edge=False)
    for name in ("key", *(one.name for one in presets)):
        table.add_column(name, no_wrap=True)
    for key, values in list_keys(presets, differing=True):
        table.add_row(key, *values)
    console.print()
    console.print(table)


def list_keys(presets: Sequence[Preset], *, differing: bool) -> list[tuple[str, list[str]]]:
    """Return the keys whose values differ between presets, or those that are the same.

    Returns:
        Pairs of a key and its value in each preset.
    """
    rows = []
    for key in KEYS:
        values = [str(getattr(one.config, key)) for one in presets]
        if key != "preset" and (len(set(values)) > 1) == differing:
            rows.append((key, values))
    return rows


def render_page(presets: Sequence[Preset]) -> str:
    """Return the page ``docs/presets.md``."""
    parts = [_HEADING]
    for one in presets:
        default = " (the default)" if one.name == DEFAULT_PRESET else ""
        parts.append(f"## {one.name}{default}\n")
        text = f"{one.about['What'][0].upper()}{one.about['What'][1:]}."
        parts.append(textwrap.fill(text, width=100) + "\n")
        lines = [f"- {word}: {one.about[word]}." for word in HEADER[1:]]
        folded = [textwrap.fill(line.replace("..", "."), 100, subsequent_indent="  ",
                                break_on_hyphens=False) for line in lines]  # fmt: skip
        parts.append("\n".join(folded) + "\n")
    names = [one.name for one in presets]
    rows = [f"| key | {' | '.join(names)} |", f"|{' --- |' * (len(names) + 1)}"]
    for key, values in list_keys(presets, differing=True):
        rows.append(f"| `{key}` | {' | '.join(values)} |")
    same = [f"`{key}` {values[0]}" for key, values in list_keys(presets, differing=False)]
    parts.append("## Side by side\n")
    parts.append("\n".join(rows) + "\n")
    parts.append(textwrap.fill(f"The same in all: {', '.join(same)}.", width=100) + "\n")
    return "\n".join(parts)
