"""Checkpoints: written whole or not at all, read strictly.

Knows the file (one ``.npz`` an epoch: the variables, a description, a hash of both), how
many are kept, and what makes one unfit to load. Leaves when to write to ``train`` and what
a run's folder holds besides to ``run``.

Each file is written beside its place and moved there, so that a program killed at any
moment leaves the older files as they were.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from chexnet.errors import EXIT_FAILED, UserError

SCHEMA_VERSION = 2
KEEP_NEWEST = 2
PATTERN = "epoch-*.npz"

# What reading a file that is damaged or no checkpoint may raise.
# RuntimeError: a flipped bit can make zipfile believe in a password or in another
# compression (NotImplementedError).
_UNREADABLE = (
    OSError, ValueError, KeyError, TypeError, EOFError, RuntimeError,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip

Say = Callable[[str], None]


@dataclass(frozen=True)
class Description:
    """What a checkpoint says about itself.

    Attributes:
        epoch: epochs completed, from 1.
        step: steps completed over the whole run.
        model: name of the network.
        data_size: height and width of the stored films, px.
        input_size: height and width of what comes in: the film, or the crop of it, px.
        image_size: height and width that the network works on, px.
        precision: type of the weights.
        findings: names of the outputs, in order.
        normalisation: how bytes become what the network sees.
        config_sha256: hash of the run's configuration.
        validation_auroc: mean over the findings after that epoch; None if undefined.
    """

    epoch: int
    step: int
    model: str
    data_size: int
    input_size: int
    image_size: int
    precision: str
    findings: tuple[str, ...]
    normalisation: dict[str, Any]
    config_sha256: str
    validation_auroc: float | None


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that has been read and whose hash is right."""

    path: Path
    description: Description
    model_values: tuple[np.ndarray, ...]
    optimizer_values: tuple[np.ndarray, ...]


def save_checkpoint(
    folder: Path, *, description: Description, model: Sequence[Any], optimizer: Sequence[Any]
) -> Path:
    """Write a checkpoint and remove those no longer kept: all but the last two and the best.

    Args:
        folder: where the checkpoints of the run lie; made if need be.
        description: what it is.
        model: the model's Keras variables.
        optimizer: the optimizer's Keras variables.

    Returns:
        The path of the new file.

    Raises:
        UserError: the disk is full or the folder cannot be written.
    """
    text = json.dumps({"schema_version": SCHEMA_VERSION} | asdict(description))
    arrays = {"description": np.array(text)}
    arrays |= {f"model/{n:04d}": variable.numpy() for n, variable in enumerate(model)}
    arrays |= {f"optimizer/{n:04d}": variable.numpy() for n, variable in enumerate(optimizer)}
    arrays["sha256"] = np.array(_hash_arrays(arrays))
    path = folder / f"epoch-{description.epoch:04d}.npz"
    temporary = folder / f".{path.name}.{os.getpid()}.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            np.savez(file, **arrays)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(folder)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise UserError(
            f"a checkpoint written to {path}",
            found=f"{error.strerror}",
            fix="make room or choose another run folder, then continue with --resume",
            exit_code=EXIT_FAILED,
        ) from error
    _remove_old(folder, newest=description.epoch)
    return path


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint and check its hash.

    Raises:
        UserError: the file is missing, damaged or of another schema.
    """
    fix = "use another checkpoint of the run, or train again"
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        stored = str(arrays.pop("sha256"))
        data = json.loads(str(arrays["description"]))
    except _UNREADABLE as error:
        reason = str(error) or type(error).__name__
        raise UserError("a whole checkpoint", found=f"{path}: {reason}", fix=fix) from error
    if stored != _hash_arrays(arrays):
        raise UserError("a whole checkpoint", found=f"{path}: its hash differs", fix=fix)
    if data.pop("schema_version", None) != SCHEMA_VERSION:
        expected = f"a checkpoint of schema_version {SCHEMA_VERSION}"
        raise UserError(expected, found=str(path), fix=fix)
    return Checkpoint(
        path=path,
        description=Description(**data | {"findings": tuple(data["findings"])}),
        model_values=_select(arrays, "model/"),
        optimizer_values=_select(arrays, "optimizer/"),
    )


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoint files, oldest epoch first."""
    return sorted(folder.glob(PATTERN), key=_epoch_of)


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


def _epoch_of(path: Path) -> int:
    digits = path.stem.removeprefix("epoch-")
    return int(digits) if digits.isdigit() else 0


def _merit(path: Path) -> tuple[int, float, int]:
    """Return a key that sorts the best first, as `load_best` says.

    Reads the description alone, not 85 MB of weights; a file whose description cannot be
    read sorts last.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            value = json.loads(str(file["description"]))["validation_auroc"]
    except _UNREADABLE:
        return (2, 0.0, _epoch_of(path))
    return (1, 0.0, -_epoch_of(path)) if value is None else (0, -value, _epoch_of(path))


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


def _remove_old(folder: Path, *, newest: int) -> None:
    """Remove all checkpoints but the newest two and the best, and what a kill left behind.

    Those of a later epoch than the one just written are damaged: the run was continued
    from before them.
    """
    for leftover in folder.glob(".epoch-*.tmp"):
        leftover.unlink(missing_ok=True)
    for path in list_checkpoints(folder):
        if _epoch_of(path) > newest:
            path.unlink(missing_ok=True)
    paths = list_checkpoints(folder)
    if len(paths) <= KEEP_NEWEST:
        return
    best = min(paths, key=_merit)
    for path in paths[:-KEEP_NEWEST]:
        if path != best:
            path.unlink(missing_ok=True)


def _select(arrays: dict[str, np.ndarray], prefix: str) -> tuple[np.ndarray, ...]:
    return tuple(arrays[name] for name in sorted(arrays) if name.startswith(prefix))


def _hash_arrays(arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _sync_folder(folder: Path) -> None:
    """Make the rename itself last: the entry belongs to the folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
