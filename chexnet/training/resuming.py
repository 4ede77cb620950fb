"""Going on where a run stopped: its state, its place among the films, its log.

Knows what differs on another number of ranks. Leaves reading a checkpoint to ``checkpoint``
and the steps to ``epochs``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from chexnet import distributed
from chexnet.checkpoint import Checkpoint, check_description, load_newest, restore
from chexnet.errors import UserError
from chexnet.networks.weights import find_normalisation
from chexnet.schedule import Seen
from chexnet.training.job import IN_ONE_ORDER, Job
from chexnet.training.metrics_log import trim_metrics
from chexnet.training.optimizer import NUM_SCALING, Optimizer
from chexnet.training.position import Position, summarize
from chexnet.training.run_record import load_record, write_record
from chexnet.training.saving import set_statistics
from chexnet.training.step import Trainer


def resume(job: Job, trainer: Trainer) -> tuple[Position, Seen, int]:
    """Give every rank the state of the newest whole checkpoint; every rank calls this.

    Returns:
        Where the run is, its beginning where there is no checkpoint; what the plateau of the
        learning rate has seen; and the steps so far, as those ranks counted them that took them.

    Raises:
        UserError: every checkpoint is damaged, or of another network.
    """
    position, seen, steps, statistics = distributed.on_first(
        lambda: _restore(job, trainer), name="restore"
    )
    distributed.broadcast_state(trainer.variables)
    if statistics is not None:
        set_statistics(trainer, values=statistics[job.ranks.rank])
    fitted = position.fit(images_per_step=job.images_per_step, steps_per_epoch=job.steps)
    return fitted, seen, steps


def _restore(job: Job, trainer: Trainer) -> tuple[Position, Seen, int, np.ndarray | None]:
    """Return the position, what the plateau has seen, steps, and each rank's moving statistics.

    These only where there are as many ranks as before; else all begin with their mean.
    """
    checkpoint = load_newest(job.checkpoints, say=job.reporter.say)
    if checkpoint is None:
        trim_metrics(job.folder, position=Position())
        return Position(), {}, 0, None
    found, where = checkpoint.description, str(checkpoint.path)
    check_description(
        found,
        where=where,
        model=job.config.model,
        findings=job.dataset.findings,
        normalisation=find_normalisation(job.config.model),
    )
    restore(checkpoint.model_values, variables=trainer.model.variables, where=where)
    _restore_optimizer(checkpoint, job=job, optimizer=trainer.optimizer)
    trim_metrics(job.folder, position=found.position)
    record = load_record(job.folder)
    if record:
        entry = {
            "epoch": found.epoch,
            "step": found.step,
            "examples": found.position.examples,
            "ranks": found.ranks,
        }
        write_record(job.folder, record=replace(record, resumed_from=(*record.resumed_from, entry)))
    _tell(job, checkpoint)
    statistics = checkpoint.rank_values if found.ranks == job.ranks.size else None
    return found.position, found.schedule_state, found.step, statistics


def _restore_optimizer(checkpoint: Checkpoint, *, job: Job, optimizer: Optimizer) -> None:
    """Give the optimizer its state; the loss scale only where both have one.

    ``precision=auto`` is mixed_float16 on a GPU and float32 on a CPU, so that a run which goes on
    elsewhere may gain or lose it.
    """
    values, where = checkpoint.optimizer_values, str(checkpoint.path)
    adam, scaling = optimizer.adam_variables, optimizer.scaling_variables
    theirs = values[len(adam) :]
    if len(theirs) not in (0, NUM_SCALING):
        raise UserError(
            f"{len(adam)} variables of Adam, and {NUM_SCALING} or none of a loss scale, in {where}",
            found=str(len(values)),
            fix="use the configuration and the program version that wrote it",
        )
    restore(values[: len(adam)], variables=adam, where=where)
    if theirs and scaling:
        restore(theirs, variables=scaling, where=where)
    before, now = checkpoint.description.precision, job.config.precision
    if before != now:
        scale = "" if bool(theirs) == bool(scaling) else (
            ", with a loss scale from the start" if scaling else ", without a loss scale"
        )  # fmt: skip
        job.reporter.say(f"in {now} what was begun in {before}{scale}")


def _tell(job: Job, checkpoint: Checkpoint) -> None:
    found = checkpoint.description
    within = f" and {found.position.epoch_step} steps" if found.position.epoch_step else ""
    job.reporter.say(f"continuing after epoch {found.epoch}{within}, from {checkpoint.path}")
    if found.ranks == job.ranks.size:
        return
    here = found.position.fit(images_per_step=job.images_per_step, steps_per_epoch=job.steps)
    films = (
        "every film still comes once an epoch" if job.config.pipeline in IN_ONE_ORDER
        else "the films of this epoch are shared out anew, and some come twice or not at all"
    )  # fmt: skip
    job.reporter.say(
        f"on {job.ranks.size} ranks what {found.ranks} began: {job.steps} steps an epoch, here "
        f"step {summarize(here, steps_per_epoch=job.steps)['step']}; the learning rate rises to "
        f"{job.schedule.peak:g}; {films}"
    )
