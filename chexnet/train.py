"""Training: the order of things in a run on any number of ranks.

Leaves the steps of an epoch to ``epochs``, the compiled step to ``step``, what crosses between
ranks to ``distributed``, the learning rate to ``schedule``, going on after a stop to
``resuming``, files to ``run`` and ``checkpoint``, and input to ``pipeline``.

Every rank takes the same number of steps in an epoch, so that no allreduce waits for a
rank that has none left.
"""

from __future__ import annotations

import dataclasses
import math
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from chexnet import distributed
from chexnet.checkpoint import list_checkpoints
from chexnet.config import TrainConfig
from chexnet.errors import UserError
from chexnet.evaluate import Predict, make_predict, score_split
from chexnet.input.fitting import MOST_INPUT_WAIT, advise_on_wait
from chexnet.labels import FINDINGS
from chexnet.metrics import Scores
from chexnet.model import build_model
from chexnet.networks.weights import NONE, find_weights
from chexnet.records import hash_file, load_dataset
from chexnet.run import begin_run, check_folder, fit_config, make_folder, settle_config
from chexnet.schedule import Seen, learning_rate, watch_plateau
from chexnet.signals import Interrupted, StopSignal
from chexnet.training.epochs import Steps, images_per_loss
from chexnet.training.horovod_settings import say_overruled
from chexnet.training.job import Job, make_job
from chexnet.training.journal import Journal
from chexnet.training.metrics_log import EPOCH
from chexnet.training.position import Position, summarize
from chexnet.training.resuming import resume as resume_run
from chexnet.training.run_lock import RunLock
from chexnet.training.run_record import (
    FAILED,
    FINISHED,
    INTERRUPTED,
    RunRecord,
    make_record,
    now,
    update_record,
)
from chexnet.training.saving import CheckpointWriter
from chexnet.training.step import Trainer
from chexnet.training.watch import Watch, describe_process

# A validation that takes longer does not wait for its end when a signal comes.
LONG_VALIDATION_S = 5.0


def train(
    data: Path,
    *,
    folder: Path,
    config: TrainConfig,
    resume: bool = False,
    environment: Path | None = None,
    plan: Path | None = None,
    command: Sequence[str] = (),
    import_s: float = 0.0,
    stop: StopSignal | None = None,
) -> None:
    """Train a network and leave a run folder behind; every rank calls this.

    Args:
        data: folder of prepared data.
        folder: the run folder.
        config: what to train.
        resume: continue from the newest whole checkpoint in ``folder``.
        environment: the validation report to keep with the run.
        plan: the binding plan, for the number of this rank's GPU.
        command: the command line, for the record.
        import_s: seconds spent before this call, for the record.
        stop: where a signal is remembered, by a context that the caller has entered.

    Raises:
        UserError: wrong data, folder or configuration; a loss that is not a number;
            a stop by signal.
    """
    ranks = distributed.start(config, folder=folder)
    device = distributed.select_device(config.device, ranks=ranks, plan=plan)
    dataset = load_dataset(data)
    asked = fit_config(config, dataset=dataset)
    with ExitStack() as stack:
        stack.enter_context(_graphs_as_written(device))
        job = make_job(
            folder, config=settle_config(asked, device=device), asked=asked, dataset=dataset,
            ranks=ranks, stop=stop or stack.enter_context(StopSignal()),
        )  # fmt: skip
        record = make_record(
            dataset,
            hosts=distributed.gather_objects(platform.node(), name="hosts"),
            device=device,
            command=command,
            horovod=distributed.describe_horovod(),
        )
        begin = partial(_begin, job, record=record, resume=resume, stack=stack,
                        kept={"environment": environment, "plan": plan})  # fmt: skip
        if not distributed.on_first(begin, name="begin"):
            job.reporter.say(f"finished before: {folder}")
            return
        stack.enter_context(job.reporter)
        stack.enter_context(_recorded(job))
        peers = distributed.gather_objects(describe_process(ranks.rank), name="peers")
        stack.enter_context(Watch(peers, rank=ranks.rank, folder=folder))
        _run(job, startup={"import": import_s})


@contextmanager
def _graphs_as_written(device: str) -> Iterator[None]:
    """Spare graphs TensorFlow's rewriting on CPUs: half of a first step, and no step is faster."""
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": device == "cpu"})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})


def _begin(
    job: Job, *, record: RunRecord, resume: bool, stack: ExitStack, kept: Mapping[str, Path | None]
) -> bool:
    """Take the run folder; return whether there is anything to do. Rank 0 only."""
    # Looked at first: nothing is written into a folder that is somebody else's.
    check_folder(job.folder, config=job.asked, data_sha256=record.data_sha256, resume=resume)
    make_folder(job.folder)
    stack.enter_context(RunLock(job.folder, say=job.reporter.say))
    weights = find_weights(job.config.model, _first_weights(job))
    if weights:
        record = dataclasses.replace(record, weights_sha256=hash_file(weights))
    return begin_run(job.folder, config=job.asked, record=record, resume=resume, **kept)


def _run(job: Job, *, startup: dict[str, float]) -> None:
    """Build, go on where the run is, train to the end."""
    for line in say_overruled(job.ranks.settings, config=job.config):
        job.reporter.say(line)
    trainer = _build(job, startup=startup)
    _stop_if_asked(job)
    begun = time.perf_counter()
    position, seen, first_step = resume_run(job, trainer)
    startup["broadcast"] = time.perf_counter() - begun
    _note(job, effective=describe_effective(job, trainer),
          position=summarize(position, steps_per_epoch=job.steps))  # fmt: skip
    if position.epoch >= job.config.epochs:
        job.reporter.say(f"all {job.config.epochs} epochs are done")
    else:
        _stop_if_asked(job)
        begun = time.perf_counter()
        trainer.trace()
        startup["trace"] = time.perf_counter() - begun
        _stop_if_asked(job)
        job.reporter.say(
            f"{job.config.model}, {trainer.model.count_params():,} weights, "
            f"{job.config.image_size} px; {job.ranks.size} ranks x batch {job.config.batch_size}, "
            f"{job.steps} steps an epoch, epochs {position.epoch + 1} to {job.config.epochs}"
        )
        with Journal(job.folder, enabled=job.ranks.is_first, first_step=first_step) as journal:
            Training(job, trainer, seen=seen, journal=journal, startup=startup).run(position)
    # Together: a rank that has left before this is written would pass for one that was lost.
    distributed.on_first(partial(_finish, job), name="finished")


def _stop_if_asked(job: Job) -> None:
    """End on every rank, before the first step, if a signal has come to any.

    Raises:
        Interrupted: a signal has come.
    """
    if job.is_asked_to_stop():
        raise job.stop.interrupt("before the first step of this start; what was done before stays")


def _finish(job: Job) -> None:
    _note(job, status=FINISHED, ended=now())
    job.reporter.say(f"finished: {job.folder}")


def _build(job: Job, *, startup: dict[str, float]) -> Trainer:
    """Return the trainer; every rank has the initial weights of its own still."""
    config, begun = job.config, time.perf_counter()
    keras.utils.set_random_seed(config.seed)
    model = build_model(
        config.model,
        input_size=config.crop_size,
        image_size=config.image_size,
        weights=_first_weights(job),
        batch_statistics=config.batch_statistics,
        batch_norm_momentum=config.batch_norm_momentum,
        precision=config.precision,
    )
    trainer = Trainer(model, config=config, films=job.dataset.splits["train"])
    startup["build"] = time.perf_counter() - begun
    return trainer


def _first_weights(job: Job) -> str:
    """Return what this rank's network begins from, as a configuration says it."""
    # The others get rank 0's by the broadcast, and a run that goes on has its own.
    if job.ranks.is_first and not list_checkpoints(job.checkpoints):
        return job.config.weights
    return NONE


class Training:
    """The epochs of a run: steps, validation, checkpoint, record."""

    def __init__(
        self,
        job: Job,
        trainer: Trainer,
        *,
        seen: Seen,
        journal: Journal,
        startup: dict[str, float],
    ) -> None:
        self._job = job
        self._seen = seen
        self._journal = journal
        self._trainer = trainer
        self._startup = startup
        self._writer = CheckpointWriter(
            job.checkpoints, enabled=job.ranks.is_first, keep_every=job.config.keep_every_epochs
        )
        self._predict = make_predict(trainer.model, input_size=job.config.crop_size)
        # Nobody knows yet how long it takes: the first can be stopped.
        self._validation_s = math.inf
        self._trained = Trained()

    def run(self, position: Position) -> None:
        """Train from a position to the last epoch."""
        job = self._job
        while position.epoch < job.config.epochs:
            steps = Steps(
                job, self._trainer, position=position, seen=self._seen, writer=self._writer,
                journal=self._journal, startup=self._startup,
            )  # fmt: skip
            begun, before = time.perf_counter(), position.examples
            # What is still in the window is nothing, but where other ranks went on near the end.
            position = steps.run().close_window()
            predict, is_long = self._predict, self._validation_s > LONG_VALIDATION_S
            if is_long:
                steps.save()
                predict = self._stoppable(predict)
            # Each rank's own films moved its statistics; evaluated and stored is their mean.
            distributed.average_variables(self._trainer.moving_statistics)
            validated = time.perf_counter()
            scores = _validate(job, predict)
            if is_long:  # before the scores are used: some films may have got none
                steps.stop_if_asked(f"in the validation of epoch {position.epoch + 1}")
            ended = time.perf_counter()
            self._validation_s = distributed.average_numbers([ended - validated], name="long")[0]
            self._trained.add(position.examples - before, seconds=ended - begun)
            position = self._finish_epoch(position, scores=scores)
        distributed.on_first(self._writer.finish, name="last")

    def _finish_epoch(self, position: Position, *, scores: Scores | None) -> Position:
        """Write metrics, checkpoint and record of an epoch; return the position after it."""
        job, after = self._job, position.close_epoch()
        auroc, loss = (scores.mean_auroc, scores.loss) if scores else (None, None)
        measured = position.whole.measure(images_per_batch=images_per_loss(job))
        step, seconds = after.step(job.steps), position.whole.seconds + self._validation_s
        factor = float(self._seen.get("factor") or 1.0)
        values = {
            "kind": EPOCH,
            "step": step,
            "epoch": after.epoch,
            "examples": after.examples,
            "lr": learning_rate(job.schedule, step=step - 1, factor=factor),
            "validation_auroc": auroc,
            "validation_loss": loss,
            "validation_num_defined": scores.num_defined if scores else 0,
            "seconds": seconds,
        }
        # Before the checkpoint: a run that goes on from it finds the line there.
        self._journal.add(values | measured)
        self._seen = watch_plateau(job.schedule, step=step, loss=loss, seen=self._seen)
        description = job.describe(after, seen=self._seen, auroc=auroc)
        self._writer.save(self._trainer, description=description)
        self._tell(after, measured=measured, auroc=auroc, seconds=seconds)
        return after

    def _tell(
        self, after: Position, *, measured: dict[str, float], auroc: float | None, seconds: float
    ) -> None:
        """Put an epoch into the record and before the user."""
        job = self._job
        _note(
            job,
            results={"epoch": after.epoch, "loss": measured["loss"], "validation_auroc": auroc},
            startup_s=self._startup,
            throughput=self._trained.measure(measured["images_per_s"]),
            position=summarize(after, steps_per_epoch=job.steps),
        )
        shown = "undefined" if auroc is None else f"{auroc:.4f}"
        job.reporter.say(
            f"epoch {after.epoch}/{job.config.epochs}  loss {measured['loss']:.4f}  validation "
            f"AUROC {shown}  {measured['images_per_s']:.1f} images/s  {seconds:.0f} s"
        )
        if measured["input_wait_fraction"] > MOST_INPUT_WAIT:
            job.reporter.say(advise_on_wait(measured["input_wait_fraction"], job.config.pipeline))

    def _stoppable(self, predict: Predict) -> Predict:
        """Return a prediction that answers 0 to what is left once a signal has come.

        Ranks predict unequal numbers of batches, so that they cannot ask each other before all
        are through.
        """

        def stoppable(images: tf.Tensor) -> tf.Tensor:
            if self._job.stop.received:
                return tf.zeros([images.shape[0], len(FINDINGS)])
            return predict(images)

        return stoppable


@dataclasses.dataclass
class Trained:
    """Films and seconds of this process's part of the run, validation included."""

    images: int = 0
    seconds: float = 0.0

    def add(self, images: int, *, seconds: float) -> None:
        """Count an epoch."""
        self.images += images
        self.seconds += seconds

    def measure(self, images_per_s: float) -> dict[str, float]:
        """Return the record's numbers; the given rate is that of the steps alone."""
        return {
            "images_per_s": images_per_s,
            "images_per_s_with_validation": self.images / max(self.seconds, 1e-9),
            "seconds": self.seconds,
        }


def describe_effective(job: Job, trainer: Trainer) -> dict[str, Any]:
    """Return what holds where the configuration left it open, for the record."""
    config = job.config
    return {
        "pipeline": config.pipeline,
        "crop_size": config.crop_size,
        "image_size": config.image_size,
        "steps_per_epoch": job.steps,
        "images_per_step": job.images_per_step,
        "peak_learning_rate": job.schedule.peak,
        "horovod": [dataclasses.asdict(setting) for setting in job.ranks.settings],
        **trainer.effective,
    }


def _validate(job: Job, predict: Predict) -> Scores | None:
    """Return the scores on the validation films; None where there are none."""
    if not job.dataset.splits["validation"].num_examples:
        return None
    return score_split(
        predict,
        dataset=job.dataset,
        split="validation",
        batch_size=job.config.batch_size,
        crop_px=job.config.crop_size,
        ranks=job.ranks,
    )


def _note(job: Job, **changes: object) -> None:
    """Change fields of the record, on rank 0."""
    if job.ranks.is_first:
        update_record(job.folder, **changes)


@contextmanager
def _recorded(job: Job) -> Iterator[None]:
    """Leave in the record why the run stopped, where it does; rank 0 only."""
    try:
        yield
    except BaseException as error:
        status = INTERRUPTED if isinstance(error, Interrupted) else FAILED
        with suppress(OSError, UserError):  # a full disk must not hide why
            _note(job, status=status, ended=now(), error=str(error) or repr(error))
        raise
