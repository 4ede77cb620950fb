"""The checkpoints of a run: which are kept, which is the newest and which the best.

Knows the folder's order, and what makes a checkpoint unfit for a network. Leaves the file to
``checkpoint_file`` and when to write to ``saving``.

Kept are the newest two of all, the newest two after an epoch, the best, and those of every
n-th epoch where the configuration asks for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from chexnet.errors import EXIT_FAILED, UserError
from chexnet.training.checkpoint_file import (
    UNREADABLE,
    Checkpoint,
    Description,
    collect_arrays,
    load_checkpoint,
    load_description,
    write_checkpoint,
)

_UNREADABLE = 2  # how a checkpoint sorts whose description cannot be read: last
KEEP_NEWEST = 2
PATTERN = "epoch-*.npz"
_NAME = re.compile(r"epoch-(\d+)(?:-films-(\d+))?\.npz")

Say = Callable[[str], None]


def save_checkpoint(
    folder: Path,
    *,
    description: Description,
    model: Sequence[Any],
    optimizer: Sequence[Any],
    keep_every: int = 0,
) -> Path:
    """Write a checkpoint, now, and remove those no longer kept.

    Args:
        folder: where the checkpoints of the run lie; made if need be.
        description: what it is.
        model: the model's Keras variables.
        optimizer: the optimizer's Keras variables.
        keep_every: keep every n-th epoch's for good; 0: none.

    Returns:
        The path of the new file.

    Raises:
        UserError: the disk is full or the folder cannot be written.
    """
    path = folder / description.name
    arrays = collect_arrays(
        description,
        model=[variable.numpy() for variable in model],
        optimizer=[variable.numpy() for variable in optimizer],
    )
    write_checkpoint(path, arrays=arrays)
    remove_old(folder, newest=path, keep_every=keep_every)
    return path


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoint files, oldest first."""
    return sorted(folder.glob(PATTERN), key=place_of)


def load_newest(folder: Path, *, say: Say) -> Checkpoint | None:
    """Return the newest checkpoint that is whole; None if there is none at all.

    Args:
        folder: where the checkpoints lie.
        say: told about each damaged file that was passed over.

    Raises:
        UserError: there are checkpoints, and every one is damaged.
    """
    return next(_load_whole(list_checkpoints(folder)[::-1], say), None)


def load_best(folder: Path, *, say: Say) -> Checkpoint:
    """Return the whole checkpoint with the highest validation AUROC.

    The older of equals; the newest where none has a validation AUROC.

    Raises:
        UserError: there is no checkpoint, or every one is damaged.
    """
    paths = sorted(list_checkpoints(folder), key=_merit)
    best = next(_load_whole(paths, say), None)
    if best is None:
        raise UserError(
            "a checkpoint to evaluate",
            found=f"none in {folder}",
            fix="train first: invoke train --data DIR --run DIR",
        )
    for path in paths:
        if _merit(path)[0] == _UNREADABLE:  # which may have been better, and sorts last
            say(f"damaged checkpoint passed over: {path}: it does not tell its score")
    return best


def restore(values: Sequence[np.ndarray], *, variables: Sequence[Any], where: str) -> None:
    """Put a checkpoint's values into variables that must match them one by one.

    Raises:
        UserError: another number of values, or another shape or type, than the variables.
    """
    fix = "use the configuration and the program version that wrote it"
    if len(values) != len(variables):
        raise UserError(f"{len(variables)} variables in {where}", found=f"{len(values)}", fix=fix)
    for value, variable in zip(values, variables, strict=True):
        if value.shape != tuple(variable.shape) or str(value.dtype) != str(variable.dtype):
            raise UserError(
                f"{variable.path} of shape {tuple(variable.shape)}, {variable.dtype}, in {where}",
                found=f"{value.shape}, {value.dtype}",
                fix=fix,
            )
    for value, variable in zip(values, variables, strict=True):
        variable.assign(value)


def check_description(
    found: Description, *, where: str, model: str, findings: Sequence[str], normalisation: object
) -> None:
    """Refuse a checkpoint of another network, label order or normalisation.

    Raises:
        UserError: naming what differs.
    """
    fix = "use a checkpoint of this program, model and label table"
    if found.model != model:
        raise UserError(f"a checkpoint of model {model}", found=f"{found.model}, {where}", fix=fix)
    if found.findings != tuple(findings):
        pairs = zip(found.findings, findings, strict=False)
        place = next((n for n, (a, b) in enumerate(pairs) if a != b), None)
        detail = (
            f"{len(found.findings)} findings" if place is None
            else f"{found.findings[place]} at place {place}, where {findings[place]} belongs"
        )  # fmt: skip
        raise UserError(
            f"the findings in this order: {', '.join(findings)}",
            found=f"{detail}, {where}",
            fix=fix,
        )
    if found.normalisation != normalisation:
        raise UserError(
            f"normalisation {normalisation}", found=f"{found.normalisation}, {where}", fix=fix
        )


def place_of(path: Path) -> tuple[int, int]:
    """Return what a checkpoint's name says: epochs completed, and films of the next."""
    match = _NAME.fullmatch(path.name)
    return (int(match[1]), int(match[2] or 0)) if match else (0, 0)


def _merit(path: Path) -> tuple[Any, ...]:
    """Return a key that sorts the best first, as `load_best` says.

    A file whose description cannot be read sorts last.
    """
    epoch, films = place_of(path)
    try:
        value = load_description(path)["validation_auroc"]
    except UNREADABLE:
        return (_UNREADABLE, 0.0, epoch, films)
    return (1, 0.0, -epoch, -films) if value is None else (0, -value, epoch, films)


def _load_whole(paths: Sequence[Path], say: Say) -> Iterator[Checkpoint]:
    """Yield the whole checkpoints; speak of the damaged; raise if all are damaged."""
    damaged = 0
    for path in paths:
        try:
            checkpoint = load_checkpoint(path)
        except UserError as error:
            damaged += 1
            say(f"damaged checkpoint passed over: {error.found}")
            continue
        yield checkpoint
    if damaged and damaged == len(paths):
        raise UserError(
            f"a whole checkpoint in {paths[0].parent}",
            found=f"{damaged} damaged ones",
            fix="train again in another run folder",
            exit_code=EXIT_FAILED,
        )


def remove_old(folder: Path, *, newest: Path, keep_every: int = 0) -> None:
    """Remove the checkpoints that are not kept, and what a kill left behind.

    Those of a later position than the one just written are damaged: the run was continued
    from before them.
    """
    for leftover in folder.glob(".epoch-*.tmp"):
        leftover.unlink(missing_ok=True)
    for path in list_checkpoints(folder):
        if place_of(path) > place_of(newest):
            path.unlink(missing_ok=True)
    paths = list_checkpoints(folder)
    whole = [path for path in paths if not place_of(path)[1]]
    kept = {*paths[-KEEP_NEWEST:], *whole[-KEEP_NEWEST:]}
    kept |= {path for path in whole if keep_every and place_of(path)[0] % keep_every == 0}
    if len(kept) < len(paths):
        kept.add(min(paths, key=_merit))
    for path in paths:
        if path not in kept:
            path.unlink(missing_ok=True)
