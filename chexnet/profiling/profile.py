"""Measuring where the time of a training goes, on every rank.

Knows which parts of a step are timed and how: in blocks that take turns, so that a machine that
becomes slower does so to all alike, and by medians, so that a hiccup is no verdict. Leaves what
the times mean to ``bottleneck``, and the files to ``profile_files``.
"""

from __future__ import annotations

import itertools
import math
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import Any

import keras
import tensorflow as tf

from chexnet import distributed
from chexnet.config import TrainConfig
from chexnet.distributed import Ranks
from chexnet.model import build_model
from chexnet.pipeline import make_pipeline
from chexnet.profiling.bottleneck import Times
from chexnet.profiling.gpu_use import GpuSampler, mean_use
from chexnet.progress import Reporter
from chexnet.records import Dataset
from chexnet.training.exchange import make_exchange
from chexnet.training.step import Trainer

BLOCKS = 6
EXCHANGES = 10
# Small, so that weights stay numbers whatever is repeated, and not 0, which Adam might skip.
RATE = 1e-6

_BYTES = {"float16": 2, "float32": 4, "float64": 8}

Batch = tuple[tf.Tensor, tf.Tensor]


@dataclass
class Waiting:
    """Counts what calls of the steps took; takes the place of the trainer's meters."""

    wait_s: float = 0.0

    def add(self, losses: tf.Tensor, *, wait_s: float, seconds: float, **others: object) -> None:
        """Count one call."""
        self.wait_s += wait_s


@dataclass(frozen=True)
class Measured:
    """What was measured, over all ranks.

    Attributes:
        times: for the verdict.
        by_rank: of each rank its host and times, in the order of the ranks.
        gpus: mean use of the GPUs, by host and number; empty where nothing is known.
        gpu_problem: why nothing is known; "" otherwise.
        startup_s: seconds to build and to trace, on rank 0.
    """

    times: Times
    by_rank: list[dict[str, Any]]
    gpus: list[dict[str, Any]]
    gpu_problem: str
    startup_s: dict[str, float] = field(default_factory=dict)


class Bench:
    """A trainer with films from the pipeline and in memory, to take steps with.

    Attributes:
        startup_s: seconds to build the network and to trace the steps.
    """

    def __init__(
        self, dataset: Dataset, *, config: TrainConfig, device: str, ranks: Ranks,
        reporter: Reporter,
    ) -> None:  # fmt: skip
        """Build and trace everything that is timed later.

        Args:
            dataset: the prepared data.
            config: with all that is ``auto`` settled.
            device: ``gpu`` or ``cpu``, what was selected.
            ranks: who this process is.
            reporter: speaks on rank 0.
        """
        self._config, self._device = config, device
        self._ranks, self._reporter = ranks, reporter
        begun = time.perf_counter()
        keras.utils.set_random_seed(config.seed)
        model = build_model(
            config.model, input_size=config.crop_size, image_size=config.image_size,
            batch_statistics=config.batch_statistics,
            batch_norm_momentum=config.batch_norm_momentum, precision=config.precision,
        )  # fmt: skip
        films = dataset.splits["train"]
        self._trainer = Trainer(model, config=config, films=films)
        self.other_batch = choose_other(config.batch_size)
        other = replace(config, batch_size=self.other_batch)
        self._other = Trainer(model, config=other, films=films)
        self.startup_s = {"build": time.perf_counter() - begun}
        begun = time.perf_counter()
        for trainer in (self._trainer, self._other):
            trainer.trace()
        self.startup_s["trace"] = time.perf_counter() - begun
        self._films = iter(
            make_pipeline(
                dataset, split="train", name=config.pipeline, batch_size=config.batch_size,
                rank=ranks.rank, size=ranks.size, seed=config.seed, epoch=1,
                crop_px=config.crop_size,
            )
        )  # fmt: skip
        self._exchange = _make_exchange(config, self._trainer)

    def measure(self, *, steps: int) -> Measured:
        """Take about so many steps of the real kind, and as many of the others.

        Every rank calls this and takes the same steps.
        """
        calls = max(1, steps // (BLOCKS * self._config.steps_per_call))
        batch = next(self._films)
        memory = itertools.repeat(batch)
        other = itertools.repeat(_resize(batch, self.other_batch))
        kinds = (
            ("step_s", self._trainer, self._films),
            ("memory_step_s", self._trainer, memory),
            ("other_step_s", self._other, other),
        )
        for _, trainer, films in kinds:
            # Not counted: first calls allocate, and XLA compiles.
            self._block(trainer, films, calls=2)
        self._time_exchange()
        found: dict[str, list[float]] = {}
        for number in range(BLOCKS):
            self._reporter.show(number, work="measuring")
            for name, trainer, films in kinds:
                seconds, wait_s = self._block(trainer, films, calls=calls)
                found.setdefault(name, []).append(seconds)
                if name == "step_s":
                    found.setdefault("wait_s", []).append(wait_s)
            found.setdefault("exchange_s", []).append(self._time_exchange())
        sampler = GpuSampler(enabled=self._device == "gpu" and self._ranks.local_rank == 0)
        if self._device == "gpu":
            with sampler:
                self._block(self._trainer, self._films, calls=BLOCKS * calls)
        return self._gather({name: median(all_) for name, all_ in found.items()}, sampler)

    def take_steps(self, calls: int) -> None:
        """Take some steps that are not timed here, for a trace."""
        self._block(self._trainer, self._films, calls=calls)

    def _block(
        self, trainer: Trainer, films: Iterator[Batch], *, calls: int
    ) -> tuple[float, float]:
        """Return seconds a step, and of these those spent waiting for films.

        The device is waited for once, at the end: waiting after every call would hide that the
        next one is prepared meanwhile.
        """
        waiting, rates = Waiting(), [RATE] * trainer.steps_per_call
        begun = time.perf_counter()
        for _ in range(calls):
            losses = trainer.timed_steps(films, rates=rates, meters=[waiting])
        losses.numpy()
        steps = calls * trainer.steps_per_call
        return (time.perf_counter() - begun) / steps, waiting.wait_s / steps

    def _time_exchange(self) -> float:
        """Return seconds that the exchange of all gradients takes, alone."""
        if self._ranks.size == 1:
            return 0.0
        taken = []
        for _ in range(EXCHANGES):
            begun = time.perf_counter()
            self._exchange().numpy()
            taken.append(time.perf_counter() - begun)
        return median(taken)

    def _gather(self, mine: dict[str, float], sampler: GpuSampler) -> Measured:
        """Return the times of all ranks together."""
        host = platform.node()
        told = distributed.gather_objects((host, mine, sampler.uses, sampler.problem), name="times")
        config, by_rank = self._config, [one for _, one, _, _ in told]
        means = {name: fmean(one[name] for one in by_rank) for name in mine}
        # The others wait for it in the exchange.
        means["wait_s"] = max(one["wait_s"] for one in by_rank)
        times = Times(
            ranks=self._ranks.size,
            batch_size=config.batch_size * config.accumulation_steps,
            other_batch_size=self.other_batch * config.accumulation_steps,
            pipeline=config.pipeline,
            device=self._device,
            precision=config.precision,
            xla=config.xla,
            steps_per_call=config.steps_per_call,
            accumulation_steps=config.accumulation_steps,
            compression=config.compression,
            batch_statistics=config.batch_statistics,
            threads=tf.config.threading.get_intra_op_parallelism_threads(),
            exchange_mib=_count_bytes(config, self._trainer) / 2**20,
            gpu_use=mean_use([(name, uses) for name, _, uses, _ in told]),
            **means,
        )
        rows = [{"rank": n, "host": name} | one for n, (name, one, _, _) in enumerate(told)]
        gpus = [
            {"host": name, "index": index, "use": use}
            for name, _, uses, _ in told for index, use in uses.items()
        ]  # fmt: skip
        return Measured(times, rows, gpus, told[0][3], self.startup_s)


def choose_other(batch_size: int) -> int:
    """Return the other batch size to time: half of it, or twice as much where it has no half."""
    return batch_size // 2 or 2


def _make_exchange(config: TrainConfig, trainer: Trainer) -> Callable[[], tf.Tensor]:
    """Return a compiled exchange of tensors like the gradients; its result is one number."""
    exchange = make_exchange(config)
    like = [tf.zeros(v.shape, v.dtype) for v in trainer.model.trainable_variables]
    return tf.function(lambda: tf.add_n([tf.reshape(g, [-1])[0] for g in exchange(like)]))


def _count_bytes(config: TrainConfig, trainer: Trainer) -> int:
    """Return the bytes that cross of a rank's gradients."""
    squeezed = config.compression == "fp16"
    return sum(
        math.prod(v.shape) * _BYTES["float16" if squeezed else v.dtype]
        for v in trainer.model.trainable_variables
    )


def _resize(batch: Batch, films: int) -> Batch:
    """Return a batch of another number of films, out of those of this one."""
    images, labels = batch
    places = tf.range(films) % images.shape[0]
    return tf.gather(images, places), tf.gather(labels, places)
