"""What the table of settings says of one setting: consequence, wrong value, unknown name.

Knows the shape of ``settings.toml``. Leaves where settings come from to
``env.probes.settings`` and what to tell the user to ``env.checks.settings``.
"""

from __future__ import annotations

import difflib
import functools
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from env.conditions import Range, parse_range
from env.errors import UserError
from env.result import Status

TABLE = Path(__file__).with_name("settings.toml")
COMPONENTS = ("openmpi", "horovod", "tensorflow", "nccl")
# Below this likeness two names are two names: MIN and MAX_NCHANNELS are 0.94 alike, but both
# are known, and a known name is never compared.
_LIKENESS = 0.88
_KINDS = {
    "integer": (r"\s*[+-]?\d+\s*", "a whole number"),
    "number": (r"\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*", "a number"),
    "switch": (r"[01]", "0 or 1"),
}


@dataclass(frozen=True)
class Consequence:
    """A row of the table: a setting that a training should not have unawares.

    Attributes:
        names: patterns of the names.
        values: what the whole value must look like for the row to apply.
        unless: values that are fine.
        versions: the range of each component in which it matters.
        status: how bad it is.
        why: what follows from it.
        fix: what to do; empty for taking the setting out.
    """

    names: tuple[str, ...]
    values: re.Pattern[str]
    unless: re.Pattern[str] | None
    versions: tuple[tuple[str, Range], ...]
    status: Status
    why: str
    fix: str

    def applies(self, name: str, value: str, versions: Mapping[str, str | None]) -> bool:
        """Whether a setting is this row's; a version that nobody knows is outside any range."""
        return (
            any(fnmatchcase(name, pattern) for pattern in self.names)
            and bool(self.values.fullmatch(value.strip()))
            and not (self.unless and self.unless.fullmatch(value.strip()))
            and all(_within(versions.get(component), r) for component, r in self.versions)
        )


@dataclass(frozen=True)
class Form:
    """What the value of some settings must look like, as pattern and in words."""

    names: tuple[str, ...]
    pattern: re.Pattern[str]
    says: str


@dataclass(frozen=True)
class Table:
    """The whole table.

    Attributes:
        consequences: in the order of the file; of one name the first that applies counts.
        forms: the forms of values.
        known: the names that a tool knows, by the prefix of its names.
        others: patterns of names that only look like a tool's.
    """

    consequences: tuple[Consequence, ...]
    forms: tuple[Form, ...]
    known: Mapping[str, frozenset[str]]
    others: tuple[str, ...]

    def consequence(
        self, name: str, value: str, versions: Mapping[str, str | None]
    ) -> Consequence | None:
        """Return the first row that applies to a setting, None where it is harmless."""
        rows = (row for row in self.consequences if row.applies(name, value, versions))
        return next(rows, None)

    def wrong_form(self, name: str, value: str) -> Form | None:
        """Return the form that a value should have and has not."""
        forms = (f for f in self.forms if any(fnmatchcase(name, n) for n in f.names))
        form = next(forms, None)
        return form if form and value and not form.pattern.fullmatch(value) else None

    def is_of_others(self, name: str) -> bool:
        """Whether a name that no tool knows is expected all the same."""
        return any(fnmatchcase(name, pattern) for pattern in self.others)

    def prefix_of(self, name: str) -> str | None:
        """Return the tool's prefix of a name, None where the table lists no names of it."""
        return next((prefix for prefix in self.known if name.startswith(prefix)), None)


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that was probably meant, None where none is near."""
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=_LIKENESS)
    return close[0] if close else None


def _within(version: str | None, limits: Range) -> bool:
    if version is None:
        return False
    try:
        return bool(limits.holds(version, {}))
    except UserError:  # what calls itself a version is none
        return False


@functools.cache
def load_table(path: Path = TABLE) -> Table:
    """Read the table.

    Raises:
        UserError: the file is missing, or a row of it is wrong; the row is named.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"a table of settings in {path}", found=str(error),
                        fix="restore the file") from error  # fmt: skip
    known = {prefix: frozenset(names.split()) for prefix, names in data.get("known", {}).items()}
    return Table(
        tuple(_rows(path, data.get("setting", []), _consequence)),
        tuple(_rows(path, data.get("value", []), _form)),
        known,
        tuple(data.get("others", {}).get("names", ())),
    )


def _rows(path: Path, rows: list[dict], make: object) -> Iterator:
    for number, row in enumerate(rows, 1):
        try:
            yield make(dict(row))
        except (KeyError, ValueError, TypeError, re.error, UserError) as error:
            found = f"{path}, entry {number} ({row.get('names')}): {error}"
            fix = "the head of the file says what an entry holds"
            raise UserError("a well-formed entry", found=found, fix=fix) from error


def _consequence(row: dict) -> Consequence:
    versions = tuple((name, parse_range(row.pop(name))) for name in COMPONENTS if name in row)
    unless = row.pop("unless", None)
    made = Consequence(
        tuple(row.pop("names")), _regex(row.pop("values", ".+")),
        None if unless is None else _regex(unless), versions,
        Status(row.pop("status")), row.pop("why"), row.pop("fix", ""),
    )  # fmt: skip
    if row:
        raise ValueError(f"unknown keys {', '.join(row)}")
    return made


def _form(row: dict) -> Form:
    names = tuple(row.pop("names"))
    if "choices" in row:
        choices = row.pop("choices")
        pattern, says = "|".join(map(re.escape, choices)), f"one of {', '.join(choices)}"
    elif "kind" in row:
        pattern, says = _KINDS[row.pop("kind")]
    else:
        pattern, says = row.pop("pattern"), row.pop("says")
    if row:
        raise ValueError(f"unknown keys {', '.join(row)}")
    return Form(names, _regex(pattern), says)


def _regex(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE | re.DOTALL)
