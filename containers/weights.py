"""Where the file of weights lies that a training begins from, so that every site can see it.

Knows where a user may name it: a setting, or the configuration file. Leaves what it holds, and
whether the name is right, to ``chexnet``.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Sequence
from pathlib import Path

_KEY = "weights"
_NO_FILE = ("none", "imagenet")


def find_file(config: Path | None, settings: Sequence[str]) -> Path | None:
    """Return the file that a configuration begins from, its whole path; None where it has none.

    A relative path is one from the current folder, as the program takes it.

    Args:
        config: a configuration file.
        settings: keys as ``key=value``, which stand above the file; the last one counts.
    """
    named = [word.partition("=")[2] for word in settings if word.startswith(f"{_KEY}=")]
    value = named[-1] if named else _read(config)
    if value in ("", *_NO_FILE):
        return None
    path = Path(value).resolve()
    return path if path.is_file() else None  # the program says what is wrong with another


def settings_with_file(config: Path | None, settings: Sequence[str]) -> tuple[str, ...]:
    """Return the settings, with the whole path of the weights' file where there is one."""
    file = find_file(config, settings)
    if file is None:
        return tuple(settings)
    others = (word for word in settings if not word.startswith(f"{_KEY}="))
    return (*others, f"{_KEY}={file}")


def weights_folders(config: Path | None, settings: Sequence[str]) -> list[Path]:
    """Return the folders of weights that the program may look into."""
    file = find_file(config, settings)
    folder = os.environ.get("CHEXNET_WEIGHTS")  # as chexnet.networks.weights reads it
    folders = [*([file.parent] if file else []), *([Path(folder).resolve()] if folder else [])]
    return [folder for folder in folders if folder.is_dir()]


def _read(config: Path | None) -> str:
    """Return what a configuration file says; "" where it says nothing, or cannot be read."""
    if config is None:
        return ""
    try:
        text = config.read_text(encoding="utf-8")
        found = json.loads(text) if config.suffix == ".json" else tomllib.loads(text)
        return str(found.get(_KEY, ""))
    except (OSError, ValueError, AttributeError):
        return ""
