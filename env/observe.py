"""Running probes: several at a time, and none that breaks takes the others' facts with it.

Most of a probe's time is waiting for a child process. Leaves which probes there are to
``env.validate`` and what they look at to ``env.probes``.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from env.facts import Fact, Facts

Probe = Callable[[Path, Mapping[str, str]], Mapping[str, Fact]]
_AT_ONCE = 4


def run_probes(probes: Mapping[str, Probe], *, root: Path, environ: Mapping[str, str]) -> Facts:
    """Run probes and return all their facts, in the order of the probes.

    Args:
        probes: by the first part of their facts' keys.
        root: the folder in which /proc, /sys, /etc and /dev lie.
        environ: the environment to observe in.
    """
    try:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            futures = [pool.submit(run_probe, n, p, root, environ) for n, p in probes.items()]
            told = [future.result() for future in futures]
    except RuntimeError:  # no thread may be started here, which a check will tell
        told = [run_probe(name, probe, root, environ) for name, probe in probes.items()]
    facts = Facts()
    for one in told:
        facts |= one
    return facts


def run_probe(
    name: str, probe: Probe, root: Path, environ: Mapping[str, str]
) -> Mapping[str, Fact]:
    """Run one probe; a fault of ours in it leaves its facts unread, with the place.

    Args:
        name: the first part of its facts' keys.
        probe: what to run.
        root: the folder in which /proc, /sys, /etc and /dev lie.
        environ: the environment to observe in.
    """
    try:
        return probe(root, environ)
    except Exception as error:  # whatever a strange machine makes it trip over
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(frame.filename).name}:{frame.lineno}"
        problem = f"the probe itself broke: {type(error).__name__}: {error}"
        return {f"{name}.probe": Fact(None, place, problem=problem)}
