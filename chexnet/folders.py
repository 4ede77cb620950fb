"""Folders that are there whole or not at all.

Knows how an output folder is built beside its final place and moved there, and
when an existing one may be replaced. Leaves what goes into it to the callers.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chexnet.errors import UserError


@contextmanager
def new_folder(output: Path, *, marker: str, force: bool = False) -> Iterator[Path]:
    """Give a folder to fill; it becomes `output` when the ``with`` block ends well.

    Nothing is left of it after an error. After a kill, the next call for the same
    output removes what was left.

    Args:
        output: where the folder shall be; missing or empty.
        marker: a file that every folder of this kind holds.
        force: replace an existing folder of this kind.

    Raises:
        UserError: the output exists and may not be replaced, or cannot be written.
    """
    output = Path(output).resolve()
    _check_replaceable(output, marker=marker, force=force)
    partial = output.parent / f".{output.name}.partial"
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
    except OSError as error:
        raise UserError(
            f"a place to write at {output.parent}",
            found=f"{error.strerror}: {error.filename}",
            fix="choose another --output, or make that folder writable",
        ) from error
    try:
        yield partial
        _replace(output, by=partial)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _check_replaceable(output: Path, *, marker: str, force: bool) -> None:
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return
    # Even when forced, only a folder that this program wrote is removed.
    ours = (output / marker).is_file()
    if force and ours:
        return
    kind = "a folder" if output.is_dir() else "a file"
    raise UserError(
        f"a new or empty folder at {output}",
        found=f"{kind} with something in it{'' if ours else f', and no {marker}'}",
        fix="choose another --output, or remove that one first",
    )


def _replace(output: Path, *, by: Path) -> None:
    # The old one is deleted last, and under another name: a kill leaves the old folder
    # or the new one, never half of either.
    old = output.parent / f".{output.name}.old"
    shutil.rmtree(old, ignore_errors=True)
    if output.exists():
        output.rename(old)
    by.rename(output)
    shutil.rmtree(old, ignore_errors=True)
