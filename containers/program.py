"""Runs one verb of the training program, ``python -m chexnet VERB …``, here or inside an image.

Knows which folders an image must see for it, and that paths are absolute there. Leaves several
ranks to ``containers.train`` and ``containers.launch``, what a verb does to ``chexnet``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from containers.launch import Site, run_command, simplify
from env.errors import UserError


def run_program(
    verb: str,
    options: Sequence[str | Path],
    *,
    image: Path | None = None,
    reads: Sequence[Path] = (),
    writes: Sequence[Path] = (),
    dry_run: bool = False,
) -> int:
    """Run a verb in one process and return its exit code.

    Args:
        verb: e.g. ``"evaluate"``.
        options: what follows it; a `Path` among them is made absolute.
        image: run inside this image.
        reads: files and folders that have to be there, bound into the image.
        writes: folders that the image has to see, made if need be.
        dry_run: print the command line and run nothing.

    Raises:
        UserError: something to read, or the image, is missing.
    """
    for path in reads if not dry_run else ():
        require(path, what="a file or folder to read", fix="correct the path")
    for path in writes if not dry_run else ():
        path.mkdir(parents=True, exist_ok=True)
    binds = dict.fromkeys(path.resolve() for path in (*reads, *writes))
    words = [str(one.resolve()) if isinstance(one, Path) else one for one in options]
    line = Site(image, binds=tuple(binds)).enter(["python", "-m", "chexnet", verb, *words])
    return simplify(run_command(line, dry_run=dry_run))


def data_of(run: Path) -> tuple[Path, ...]:
    """Return the data folder that a run's record names; none where there is no record."""
    try:
        data = Path(json.loads((run / "record.json").read_text(encoding="utf-8"))["data"])
    except (OSError, ValueError, KeyError, TypeError):
        return ()  # the program itself says what is wrong with the run
    return (data,) if data.is_dir() else ()


def require(path: Path, *, what: str, fix: str) -> None:
    """Refuse a path at which nothing is.

    Raises:
        UserError: naming it.
    """
    if not path.exists():
        raise UserError(what, found=f"nothing at {path}", fix=fix)
