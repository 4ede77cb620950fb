"""The training program itself: what it does, or dies of, before its first step."""

from __future__ import annotations

from env.checks.evidence import Evidence
from env.checks.registry import check
from env.facts import CannotTellError
from env.result import Finding, Status


@check(
    "program.early",
    title="importing the training program starts no device",
    covers=("PIN-02",),
    reads=("frameworks.program",),
    fix="let the module compute nothing at its top level: no tensors, no model, no listing of "
    "local devices; a sitecustomize or a .pth file can do it as well",
    required=False,
)
def check_early(evidence: Evidence) -> Finding:
    """FAIL if TensorFlow computed while the program was imported: no rank can choose any more.

    Each rank then takes every GPU, and as many threads as the machine has cores. SKIP where
    the program is not installed.
    """
    expected = "TensorFlow at rest until a rank has chosen its device"
    told, where = evidence.facts.value("frameworks.program"), "frameworks.program"
    if told is None:
        return Finding(Status.SKIP, expected, "there is no training program here")
    if "error" in told:
        raise CannotTellError(f"{where}: {told['error']}")
    if told["early"]:
        return Finding(Status.FAIL, expected, f"{told['name']}: {told['early']}", where=where)
    return Finding(Status.PASS, expected, f"{told['name']} computes nothing when imported")


@check(
    "program.xla",
    title="XLA knows each flag that it is given",
    reads=("frameworks.xla",),
    fix="correct XLA_FLAGS and TF_XLA_FLAGS, or unset them: flags change from release to release",
    required=False,
)
def check_xla(evidence: Evidence) -> Finding:
    """FAIL if XLA ends a process because of its flags, as it will at the training's first step.

    Tried without GPUs, and only where a variable holds flags.
    """
    expected = "flags that this TensorFlow's XLA knows"
    told, where = evidence.facts.value("frameworks.xla"), "XLA_FLAGS and TF_XLA_FLAGS"
    if told is None:
        return Finding(Status.PASS, expected, "no flags")
    if "signal" in told:  # it died
        return Finding(Status.FAIL, expected, told["error"], where=where)
    if "error" in told:
        raise CannotTellError(f"{where}: {told['error']}")
    return Finding(Status.PASS, expected, f"it has read {' and '.join(told)}", where=where)
