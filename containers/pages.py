"""The pages that restate catalogue, locks and rules: every stack, and which one fits a machine.

Knows Markdown and how a table of machines is drawn up from the rules. Leaves the facts to
``env.stack`` and ``env.rules``: a page and they cannot differ, since a test compares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from containers.compatibility import lock_of
from env.atomic import write_text
from env.conditions import Range
from env.rules import (
    BROKEN,
    DOES_NOT_APPLY,
    FAIL,
    HOLDS,
    Rule,
    Verdict,
    judge_rules,
    judge_stack,
    load_rules,
    versions_of_stack,
)
from env.stack import PROJECT, Stack, load_stacks
from env.versions import parse_version

STACKS_PAGE = PROJECT / "docs" / "stacks.md"
CHOICE_PAGE = PROJECT / "docs" / "choose-a-stack.md"
BEGIN = "<!-- made by invoke stacks --markdown; do not edit -->"
END = "<!-- end of what is made -->"
SLOW, UNPROMISED = "¹", "²"
_LEGEND = f"""\
In italics: candidates, which nobody has trained with yet.
{SLOW} The driver compiles most of TensorFlow's kernels at their first use, once: some 15 ms each,
minutes where it is all of them.
{UNPROMISED} No rule is against it, but the stack does not promise it.
"""
_HEADING = """\
# Stacks

Made by `invoke stacks --markdown` from [env/stacks.toml](../env/stacks.toml), the locks in
`containers/` and [env/rules.toml](../env/rules.toml); do not edit. Which one you want:
[choose-a-stack.md](choose-a-stack.md). Why versions go together, with the terms of each rule:
`invoke stacks --explain S`.
"""


def write_pages() -> list[Path]:
    """Write the page of the stacks, and the table of machines into the page about choosing.

    Returns:
        The files written.
    """
    write_text(STACKS_PAGE, render_stacks_page())
    before, _, rest = CHOICE_PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    write_text(CHOICE_PAGE, f"{before}{BEGIN}\n\n{render_choice()}\n{END}{after}")
    return [STACKS_PAGE, CHOICE_PAGE]


def render_stacks_page() -> str:
    """Return ``docs/stacks.md``: what each stack is made of, for which machines, and says who."""
    rules = load_rules()
    stacks = load_stacks()
    parts = [_HEADING, _overview(stacks.values())]
    parts += [_stack_section(stack, rules) for stack in stacks.values()]
    parts.append(_rules_section(rules))
    return "\n".join(parts)


def render_choice() -> str:
    """Return the table that says which stack fits a driver and a GPU, by the rules.

    A line holds for every driver from the one it names up to the next line's.
    """
    stacks = [stack for stack in load_stacks().values() if stack.device == "gpu"]
    stacks.sort(key=lambda stack: stack.status != "supported")
    rules = load_rules()
    locked = [(stack, versions_of_stack(stack, lock=lock_of(stack))) for stack in stacks]
    gpus = {gpu.compute_capability: gpu.name for stack in stacks for gpu in stack.gpus}
    columns = sorted(gpus, key=parse_version)
    rows: list[tuple[str, list[str]]] = []
    for driver in _thresholds(rules, stacks):
        cells = [_cell(locked, rules, driver, capability) for capability in columns]
        if not rows or rows[-1][1] != cells:
            rows.append((driver, cells))
    while rows and not any(rows[0][1]):
        rows.pop(0)
    heads = ["driver from", *(f"{gpus[one]}, {one}" for one in columns)]
    table = _table(heads, ([driver, *(cell or "–" for cell in cells)] for driver, cells in rows))
    return f"{table}\n{_LEGEND}"


def _cell(
    locked: Iterable[tuple[Stack, Mapping[str, str | None]]],
    rules: Iterable[Rule],
    driver: str,
    capability: str,
) -> str:
    """Return the stacks that break no rule on this machine."""
    names = []
    for stack, versions in locked:
        machine = {"driver": driver, "compute_capability": capability}
        said = judge_rules({**versions, **machine}, rules=rules)
        broken = [verdict.rule for verdict in said if verdict.outcome == BROKEN]
        if any(rule.severity == FAIL for rule in broken):
            continue
        promised = any(
            gpu.compute_capability == capability
            and parse_version(gpu.driver) <= parse_version(driver)
            for gpu in stack.gpus
        )
        name = stack.name if stack.status == "supported" else f"*{stack.name}*"
        names.append(name + (SLOW if broken else "") + ("" if promised else UNPROMISED))
    return ", ".join(names)


def _thresholds(rules: Iterable[Rule], stacks: Iterable[Stack]) -> list[str]:
    """Return every driver at which some answer may change, the oldest first."""
    named = {gpu.driver for stack in stacks for gpu in stack.gpus}
    for rule in rules:
        for component, condition in (*rule.requires.items(), *rule.when.items()):
            if component == "driver" and isinstance(condition, Range):
                named |= {str(limit) for _, limit in condition.comparisons}
    distinct = {parse_version(text): text for text in sorted(named)}
    return [distinct[version] for version in sorted(distinct)]


def _overview(stacks: Iterable[Stack]) -> str:
    rows = (
        [f"[{s.name}](#{s.name})", s.status, s.device, f"{s.base.distribution} {s.base.release}",
         s.driver_minimum or "–", s.summary]
        for s in stacks
    )  # fmt: skip
    return _table(["stack", "status", "trains on", "base", "driver from", "for"], rows)


def _stack_section(stack: Stack, rules: tuple[Rule, ...]) -> str:
    versions = versions_of_stack(stack, lock=lock_of(stack))
    said = judge_stack(stack, lock=lock_of(stack), rules=rules)
    lines = [f"## {stack.name}\n", f"{stack.summary}.\n"]
    if stack.gpus:
        rows = (
            [gpu.name, gpu.compute_capability, _served(gpu.code), gpu.driver] for gpu in stack.gpus
        )
        lines.append(_table(["GPU", "capability", "TensorFlow's kernels", "driver from"], rows))
        claims = [*stack.sources.get("driver_minimum", ()), *stack.sources.get("gpus", ())]
        lines.append(f"Sources: {_links(claims)}\n")
    rows = (
        [name, _exact(name, version, versions), _links(stack.sources.get(name, ()))]
        for name, version in stack.components.items()
    )
    lines.append(_table(["component", "version", "source"], rows))
    lines.append(_judged(said))
    return "\n".join(lines)


def _judged(said: Iterable[Verdict]) -> str:
    about = [verdict for verdict in said if verdict.outcome != DOES_NOT_APPLY]
    holds = [f"[{v.rule.id}](#{_anchor(v.rule)})" for v in about if v.outcome == HOLDS]
    text = f"{len(holds)} rules hold: {', '.join(holds)}.\n"
    for verdict in about:
        if verdict.outcome != HOLDS:
            rule = verdict.rule
            what = "Warns" if rule.severity != FAIL else verdict.outcome
            text += f"\n{what}: [{rule.id}](#{_anchor(rule)}). {rule.reason} Do: {rule.fix}.\n"
    return text


def _rules_section(rules: Iterable[Rule]) -> str:
    lines = ["## The rules\n"]
    for rule in rules:
        severity = "" if rule.severity == FAIL else " (warns)"
        needs, when = _conditions(rule.requires), _conditions(rule.when)
        lines.append(
            f"### {rule.id}{severity}\n\nWhere {when}: {needs}. {rule.reason} Else {rule.fix}.\n"
            f"Sources: {_links(rule.sources)}\n"
        )
    return "\n".join(lines)


def _anchor(rule: Rule) -> str:
    severity = "" if rule.severity == FAIL else "-warns"
    return rule.id.replace(".", "") + severity


def _conditions(conditions: Mapping[str, object]) -> str:
    return " and ".join(f"{name} `{condition}`" for name, condition in conditions.items())


def _served(code: str) -> str:
    return "machine code" if code == "binary" else "compiled by the driver at first use"


def _exact(name: str, chosen: str, versions: Mapping[str, str | None]) -> str:
    locked = versions.get(name)
    return chosen if locked in (None, chosen) else f"{chosen} (locked: {locked})"


def _links(sources: Iterable[str]) -> str:
    return ", ".join(f"<{one}>" if one.startswith("http") else f"`{one}`" for one in sources) or "–"


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(heads), *(list(row) for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
