"""The learning rate of every step. Pure arithmetic.

Knows the scaling of the learning rate by the number of ranks, the warm-up to it
and the decay after it. Leaves putting the value into the optimizer to ``train``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

SCALINGS = ("linear", "sqrt", "none")
DECAYS = ("none", "cosine")


@dataclass(frozen=True)
class Schedule:
    """A learning rate for each step of a run.

    Attributes:
        base: the learning rate of one rank.
        peak: the learning rate when the warm-up is over.
        warmup_steps: steps that rise from ``base`` to ``peak``; 0 starts at ``peak``.
        total_steps: steps of the whole run.
        decay: what follows the warm-up: ``"none"`` stays at ``peak``, ``"cosine"``
            falls to 0 at ``total_steps``.
    """

    base: float
    peak: float
    warmup_steps: int
    total_steps: int
    decay: str


def make_schedule(
    base: float,
    *,
    size: int,
    scaling: str,
    steps_per_epoch: int,
    epochs: int,
    warmup_epochs: float,
    decay: str,
) -> Schedule:
    """Return the schedule of a run on ``size`` ranks.

    With N ranks each step sees N times the images, so that linear scaling multiplies
    the learning rate by N (Goyal et al. 2017, arXiv:1706.02677, section 2.1), reached
    by a gradual warm-up from the rate of a single rank (section 2.2). Square root scaling keeps
    the variance of a step (Krizhevsky 2014, arXiv:1404.5997, section 5) and is gentler to Adam.
    """
    factor = {"linear": size, "sqrt": math.sqrt(size), "none": 1}[scaling]
    return Schedule(
        base=base,
        peak=base * factor,
        warmup_steps=round(warmup_epochs * steps_per_epoch),
        total_steps=epochs * steps_per_epoch,
        decay=decay,
    )


def learning_rate(schedule: Schedule, *, step: int) -> float:
    """Return the learning rate of step ``step``, counted from 0 over the whole run.

    Where nothing is scaled (one rank, or scaling ``"none"``) base and peak are the
    same; the warm-up then starts at a tenth of it, since it is asked for to spare the
    first steps of Adam.
    """
    start = schedule.base if schedule.base < schedule.peak else schedule.peak / 10
    if step < schedule.warmup_steps:
        return start + (schedule.peak - start) * step / schedule.warmup_steps
    if schedule.decay == "none":
        return schedule.peak
    span = max(1, schedule.total_steps - schedule.warmup_steps)
    done = min(1.0, (step - schedule.warmup_steps) / span)
    return schedule.peak * 0.5 * (1 + math.cos(math.pi * done))
