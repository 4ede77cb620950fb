"""Holds stacks against the rules: a table, the reasons, an answer to what goes together.

Knows when a stack must not be locked or built. Leaves the rules and their verdicts to
``env.rules``, and the search to ``env.solver``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.table import Table

from env.errors import UserError
from env.lock import Lock, load_lock, lock_path, make_lock
from env.rules import (
    BROKEN,
    CANNOT_TELL,
    DOES_NOT_APPLY,
    FAIL,
    HOLDS,
    WARN,
    Rule,
    Verdict,
    exit_code,
    judge_rules,
    judge_stack,
    load_rules,
    machines_of,
    versions_of_stack,
)
from env.solver import Solution, binding_rules, is_version_of, parse_wanted, solve, tied_to
from env.stack import Stack, load_stack, load_stacks
from env.versions import parse_version

SCHEMA_VERSION = 1
# What a stack cannot bring along: it is the machine's.
_OF_MACHINES = {
    "driver", "kernel_driver", "compute_capability", "slurm", "slurm_pmix",
}  # fmt: skip
_SIGNS = {HOLDS: "holds", BROKEN: "BROKEN", CANNOT_TELL: "cannot tell", DOES_NOT_APPLY: "·"}


def check_stacks(*, as_json: bool = False) -> int:
    """Print what every rule says of every stack.

    Returns:
        The exit code: 1 where a rule is broken, 3 where one cannot tell, else 0.
    """
    verdicts = {name: judge_stack(stack, lock=lock) for name, (stack, lock) in _locked().items()}
    code = exit_code(verdict for said in verdicts.values() for verdict in said)
    if as_json:
        _print_json(
            stacks=[_as_data(name, said) for name, said in verdicts.items()], exit_code=code
        )
        return code
    table = Table("rule", *verdicts, title="Stacks by the rules (env/rules.toml)")
    rows = list(zip(*verdicts.values(), strict=True))
    spoken = [row for row in rows if any(v.outcome != DOES_NOT_APPLY for v in row)]
    for row in spoken:
        table.add_row(row[0].rule.id, *map(_sign, row))
    Console().print(table)
    print(f"{len(rows) - len(spoken)} more rules are about versions that no stack has.")
    for name, said in verdicts.items():
        if not lock_path(name).exists():
            print(f"{name}: not locked yet (invoke lock --stack {name}): judged by the catalogue")
        _print_troubles(name, said)
    return code


def explain_stack(name: str, *, as_json: bool = False) -> int:
    """Print why a stack's versions fit each other: each rule about them, with its sources.

    Raises:
        UserError: there is no stack of that name.
    """
    stack = load_stack(name)
    lock = lock_of(stack)
    said = judge_stack(stack, lock=lock)
    versions = versions_of_stack(stack, lock=lock)
    code = exit_code(said)
    if as_json:
        _print_json(stacks=[_as_data(name, said)], versions=versions, exit_code=code)
        return code
    _print_promises(stack)
    about = [verdict for verdict in said if verdict.outcome != DOES_NOT_APPLY]
    for verdict in about:
        _print_reason(verdict, versions, machines_of(stack))
    print(f"{name}: {len(about)} rules speak about its versions, {len(said) - len(about)} do not.")
    _print_troubles(name, said)
    return code


def require_compatible(stack: Stack, *, lock: Lock) -> None:
    """Refuse a stack that breaks a rule; one that only warns may pass.

    Raises:
        UserError: rules are broken, each named with its fix (exit code 1).
    """
    broken = [v.rule for v in judge_stack(stack, lock=lock) if _is_broken(v)]
    if broken:
        versions = versions_of_stack(stack, lock=lock)
        here = {name: versions.get(name) for rule in broken for name in sorted(rule.components)}
        raise UserError(
            "; ".join(f"{rule.id}: {_pairs(rule.requires)} where {_pairs(rule.when)}"
                      for rule in broken),
            found=f"stack {stack.name!r}: {_pairs({k: v for k, v in here.items() if v})}. "
            + " ".join(dict.fromkeys(rule.reason for rule in broken)),
            fix=" and ".join(dict.fromkeys(rule.fix for rule in broken)), exit_code=1,
        )  # fmt: skip


def solve_versions(question: str, *, as_json: bool = False) -> int:
    """Print which versions go together with those asked for, or which rules conflict.

    Returns:
        The exit code: 1 where nothing goes together, else 0.

    Raises:
        UserError: the question is not COMPONENT=VERSION …
    """
    wanted = parse_wanted(question)
    stacks = {name: versions_of_stack(s, lock=lock) for name, (s, lock) in _locked().items()}
    solution = solve(wanted, others=map(_upstream, stacks.values()))
    near = _near(wanted)
    warnings = _warnings({k: v for k, v in (solution.newest or {}).items() if k in near})
    misfits = {name: _misfits(known, wanted) for name, known in stacks.items()}
    free = {name: _not_judged(known, wanted) for name, known in stacks.items()}
    if as_json:
        _print_json(
            wanted=wanted, newest=solution.newest, choices=solution.choices,
            conflict=[rule.id for rule in solution.conflict],
            unnamed=solution.unnamed, warnings=[rule.id for rule in warnings],
            stacks=misfits, not_judged=free,
        )  # fmt: skip
    else:
        _print_solution(solution, warnings)
        for name, reasons in misfits.items():
            fits = f"fits; no rule ties {', '.join(free[name])} to it" if free[name] else "fits"
            print(f"stack {name}: {'; '.join(reasons) or fits}")
    return 0 if solution.newest else 1


def _locked() -> dict[str, tuple[Stack, Lock]]:
    return {name: (stack, lock_of(stack)) for name, stack in load_stacks().items()}


def lock_of(stack: Stack) -> Lock:
    """Return a stack's lock; one that names no packages where it was not locked yet."""
    path = lock_path(stack.name)
    return load_lock(path) if path.exists() else make_lock(stack, python=())


def _is_broken(verdict: Verdict) -> bool:
    return verdict.outcome == BROKEN and verdict.rule.severity == FAIL


def _sign(verdict: Verdict) -> str:
    warns = verdict.outcome == BROKEN and verdict.rule.severity == WARN
    return "warns" if warns else _SIGNS[verdict.outcome]


def _warnings(versions: Mapping[str, str]) -> list[Rule]:
    warning = [rule for rule in load_rules() if rule.severity == WARN]
    return [v.rule for v in judge_rules(versions, rules=warning) if v.outcome == BROKEN]


def _near(wanted: Iterable[str]) -> frozenset[str]:
    """Return the components wanted, and those that a rule ties to one of them directly."""
    return tied_to(wanted, rules=binding_rules(wanted))


def _upstream(versions: Mapping[str, str | None]) -> dict[str, str]:
    """Return the versions as their makers number them, without the distribution's revision."""
    known = {name: parse_version(text) for name, text in versions.items() if text}
    return {
        name: text.text.rpartition("-")[0] if text.revision else text.text
        for name, text in known.items()
    }


def _misfits(known: Mapping[str, str | None], wanted: Mapping[str, str]) -> list[str]:
    """Return why a stack is no answer: other versions, or rules that it breaks on the machine.

    A wanted version of a machine, such as a driver's, stands for all that begin with it, as
    in the search.
    """
    reasons = []
    for component, version in wanted.items():
        own = known.get(component)
        if component not in known and component not in _OF_MACHINES:
            reasons.append(f"names no {component}")
        elif own is not None and not is_version_of(own, version, component=component):
            reasons.append(f"has {component} {own}")
    # What the stack lacks is not searched; what driver and GPU break among themselves is
    # nothing to a stack without CUDA.
    machine = _of_machine(known, wanted)
    rules = [
        rule for rule in load_rules()
        if rule.components <= {*known, *machine}
        and ("cuda" in known or rule.components & {*known})
    ]  # fmt: skip
    conflict = solve({**machine, **_upstream(known)}, rules=rules).conflict
    return reasons + [f"breaks {rule.id}" for rule in conflict]


def _of_machine(known: Mapping[str, str | None], wanted: Mapping[str, str]) -> dict[str, str]:
    """Return what is wanted of the machine, and not of the stack."""
    return {
        name: version for name, version in wanted.items()
        if name in _OF_MACHINES and name not in known
    }  # fmt: skip


def _not_judged(known: Mapping[str, str | None], wanted: Mapping[str, str]) -> list[str]:
    """Return the components wanted of the machine that no rule ties to what a stack has."""
    machine = _of_machine(known, wanted)
    verdicts = judge_rules({**machine, **known})
    spoken = [v.rule.components for v in verdicts if v.outcome != DOES_NOT_APPLY]
    return [
        name for name in machine
        if not any(name in about and about & set(known) for about in spoken)
    ]  # fmt: skip


def _print_promises(stack: Stack) -> None:
    """Print the machines that a stack is for, with the source of the claim."""
    if not stack.gpus:
        return
    print(f"driver: {stack.driver_minimum} or later")
    for gpu in stack.gpus:
        how = "machine code" if gpu.code == "binary" else "compiled by the driver at first use"
        print(f"GPU {gpu.compute_capability}, {gpu.name}: {how}, driver {gpu.driver} or later")
    for claim in ("driver_minimum", "gpus"):
        for source in stack.sources.get(claim, ()):
            print(f"  source: {source}")


def _print_reason(
    verdict: Verdict, versions: Mapping[str, str | None], machines: Iterable[Mapping[str, str]]
) -> None:
    rule = verdict.rule
    print(f"{_sign(verdict)}: {rule.id}")
    own = {name: versions[name] for name in sorted(rule.components) if name in versions}
    print(f"  {_pairs(own)}")
    asked = {name: [m[name] for m in machines if name in m] for name in sorted(rule.components)}
    for name, texts in asked.items():
        if texts and name not in versions:
            print(f"  {name} {', '.join(dict.fromkeys(texts))}")
    print(f"  needs {_pairs(rule.requires)} where {_pairs(rule.when)}")
    print(f"  {rule.reason}")
    for source in rule.sources:
        print(f"  source: {source}")


def _print_solution(solution: Solution, warnings: Iterable[Rule]) -> None:
    asked = _pairs(solution.wanted)
    if solution.newest is None:
        print(f"Nothing the rules name goes together with {asked}. These rules conflict:")
        for rule in solution.conflict:
            _print_rule(rule)
        _print_unnamed(solution)
        return
    near = _near(solution.wanted)
    table = Table("component", "newest set", "also part of a set", title=f"With {asked}")
    for name in sorted(near):
        newest = solution.newest[name]
        others = [version for version in solution.choices[name] if version != newest]
        table.add_row(name, newest, ", ".join(others))
    Console().print(table)
    if len(solution.newest) > len(near):
        print(f"{len(solution.newest) - len(near)} more components are tied to these; "
              "a version of each is in the set: --json")  # fmt: skip
    print("Each set breaks no rule; not every version of the last column fits every other.")
    _print_unnamed(solution)
    for rule in warnings:
        print("The newest set works, with a warning:")
        _print_rule(rule)


def _print_unnamed(solution: Solution) -> None:
    for name in solution.unnamed:
        print(f"No rule and no stack names {name} {solution.wanted[name]}: only rules about a "
              "range that holds it judged it. They may lack what is new or special in it."
              )  # fmt: skip


def _print_troubles(name: str, verdicts: Iterable[Verdict]) -> None:
    for verdict in verdicts:
        if verdict.outcome in {BROKEN, CANNOT_TELL}:
            print(f"{name}: {_sign(verdict)}:")
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
            {"rule": v.rule.id, "outcome": v.outcome, "severity": v.rule.severity,
             "reason": v.rule.reason, "sources": v.rule.sources, "fix": v.rule.fix}
            for v in verdicts
        ],
    }  # fmt: skip


def _print_json(**data: object) -> None:
    print(json.dumps({"schema_version": SCHEMA_VERSION, **data}, indent=1))
