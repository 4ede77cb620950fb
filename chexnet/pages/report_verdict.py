"""The first lines of a page: the score, of which films, and what it may be compared with.

Knows the difference between a result on NIH's official test list, another test split and films
that were trained or chosen with. Leaves numbers to ``report_scores``.
"""

from __future__ import annotations

from dataclasses import dataclass

from chexnet.pages.report_data import RunFolder
from chexnet.pages.report_scores import OFFICIAL_TEST_FILMS, Evaluation, number
from chexnet.pages.report_text import show_count, show_interval, show_score

NOT_CLINICAL = "Not for clinical use."
GOOD, CAUTION, BAD, PLAIN = "good", "caution", "bad", "plain"


@dataclass(frozen=True)
class Tag:
    """A word or two with a colour: ``good``, ``caution``, ``bad`` or ``plain``."""

    text: str
    kind: str


@dataclass(frozen=True)
class Verdict:
    """What a reader must know first.

    Attributes:
        score: the mean AUROC as text; a dash where there is none.
        interval: its interval as text, empty where there is none.
        films: on which films.
        comparable: what it may and may not be compared with.
        tags: state of the run, kind of split, machine, calibration.
    """

    score: str
    interval: str
    films: str
    comparable: str
    tags: tuple[Tag, ...]


def judge(folder: RunFolder) -> Verdict:
    """Return the first lines of a run's page."""
    main = choose_main(folder)
    tags = [_tag_status(folder)]
    tags += [*_tag_split(main), *_tag_origin(folder, main)] if main else []
    tags += _tag_machine(folder)
    if main is None:
        return Verdict("–", "", _describe_unscored(folder), "", tuple(tags))
    if any(one.calibration for one in main.findings) or main.calibration:
        tags.append(Tag("probabilities calibrated", GOOD) if main.is_calibrated
                    else Tag("probabilities not calibrated", CAUTION))  # fmt: skip
    interval = ""
    if main.mean_interval:
        by = main.bootstrap.get("by", "patient")
        interval = f"{main.level} % interval {show_interval(main.mean_interval)}, by {by}"
    return Verdict(
        score=show_score(main.mean_auroc),
        interval=interval,
        films=describe_films(main),
        comparable=describe_split(main),
        tags=tuple(tags),
    )


def choose_main(folder: RunFolder) -> Evaluation | None:
    """Return the evaluation that a page is about: of test films; None where there is none.

    What was measured on validation or training films is shown, but never as the result.
    """
    return next((one for one in folder.evaluations if one.split == "test"), None)


def is_of_other_data(one: Evaluation, *, folder: RunFolder) -> bool:
    """Return whether an evaluation is of other data than the run was trained on."""
    own = str(folder.record.get("data_sha256") or "")
    return bool(own and one.data_sha256) and one.data_sha256 != own


def caution_gallery(folder: RunFolder, main: Evaluation | None) -> str:
    """Return what a reader must know where heat maps are not of what was scored; else nothing."""
    if main is None:
        return ""
    pairs = {
        "another checkpoint than the scores": ("checkpoint_sha256", main.checkpoint_sha256),
        "other data than the scores": ("data_sha256", main.data_sha256),
    }
    told = [
        what for what, (key, known) in pairs.items()
        if known and folder.gallery.get(key, known) != known
    ]  # fmt: skip
    return f"These pictures are of {' and of '.join(told)}." if told else ""


def describe_films(one: Evaluation) -> str:
    """Return how many films of which split were scored."""
    patients = f" of {show_count(one.num_patients)} patients" if one.num_patients else ""
    mean = "" if one.num_defined == len(one.findings) else (
        f"; mean of the {one.num_defined} findings of {len(one.findings)} that have an AUROC"
    )  # fmt: skip
    return f"on {show_count(one.num_examples)} {one.split} films{patients}{mean}"


def describe_split(one: Evaluation) -> str:
    """Return what a score on this split may be compared with."""
    if reason := _tell_why_no_result(one):
        return reason
    if one.is_official_test:
        return "NIH's official test list: comparable with results on that list, and no other split."
    if one.split_kind == "official":
        return (
            "The test list that lay beside the films. NIH's own has "
            f"{show_count(OFFICIAL_TEST_FILMS)} films: not comparable with results on that list."
        )
    kind = {"patient": "A split by patient, drawn here", "lists": "Lists of the user's own",
            "records": "A split that came with record files"}  # fmt: skip
    told = kind.get(one.split_kind, f"Split {one.split_kind}")
    return f"{told}: not comparable with results on NIH's official test list."


def _tell_why_no_result(one: Evaluation) -> str:
    if one.split == "validation":
        return "Validation films chose the checkpoint: this is no result."
    if one.split == "train":
        return "These films were trained on: this is no result."
    if one.trained_on_patients is None:
        return "Whether patients of these films were trained on cannot be told: no result yet."
    if one.trained_on_patients:
        return "Patients of these films were trained on: this is no result."
    return ""


def _describe_unscored(folder: RunFolder) -> str:
    ends = folder.metrics.curve("epoch", "validation_auroc")
    if not ends:
        return "no test films were scored yet"
    epoch, best = max(ends, key=lambda end: end[1])
    return (
        f"no test films were scored yet; on validation films, which choose the checkpoint, "
        f"{best:.3f} after epoch {round(epoch)}"
    )


def _tag_status(folder: RunFolder) -> Tag:
    status = str(folder.record.get("status", "unknown"))
    kind = {"finished": GOOD, "failed": BAD, "interrupted": CAUTION, "running": CAUTION}
    return Tag(f"training {status}", kind.get(status, PLAIN))


def _tag_split(one: Evaluation) -> list[Tag]:
    trained = one.trained_on_patients
    if one.is_official_test:
        tags = [Tag("official test list", PLAIN if trained != 0 else GOOD)]
    else:
        tags = [Tag("not NIH's official test list", CAUTION)]
    if trained is None:
        tags.append(Tag("whether patients were trained on cannot be told", CAUTION))
    elif trained:
        were = "1 patient was" if trained == 1 else f"{show_count(trained)} patients were"
        tags.append(Tag(f"{were} trained on", CAUTION))
    return tags


def _tag_origin(folder: RunFolder, one: Evaluation) -> list[Tag]:
    """Return a tag for data or a checkpoint that are not the run's own or its best."""
    tags = []
    if is_of_other_data(one, folder=folder):
        tags.append(Tag("scored on other data than the run's", CAUTION))
    best = _find_best_epoch(folder)
    if None not in (best, one.epoch) and best != one.epoch:
        tags.append(Tag(f"scored after epoch {one.epoch}, and {best} is the best", CAUTION))
    return tags


def _find_best_epoch(folder: RunFolder) -> object:
    """Return the epoch whose checkpoint is the best: the older of equals; None without any."""
    ends = [one for one in folder.metrics.epochs if number(one.get("validation_auroc")) is not None]
    return max(ends, key=lambda one: one["validation_auroc"], default={}).get("epoch")


def _tag_machine(folder: RunFolder) -> list[Tag]:
    if not folder.environment:
        return [Tag("machine not validated", CAUTION)]
    code = folder.environment.get("exit_code")
    if code == 0:
        return [Tag("machine validated", GOOD)]
    if code == 1:
        return [Tag("machine failed a check", BAD)]
    return [Tag("machine: a check could not tell", CAUTION)]
