"""The steps of an epoch: their calls, what is measured of them, and where they may stop.

Knows the boundaries at which something happens besides steps: a window of numbers is logged, a
checkpoint is due, a signal has come to some rank. Calls of several steps end there. Leaves the
compiled steps to ``step``, where a run is to ``position`` and files to ``saving``.

Between two boundaries nothing waits for the device, and all ranks decide alike at each: by
numbers that all of them have.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from contextlib import suppress

import numpy as np
import tensorflow as tf

from chexnet import distributed
from chexnet.errors import UserError
from chexnet.pipeline import make_pipeline
from chexnet.records import named_damage
from chexnet.schedule import Seen, learning_rate
from chexnet.training.bad_batch import BadLoss, find_bad, refuse_losses
from chexnet.training.job import Job
from chexnet.training.journal import Journal
from chexnet.training.metrics_log import STEPS
from chexnet.training.position import Position, Tally, summarize
from chexnet.training.roll_call import together
from chexnet.training.run_record import update_record
from chexnet.training.saving import CheckpointWriter, gather_statistics
from chexnet.training.step import Trainer

MOST_STEPS_A_WINDOW = 50
WINDOWS_AN_EPOCH = 4
# How often ranks ask each other whether a signal has come: they have 30 s to stop.
ASK_EVERY_S = 1.0


class Gauge:
    """Adds up what this rank's calls took; the losses stay on the device until asked for."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._wait_s = 0.0
        self._losses: list[tf.Tensor] = []

    def add(self, losses: tf.Tensor, *, wait_s: float, seconds: float) -> None:
        """Count the steps of one call, as `meter.Meter` does."""
        self.seconds += seconds
        self._wait_s += wait_s
        self._losses.append(losses)

    def take(self) -> tuple[np.ndarray, float, float]:
        """Return the losses, float [K], the seconds and those without films; begin anew."""
        begun = time.perf_counter()
        with together():  # on a GPU the steps, and what ended them, are seen only here
            losses = np.concatenate([np.reshape(part, -1) for part in self._losses or [[]]])
        seconds = self.seconds + time.perf_counter() - begun  # where a GPU had still to finish
        wait_s = self._wait_s
        self.__init__()
        return losses, seconds, wait_s


class Steps:
    """Takes the steps of one epoch from a position on.

    Attributes:
        position: where the run is.
    """

    def __init__(
        self,
        job: Job,
        trainer: Trainer,
        *,
        position: Position,
        seen: Seen,
        writer: CheckpointWriter,
        journal: Journal,
        startup: dict[str, float],
    ) -> None:
        """Prepare the epoch that follows on a position.

        Args:
            job: the run.
            trainer: takes the steps.
            position: where the run is.
            seen: what the plateau of the learning rate has seen.
            writer: of checkpoints.
            journal: of what is measured.
            startup: gets the seconds of the first call, if it has none.
        """
        self.position = position
        self._seen = seen
        self._journal = journal
        self._job = job
        self._trainer = trainer
        self._writer = writer
        self._startup = startup
        self._gauge = Gauge()
        self._length = min(MOST_STEPS_A_WINDOW, math.ceil(job.steps / WINDOWS_AN_EPOCH))
        # Where the losses on the gauge begin.
        self._since = position
        self._ask_after = 1
        self._asked = position.epoch_step
        self._saved = position

    def run(self) -> Position:
        """Take the steps that are left of the epoch and return where the run is then.

        Raises:
            UserError: a loss that is no number, damaged films, a checkpoint not written.
            Interrupted: a signal came to some rank; all that was done is in a checkpoint.
        """
        batches = iter(self._batches()) if self.position.epoch_step < self._job.steps else None
        with named_damage(self._job.dataset):
            while batches and self.position.epoch_step < self._job.steps:
                self._call(batches)
        return self.position

    def _batches(self) -> Iterable[tuple[tf.Tensor, ...]]:
        job, config = self._job, self._job.config
        return make_pipeline(
            job.dataset,
            split="train",
            name=config.pipeline,
            batch_size=config.batch_size,
            rank=job.ranks.rank,
            size=job.ranks.size,
            seed=config.seed,
            epoch=self.position.epoch + 1,
            first_film=self.position.examples,
            skip_batches=self.position.epoch_step * config.accumulation_steps,
            crop_px=config.crop_size,
        )

    def _call(self, batches: object) -> None:
        """Take the steps of one call, then do what is due."""
        job, done = self._job, self.position.epoch_step
        first = self.position.step(job.steps)
        count = self._count_steps()
        factor = float(self._seen.get("factor") or 1.0)
        rates = [learning_rate(job.schedule, step=first + n, factor=factor) for n in range(count)]
        self._trainer.timed_steps(batches, rates=rates, meters=[self._gauge])
        self._startup.setdefault("first_step", self._gauge.seconds)
        self.position = self.position.advance(count, images_per_step=job.images_per_step)
        step, epoch_step = first + count, done + count
        job.reporter.show_step(step, epoch=self.position.epoch + 1)
        self._writer.check()
        is_end = epoch_step == job.steps
        if is_end or epoch_step % self._length == 0:
            self._close_window(step=step, rate=rates[-1])
        every = job.config.checkpoint_steps
        if every and step % every == 0 and not is_end:
            self.save()
        if epoch_step - self._asked >= self._ask_after or is_end:
            self._asked = epoch_step
            self.stop_if_asked(f"in epoch {self.position.epoch + 1}, after step {step}")

    def _count_steps(self) -> int:
        """Return the steps until something is due, at most those of one call."""
        done, step = self.position.epoch_step, self.position.step(self._job.steps)
        every = self._job.config.checkpoint_steps
        left = [self._job.steps - done, self._length - done % self._length]
        if every:
            left.append(every - step % every)
        return min(self._trainer.steps_per_call, *left)

    def collect(self) -> None:
        """Bring what the ranks have measured into the position; every rank must call this.

        Raises:
            UserError: a loss of some rank is no number.
        """
        losses, seconds, wait_s = self._gauge.take()
        bad = find_bad(losses)
        mine = [losses.sum(dtype=np.float64), len(losses), seconds, wait_s]
        mine += [bad.step, bad.loss] if bad else [-1, 0]
        with tf.device("CPU:0"):
            rows = distributed.gather_rows(np.array([mine], np.float64), name="steps")
        found = [BadLoss(int(r[4]), r[5], rank) for rank, r in enumerate(rows) if r[4] >= 0]
        if found:
            since = self._since
            refuse_losses(
                found, job=self._job, epoch=since.epoch + 1, step=since.step(self._job.steps),
                examples=since.examples,
            )  # fmt: skip
        steps, mean = int(rows[0, 1]), rows.mean(axis=0)
        tally = Tally(steps, int(rows[:, 1].sum()), rows[:, 0].sum(), mean[2], mean[3])
        self.position = self.position.measured(tally)
        self._since = self.position
        if steps and self._job.ranks.size > 1:
            self._ask_after = max(1, int(ASK_EVERY_S * steps / max(mean[2], 1e-9)))

    def _close_window(self, *, step: int, rate: float) -> None:
        """Log some steps."""
        self.collect()
        job = self._job
        measured = self.position.window.measure(images_per_batch=images_per_loss(job))
        values = {
            "kind": STEPS,
            "step": step,
            "epoch": self.position.epoch + 1,
            "examples": self.position.examples,
            "lr": rate,
        }
        self._journal.add(values | measured | self._trainer.optimizer.scaling)
        self.position = self.position.close_window()
        job.reporter.show_window(
            f"loss {measured['loss']:.4f}  {measured['images_per_s']:.0f} images/s  "
            f"input wait {measured['input_wait_fraction']:.0%}",
            where=f"epoch {self.position.epoch + 1}  step {step}/{job.config.epochs * job.steps}",
        )

    def save(self) -> None:
        """Write a checkpoint of the position; every rank must call this."""
        if self._saved == self.position:
            return
        self.collect()
        values = gather_statistics(self._trainer, size=self._job.ranks.size)
        description = self._job.describe(self.position, seen=self._seen)
        self._writer.save(self._trainer, description=description, rank_values=values)
        self._saved = self.position

    def stop_if_asked(self, where: str) -> None:
        """Keep all that was done and end, on every rank, if a signal has come to any.

        Every rank must call this.

        Args:
            where: what was going on, for the message.

        Raises:
            Interrupted: a signal has come.
        """
        job = self._job
        if not job.is_asked_to_stop():
            return
        self.save()
        # Nobody leaves before the file is there: the launcher ends the others when one does.
        distributed.on_first(self._finish_stopped, name="stopped")
        raise job.stop.interrupt(f"{where}; a checkpoint has it all")

    def _finish_stopped(self) -> None:
        """Wait for the checkpoint, and say in the record how far the run has come."""
        self._writer.finish()
        position = summarize(self.position, steps_per_epoch=self._job.steps)
        with suppress(OSError, UserError):  # a full disk: the checkpoint is there
            update_record(self._job.folder, position=position)


def images_per_loss(job: Job) -> int:
    """Return the films behind each loss that is added up: those of one rank's step."""
    return job.config.batch_size * job.config.accumulation_steps
