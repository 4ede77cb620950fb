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

_WORK = ".work"  # says whose the unfinished folder is


@contextmanager
def new_folder(output: Path, *, marker: str, force: bool = False, work: str = "") -> Iterator[Path]:
    """Give a folder to fill; it becomes `output` when the ``with`` block ends well.

    Nothing is left of it after an error, unless the work is one that can be continued:
    then the next call for the same work and output gets what was done. After a kill of
    other work, or for other work, what was left is removed.

    Args:
        output: where the folder shall be; missing or empty.
        marker: a file that every folder of this kind holds.
        force: replace an existing folder of this kind.
        work: what is done, to the last option, if it can be continued.

    Raises:
        UserError: the output exists and may not be replaced, or cannot be written.
    """
    output = Path(output).resolve()
    _check_replaceable(output, marker=marker, force=force)
    partial = output.parent / f".{output.name}.partial"
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        _begin(partial, work=work)
    except OSError as error:
        raise UserError(
            f"a place to write at {output.parent}",
            found=f"{error.strerror}: {error.filename}",
            fix="choose another --output, or make that folder writable",
        ) from error
    try:
        yield partial
        (partial / _WORK).unlink()
        _replace(output, by=partial)
    except BaseException:
        if not work:
            shutil.rmtree(partial, ignore_errors=True)
        raise


def _begin(partial: Path, *, work: str) -> None:
    """Make the folder, or keep the one that the same work left."""
    note = partial / _WORK
    if work and note.is_file() and note.read_text(encoding="utf-8") == work:
        return
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    note.write_text(work, encoding="utf-8")


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
