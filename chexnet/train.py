"""Training: the order of things in a run on any number of ranks, and when it must stop.

Leaves the compiled step to ``step``, what crosses between ranks to ``distributed``, the
learning rate to ``schedule``, files to ``run`` and ``checkpoint``, and input to
``pipeline``.

Every rank takes the same number of steps in an epoch, so that no allreduce waits for a
rank that has none left. The films' order depends on seed, epoch and rank alone, so that a
resumed run sees what the uninterrupted one would have seen.
"""

from __future__ import annotations

import dataclasses
import math
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import keras

from chexnet import distributed, run
from chexnet.checkpoint import (
    Description,
    check_description,
    load_newest,
    restore,
    save_checkpoint,
)
from chexnet.config import TrainConfig
from chexnet.distributed import Ranks
from chexnet.errors import EXIT_FAILED, UserError
from chexnet.evaluate import Predict, make_predict, score_split
from chexnet.fitting import MOST_INPUT_WAIT, advise_on_wait
from chexnet.labels import FINDINGS
from chexnet.metrics import Scores
from chexnet.model import build_model
from chexnet.pipeline import make_pipeline, steps_per_epoch
from chexnet.progress import Reporter
from chexnet.records import Dataset, load_dataset, named_damage
from chexnet.run import CHECKPOINTS, fit_config, settle_config
from chexnet.schedule import Schedule, learning_rate, make_schedule
from chexnet.signals import Interrupted, StopSignal
from chexnet.step import Measured, Meter, Trainer
from chexnet.weights import find_normalisation

MOST_STEPS_A_WINDOW = 50
WINDOWS_AN_EPOCH = 4


@dataclasses.dataclass(frozen=True)
class Job:
    """What does not change during a run.

    Attributes:
        folder: the run folder.
        config: with the values that follow the data filled in.
        dataset: the prepared data.
        ranks: who this process is.
        steps: steps of an epoch, the same on every rank.
        schedule: the learning rate of every step.
        reporter: speaks on rank 0.
        stop: remembers signals.
    """

    folder: Path
    config: TrainConfig
    dataset: Dataset
    ranks: Ranks
    steps: int
    schedule: Schedule
    reporter: Reporter
    stop: StopSignal

    @property
    def images_per_step(self) -> int:
        """Return the films in one step of all ranks together."""
        return self.config.batch_size * self.ranks.size


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
) -> None:
    """Train a network and leave a run folder behind; every rank calls this.

    Args:
        data: folder of prepared data.
        folder: the run folder.
        config: what to train.
        resume: continue from the last complete epoch in ``folder``.
        environment: the validation report to keep with the run.
        plan: the binding plan, for the number of this rank's GPU.
        command: the command line, for the record.
        import_s: seconds spent before this call, for the record.

    Raises:
        UserError: wrong data, folder or configuration; a loss that is not a number;
            a stop by signal.
    """
    ranks = distributed.start(config, folder=folder)
    device = distributed.select_device(config.device, ranks=ranks, plan=plan)
    dataset = load_dataset(data)
    config = fit_config(config, dataset=dataset)
    record = run.make_record(
        dataset,
        hosts=distributed.gather_objects(platform.node(), name="hosts"),
        device=device,
        command=command,
        horovod=distributed.describe_horovod(),
    )
    is_new = distributed.on_first(
        lambda: run.begin_run(
            folder, config=config, record=record, resume=resume, environment=environment
        ),
        name="begin",
    )
    settled = settle_config(config, device=device)
    job = make_job(folder, config=settled, dataset=dataset, ranks=ranks)
    if not is_new:
        job.reporter.say(f"finished before: {folder}")
        return
    with job.stop, job.reporter, _recorded(job):
        startup = {"import": import_s}
        trainer, done = _build(job, startup=startup)
        _train_epochs(job, trainer, first_epoch=done + 1, startup=startup)


def make_job(folder: Path, *, config: TrainConfig, dataset: Dataset, ranks: Ranks) -> Job:
    """Return the job of a run: its number of steps and its schedule follow from these."""
    steps = steps_per_epoch(dataset, split="train", batch_size=config.batch_size, size=ranks.size)
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
    return Job(folder, config, dataset, ranks, steps, schedule, reporter, StopSignal())


def _build(job: Job, *, startup: dict[str, float]) -> tuple[Trainer, int]:
    """Return the trainer, the same on every rank, and the number of epochs it has done."""
    config, begun = job.config, time.perf_counter()
    keras.utils.set_random_seed(config.seed)
    model = build_model(
        config.model,
        input_size=config.crop_size,
        image_size=config.image_size,
        # The others get rank 0's by the broadcast.
        weights=config.weights if job.ranks.is_first else "none",
        batch_statistics=config.batch_statistics,
        batch_norm_momentum=config.batch_norm_momentum,
        precision=config.precision,
    )
    trainer = Trainer(model, config=config, films=job.dataset.splits["train"])
    startup["build"] = time.perf_counter() - begun
    begun = time.perf_counter()
    done = distributed.on_first(lambda: _restore(job, trainer), name="restore")
    distributed.broadcast_state(trainer.variables)
    startup["broadcast"] = time.perf_counter() - begun
    if done >= config.epochs:
        job.reporter.say(f"all {config.epochs} epochs are done")
        return trainer, done
    begun = time.perf_counter()
    trainer.trace()
    startup["trace"] = time.perf_counter() - begun
    job.reporter.say(
        f"{config.model}, {model.count_params():,} weights, {config.image_size} px; "
        f"{job.ranks.size} ranks x batch {config.batch_size}, {job.steps} steps an epoch, "
        f"epochs {done + 1} to {config.epochs}"
    )
    return trainer, done


def _restore(job: Job, trainer: Trainer) -> int:
    """Put the newest whole checkpoint into the trainer; return its epoch, 0 without one."""
    folder = job.folder / CHECKPOINTS
    checkpoint = load_newest(folder, say=job.reporter.say)
    if checkpoint is None:
        run.trim_metrics(job.folder, last_epoch=0)
        return 0
    found, where = checkpoint.description, str(checkpoint.path)
    check_description(
        found,
        where=where,
        model=job.config.model,
        findings=job.dataset.findings,
        normalisation=find_normalisation(job.config.model),
    )
    restore(checkpoint.model_values, variables=trainer.model.variables, where=where)
    restore(checkpoint.optimizer_values, variables=trainer.optimizer.variables, where=where)
    run.trim_metrics(job.folder, last_epoch=found.epoch)
    record = run.load_record(job.folder)
    if record:
        resumed = (*record.resumed_from, found.epoch)
        run.write_record(job.folder, record=dataclasses.replace(record, resumed_from=resumed))
    job.reporter.say(f"continuing after epoch {found.epoch}, from {where}")
    return found.epoch


def _train_epochs(
    job: Job, trainer: Trainer, *, first_epoch: int, startup: dict[str, float]
) -> None:
    predict = make_predict(trainer.model, input_size=job.config.crop_size)
    begun = time.perf_counter()
    for epoch in range(first_epoch, job.config.epochs + 1):
        epoch_begun = time.perf_counter()
        measured = _train_epoch(job, trainer, epoch=epoch, startup=startup)
        # Each rank's own films moved its statistics; evaluated and stored is their mean.
        distributed.average_variables(trainer.moving_statistics)
        scores = _validate(job, predict)
        if job.ranks.is_first:
            seconds = time.perf_counter() - epoch_begun
            _finish_epoch(job, trainer, epoch=epoch, measured=measured, scores=scores,
                          seconds=seconds)  # fmt: skip
            images = (epoch - first_epoch + 1) * job.steps * job.images_per_step
            total = time.perf_counter() - begun
            speeds = {
                "images_per_s": measured.images_per_s,
                "images_per_s_with_validation": images / total,
                "seconds": total,
            }
            _update_record(job, startup_s=startup, throughput=speeds)
    if job.ranks.is_first:
        _update_record(job, status=run.FINISHED, ended=run.now())
        job.reporter.say(f"finished: {job.folder}")


def _train_epoch(job: Job, trainer: Trainer, *, epoch: int, startup: dict[str, float]) -> Measured:
    """Take the steps of one epoch and return what was measured."""
    batches = iter(
        make_pipeline(
            job.dataset,
            split="train",
            name=job.config.pipeline,
            batch_size=job.config.batch_size,
            rank=job.ranks.rank,
            size=job.ranks.size,
            seed=job.config.seed,
            epoch=epoch,
            first_step=(epoch - 1) * job.steps,
            crop_px=job.config.crop_size,
        )
    )
    length = min(MOST_STEPS_A_WINDOW, math.ceil(job.steps / WINDOWS_AN_EPOCH))
    before = (epoch - 1) * job.steps
    whole, window = Meter(), Meter()
    with named_damage(job.dataset):
        for number in range(1, job.steps + 1):
            job.stop.check(f"in epoch {epoch}")
            step = before + number
            rate = learning_rate(job.schedule, step=step - 1)
            trainer.timed_step(batches, rate=rate, meters=[whole, window])
            startup.setdefault("first_step", window.seconds)
            job.reporter.show_step(step, epoch=epoch)
            if number % length == 0 or number == job.steps:
                _close_window(job, window, epoch=epoch, step=step, rate=rate)
                window = Meter()
    return whole.measure(images_per_step=job.images_per_step)


def _close_window(job: Job, window: Meter, *, epoch: int, step: int, rate: float) -> None:
    """Log some steps; stop on all ranks if their loss is not a number.

    Raises:
        UserError: the loss, averaged over the ranks, is not finite.
    """
    measured = window.measure(images_per_step=job.images_per_step)
    if not math.isfinite(measured.loss):
        raise UserError(
            "a loss that is a number",
            found=f"{measured.loss} in epoch {epoch}, at or before step {step}",
            fix="lower learning_rate or lengthen warmup_epochs; checkpoints of earlier epochs "
            "are whole",
            exit_code=EXIT_FAILED,
        )
    if job.ranks.is_first:
        values = {"kind": "steps", "step": step, "epoch": epoch, "lr": rate}
        run.append_metrics(job.folder, values=values | dataclasses.asdict(measured))
    job.reporter.show_window(
        f"loss {measured.loss:.4f}  {measured.images_per_s:.0f} images/s  "
        f"input wait {measured.input_wait_fraction:.0%}",
        where=f"epoch {epoch}  step {step}/{job.config.epochs * job.steps}",
    )


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


def _finish_epoch(
    job: Job,
    trainer: Trainer,
    *,
    epoch: int,
    measured: Measured,
    scores: Scores | None,
    seconds: float,
) -> None:
    """Write checkpoint, metrics and record of an epoch; rank 0 only."""
    auroc = scores.mean_auroc if scores else None
    step = epoch * job.steps
    description = _describe(job, epoch=epoch, auroc=auroc)
    save_checkpoint(
        job.folder / CHECKPOINTS,
        description=description,
        model=trainer.model.variables,
        optimizer=trainer.optimizer.variables,
    )
    values = {
        "kind": "epoch",
        "step": step,
        "epoch": epoch,
        "lr": learning_rate(job.schedule, step=step - 1),
        "validation_auroc": auroc,
        "validation_num_defined": scores.num_defined if scores else 0,
        "seconds": seconds,
    }
    run.append_metrics(job.folder, values=values | dataclasses.asdict(measured))
    _update_record(job, results={"epoch": epoch, "loss": measured.loss, "validation_auroc": auroc})
    shown = "undefined" if auroc is None else f"{auroc:.4f}"
    job.reporter.say(
        f"epoch {epoch}/{job.config.epochs}  loss {measured.loss:.4f}  "
        f"validation AUROC {shown}  {measured.images_per_s:.1f} images/s  {seconds:.0f} s"
    )
    if measured.input_wait_fraction > MOST_INPUT_WAIT:
        job.reporter.say(advise_on_wait(measured.input_wait_fraction, job.config.pipeline))


def _describe(job: Job, *, epoch: int, auroc: float | None) -> Description:
    """Return what the checkpoint of an epoch says about itself."""
    return Description(
        epoch=epoch,
        step=epoch * job.steps,
        model=job.config.model,
        data_size=job.dataset.image_size,
        input_size=job.config.crop_size,
        image_size=job.config.image_size,
        precision=job.config.precision,
        findings=FINDINGS,
        normalisation=find_normalisation(job.config.model),
        config_sha256=job.config.sha256,
        validation_auroc=auroc,
    )


def _update_record(job: Job, **changes: object) -> None:
    """Change fields of the record; rank 0 only."""
    record = run.load_record(job.folder)
    if record:
        run.write_record(job.folder, record=dataclasses.replace(record, **changes))


@contextmanager
def _recorded(job: Job) -> Iterator[None]:
    """Leave in the record why the run stopped, where it does; rank 0 only."""
    try:
        yield
    except BaseException as error:
        status = "interrupted" if isinstance(error, Interrupted) else "failed"
        with suppress(OSError):  # a full disk must not hide why
            if job.ranks.is_first:
                _update_record(job, status=status, ended=run.now(), error=str(error) or repr(error))
        raise
