"""The checks as a page for people: what each reads, how it judges, what to do.

Knows Markdown. Leaves what is on the page to the registry, so that page and checks
cannot differ.
"""

from __future__ import annotations

from env.checks.registry import LAUNCHED, STATIC, Check, known_checks

_HEADING = """\
# Checks of validate-env

Made by `python -m env --table`; do not edit. One check as text: `python -m env --explain ID`.

Every check is UNKNOWN where a fact it needs could not be read. UNKNOWN is never a pass: where
the check must be able to tell, it stops a training (exit code 3) as a FAIL does (exit code 1).
"""
_PHASES = {
    STATIC: "One process, before anything is launched",
    LAUNCHED: "Every rank, under the launcher of the training",
}


def render_table() -> str:
    """Return the page: a section for each phase, a paragraph block for each check."""
    parts = [_HEADING]
    for phase, title in _PHASES.items():
        parts.append(f"## {title}\n")
        parts += [_section(one) for one in known_checks().values() if one.phase == phase]
    return "\n".join(parts)


def _section(one: Check) -> str:
    verdicts = " ".join(one.verdicts.split())
    need = "" if one.required else " UNKNOWN does not stop a training."
    lines = [
        f"### `{one.id}`: {one.title}\n",
        f"{verdicts}{need}\n",
        f"- reads: {', '.join(f'`{key}`' for key in one.reads)}",
        f"- fix: {one.fix}",
    ]
    if one.covers:
        lines.append(f"- known failures: {', '.join(one.covers)}")
    return "\n".join(lines) + "\n"
