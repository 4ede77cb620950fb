"""Published results, and which of them may stand beside ours.

Knows the results (``published.toml``), the films that each was measured on, and what a split
of ours is called. Leaves the tables to their callers.

A split moves the mean AUROC by more than networks differ: so a result on other films is
refused, with the reason, and never shown in the same table.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from chexnet.errors import UserError, name_some, unknown_name
from chexnet.records import Dataset

PUBLISHED = Path(__file__).with_name("published.toml")
OFFICIAL_TEST_FILMS = 25_596  # NIH's test_list.txt
OFFICIAL_TRAIN_VAL_FILMS = 86_524  # NIH's train_val_list.txt

_DIVIDED = {
    "patient": "divided by patient",
    "lists": "the user's lists",
    "records": "as the records were divided",
}


@dataclass(frozen=True)
class Films:
    """The films that something was measured on.

    Attributes:
        title: what they are, in words.
        split: ``train``, ``validation`` or ``test``; empty where nobody else can have them.
        kind: how they were divided, as `Dataset.split`.
        num_examples: how many they are.
    """

    title: str
    split: str = ""
    kind: str = ""
    num_examples: int = 0

    def same(self, other: Films) -> bool:
        """Return whether two results on these may be compared."""
        mine = (self.split, self.kind, self.num_examples)
        return bool(self.split) and mine == (other.split, other.kind, other.num_examples)


@dataclass(frozen=True)
class Result:
    """A published result.

    Attributes:
        work: author and year.
        network: what was trained.
        mean_auroc: over the 14 findings.
        films: what it was measured on.
        source: where the number was read.
        px: height and width of the films; None where it is not told.
        findings: AUROC by finding, where published.
    """

    work: str
    network: str
    mean_auroc: float
    films: Films
    source: str
    px: int | None = None
    findings: Mapping[str, float] = field(default_factory=dict)

    def describe(self) -> dict[str, Any]:
        """Return what evaluation.json says of it."""
        return {key: value for key, value in asdict(self).items() if key != "films"}


def load_published() -> tuple[Result, ...]:
    """Return the published results."""
    data = tomllib.loads(PUBLISHED.read_text(encoding="utf-8"))
    films = {name: Films(**values) for name, values in data["films"].items()}
    return tuple(Result(**one | {"films": films[one["films"]]}) for one in data["result"])


def our_films(dataset: Dataset, *, split: str) -> Films:
    """Return what films a split of prepared data holds.

    They are called NIH's official list only where they are all there: after films were left
    out, or of data in NIH's layout that is not NIH's, a result is not comparable.
    """
    number = dataset.splits[split].num_examples
    if dataset.split != "official":
        title = f"{split}, {_DIVIDED[dataset.split]} ({number:,} films)"
    elif split == "test":
        whole = number == OFFICIAL_TEST_FILMS
        title = (
            f"test, NIH's official list ({number:,} films)" if whole
            else f"test, official lists, {number:,} of {OFFICIAL_TEST_FILMS:,} films"
        )  # fmt: skip
    else:
        both = sum(dataset.splits[name].num_examples for name in ("train", "validation"))
        whose = "NIH's" if both == OFFICIAL_TRAIN_VAL_FILMS else "the"
        title = f"{split}, {number:,} films out of {whose} train_val list"
    return Films(title, split, dataset.split, number)


def compare(films: Films, *, caution: str = "") -> tuple[tuple[Result, ...], str]:
    """Return the published results on the same films, and why the others are not shown.

    Args:
        films: what ours is measured on.
        caution: what forbids every comparison, such as patients who were trained on.
    """
    if caution:
        return (), f"no published results are shown: {caution}"
    results = load_published()
    same = tuple(result for result in results if result.films.same(films))
    others: dict[str, list[str]] = {}
    for result in results:
        if result not in same:
            others.setdefault(result.films.title, []).append(result.work)
    parts = [f"on {title}: {name_some(works, most=3)}" for title, works in others.items()]
    return same, f"not shown beside {films.title}, for they are {'; '.join(parts)}"


def check_beside(work: str, *, films: Films) -> None:
    """Refuse to show a published result beside ours where it is on other films.

    Args:
        work: name of a result, or empty for those that may.
        films: what ours is measured on.

    Raises:
        UserError: it is unknown, or on other films; says on which.
    """
    if not work:
        return
    results = {result.work: result for result in load_published()}
    if work not in results:
        raise unknown_name("published result", work, known=results)
    other = results[work].films
    if not other.same(films):
        raise UserError(
            f"a published result on the films evaluated here: {films.title}",
            found=f"{work} on {other.title}",
            fix="leave --beside out: results on the same films are shown anyway",
        )
