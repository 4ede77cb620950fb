"""The checks as a page for people: what each reads, how it judges, what to do.

Knows Markdown. Leaves what is on the page to the registry, so that page and checks
cannot differ.
"""

from __future__ import annotations

from env.checks.registry import LAUNCHED, STATIC, Check, known_checks
from env.failures import Failure, load_failures

_HEADING = """\
# Checks of validate-env

Made by `python -m env --table`; do not edit. One check as text: `python -m env --explain ID`.

Every check is UNKNOWN where a fact it needs could not be read. UNKNOWN is never a pass: where
the check must be able to tell, it stops a training (exit code 3) as a FAIL does (exit code 1).
Where a check that failed says why another cannot tell, the other is SKIP and names it.

What each setting of MPI, NCCL, Horovod, TensorFlow, Python and the C library does, and which are
harmful, is data: `env/settings.toml`. Variables and lines of configuration files count alike.
"""
_PHASES = {
    STATIC: "One process, before anything is launched",
    LAUNCHED: "Every rank, under the launcher of the training",
}


_FAILURES = """\
## Known failures

Failures that trainings on several GPUs die of, collected from public trackers and vendors'
pages (`env/failures.toml`); {seen} of {all} are detected. How bad each is, which checks detect
it, and how the tests bring it about: for real, by files of a made-up root folder, or by a made-up
driver.

| id | what goes wrong | verdict | checks | tried |
|---|---|---|---|---|
"""


def render_table() -> str:
    """Return the page: a block for each check by phase, then a row for each known failure."""
    parts = [_HEADING]
    for phase, title in _PHASES.items():
        parts.append(f"## {title}\n")
        parts += [_section(one) for one in known_checks().values() if one.phase == phase]
    return "\n".join([*parts, _failures()])


def detected_by() -> dict[str, list[str]]:
    """Return the checks that detect each known failure, none where nothing does."""
    found: dict[str, list[str]] = {name: [] for name in load_failures()}
    for one in known_checks().values():
        for name in one.covers:
            found.setdefault(name, []).append(one.id)
    return found


def _failures() -> str:
    failures, found = load_failures(), detected_by()
    seen = sum(bool(found[name]) for name in failures)
    rows = [_row(failure, found[name]) for name, failure in failures.items()]
    text = _FAILURES.format(seen=seen, all=len(failures)) + "\n".join(rows) + "\n"
    notes = [f"- {f.id}: {f.note}" for f in failures.values() if f.note]
    text += "\nWhere a verdict differs from the usual one:\n\n" + "\n".join(notes) + "\n"
    unseen = [f"- {f.id}: {f.unseen}" for f in failures.values() if not found[f.id]]
    if unseen:
        text += "\nWhat no check can see, and why:\n\n" + "\n".join(unseen) + "\n"
    return text


def _row(failure: Failure, checks: list[str]) -> str:
    names = ", ".join(f"`{name}`" for name in checks) or "none"
    cells = (failure.id, failure.title, failure.verdict, names, failure.tried)
    return f"| {' | '.join(cells)} |"


def _section(one: Check) -> str:
    verdicts = " ".join(one.verdicts.split())
    need = "" if one.required else " UNKNOWN does not stop a training."
    lines = [
        f"### `{one.id}`: {one.title}\n",
        f"{verdicts}{need}\n",
        f"- reads: {', '.join(f'`{key}`' for key in one.reads)}",
        f"- fix: {one.fix}",
    ]
    if one.explains:
        keys = ", ".join(f"`{key}{'*' * key.endswith('.')}`" for key in one.explains)
        lines.append(f"- where it fails, it says why {keys} cannot be read")
    if one.covers:
        lines.append(f"- known failures: {', '.join(one.covers)}")
    return "\n".join(lines) + "\n"
