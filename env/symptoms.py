"""Troubleshooting by symptom: from what people see to what it means, what shows it, and the cure.

Knows the shape of ``symptoms.toml`` and the page made of it. Leaves what the failures are to
``env.failures``, and how each is detected and cured to the checks.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from env.checks.registry import LAUNCHED, Check, known_checks
from env.checks.table import detected_by
from env.errors import UserError
from env.failures import Failure, load_failures
from env.rules import Rule, load_rules

TABLE = Path(__file__).with_name("symptoms.toml")
_HEADING = """\
# Troubleshooting, by symptom

Made by `python -m env --symptoms`; do not edit. From [env/symptoms.toml](../env/symptoms.toml),
[env/failures.toml](../env/failures.toml) and the checks ([checks.md](checks.md)).

First prove the machine: it finds most of what is below, and says what to do.

```console
$ invoke validate-env --ranks 2              # with --image IMG, --hosts a:4,b:4 as you train
$ invoke validate-env --explain mpi.library  # one check: what it reads, how it judges, its cure
```

The commands below make one check each; add `--image` and `--hosts` as your training has them.

"""


@dataclass(frozen=True)
class Case:
    """A meaning of a symptom that no check of a machine can see.

    Attributes:
        meaning: what is wrong.
        look: a command that shows it.
        fix: what to do.
    """

    meaning: str
    look: str
    fix: str


@dataclass(frozen=True)
class Symptom:
    """What people see.

    Attributes:
        title: in a reader's words.
        sees: lines or words of what is printed.
        failures: ids of known failures that look like this, the likeliest first.
        cases: further meanings.
    """

    title: str
    sees: tuple[str, ...]
    failures: tuple[str, ...]
    cases: tuple[Case, ...]


def load_symptoms(path: Path = TABLE) -> list[Symptom]:
    """Return every symptom, in the order of the file.

    Raises:
        UserError: the file is missing, or an entry of it is wrong.
    """
    fix = "the head of the file says what an entry holds"
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))["symptom"]
        found = [
            Symptom(
                one["title"], tuple(one["sees"]), tuple(one.get("failures", ())),
                tuple(Case(**case) for case in one.get("cases", ())),
            )
            for one in entries
        ]  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError("a table of symptoms", found=f"{path}: {error!r}", fix=fix) from error
    known = load_failures()
    for symptom in found:
        for name in symptom.failures:
            if name not in known:
                text = f"{path}: {name}, under {symptom.title!r}"
                raise UserError("ids of known failures", found=text, fix=fix)
    return found


def render_symptoms() -> str:
    """Return ``docs/troubleshooting.md``."""
    symptoms, failures, found = load_symptoms(), load_failures(), detected_by()
    index = [f"- [{one.title}](#{_anchor(one.title)})" for one in symptoms]
    parts = [_HEADING + "\n".join(index) + "\n"]
    for one in symptoms:
        rows = [_failure_row(failures[name], found[name]) for name in one.failures]
        rows += [_row(case.meaning, f"`{case.look}`", case.fix) for case in one.cases]
        seen = "\n".join(f"- `` {line} ``" if "`" in line else f"- `{line}`" for line in one.sees)
        heads = "| what it means | what shows it | what to do |\n|---|---|---|\n"
        parts.append(f"## {one.title}\n\n{seen}\n\n{heads}" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _failure_row(failure: Failure, checks: Iterable[str]) -> str:
    known = known_checks()
    mine = [known[name] for name in checks]
    if not mine:
        return _row(f"{failure.title} ({failure.id})", "no check can", failure.unseen)
    ranks = " --ranks 2" if any(one.phase == LAUNCHED for one in mine) else ""
    command = f"`invoke validate-env{ranks} --only {','.join(one.id for one in mine)}`"
    # The likeliest two: a check that fails says its own cure.
    fixes = list(dict.fromkeys(_cure(one, failure) for one in mine))[:2]
    return _row(f"{failure.title} ({failure.id})", command, "; or: ".join(fixes))


@cache
def _rules() -> tuple[Rule, ...]:
    return load_rules()


def _cure(one: Check, failure: Failure) -> str:
    """Return a check's cure; where it holds rules, that of the rules about this failure."""
    rules = [rule.fix for rule in _rules() if failure.id in rule.sources]
    if not one.id.startswith("rules.") or not rules:
        return one.fix
    if len(rules) == 1:
        return rules[0]
    return f"as the broken rule says ([all](rules.md)), such as: {rules[-1]}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def _anchor(title: str) -> str:
    """Return how GitHub names a heading's anchor: words in small letters, joined by dashes."""
    kept = "".join(c for c in title.lower() if c.isalnum() or c in " -_")
    return kept.replace(" ", "-")


def count_symptoms(symptoms: Iterable[Symptom]) -> Mapping[str, int]:
    """Return under how many symptoms each known failure stands."""
    counts = dict.fromkeys(load_failures(), 0)
    for symptom in symptoms:
        for name in symptom.failures:
            counts[name] += 1
    return counts
