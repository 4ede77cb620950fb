"""The learning rate of every step. Pure arithmetic.

Knows the scaling of the learning rate by the number of ranks, the warm-up to it
and the decay after it. Leaves putting the value into the optimizer to ``step``, and keeping
what the plateau has seen to ``train``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

SCALINGS = ("linear", "sqrt", "none")
DECAYS = ("none", "cosine", "plateau")
# As CheXNet was trained (Rajpurkar et al. 2017, arXiv:1711.05225, section 2.1): a tenth each
# time the validation loss plateaus after an epoch.
PLATEAU_FACTOR = 0.1
PATIENCE_EPOCHS = 1

Seen = dict[str, float | int | None]
"""What the plateau has seen, as JSON keeps it: best loss, epochs since, and the factor now."""


@dataclass(frozen=True)
class Schedule:
    """A learning rate for each step of a run.

    Attributes:
        base: the learning rate of one rank.
        peak: the learning rate when the warm-up is over.
        warmup_steps: steps that rise from ``base`` to ``peak``; 0 starts at ``peak``.
        total_steps: steps of the whole run.
        decay: what follows the warm-up: ``"none"`` stays at ``peak``, ``"cosine"``
            falls to 0 at ``total_steps``, ``"plateau"`` follows the validation loss.
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


def learning_rate(schedule: Schedule, *, step: int, factor: float = 1.0) -> float:
    """Return the learning rate of step ``step``, counted from 0 over the whole run.

    Where nothing is scaled (one rank, or scaling ``"none"``) base and peak are the
    same; the warm-up then starts at a tenth of it, since it is asked for to spare the
    first steps of Adam.

    Args:
        schedule: from `make_schedule`.
        step: optimizer steps done before.
        factor: of the plateau, from `watch_plateau`.
    """
    start = schedule.base if schedule.base < schedule.peak else schedule.peak / 10
    if step < schedule.warmup_steps:
        return factor * (start + (schedule.peak - start) * step / schedule.warmup_steps)
    if schedule.decay != "cosine":
        return factor * schedule.peak
    span = max(1, schedule.total_steps - schedule.warmup_steps)
    done = min(1.0, (step - schedule.warmup_steps) / span)
    return schedule.peak * 0.5 * (1 + math.cos(math.pi * done))


def watch_plateau(
    schedule: Schedule, *, step: int, loss: float | None, seen: Mapping[str, float | int | None]
) -> Seen:
    """Return what the plateau has seen after another epoch; its ``factor`` is for the next.

    During the warm-up nothing falls: a loss that rises with the rate is no plateau.

    Args:
        schedule: of the run.
        step: optimizer steps done.
        loss: over the validation films; None where there are none.
        seen: what this returned an epoch before, or nothing yet; to be kept with a checkpoint.
    """
    best, waited, factor = (seen.get(key) for key in ("best", "waited", "factor"))
    waited, factor = int(waited or 0), 1.0 if factor is None else float(factor)
    if schedule.decay == "plateau" and loss is not None:
        if best is None or loss < best:
            best, waited = loss, 0
        elif step > schedule.warmup_steps:
            waited += 1
            if waited >= PATIENCE_EPOCHS:
                waited, factor = 0, factor * PLATEAU_FACTOR
    return {"best": best, "waited": waited, "factor": factor}
