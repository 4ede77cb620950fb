"""The Horovod seam: what makes one training program into N that act as one.

Knows the five changes of the lab's second article, in their order:

1. `start`: initialise Horovod;
2. `select_device`: one device for each process;
3. the learning rate is scaled by the number of ranks, with a warm-up: `chexnet.schedule`;
4. gradients are averaged over the ranks, by one grouped allreduce: `chexnet.training.exchange`;
5. `broadcast_state`: every rank starts from the weights and optimizer state of rank 0.

Files are written by rank 0 only. On Keras 3 Horovod's own optimizer wrapper does not
work (horovod issue 4290), and a Keras variable is no `tf.Variable`: its ``.value`` is.
Works without a launcher too, as one rank. Leaves gradients to ``exchange``, Horovod's own
settings to ``horovod_settings`` and who did not come to ``roll_call``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

from chexnet.config import TrainConfig
from chexnet.errors import EXIT_FAILED, UserError
from chexnet.training.horovod_settings import Setting, apply_settings
from chexnet.training.roll_call import plan_roll_call, together

Result = TypeVar("Result")


@dataclass(frozen=True)
class Ranks:
    """Who this process is among the others.

    Attributes:
        rank: 0 .. size - 1.
        size: how many processes train together.
        local_rank: the number of this process on its host.
        settings: of Horovod, that hold.
    """

    rank: int
    size: int
    local_rank: int
    settings: tuple[Setting, ...] = ()

    @property
    def is_first(self) -> bool:
        """Return whether this is the rank that writes and speaks."""
        return self.rank == 0


def start(config: TrainConfig | None = None, *, folder: Path | None = None) -> Ranks:
    """Change 1: join the other ranks; one rank where no launcher started this.

    Args:
        config: what to train, for Horovod's settings; without one the environment decides.
        folder: the run folder, for the log of Horovod's Autotune.

    Raises:
        UserError: settings that contradict each other.
    """
    settings = apply_settings(config, folder=folder) if config else []
    if len(os.sched_getaffinity(0)) == 1:
        # Horovod's thread shares the only core with the computation, and MPI waits by
        # spinning: make it give way. Read by Open MPI when it starts.
        os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
    joined = hvd.is_initialized()
    hvd.init()
    if hvd.size() > 1 and not joined:
        plan_roll_call(hvd.rank(), gather=partial(hvd.allgather_object, name="members"))
    return Ranks(hvd.rank(), hvd.size(), hvd.local_rank(), tuple(settings))


def select_device(device: str, *, ranks: Ranks, plan: Path | None = None) -> str:
    """Change 2: take one device for this process, and as many threads as it has cores.

    To be called before TensorFlow computes anything.

    Args:
        device: ``auto``, ``gpu`` or ``cpu``; ``auto`` means the GPU where TensorFlow is
            built for CUDA.
        ranks: who this process is.
        plan: a file that names each rank's GPU and threads; without one the local rank and
            the cores of this process do.

    Returns:
        ``"gpu"`` or ``"cpu"``.

    Raises:
        UserError: a GPU is wanted and none is there for this rank, or the plan cannot
            be read.
    """
    # By the plan, which counts cores rather than their hardware threads and knows how many
    # ranks share them; else one thread for each CPU this process may run on. TensorFlow itself
    # would take every core of the machine, and ranks would fight for them.
    share = _read_share(plan, rank=ranks.rank)
    threads = share.get("threads") or len(os.sched_getaffinity(0))
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    if device == "cpu" or (device == "auto" and not tf.test.is_built_with_cuda()):
        tf.config.set_visible_devices([], "GPU")
        return "cpu"
    gpus = tf.config.list_physical_devices("GPU")
    planned = share.get("gpu")
    # A launcher may show each rank its own GPU only; that one is then number 0.
    shown = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    alone = len(shown) == 1 or (planned is not None and len(gpus) == 1)
    index = 0 if alone else ranks.local_rank if planned is None else planned
    if index >= len(gpus):
        raise UserError(
            f"GPU {index} for rank {ranks.rank}",
            found=f"{len(gpus)} GPUs that TensorFlow can use on this host",
            fix="start fewer ranks, repair the GPU set-up, or mean it: --set device=cpu",
            exit_code=EXIT_FAILED,
        )
    tf.config.set_visible_devices(gpus[index], "GPU")
    tf.config.experimental.set_memory_growth(gpus[index], True)
    return "gpu"


def broadcast_state(variables: Sequence[Any]) -> None:
    """Change 5: give every rank the values that rank 0 has.

    Sends one flat tensor for each type rather than one message for each of 1,300
    variables.

    Args:
        variables: Keras variables, of the model and of the optimizer.
    """
    _replace_values(variables, lambda flat, name: hvd.broadcast(flat, root_rank=0, name=name))


def average_variables(variables: Sequence[Any]) -> None:
    """Give every rank the mean of all ranks' values.

    For the moving statistics of batch normalisation: each rank gathers its own from its
    own films, so they are averaged before they are used or stored.

    Args:
        variables: Keras variables of floating point type.
    """
    _replace_values(
        variables, lambda flat, name: hvd.allreduce(flat, op=hvd.Average, name=f"mean.{name}")
    )


def average_numbers(values: Sequence[float], *, name: str) -> list[float]:
    """Return each number averaged over all ranks."""
    if hvd.size() == 1:
        return [float(value) for value in values]
    numbers = tf.constant(values, tf.float64)
    with together():
        mean = hvd.allreduce(numbers, op=hvd.Average, name=f"numbers.{name}")
        return [float(value) for value in mean.numpy()]


def gather_rows(rows: np.ndarray, *, name: str) -> np.ndarray:
    """Return the rows of all ranks, in the order of the ranks.

    Args:
        rows: [B, F]; B may differ between ranks and may be 0.
        name: what is gathered, the same on every rank.
    """
    if hvd.size() == 1:
        return rows
    with together():
        return hvd.allgather(tf.constant(rows), name=f"rows.{name}").numpy()


def gather_objects(item: object, *, name: str) -> list[Any]:
    """Return what each rank passed, in the order of the ranks; for small things."""
    if hvd.size() == 1:
        return [item]
    with together():
        return hvd.allgather_object(item, name=f"objects.{name}")


def on_first(work: Callable[[], Result], *, name: str) -> Result:
    """Do something on rank 0 only, and return its result on every rank.

    Args:
        work: what rank 0 does; its result must be picklable.
        name: what is done, the same on every rank.

    Raises:
        UserError: the one that ``work`` raised, on every rank, so that all stop.
    """
    if hvd.size() == 1:
        return work()
    outcome: tuple[Any, tuple[Any, ...] | None] = (None, None)
    if hvd.rank() == 0:
        try:
            outcome = (work(), None)
        except UserError as error:
            # Its parts, since an exception with keyword arguments does not unpickle.
            outcome = (None, (error.expected, error.found, error.fix, error.exit_code))
    with together():
        result, parts = hvd.broadcast_object(outcome, root_rank=0, name=f"first.{name}")
    if parts is not None:
        expected, found, fix, exit_code = parts
        raise UserError(expected, found=found, fix=fix, exit_code=exit_code)
    return result


def describe_horovod() -> dict[str, bool]:
    """Return what Horovod was built with and uses, for the run's record."""
    return {
        "mpi_enabled": bool(hvd.mpi_enabled()),
        "gloo_enabled": bool(hvd.gloo_enabled()),
        "nccl_built": bool(hvd.nccl_built()),
    }


def _replace_values(variables: Sequence[Any], exchange: Any) -> None:  # noqa: ANN401
    """Send the variables as one flat tensor for each type through ``exchange``."""
    if hvd.size() == 1:
        return
    for dtype in sorted({str(variable.dtype) for variable in variables}):
        group = [variable for variable in variables if str(variable.dtype) == dtype]
        values = [variable.numpy() for variable in group]
        flat = np.concatenate([value.ravel() for value in values])
        with together():
            received = exchange(tf.constant(flat), f"state.{dtype}").numpy()
        parts = np.split(received, np.cumsum([value.size for value in values])[:-1])
        for variable, value, part in zip(group, values, parts, strict=True):
            variable.assign(part.reshape(value.shape))


def _read_share(plan: Path | None, *, rank: int) -> dict[str, Any]:
    """Return what the plan gives to this rank; nothing without a plan."""
    if plan is None:
        return {}
    try:
        entries = json.loads(plan.read_text(encoding="utf-8"))["ranks"]
        return next((dict(entry) for entry in entries if entry["rank"] == rank), {})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            "a binding plan that gives each rank its GPU",
            found=f"{plan}: {error!r}",
            fix="start the training through `invoke train`, which writes the plan",
        ) from error
