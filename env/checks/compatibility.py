"""The versions found here, held against the rules of ``env/rules.toml``: a finding a rule.

Leaves the rules to ``env.rules``, finding the versions to ``env.observed``, and whether they
are those of the lock to ``env.checks.versions``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

from env.checks.evidence import Evidence
from env.checks.registry import check
from env.facts import CannotTellError, Fact
from env.observed import (
    READS_GPU,
    READS_MPI,
    READS_PACKAGES,
    capabilities,
    versions_of_gpu,
    versions_of_mpi,
    versions_of_packages,
)
from env.result import Finding, Status
from env.rules import (
    BROKEN,
    CANNOT_TELL,
    DOES_NOT_APPLY,
    HOLDS,
    Rule,
    Verdict,
    judge_rules,
    load_rules,
)

OF_MPI = frozenset({"openmpi", "pmix", "prrte", "hwloc", "slurm", "slurm_pmix"})
OF_GPU = frozenset({"cuda", "cudnn", "nccl", "nccl_cuda", "driver", "compute_capability"})
_FIX = (
    "run it in the image, where every version can be read, or mend what could not be; "
    "invoke stacks --explain S lists the rules with their sources"
)


@check(
    "rules.packages",
    title="Python, TensorFlow, its packages and Horovod go together",
    covers=("VER-10", "VER-14", "VER-20", "VER-21", "VER-23"),
    reads=READS_PACKAGES,
    fix=_FIX,
)
def check_packages(evidence: Evidence) -> Iterator[Finding]:
    """FAIL for each broken rule of compatibility, WARN where the rule only warns.

    The rules, their reasons and sources stand in ``env/rules.toml``. SKIP where no rule speaks
    about what is here.
    """
    evidence.facts.value("packages.installed")
    found = versions_of_packages(evidence.facts)
    others = [rule for rule in _rules() if not rule.components & (OF_MPI | OF_GPU)]
    yield from _judge([found], others)


@check(
    "rules.mpi",
    title="Open MPI, PMIx, PRRTE, hwloc and Slurm go together",
    covers=("MPI-01", "MPI-03", "MPI-10"),
    reads=READS_MPI,
    fix=_FIX,
    required=False,  # whether the ranks start is the proof; this names the reason
)
def check_mpi(evidence: Evidence) -> Iterator[Finding]:
    """FAIL for each broken rule of compatibility, WARN where the rule only warns.

    The rules, their reasons and sources stand in ``env/rules.toml``. SKIP where no rule speaks
    about what is here.
    """
    evidence.facts.value("mpi.banner")
    about = [rule for rule in _rules() if rule.components & OF_MPI]
    yield from _judge(versions_of_mpi(evidence.facts), about)


@check(
    "rules.gpu",
    title="driver, GPUs, CUDA, cuDNN, NCCL and TensorFlow go together",
    covers=("VER-01", "VER-02", "VER-06", "VER-08", "VER-17"),
    reads=READS_GPU,
    fix=_FIX,
)
def check_gpu(evidence: Evidence) -> Iterator[Finding]:
    """FAIL for each broken rule of compatibility, WARN where the rule only warns.

    The rules, their reasons and sources stand in ``env/rules.toml``. SKIP on a CPU run, and
    where no rule speaks about what is here.
    """
    if not evidence.wants_gpu:
        yield Finding(Status.SKIP, "versions for a GPU run", "this is a CPU run")
        return
    evidence.facts.value("gpu.nvml")
    yield from _judge(_for_each_gpu(evidence.facts), _about_gpus())


@functools.cache
def _rules() -> tuple[Rule, ...]:
    return load_rules()


def _about_gpus() -> list[Rule]:
    return [r for r in _rules() if r.components & OF_GPU and not r.components & OF_MPI]


def _for_each_gpu(facts: Mapping[str, Fact]) -> list[dict[str, Fact]]:
    """Return a set of versions for each generation of GPU on this host, one without any."""
    common = versions_of_gpu(facts)
    told = capabilities(facts)
    first = {text: name for name, text in reversed(told.items())}
    return [common | {"compute_capability": Fact(text, name)} for text, name in first.items()] or [
        common
    ]


def _judge(sets: list[dict[str, Fact]], rules: list[Rule]) -> Iterator[Finding]:
    """Yield a finding for each broken rule, one for all that cannot tell, else that all is well."""
    held: set[str] = set()
    seen: dict[str, Fact] = {}
    told: set[str] = set()
    open_: dict[str, str] = {}
    for found in sets:
        versions = {name: None if f.problem else f.value for name, f in found.items()}
        for verdict in judge_rules(versions, rules=rules):
            rule = verdict.rule
            if verdict.outcome != DOES_NOT_APPLY:
                seen |= {name: found[name] for name in rule.components}
            if verdict.outcome == HOLDS:
                held.add(rule.id)
            elif verdict.outcome == BROKEN and rule.id not in told:
                told.add(rule.id)
                yield _broken(verdict, found)
            elif verdict.outcome == CANNOT_TELL:
                lost = [name for name in sorted(rule.components) if versions[name] is None]
                open_[rule.id] = f"{lost[0]}: {found[lost[0]].problem} ({found[lost[0]].origin})"
    if open_:
        reasons = "; ".join(dict.fromkeys(open_.values()))
        raise CannotTellError(f"{reasons}; so these rules are open: {', '.join(open_)}")
    if not told and not held:
        yield Finding(Status.SKIP, "versions that a rule speaks about", "there are none here")
    elif not told:
        text = ", ".join(f"{name} {fact.value}" for name, fact in sorted(seen.items()))
        yield Finding(Status.PASS, f"{len(held)} rules that speak about these versions hold", text)


def _broken(verdict: Verdict, found: Mapping[str, Fact]) -> Finding:
    rule = verdict.rule
    needs = ", ".join(f"{name} {condition}" for name, condition in rule.requires.items())
    here = ", ".join(f"{name} {found[name].value}" for name in sorted(rule.components))
    places = dict.fromkeys(found[name].origin for name in rule.requires)
    return Finding(
        Status(rule.severity), f"{rule.id}: {needs}", f"{here}. {rule.reason}",
        where=f"{', '.join(places)}; sources: {', '.join(rule.sources)}",
        fix=rule.fix,
    )  # fmt: skip
