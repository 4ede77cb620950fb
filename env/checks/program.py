"""The training program itself: what it does before its ranks have chosen their devices."""

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
