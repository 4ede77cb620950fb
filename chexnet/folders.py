"""Folders that are there whole or not at all.

Knows how an output folder is built beside its final place and moved there, and
when an existing one may be replaced. Leaves what goes into it to the callers.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chexnet.errors import EXIT_FAILED, UserError
from chexnet.files import NO_ROOM

_WORK = ".work"  # says whose the unfinished folder is


@contextmanager
def new_folder(output: Path, *, marker: str, force: bool = False, work: str = "") -> Iterator[Path]:
    """Give a folder to fill; it becomes `output` when the ``with`` block ends well.

    Nothing is left of it after an error, unless the work is one that can be continued:
    then the next call for the same work and output gets what was done. After a kill of
    other work, or for other work, what was left is removed, and that is said.

    Args:
        output: where the folder shall be; missing or empty.
        marker: a file that every folder of this kind holds.
        force: replace an existing folder of this kind.
        work: what is done, to the last option, if it can be continued.

    Raises:
        UserError: the output exists and may not be replaced, or cannot be written; or its disk
            takes no more, also where the ``with`` block meets that (exit code 1).
    """
    output = Path(output).resolve()
    _check_replaceable(output, marker=marker, force=force)
    partial = output.parent / f".{output.name}.partial"
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        _begin(partial, work=work)
    except OSError as error:
        raise _cannot_write(output.parent, error, goes_on=bool(work)) from error
    try:
        yield partial
        (partial / _WORK).unlink()
        _replace(output, by=partial)
    except BaseException as error:
        if not work:
            shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            raise _cannot_write(output.parent, error, goes_on=bool(work)) from error
        raise


def _cannot_write(folder: Path, error: OSError, *, goes_on: bool) -> UserError:
    found = f"{error.strerror}: {error.filename or folder}"
    if error.errno in NO_ROOM:
        again = ": it goes on where it stopped" if goes_on else ""
        return UserError(
            f"room on the disk of {folder} for all that is written",
            found=found,
            fix=f"make room there, then run the same command again{again}",
            exit_code=EXIT_FAILED,
        )
    return UserError(
        f"a place to write at {folder}",
        found=found,
        fix="choose another --output, or make that folder writable",
    )


def _begin(partial: Path, *, work: str) -> None:
    """Make the folder, or keep the one that the same work left."""
    note = partial / _WORK
    left = note.read_text(encoding="utf-8") if note.is_file() else ""
    if work and left == work:
        return
    if left:
        print(f"removed {partial}: what an interrupted run with other options or another source "
              "had done", file=sys.stderr, flush=True)  # fmt: skip
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
