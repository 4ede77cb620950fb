"""One checkpoint: the file, written whole or not at all, read strictly.

Knows the file (an ``.npz``: the variables, a description, a hash of both) and its name. Leaves
which files are kept and which is best to ``checkpoint``, and when to write to ``saving``.

Each file is written beside its place and moved there, so that a program killed at any
moment leaves the older files as they were.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from chexnet.errors import EXIT_FAILED, UserError, name_some
from chexnet.files import sync_folder
from chexnet.training.position import Position, parse_position

SCHEMA_VERSION = 3

# What reading a file that is damaged or no checkpoint may raise.
# RuntimeError: a flipped bit can make zipfile believe in a password or in another
# compression (NotImplementedError).
UNREADABLE = (
    OSError, ValueError, KeyError, TypeError, EOFError, RuntimeError,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip


@dataclass(frozen=True)
class Description:
    """What a checkpoint says about itself.

    Attributes:
        epoch: epochs completed.
        step: steps completed over the whole run, as its schedule counts them.
        model: name of the network.
        data_size: height and width of the stored films, px.
        input_size: height and width of what comes in: the film, or the crop of it, px.
        image_size: height and width that the network works on, px.
        precision: type of the weights.
        findings: names of the outputs, in order.
        normalisation: how bytes become what the network sees.
        config_sha256: hash of the run's configuration.
        validation_auroc: mean over the findings after that epoch; None if undefined, and
            within an epoch.
        ranks: how many had trained it.
        position: how far the run had come, and what was measured since.
        schedule_state: what the learning rate depends on besides the step.
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
    ranks: int = 1
    position: Position = field(default_factory=Position)
    schedule_state: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return the file's name; names sort as positions do, on any number of ranks."""
        within = self.position.epoch_examples
        middle = f"-films-{within:08d}" if self.position.epoch_step else ""
        return f"epoch-{self.epoch:04d}{middle}.npz"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that has been read and whose hash is right.

    Attributes:
        path: the file.
        description: what it says about itself.
        model_values: of the model's variables, in their order; moving statistics are the
            mean over the ranks.
        optimizer_values: of the optimizer's variables, in their order.
        rank_values: float [ranks, N], the moving statistics of each rank; None after an epoch,
            when all have the same.
    """

    path: Path
    description: Description
    model_values: tuple[np.ndarray, ...]
    optimizer_values: tuple[np.ndarray, ...]
    rank_values: np.ndarray | None = None


def collect_arrays(
    description: Description,
    *,
    model: Sequence[np.ndarray],
    optimizer: Sequence[np.ndarray],
    rank_values: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Return what a checkpoint's file holds, by name, without its hash."""
    text = json.dumps({"schema_version": SCHEMA_VERSION} | asdict(description))
    arrays = {"description": np.array(text)}
    arrays |= {f"model/{n:04d}": value for n, value in enumerate(model)}
    arrays |= {f"optimizer/{n:04d}": value for n, value in enumerate(optimizer)}
    return arrays | ({} if rank_values is None else {"ranks": rank_values})


def write_checkpoint(path: Path, *, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a checkpoint whole or not at all.

    Args:
        path: the file; its folder is made if need be.
        arrays: from `collect_arrays`.

    Raises:
        UserError: the disk is full, the folder cannot be written, or a number is not finite.
    """
    _check_finite(arrays, where=path)
    hashed = {**arrays, "sha256": np.array(_hash_arrays(arrays))}
    temporary = path.parent / f".{path.name}.{os.getpid()}.tmp"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            np.savez(file, **hashed)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise UserError(
            f"a checkpoint written to {path}",
            found=f"{error.strerror or error}",
            fix="make room or choose another run folder, then continue with --resume",
            exit_code=EXIT_FAILED,
        ) from error


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
    except UNREADABLE as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise UserError("a whole checkpoint", found=f"{path}: {reason}", fix=fix) from error
    if stored != _hash_arrays(arrays):
        raise UserError("a whole checkpoint", found=f"{path}: its hash differs", fix=fix)
    if data.pop("schema_version", None) != SCHEMA_VERSION:
        expected = f"a checkpoint of schema_version {SCHEMA_VERSION}"
        raise UserError(expected, found=str(path), fix=fix)
    parts = {
        "findings": tuple(data["findings"]),
        "position": parse_position(data["position"]),
    }
    return Checkpoint(
        path=path,
        description=Description(**data | parts),
        model_values=_select(arrays, "model/"),
        optimizer_values=_select(arrays, "optimizer/"),
        rank_values=arrays.get("ranks"),
    )


def load_description(path: Path) -> dict[str, Any]:
    """Read what a checkpoint says about itself, not its 85 MB of weights, and check nothing.

    Raises:
        OSError: or another of `UNREADABLE`, where the file is damaged.
    """
    with np.load(path, allow_pickle=False) as file:
        return dict(json.loads(str(file["description"])))


def _select(arrays: dict[str, np.ndarray], prefix: str) -> tuple[np.ndarray, ...]:
    return tuple(arrays[name] for name in sorted(arrays) if name.startswith(prefix))


def _check_finite(arrays: Mapping[str, np.ndarray], *, where: Path) -> None:
    """Refuse what no training could go on from; the older files stay."""
    wrong = [n for n, a in arrays.items() if a.dtype.kind == "f" and not np.isfinite(a).all()]
    if wrong:
        raise UserError(
            f"finite numbers for the checkpoint {where}",
            found=f"nan or infinity in {name_some(wrong)}",
            fix="lower learning_rate or lengthen warmup_epochs, and begin a new run; the older "
            "checkpoints are whole",
            exit_code=EXIT_FAILED,
        )


def _hash_arrays(arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
