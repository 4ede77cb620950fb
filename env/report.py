"""The report: all results of all ranks, as JSON and as text for people.

Knows the format of the JSON (``report.schema.json``) and how the text is ordered: the
worst first, what passed in one line. Leaves running checks to ``env.validate``.
"""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from env.result import Result, Status

SCHEMA_VERSION = 1
SCHEMA = Path(__file__).with_name("report.schema.json")
_STYLES = {
    Status.FAIL: "bold red", Status.UNKNOWN: "bold magenta", Status.WARN: "yellow",
    Status.INFO: "cyan", Status.SKIP: "dim", Status.PASS: "green",
}  # fmt: skip
_MAX_TEXT = 600


@dataclass(frozen=True)
class Report:
    """What was judged.

    Attributes:
        stack: the stack the machine was held against, None where none is known.
        started: when the judging began, ISO 8601 in UTC.
        hosts: names of all hosts that were observed.
        results: in the order in which the checks ran.
        exit_code: 0 good, 1 a check failed, 3 a required check could not tell.
    """

    stack: str | None
    started: str
    hosts: tuple[str, ...]
    results: tuple[Result, ...]
    exit_code: int

    @property
    def failed_hosts(self) -> tuple[str, ...]:
        """Return the hosts of the results that failed, for ``srun --exclude``.

        A failure that names no host is of the host that was observed, if only one was.
        """
        failed = [result for result in self.results if result.status is Status.FAIL]
        named = {host for result in failed for host in result.hosts}
        alone = self.hosts if len(self.hosts) == 1 else ()
        return tuple(sorted(named.union(*(alone for r in failed if not r.hosts))))

    def worst_first(self) -> list[Result]:
        """Return the results by severity."""
        return sorted(self.results, key=lambda result: result.status.severity)


def render_json(report: Report) -> str:
    """Return the report as JSON text, in the form of ``report.schema.json``."""
    data = {"schema_version": SCHEMA_VERSION} | asdict(report)
    return json.dumps(data, indent=1) + "\n"


def render_text(report: Report) -> list[tuple[Status, str]]:
    """Return the report as lines, each with the status that it tells of.

    Names and messages come from the machine: control characters in them are escaped.
    """
    lines: list[tuple[Status, str]] = []
    for result in report.worst_first():
        if result.status not in (Status.PASS, Status.SKIP):
            lines += [(result.status, line) for line in _paragraph(result)]
    skipped: dict[str, list[str]] = {}
    for result in report.results:
        if result.status is Status.SKIP:
            skipped.setdefault(clean(result.found), []).append(result.id)
    if skipped:
        text = "; ".join(f"{', '.join(ids)} ({reason})" for reason, ids in skipped.items())
        lines += [(Status.SKIP, line) for line in _wrapped("SKIP", text)]
    passed = [result.id for result in report.results if result.status is Status.PASS]
    if passed:
        lines += [(Status.PASS, line) for line in _wrapped("PASS", ", ".join(passed))]
    worst = report.worst_first()[0].status if report.results else Status.PASS
    return [*lines, (worst, _summary(report))]


def print_text(report: Report, *, stream: TextIO, only_bad: bool = False) -> None:
    """Print the report, in colour where rich is installed and the stream is a terminal.

    Args:
        report: what to print.
        stream: where to.
        only_bad: print FAIL, UNKNOWN and WARN alone, and nothing where there is none.
    """
    lines = render_text(report)
    if only_bad:
        lines = [(s, line) for s, line in lines if s.severity <= Status.WARN.severity]
    try:
        from rich.console import Console
        from rich.text import Text
    except ImportError:
        stream.writelines(f"{line}\n" for _, line in lines)
        return
    console = Console(file=stream, highlight=False, soft_wrap=True)
    # Written by us: rich ends the process with 1, "a check failed", where nobody reads on.
    with console.capture() as text:
        for status, line in lines:
            console.print(Text(line, style=_STYLES[status]))
    stream.write(text.get())


def clean(text: str) -> str:
    """Return a text on one line, without control characters, of bounded length."""
    text = " | ".join(part.strip() for part in text.splitlines() if part.strip())
    text = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    return text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + " …"


def _paragraph(result: Result) -> list[str]:
    head = f"{result.status:<8}{result.id}"
    if result.ranks:
        head += f"  (ranks {', '.join(map(str, result.ranks))})"
    lines = [head]
    found = result.found + (f"  [{result.where}]" if result.where else "")
    for name, text in (("expected", result.expected), ("found", found), ("fix", result.fix)):
        if text:
            lines += _wrapped("", clean(text), name=f"{name}:")
    return lines


def _wrapped(head: str, text: str, *, name: str = "") -> list[str]:
    """Return a text broken at 100 columns, under a hanging head; paths are never broken."""
    first = f"{head:<8}{name:<10}" if name else f"{head:<8}"
    return textwrap.wrap(
        text, width=100, initial_indent=first, subsequent_indent=" " * len(first),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _summary(report: Report) -> str:
    counts = Counter(result.status for result in report.results)
    parts = ", ".join(f"{counts[status]} {status}" for status in Status if counts[status])
    hosts = clean(", ".join(report.hosts)) or "an unknown host"
    stack = f"stack {report.stack}" if report.stack else "no stack known"
    number = len(report.results)
    return f"{number} check{'' if number == 1 else 's'} of {hosts} ({stack}): {parts}"
