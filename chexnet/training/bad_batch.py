"""A loss that is not a number, or far too large: which films it came from.

Knows when a loss ends the training, and the file that names the films. Leaves measuring the
loss to ``epochs``.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from chexnet.errors import EXIT_FAILED, UserError, name_some
from chexnet.files import write_text
from chexnet.input.fast import name_films
from chexnet.run import BAD_BATCH
from chexnet.training.job import IN_ONE_ORDER, Job

SCHEMA_VERSION = 1
# A network that answers 1/2 to everything has the binary cross-entropy ln 2. A hundred times as
# much is no training any more.
MOST_LOSS = 100 * math.log(2)


@dataclass(frozen=True)
class BadLoss:
    """The first loss that ends the training.

    Attributes:
        step: optimizer step, counted from 0 within the call of `find_bad`.
        loss: of one rank at that step.
        rank: whose films they were.
    """

    step: int
    loss: float
    rank: int = 0


def find_bad(losses: np.ndarray) -> BadLoss | None:
    """Return the first loss that is not finite or above ``MOST_LOSS``; None without one.

    Args:
        losses: float [K], of one rank, in the order of the steps.
    """
    with np.errstate(invalid="ignore"):
        places = np.flatnonzero(~(np.abs(losses) <= MOST_LOSS))
    if not len(places):
        return None
    return BadLoss(int(places[0]), float(losses[places[0]]))


def refuse_losses(bad: list[BadLoss], *, job: Job, epoch: int, step: int, examples: int) -> None:
    """Name the films and stop; on all ranks, of which rank 0 writes ``bad-batch.json``.

    Args:
        bad: the first bad loss of each rank that had one, their steps counted from ``step``.
        job: the run.
        epoch: the epoch, from 1.
        step: steps of the run before the first that is looked at.
        examples: films of the run before that step.

    Raises:
        UserError: always.
    """
    first = min(one.step for one in bad)
    bad = [one for one in bad if one.step == first]
    number = step + first + 1
    batches = []
    for one in bad:
        for ago in (0, 1):
            films = _find_films(job, one, examples=examples, ago=ago)
            batches.append({"rank": one.rank, "step": number - ago, "films": films})
    kept = ""
    if job.ranks.is_first:
        kept = _write(job.folder, epoch=epoch, step=number, bad=bad, batches=batches)
    films = batches[0]["films"]
    told = f"films {name_some(films)}" if films else "films that this pipeline does not name"
    raise UserError(
        f"a loss that is a number, at most {MOST_LOSS:.0f}",
        found=f"{bad[0].loss} in epoch {epoch} at step {number}, rank {bad[0].rank}, of {told}"
        f"{kept}",
        fix="look at those films, lower learning_rate or lengthen warmup_epochs; the checkpoints "
        "of earlier steps are whole",
        exit_code=EXIT_FAILED,
    )


def _find_films(job: Job, bad: BadLoss, *, examples: int, ago: int) -> list[str]:
    """Return the names of a rank's films at the bad step or the one before.

    The weights that gave the loss came from the step before: its films may be the cause. Only
    of pipelines with one order for the whole run is it known which films a step takes.
    """
    step = bad.step - ago
    share = job.config.batch_size
    first = examples + step * job.images_per_step
    if job.config.pipeline not in IN_ONE_ORDER or first < 0:
        return []
    starts = range(first + bad.rank * share, first + job.images_per_step, job.ranks.size * share)
    return [
        name
        for start in starts
        for name in name_films(job.dataset, split="train", seed=job.config.seed, first=start,
                               count=share)
    ]  # fmt: skip


def _write(
    folder: Path, *, epoch: int, step: int, bad: list[BadLoss], batches: list[dict[str, object]]
) -> str:
    values = {
        "schema_version": SCHEMA_VERSION,
        "epoch": epoch,
        "step": step,
        # JSON knows no NaN.
        "losses": [{"rank": one.rank, "loss": str(one.loss)} for one in bad],
        "batches": batches,
    }
    try:
        write_text(folder / BAD_BATCH, text=json.dumps(values, indent=1) + "\n")
    except OSError as error:
        return f" ({BAD_BATCH} could not be written: {error.strerror})"
    return f"; all of them in {folder / BAD_BATCH}"
