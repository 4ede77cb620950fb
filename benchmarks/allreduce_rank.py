"""One rank of the exchange benchmark: DenseNet-121's gradients, every way to exchange them.

Knows how one exchange is timed, and a plain MPI_Allreduce of as many bytes beside it, in the
same process. Leaves launchers, transports and the record to ``allreduce``.

    mpirun -np 2 … python -m benchmarks.allreduce_rank --rounds 20 --output FILE.json
"""

from __future__ import annotations

import argparse
import ctypes
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

from chexnet import distributed
from chexnet.config import TrainConfig, load_config
from chexnet.model import build_model
from chexnet.training.exchange import make_exchange

PLAIN = "plain MPI_Allreduce"
VARIANTS = {
    "each": ("exchange=each",),
    "grouped": ("exchange=grouped",),
    "grouped, 4 groups": ("exchange=grouped", "fusion_groups=4"),
    "flat": ("exchange=flat",),
    "grouped, fp16": ("exchange=grouped", "compression=fp16"),
}
WARM_UP = 3  # rounds: Horovod agrees on names and makes its buffer in the first ones
_MPI = "libmpi.so.40"


class PlainMpi:
    """MPI as Horovod loaded it, called without Horovod.

    Raises:
        OSError: the MPI is not Open MPI, whose names for its constants these are.
    """

    def __init__(self, number: int) -> None:
        self._library = ctypes.CDLL(_MPI)
        self._values = np.random.default_rng(hvd.rank()).normal(size=number).astype(np.float32)
        self._sums = np.empty_like(self._values)

    def _constant(self, name: str) -> ctypes.c_void_p:
        return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(self._library, name)))

    def barrier(self) -> None:
        """Wait for all ranks, so that none starts ahead."""
        self._library.MPI_Barrier(self._constant("ompi_mpi_comm_world"))

    def allreduce(self) -> None:
        """Add up the numbers over all ranks."""
        code = self._library.MPI_Allreduce(
            ctypes.c_void_p(self._values.ctypes.data),
            ctypes.c_void_p(self._sums.ctypes.data),
            ctypes.c_int(self._values.size),
            self._constant("ompi_mpi_float"),
            self._constant("ompi_mpi_op_sum"),
            self._constant("ompi_mpi_comm_world"),
        )
        if code:
            raise RuntimeError(f"MPI_Allreduce: error {code}")


def compile_exchange(config: TrainConfig, gradients: Sequence[tf.Tensor]) -> Callable[[], object]:
    """Return a call that exchanges the gradients as a training step does, inside a graph.

    One number of every sum is taken there: handing 364 tensors to Python would be timed as well,
    and a sum that nothing takes is pruned, whatever waits for it.
    """
    exchange = make_exchange(config)

    @tf.function
    def run() -> tf.Tensor:
        return tf.add_n([tf.reshape(g, [-1])[0] for g in exchange(gradients)])

    return run


def measure(gradients: Sequence[tf.Tensor], *, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Return the milliseconds of each round of each way, and of the plain one in turn with it.

    One way after the other: together they have more names than Horovod's cache of answers.

    Args:
        gradients: float32, of the shapes of the network's weights.
        rounds: how many are counted.
    """
    mpi = PlainMpi(sum(int(g.shape.num_elements()) for g in gradients))
    taken = {}
    for way, settings in VARIANTS.items():
        calls = {PLAIN: mpi.allreduce,
                 way: compile_exchange(load_config(settings=settings), gradients)}  # fmt: skip
        taken[way] = _time_in_turn(calls, rounds=rounds, barrier=mpi.barrier)
    return taken


def _time_in_turn(
    calls: Mapping[str, Callable[[], object]], *, rounds: int, barrier: Callable[[], None]
) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(WARM_UP + rounds):
        for name, call in calls.items():
            barrier()
            begun = time.perf_counter()
            call()
            if number >= WARM_UP:
                taken[name].append((time.perf_counter() - begun) * 1e3)
    return taken


def make_gradients() -> list[tf.Tensor]:
    """Return numbers of the shapes of DenseNet-121's weights with its head of 14 findings."""
    model = build_model("densenet121", input_size=32, image_size=32)
    random = np.random.default_rng(hvd.rank())
    shapes = [variable.shape for variable in model.trainable_variables]
    return [tf.constant(random.normal(size=shape), tf.float32) for shape in shapes]


def main() -> None:
    """Measure, and write what rank 0 took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, metavar="FILE.json")
    parser.add_argument("--rounds", type=int, default=20, metavar="N")
    arguments = parser.parse_args()
    ranks = distributed.start()
    distributed.select_device("cpu", ranks=ranks)
    gradients = make_gradients()
    taken = measure(gradients, rounds=arguments.rounds)
    if ranks.is_first:
        size = sum(int(g.shape.num_elements()) for g in gradients) * 4
        report = {"tensors": len(gradients), "bytes": size, "ms": taken}
        arguments.output.write_text(json.dumps(report))


if __name__ == "__main__":
    main()
