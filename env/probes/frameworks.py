"""TensorFlow, Horovod and the libraries they map, observed in a child process.

Knows how to read what ``env.probes.inside`` prints, and what its death means. An
import that fails is an observation (``{"error": …}`` or ``{"signal": …}``); a child
that gives no answer leaves the fact unread.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from env.facts import Fact
from env.probes.child import Outcome, run_child, without_launcher
from env.probes.inside import BEGIN, FACT

IMPORT_TIMEOUT_S = 180.0
INSIDE = Path(__file__).with_name("inside.py")
STAGES = ("tensorflow", "horovod", "mpi_library", "libraries", "program")


def probe_frameworks(
    *,
    environ: Mapping[str, str] = os.environ,
    mapped: bool = False,
    timeout_s: float = IMPORT_TIMEOUT_S,
    python: str = sys.executable,
) -> dict[str, Fact]:
    """Return the facts ``frameworks.*``.

    Args:
        environ: the child's environment; a launcher's variables are taken out, so that the
            child does not join or wait for somebody else's job.
        mapped: also name every library in the process (``frameworks.mapped``).
        timeout_s: seconds the child may take.
        python: the interpreter to try the imports in.
    """
    environ = without_launcher(environ)
    environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # -P: neither the script's folder nor the current one may lend a module.
    argv = [python, "-P", str(INSIDE), *(["--mapped"] if mapped else [])]
    outcome = run_child(argv, environ=environ, timeout_s=timeout_s)
    stages = (*STAGES, *(["mapped"] if mapped else []), "xla")
    return {f"frameworks.{name}": fact for name, fact in told_facts(outcome, stages).items()}


def told_facts(outcome: Outcome, stages: tuple[str, ...]) -> dict[str, Fact]:
    """Return by stage what a child told in the form of ``env.probes.inside``, or why not."""
    told, begun = _told(outcome.stdout)
    facts: dict[str, Fact] = {}
    culprit: str | None = None
    for stage in stages:
        if stage in told:
            fact = Fact(told[stage], outcome.origin)
            if isinstance(told[stage], dict) and "error" in told[stage]:
                culprit = culprit or stage
        elif stage == begun and outcome.problem is None:
            death = {"error": outcome.end, "signal": outcome.signal}
            fact = Fact(death, outcome.origin)
            culprit = stage
        elif culprit:
            fact = Fact(None, outcome.origin, problem=f"not reached: {culprit} failed")
        else:
            fact = Fact(None, outcome.origin, problem=outcome.end)
        facts[stage] = fact
    return facts


def _told(stdout: str) -> tuple[dict[str, Any], str | None]:
    """Return what the child observed, and the step it was in when it ended."""
    told: dict[str, Any] = {}
    begun = None
    for line in stdout.splitlines():
        if line.startswith(BEGIN):
            begun = line[len(BEGIN) :].strip()
        elif line.startswith(FACT):
            name, value = json.loads(line[len(FACT) :])
            told[name] = value
    return told, begun
