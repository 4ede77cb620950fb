"""Holds stacks against the rules: a table, the reasons, an answer to what goes together.

Leaves the rules and their verdicts to ``env.rules``, and the search to ``env.solver``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.table import Table

from env.lock import load_lock, lock_path
from env.rules import (
    BROKEN,
    CANNOT_TELL,
    DOES_NOT_APPLY,
    HOLDS,
    Rule,
    Verdict,
    exit_code,
    judge_rules,
    versions_of_stack,
)
from env.solver import Solution, parse_wanted, solve
from env.stack import load_stack, load_stacks
from env.versions import parse_version

SCHEMA_VERSION = 1
_SIGNS = {HOLDS: "holds", BROKEN: "BROKEN", CANNOT_TELL: "cannot tell", DOES_NOT_APPLY: "·"}


def check_stacks(*, as_json: bool = False) -> int:
    """Print what every rule says of every stack.

    Returns:
        The exit code: 1 where a rule is broken, 3 where one cannot tell, else 0.
    """
    verdicts = {name: judge_rules(known) for name, known in _versions().items()}
    code = exit_code(verdict for said in verdicts.values() for verdict in said)
    if as_json:
        _print_json(
            stacks=[_as_data(name, said) for name, said in verdicts.items()], exit_code=code
        )
        return code
    table = Table("rule", *verdicts, title="Stacks by the rules (env/rules.toml)")
    for row in zip(*verdicts.values(), strict=True):
        table.add_row(row[0].rule.id, *(_SIGNS[verdict.outcome] for verdict in row))
    Console().print(table)
    for name, said in verdicts.items():
        _print_troubles(name, said)
    return code


def explain_stack(name: str, *, as_json: bool = False) -> int:
    """Print why a stack's versions fit each other: each rule about them, with its sources.

    Raises:
        UserError: there is no stack of that name.
    """
    versions = _versions_of(name)
    said = judge_rules(versions)
    code = exit_code(said)
    if as_json:
        _print_json(stacks=[_as_data(name, said)], versions=versions, exit_code=code)
        return code
    about = [verdict for verdict in said if verdict.outcome != DOES_NOT_APPLY]
    for verdict in about:
        rule = verdict.rule
        print(f"{_SIGNS[verdict.outcome]}: {rule.id}")
        print(f"  {_pairs({one: versions[one] for one in sorted(rule.components)})}")
        print(f"  needs {_pairs(rule.requires)} where {_pairs(rule.when)}")
        print(f"  {rule.reason}")
        for source in rule.sources:
            print(f"  source: {source}")
    print(f"{name}: {len(about)} rules speak about its versions, {len(said) - len(about)} do not.")
    _print_troubles(name, said)
    return code


def solve_versions(question: str, *, as_json: bool = False) -> int:
    """Print which versions go together with those asked for, or which rules conflict.

    Returns:
        The exit code: 1 where nothing goes together, else 0.

    Raises:
        UserError: the question is not COMPONENT=VERSION …
    """
    wanted = parse_wanted(question)
    stacks = _versions()
    solution = solve(wanted, others=stacks.values())
    misfits = {name: _misfits(known, wanted) for name, known in stacks.items()}
    if as_json:
        _print_json(
            wanted=wanted, newest=solution.newest, choices=solution.choices,
            conflict=[rule.id for rule in solution.conflict], stacks=misfits,
        )  # fmt: skip
    else:
        _print_solution(solution)
        for name, reasons in misfits.items():
            free = _not_judged(stacks[name], wanted)
            fits = f"fits; no rule ties {', '.join(free)} to it" if free else "fits"
            print(f"stack {name}: {'; '.join(reasons) or fits}")
    return 0 if solution.newest else 1


def _versions() -> dict[str, dict[str, str | None]]:
    return {
        name: versions_of_stack(stack, lock=load_lock(lock_path(name)))
        for name, stack in load_stacks().items()
    }


def _versions_of(name: str) -> dict[str, str | None]:
    return versions_of_stack(load_stack(name), lock=load_lock(lock_path(name)))


def _misfits(known: Mapping[str, str | None], wanted: Mapping[str, str]) -> list[str]:
    """Return why a stack is no answer: other versions, or rules that it breaks with these."""
    reasons = []
    for component, version in wanted.items():
        own = known.get(component)
        if own is not None and not parse_version(own).has_prefix(version):
            reasons.append(f"has {component} {own}")
    verdicts = judge_rules({**wanted, **known})
    return reasons + [f"breaks {v.rule.id}" for v in verdicts if v.outcome == BROKEN]


def _not_judged(known: Mapping[str, str | None], wanted: Mapping[str, str]) -> list[str]:
    """Return the wanted components that a stack lacks and no rule ties to what it has."""
    verdicts = judge_rules({**wanted, **known})
    spoken = [v.rule.components for v in verdicts if v.outcome != DOES_NOT_APPLY]
    return [
        name for name in wanted
        if name not in known and not any(name in about and about & set(known) for about in spoken)
    ]  # fmt: skip


def _print_solution(solution: Solution) -> None:
    asked = _pairs(solution.wanted)
    if solution.newest is None:
        print(f"Nothing the rules name goes together with {asked}. These rules conflict:")
        for rule in solution.conflict:
            _print_rule(rule)
        return
    table = Table("component", "newest set", "also part of a set", title=f"With {asked}")
    for name, newest in solution.newest.items():
        others = [version for version in solution.choices[name] if version != newest]
        table.add_row(name, newest, ", ".join(others))
    Console().print(table)
    print("Each set breaks no rule; not every version of the last column fits every other.")


def _print_troubles(name: str, verdicts: Iterable[Verdict]) -> None:
    for verdict in verdicts:
        if verdict.outcome in {BROKEN, CANNOT_TELL}:
            print(f"{name}: {_SIGNS[verdict.outcome]}:")
            _print_rule(verdict.rule)


def _print_rule(rule: Rule) -> None:
    print(f"  {rule.id}: {_pairs(rule.when)} needs {_pairs(rule.requires)}")
    print(f"    {rule.reason}")
    print(f"    fix: {rule.fix}")
    print(f"    sources: {', '.join(rule.sources)}")


def _pairs(versions: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {version or 'unknown'}" for name, version in versions.items())


def _as_data(name: str, verdicts: Iterable[Verdict]) -> dict[str, object]:
    return {
        "stack": name,
        "verdicts": [
            {"rule": v.rule.id, "outcome": v.outcome, "reason": v.rule.reason,
             "sources": v.rule.sources, "fix": v.rule.fix}
            for v in verdicts
        ],
    }  # fmt: skip


def _print_json(**data: object) -> None:
    print(json.dumps({"schema_version": SCHEMA_VERSION, **data}, indent=1))
