"""Facts: what was observed, each value with its origin, and with the reason where it is missing.

Knows how facts are held, asked for and kept in JSON. Leaves the records of ranks to
``env.records``, observing to ``env.probes`` and judging to ``env.checks``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from env.atomic import write_text
from env.errors import UserError

SCHEMA_VERSION = 1


class CannotTellError(Exception):
    """A fact that a judgement needs could not be read: the check answers UNKNOWN.

    Attributes:
        ranks: the ranks that could not read it, where the others may be judged still.
    """

    def __init__(self, text: str, *, ranks: Iterable[int] = ()) -> None:
        super().__init__(text)
        self.ranks = tuple(ranks)


@dataclass(frozen=True)
class Fact:
    """One observation.

    Attributes:
        value: any JSON value; None where the thing was seen to be absent.
        origin: where it was read: a file, a variable, a command line.
        problem: why it could not be read; None where it could (then ``value`` counts).
    """

    value: Any
    origin: str
    problem: str | None = None


class Facts(Mapping[str, Fact]):
    """Facts by dotted key; the part before the first dot names the probe."""

    def __init__(self, facts: Mapping[str, Fact] | None = None) -> None:
        self._facts = dict(facts or {})

    def __getitem__(self, key: str) -> Fact:
        """Return a fact; one that nobody observed says so instead of raising.

        Where its whole probe broke, ``<probe>.probe`` says why.
        """
        broken = self._facts.get(f"{key.partition('.')[0]}.probe")
        return self._facts.get(key) or broken or Fact(None, key, problem="was not observed")

    def __contains__(self, key: object) -> bool:
        """Return whether somebody looked, with whatever outcome."""
        return key in self._facts

    def __iter__(self):  # noqa: ANN204 - the base class says it
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)

    def __or__(self, other: Mapping[str, Fact]) -> Facts:
        """Return these facts with others laid over them."""
        return Facts({**self._facts, **dict(other)})

    def value(self, key: str) -> Any:  # noqa: ANN401 - any JSON value
        """Return what was observed, None where it was seen to be absent.

        Raises:
            CannotTellError: the fact could not be read; the message says why and where.
        """
        fact = self[key]
        if fact.problem is not None:
            raise CannotTellError(f"{key}: {fact.problem} ({fact.origin})")
        return fact.value


def render_facts(facts: Mapping[str, Fact]) -> str:
    """Return facts as JSON text, a line for each (an indented form takes ten times as long)."""
    lines = (
        f"{json.dumps(key)}: {json.dumps(vars(facts[key]), separators=(',', ':'))}"
        for key in sorted(facts)
    )
    text = ",\n".join(lines)
    return f'{{"schema_version": {SCHEMA_VERSION}, "facts": {{\n{text}\n}}}}\n'


def write_facts(path: Path, facts: Mapping[str, Fact]) -> None:
    """Write facts so that a reader finds the whole file or none."""
    write_text(path, render_facts(facts))


def load_facts(path: Path) -> Facts:
    """Read facts written by ``write_facts``.

    Raises:
        UserError: the file is missing or is not facts of this schema.
    """
    fix = "write it anew: python -m env rank --records DIR under the launcher"
    try:
        data = json.loads(path.read_bytes())
        if data["schema_version"] != SCHEMA_VERSION:
            raise UserError(f"facts of schema_version {SCHEMA_VERSION}", found=str(path), fix=fix)
        return parse_facts(data)
    except OSError as error:
        raise UserError("a file of facts", found=f"{path}: {error.strerror}", fix=fix) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError("facts in JSON", found=f"{path}: {error!r}", fix=fix) from error


def parse_facts(data: Mapping[str, Any]) -> Facts:
    """Return the facts in what ``render_facts`` wrote, read as JSON.

    Raises:
        KeyError, TypeError, AttributeError: the data is not of that form.
    """
    return Facts({key: Fact(**fact) for key, fact in data["facts"].items()})
