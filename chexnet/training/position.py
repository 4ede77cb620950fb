"""Where a run is: the steps and films it has behind it, and what was measured of them.

Knows that a position is counted in films, so that a run may go on with another number of
ranks: the next step takes the films that follow, whoever takes them. Pure arithmetic; leaves
the steps to ``epochs`` and the file to ``checkpoint_file``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Tally:
    """What was measured of some steps, over all ranks; tallies add up.

    Attributes:
        steps: optimizer steps.
        batches: losses that were added up: one for each step and rank.
        loss: their sum. A float64 holds the sum of float32 losses exactly, so that the mean
            does not depend on where a run was interrupted.
        seconds: mean over the ranks.
        wait_s: of these, seconds without films; mean over the ranks.
    """

    steps: int = 0
    batches: int = 0
    loss: float = 0.0
    seconds: float = 0.0
    wait_s: float = 0.0

    def __add__(self, other: Tally) -> Tally:
        """Return both together."""
        return Tally(
            self.steps + other.steps,
            self.batches + other.batches,
            self.loss + other.loss,
            self.seconds + other.seconds,
            self.wait_s + other.wait_s,
        )

    def measure(self, *, images_per_batch: int) -> dict[str, float]:
        """Return loss (a mean), images_per_s (of all ranks together), input_wait_fraction.

        Args:
            images_per_batch: films behind each of the losses.
        """
        seconds = max(self.seconds, 1e-9)
        return {
            "loss": self.loss / max(1, self.batches),
            "images_per_s": self.batches * images_per_batch / seconds,
            "input_wait_fraction": min(1.0, self.wait_s / seconds),
        }


@dataclass(frozen=True)
class Position:
    """How far a run has come.

    Attributes:
        epoch: epochs completed: trained, validated and stored.
        epoch_step: steps done of the next epoch.
        epoch_examples: films seen in that epoch.
        examples: films seen in the whole run: where the order of films goes on.
        window: measured since the last line of metrics.jsonl.
        whole: measured since the epoch began, without the window.
    """

    epoch: int = 0
    epoch_step: int = 0
    epoch_examples: int = 0
    examples: int = 0
    window: Tally = field(default_factory=Tally)
    whole: Tally = field(default_factory=Tally)

    def step(self, steps_per_epoch: int) -> int:
        """Return the steps of the run so far, as the schedule counts them."""
        return self.epoch * steps_per_epoch + self.epoch_step

    def advance(self, steps: int, *, images_per_step: int) -> Position:
        """Return the position some steps later."""
        images = steps * images_per_step
        return replace(
            self,
            epoch_step=self.epoch_step + steps,
            epoch_examples=self.epoch_examples + images,
            examples=self.examples + images,
        )

    def measured(self, tally: Tally) -> Position:
        """Return the position with more measured in its window."""
        return replace(self, window=self.window + tally)

    def close_window(self) -> Position:
        """Return the position with an empty window, its numbers among those of the epoch."""
        return replace(self, window=Tally(), whole=self.whole + self.window)

    def close_epoch(self) -> Position:
        """Return the position at the beginning of the next epoch."""
        return Position(epoch=self.epoch + 1, examples=self.examples)

    def fit(self, *, images_per_step: int, steps_per_epoch: int) -> Position:
        """Return the position as another number of ranks counts it; the films stay the same.

        Args:
            images_per_step: films of one step of all ranks now.
            steps_per_epoch: steps of an epoch now.
        """
        steps = min(self.epoch_examples // images_per_step, steps_per_epoch)
        return replace(self, epoch_step=steps)


def parse_position(data: Mapping[str, Any]) -> Position:
    """Return the position that ``dataclasses.asdict`` made a mapping of.

    Raises:
        TypeError: it is of another shape.
        KeyError: likewise.
    """
    tallies = {name: Tally(**data[name]) for name in ("window", "whole")}
    return Position(**{**data, **tallies})


def summarize(position: Position, *, steps_per_epoch: int) -> dict[str, int]:
    """Return the numbers for a run's record: epoch, step (of the run), examples."""
    return {
        "epoch": position.epoch,
        "step": position.step(steps_per_epoch),
        "examples": position.examples,
    }
