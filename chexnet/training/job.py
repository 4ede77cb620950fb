"""What does not change during a run: data, ranks, schedule, and who speaks and listens.

Knows how many steps an epoch has and what a checkpoint says of the run it belongs to. Leaves
the steps to ``epochs`` and their order to ``train``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf

from chexnet import distributed
from chexnet.checkpoint import Description
from chexnet.config import TrainConfig
from chexnet.distributed import Ranks
from chexnet.labels import FINDINGS
from chexnet.networks.weights import find_normalisation
from chexnet.pipeline import steps_per_epoch
from chexnet.progress import Reporter
from chexnet.records import Dataset
from chexnet.run import CHECKPOINTS
from chexnet.schedule import Schedule, Seen, make_schedule
from chexnet.signals import StopSignal
from chexnet.training.position import Position

# The pipelines that take films in one order over the whole run, found by the films seen so far.
IN_ONE_ORDER = ("fast", "dali")


@dataclass(frozen=True)
class Job:
    """What does not change during a run.

    Attributes:
        folder: the run folder.
        config: with the values that follow the data and the device filled in.
        asked: the configuration as it was asked for.
        dataset: the prepared data.
        ranks: who this process is.
        steps: steps of an epoch, the same on every rank.
        schedule: the learning rate of every step.
        reporter: speaks on rank 0.
        stop: remembers signals.
    """

    folder: Path
    config: TrainConfig
    asked: TrainConfig
    dataset: Dataset
    ranks: Ranks
    steps: int
    schedule: Schedule
    reporter: Reporter
    stop: StopSignal

    @property
    def images_per_step(self) -> int:
        """Return the films in one step of all ranks together."""
        return self.config.batch_size * self.config.accumulation_steps * self.ranks.size

    @property
    def checkpoints(self) -> Path:
        """Return the folder of the run's checkpoints."""
        return self.folder / CHECKPOINTS

    def is_asked_to_stop(self) -> bool:
        """Return whether a signal has come to any rank; every rank must call this."""
        mine = 1.0 if self.stop.received else 0.0
        with tf.device("CPU:0"):
            return distributed.average_numbers([mine], name="stop")[0] > 0

    def describe(
        self, position: Position, *, seen: Seen, auroc: float | None = None
    ) -> Description:
        """Return what a checkpoint at a position says about itself.

        Args:
            position: where the run is.
            seen: what the plateau of the learning rate has seen.
            auroc: of the validation, after an epoch.
        """
        return Description(
            epoch=position.epoch,
            step=position.step(self.steps),
            model=self.config.model,
            data_size=self.dataset.image_size,
            input_size=self.config.crop_size,
            image_size=self.config.image_size,
            precision=self.config.precision,
            findings=FINDINGS,
            normalisation=find_normalisation(self.config.model),
            config_sha256=self.asked.sha256,
            validation_auroc=auroc,
            ranks=self.ranks.size,
            position=position,
            schedule_state=dict(seen),
        )


def make_job(
    folder: Path,
    *,
    config: TrainConfig,
    asked: TrainConfig,
    dataset: Dataset,
    ranks: Ranks,
    stop: StopSignal,
) -> Job:
    """Return the job of a run: its number of steps and its schedule follow from these."""
    share = config.batch_size * config.accumulation_steps
    steps = steps_per_epoch(dataset, split="train", batch_size=share, size=ranks.size)
    schedule = make_schedule(
        config.learning_rate,
        size=ranks.size,
        scaling=config.scale_learning_rate,
        steps_per_epoch=steps,
        epochs=config.epochs,
        warmup_epochs=config.warmup_epochs,
        decay=config.decay,
    )
    reporter = Reporter(enabled=ranks.is_first, total_steps=config.epochs * steps)
    return Job(folder, config, asked, dataset, ranks, steps, schedule, reporter, stop)
