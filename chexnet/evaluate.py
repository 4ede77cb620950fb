"""Evaluation of a run on one side of the data, over all ranks.

Knows the order of the work: load, predict, compare with boxes, judge, write. Leaves
predictions to ``predictions``, what they are worth to ``evaluation`` and which network it is to
``loading``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import tensorflow as tf
from rich.console import Console

from chexnet import distributed
from chexnet.counter import Counter
from chexnet.distributed import Ranks
from chexnet.errors import UserError, unknown_name
from chexnet.files import make_folder_of
from chexnet.metrics import Scores
from chexnet.networks.loading import BEST, LAST, Loaded, check_films, is_own, load_run
from chexnet.prediction.gallery import write_gallery
from chexnet.prediction.heatmaps import make_heatmaps
from chexnet.progress import Reporter
from chexnet.records import Dataset, hash_file, load_dataset
from chexnet.results.agreement import BoxList, find_boxes, measure_agreement, summarise
from chexnet.results.calibration import (
    NONE,
    Calibration,
    check_method,
    fit_calibration,
    load_calibration,
    write_calibration,
)
from chexnet.results.evaluation import (
    TEST,
    VALIDATION,
    Assessed,
    assess,
    evaluation_path,
    name_films,
    score,
    write_evaluation,
)
from chexnet.results.evaluation_text import print_evaluation
from chexnet.results.intervals import FEWEST_DEFINED, Bootstrap
from chexnet.results.overlap import Overlap, caution, find_data, find_overlap
from chexnet.results.predictions import (
    Predict,
    Predictions,
    make_predict,
    predict_split,
    write_predictions,
)
from chexnet.results.published import check_beside, compare, our_films
from chexnet.run import load_run_config


@dataclass(frozen=True)
class Request:
    """What the user asked of ``evaluate``.

    Attributes:
        split: ``train``, ``validation`` or ``test``.
        data: the data folder; None for the one that the run was trained on.
        checkpoint: ``best``, ``last`` or a file.
        calibrate: ``temperature``, ``platt`` or ``none``; None for what is stored beside the
            checkpoint, if there is something.
        bootstrap: how intervals are made.
        boxes: NIH's list of boxes; None for the one in the data folder, if there is one.
        method: of the heat maps, ``cam`` or ``gradcam``.
        gallery: draw the heat-map gallery of the run; None does so for its own test films alone.
        beside: a published result that must stand beside ours; empty for those that may.
        as_json: print the evaluation as JSON instead of tables.
        plan: the launcher's binding plan.
        device: ``auto``, ``gpu`` or ``cpu``; None for that of the run's configuration.
    """

    split: str = TEST
    data: Path | None = None
    checkpoint: str = BEST
    calibrate: str | None = None
    bootstrap: Bootstrap = field(default_factory=Bootstrap)
    boxes: Path | None = None
    method: str = "cam"
    gallery: bool | None = None
    beside: str = ""
    as_json: bool = False
    plan: Path | None = None
    device: str | None = None

    def words(self) -> list[str]:
        """Return the options that decide what evaluation.json holds, where not the default."""
        values = {
            "split": self.split, "data": self.data, "checkpoint": self.checkpoint,
            "calibrate": self.calibrate, "boxes": self.boxes, "beside": self.beside,
            "method": self.method, "resamples": self.bootstrap.resamples,
            "seed": self.bootstrap.seed, "device": self.device,
        }  # fmt: skip
        plain = Request()
        usual = {
            "split": plain.split, "checkpoint": plain.checkpoint, "beside": plain.beside,
            "method": plain.method, "resamples": plain.bootstrap.resamples,
            "seed": plain.bootstrap.seed,
        }  # fmt: skip
        said = {key: value for key, value in values.items() if value != usual.get(key)}
        words = [word for key, value in said.items() for word in (f"--{key}", str(value))]
        gallery = {None: [], True: ["--gallery"], False: ["--no-gallery"]}
        return words + gallery[self.gallery]


@dataclass(frozen=True)
class _Work:
    """What an evaluation works on and with."""

    run: Path
    request: Request
    ranks: Ranks
    dataset: Dataset
    loaded: Loaded
    overlap: Overlap
    reporter: Reporter
    say: Callable[[str], None]

    @property
    def crop_px(self) -> int:
        return self.loaded.description.input_size

    @property
    def other(self) -> str:
        """Return the hash of the data where they are not the run's own; else nothing."""
        return "" if self.overlap.own else self.dataset.sha256

    def count(self, label: str, *, total: int) -> Counter:
        return Counter(label, total=total, enabled=self.ranks.is_first, bar=self.reporter.terminal)


def evaluate(run: Path, *, request: Request) -> dict[str, Any]:
    """Evaluate a checkpoint of a run; every rank calls this.

    Rank 0 writes the evaluation, the predictions and, where it is asked for, a calibration and
    the gallery.

    Args:
        run: the run folder.
        request: what is asked for.

    Returns:
        What evaluation.json holds; empty on the other ranks.

    Raises:
        UserError: no run, checkpoint or data there, they do not fit each other, or something
            was asked for that cannot be had.
    """
    config = load_run_config(run)
    ranks = distributed.start()
    device = _select_device(request.device or config.device, plan=request.plan, ranks=ranks)
    if ranks.is_first:
        make_folder_of(evaluation_path(run))  # before anything is computed
    dataset = load_dataset(request.data or find_data(run))
    _check_request(request, dataset=dataset)
    overlap = distributed.on_first(
        partial(
            find_overlap, run, dataset=dataset, split=request.split,
            chosen=request.data is not None,
        ),
        name="overlap",
    )  # fmt: skip
    _check_overlap(run, request=request, overlap=overlap)
    reporter = Reporter(enabled=ranks.is_first)
    say = _say_aside if request.as_json and ranks.is_first else reporter.say
    if not overlap.own:
        say(f"note: {dataset.root} is not what the run was trained on")
    boxes = find_boxes(request.boxes, dataset=dataset, split=request.split)
    if boxes.there and not boxes.placed:
        say(f"no film of the split {request.split} has a box in {boxes.file}")
    loaded = load_run(run, checkpoint=request.checkpoint, device=device, say=say)
    check_films(loaded.description, dataset=dataset, where=loaded.path)
    work = _Work(run, request, ranks, dataset, loaded, overlap, reporter, say)
    predict = make_predict(loaded.model, input_size=work.crop_px)
    predictions = _predict(work, predict, split=request.split)
    agreement = _compare_boxes(work, boxes)
    validation = predictions if request.split == VALIDATION else None
    if validation is None and dataset.splits[VALIDATION].num_examples:
        validation = _predict(work, predict, split=VALIDATION)
    if not ranks.is_first:
        return {}
    return _finish(work, predictions=predictions, validation=validation, boxes=agreement)


def score_split(
    predict: Predict,
    *,
    dataset: Dataset,
    split: str,
    batch_size: int,
    ranks: Ranks,
    crop_px: int = 0,
) -> Scores:
    """Return areas and loss of a split; each rank predicts its share, all get the result.

    Arguments and errors as `predictions.predict_split`.
    """
    return score(
        predict_split(
            predict, dataset=dataset, split=split, batch_size=batch_size, ranks=ranks,
            crop_px=crop_px,
        )
    )  # fmt: skip


_say_aside = partial(print, file=sys.stderr, flush=True)


def _predict(work: _Work, predict: Predict, *, split: str) -> Predictions:
    share = -(-work.dataset.splits[split].num_examples // work.ranks.size)
    with work.count(f"{split} films predicted", total=share) as counter:
        return predict_split(
            predict, dataset=work.dataset, split=split, ranks=work.ranks,
            batch_size=work.loaded.config.batch_size, crop_px=work.crop_px, progress=counter,
        )  # fmt: skip


def _compare_boxes(work: _Work, boxes: BoxList) -> dict[str, Any] | None:
    """Return how heat maps agree with the boxes on films of the split; None without any."""
    if not boxes.placed:
        return None
    request, placed = work.request, boxes.placed
    share = -(-len({box.film for box in placed}) // work.ranks.size)
    with work.count("films with boxes", total=share) as counter:
        measured = measure_agreement(
            make_heatmaps(work.loaded.model, method=request.method), placed=placed,
            dataset=work.dataset, split=request.split, crop_px=work.crop_px, ranks=work.ranks,
            progress=counter,
        )  # fmt: skip
    return summarise(measured, placed=placed, file=boxes.file, method=request.method)


def _finish(
    work: _Work,
    *,
    predictions: Predictions,
    validation: Predictions | None,
    boxes: dict[str, Any] | None,
) -> dict[str, Any]:
    """Judge the predictions, write what is to be written and show it; rank 0 only."""
    run, request, loaded = work.run, work.request, work.loaded
    calibration = _calibrate(work, validation)
    assessed = Assessed(predictions, validation, calibration, request.bootstrap)
    with work.count("resamples", total=request.bootstrap.resamples) as counter:
        judged = assess(assessed, progress=counter)
    values = _describe(work, predictions) | judged | {"boxes": boxes}
    probabilities = calibration.probabilities(predictions.logits)
    tables = write_predictions(
        run, predictions=predictions, probabilities=probabilities,
        films=name_films(request.split, other=work.other),
    )  # fmt: skip
    path = write_evaluation(run, values=values, other=work.other)
    if request.as_json:
        print(json.dumps(json.loads(path.read_text(encoding="utf-8")), indent=1))
    else:
        # mpirun gives ranks a terminal of its own making, wherever the output goes.
        console = Console(force_terminal=work.reporter.terminal)
        print_evaluation(values, console=console, where=f"{run}, {loaded.path.name}")
    work.say(f"wrote {path} and {tables.name}")
    is_result = request.split == TEST and work.overlap.own
    if request.gallery if request.gallery is not None else is_result:
        pictures = write_gallery(
            run, model=loaded.model, dataset=work.dataset, split=request.split,
            names=predictions.names, labels=predictions.labels, probabilities=probabilities,
            checkpoint_sha256=values["checkpoint_sha256"], crop_px=work.crop_px,
            method=request.method, calibrated=calibration.method != NONE,
        )  # fmt: skip
        work.say(f"drew {len(pictures)} heat maps in {run / 'plots'}")
    return values


def _calibrate(work: _Work, validation: Predictions | None) -> Calibration:
    """Return the calibration: fitted on validation and stored, or what was stored before."""
    method, path = work.request.calibrate, work.loaded.path
    if method is None:
        return load_calibration(path) or Calibration()
    calibration = Calibration()
    if method != NONE and validation is not None:
        calibration = fit_calibration(validation.labels, logits=validation.logits, method=method)
    written = write_calibration(calibration, checkpoint=path)
    work.say(f"wrote {written}: probabilities of {path.name} are calibrated by: {method}")
    return calibration


def _describe(work: _Work, predictions: Predictions) -> dict[str, Any]:
    """Return what evaluation.json says of what was evaluated."""
    request, path = work.request, work.loaded.path
    if request.checkpoint not in (BEST, LAST) and is_own(path, run=work.run):
        request = replace(request, checkpoint=path.name)  # so that it holds for a new run
    films = our_films(work.dataset, split=predictions.split)
    same, refused = compare(films, caution=caution(work.overlap.patients))
    return {
        "request": request.words(),
        "split": predictions.split,
        "split_kind": work.dataset.split,
        "split_title": films.title,
        "data": str(work.dataset.root),
        "data_sha256": work.dataset.sha256,
        "trained_on_patients": work.overlap.patients,
        "checkpoint": path.name,
        "checkpoint_sha256": hash_file(path),
        "epoch": work.loaded.description.epoch,
        "ranks": work.ranks.size,
        "published": {"comparable": [one.describe() for one in same], "refused": refused},
        "seconds": predictions.seconds,
        "images_per_s": len(predictions.names) / predictions.seconds,
    }


def _check_request(request: Request, *, dataset: Dataset) -> None:
    """Refuse what cannot be had, before anything is computed."""
    if request.split not in dataset.splits:
        raise unknown_name("split", request.split, known=dataset.splits)
    check_beside(request.beside, films=our_films(dataset, split=request.split))
    if 0 < request.bootstrap.resamples < FEWEST_DEFINED:
        raise UserError(
            f"at least {FEWEST_DEFINED} resamples, or 0 for no intervals",
            found=str(request.bootstrap.resamples),
            fix="leave --resamples out for 1000",
        )
    if request.calibrate is not None:
        check_method(request.calibrate)
        if request.calibrate != NONE and not dataset.splits[VALIDATION].num_examples:
            raise UserError(
                "validation films, to fit a calibration on",
                found=f"none in {dataset.root}",
                fix="leave --calibrate out, or prepare the data again from more patients",
            )


def _check_overlap(run: Path, *, request: Request, overlap: Overlap) -> None:
    """Refuse what needs films of patients whom the run has not seen.

    Raises:
        UserError: a calibration would be fitted on other films than the run's validation, or a
            published result stand beside a score of patients who were trained on.
    """
    if request.calibrate not in (None, NONE) and not overlap.own:
        raise UserError(
            f"the validation films of the run in {run}, to fit a calibration on",
            found=f"other data in {request.data}, where patients may be whom it was trained on",
            fix="calibrate without --data, then evaluate with it: the calibration is kept",
        )
    seen = caution(overlap.patients)
    if request.beside and seen:
        raise UserError(
            "films of patients whom the run has not seen, to show published results beside",
            found=seen,
            fix="leave --beside out, or evaluate on the run's own data",
        )


def _select_device(device: str, *, plan: Path | None, ranks: Ranks) -> str:
    """Take a device, and return which; `auto` is a GPU where there is one: a score needs none.

    Raises:
        UserError: as `distributed.select_device`.
    """
    if device == "auto":
        device = "gpu" if tf.config.list_physical_devices("GPU") else "cpu"
    try:
        return distributed.select_device(device, ranks=ranks, plan=plan)
    except UserError as error:  # its fix is that of a training
        fix = error.fix.replace("--set device=cpu", "--device cpu")
        raise UserError(
            error.expected, found=error.found, fix=fix, exit_code=error.exit_code
        ) from error
