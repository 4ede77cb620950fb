"""The folder that a profile goes into: new or empty.

Knows what is refused. Quick to import: it is looked at before any rank starts. Leaves what lies in
it to ``profile_files``.
"""

from __future__ import annotations

from pathlib import Path

from chexnet.errors import UserError


def check_folder(folder: Path) -> None:
    """Refuse a folder that holds something.

    Raises:
        UserError: naming what is there.
    """
    if folder.exists() and not folder.is_dir():
        there = ["a file"]
    else:
        there = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if there:
        raise UserError(
            f"an empty or new folder at {folder}",
            found=", ".join(there[:5]),
            fix="choose another --output: nothing is overwritten",
        )


def make_folder(folder: Path) -> None:
    """Make a folder that is new, or leave it as it is where it is empty.

    Raises:
        UserError: it holds something, or cannot be made.
    """
    check_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"a folder that can be written at {folder}",
            found=f"{error.filename}: {error.strerror}",
            fix="choose another --output",
        ) from error
