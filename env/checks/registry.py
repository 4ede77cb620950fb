"""The registry: every check by id, with what it reads, how it judges and what to do.

Knows how to run one check so that nothing it does can hide the others. Leaves the
judgements to the modules of each theme.
"""

from __future__ import annotations

import importlib
import inspect
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from env.checks.evidence import Evidence
from env.errors import unknown_name
from env.facts import CannotTellError
from env.result import Finding, Result, Status

STATIC = "static"
LAUNCHED = "launched"
THEMES = (
    "versions", "python", "recipe", "compatibility", "horovod", "mpi", "openmpi", "libraries",
    "settings", "resources", "storage", "container", "network", "rdma", "gpu", "gpu_health",
    "gpu_links", "gpu_ranks", "driver", "driver_library", "program", "launch", "ranks", "hosts",
    "placement", "binding", "site",
)  # fmt: skip

# What the function of a check returns: one finding, or several where each is a thing of its
# own with its own cure; none at all means that nothing was wrong.
Findings = Finding | Iterable[Finding]
Judge = Callable[[Evidence], Findings]

_CHECKS: dict[str, Check] = {}
_CANNOT_TELL = "could not tell: "


@dataclass(frozen=True)
class Check:
    """One judgement.

    Attributes:
        id: its name on the command line, e.g. ``"mpi.library"``.
        title: what it makes sure of, in a few words.
        phase: ``"static"``: one process on one host; ``"launched"``: every rank.
        reads: the keys of the facts it may ask for.
        fix: what to do when it does not pass.
        judge: the function; its docstring says which verdict means what.
        required: whether not being able to tell must stop a training.
        covers: ids of the known failures that it detects, as the project's issues name them.
        explains: facts, or how their keys begin, that cannot be read where it fails.
    """

    id: str
    title: str
    phase: str
    reads: tuple[str, ...]
    fix: str
    judge: Judge
    required: bool = True
    covers: tuple[str, ...] = ()
    explains: tuple[str, ...] = ()

    @property
    def verdicts(self) -> str:
        """The meaning of its verdicts, from the docstring of its function."""
        return inspect.cleandoc(self.judge.__doc__ or "")


def check(
    name: str, *, title: str, reads: tuple[str, ...], fix: str,
    phase: str = STATIC, required: bool = True, covers: tuple[str, ...] = (),
    explains: tuple[str, ...] = (),
) -> Callable[[Judge], Judge]:  # fmt: skip
    """Put a function into the registry.

    Raises:
        ValueError: two checks of one id.
    """

    def register(judge: Judge) -> Judge:
        if name in _CHECKS:
            raise ValueError(f"two checks called {name}")
        _CHECKS[name] = Check(name, title, phase, reads, fix, judge, required, covers, explains)
        return judge

    return register


def known_checks() -> dict[str, Check]:
    """Return every check by id, in the order in which they run, whatever was imported first."""
    modules = [importlib.import_module(f"env.checks.{theme}").__name__ for theme in THEMES]
    places = {name: number for number, name in enumerate(modules)}
    ordered = sorted(_CHECKS.values(), key=lambda one: places[one.judge.__module__])
    return {one.id: one for one in ordered}


def find_check(name: str) -> Check:
    """Return one check.

    Raises:
        UserError: there is none of that id; the known ones are listed.
    """
    checks = known_checks()
    if name not in checks:
        raise unknown_name("check", name, known=checks)
    return checks[name]


def run_check(one: Check, evidence: Evidence) -> Result:
    """Run a check and return its worst result."""
    return min(run_all(one, evidence), key=lambda result: result.status.severity)


def run_all(one: Check, evidence: Evidence) -> list[Result]:
    """Run a check; what it cannot read and what it trips over both come out as UNKNOWN.

    What it had found before that still counts, and so does what is wrong with other ranks than
    those that could not read a fact.
    """
    findings: list[Finding] = []
    try:
        judged = one.judge(evidence)
        for finding in [judged] if isinstance(judged, Finding) else judged:
            findings.append(finding)  # one by one: a generator may raise on its way
    except CannotTellError as error:
        if error.ranks and set(error.ranks) < set(evidence.reported):
            others = run_all(one, evidence.without(error.ranks))
            bad = [result for result in others if result.status in (Status.FAIL, Status.WARN)]
        else:
            bad = []
        unknown = Finding(Status.UNKNOWN, one.title, f"{_CANNOT_TELL}{error}", ranks=error.ranks)
        return [_result(one, finding) for finding in findings] + bad + [_result(one, unknown)]
    except Exception as error:  # a fault of ours must not hide the other results
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(frame.filename).name}:{frame.lineno}"
        text = f"the check itself broke at {place}: {type(error).__name__}: {error}"
        fix = f"report this as a fault of the check; --skip {one.id} leaves it out"
        findings += [Finding(Status.UNKNOWN, one.title, text, where=place, fix=fix)]
    findings = findings or [Finding(Status.PASS, one.title, "nothing against it")]
    return [_result(one, finding) for finding in findings]


def skip_consequences(results: Sequence[Result], *, checks: Iterable[Check]) -> list[Result]:
    """Return results, SKIP for what cannot be told because another check has failed.

    The cure is that check's: the fixes of those that follow from it would only mislead.

    Args:
        results: of all checks that ran.
        checks: those checks.
    """
    by_id = {one.id: one for one in checks}
    failed = [r for r in results if r.status is Status.FAIL and by_id[r.id].explains]

    def judge_again(result: Result) -> Result:
        blind = result.status is Status.UNKNOWN and result.found.startswith(_CANNOT_TELL)
        for cause in failed if blind and result.phase == STATIC else ():
            same_hosts = set(result.hosts) <= set(cause.hosts)
            if same_hosts and any(
                key.startswith(by_id[cause.id].explains) for key in by_id[result.id].reads
            ):
                found = f"could not tell, since {cause.id} failed"
                return replace(result, status=Status.SKIP, found=found, fix="")
        return result

    return [judge_again(result) for result in results]


def _result(one: Check, finding: Finding) -> Result:
    needs_fix = finding.status in (Status.FAIL, Status.WARN, Status.UNKNOWN)
    return Result(
        one.id, finding.status, one.phase, finding.expected, finding.found, finding.where,
        finding.fix or (one.fix if needs_fix else ""), finding.hosts, finding.ranks,
    )  # fmt: skip
