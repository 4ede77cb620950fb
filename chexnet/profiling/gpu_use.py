"""How busy the GPUs are while something runs, asked from a child process.

Knows how to start and end the sampler, which is no part of this package: where it is missing, or
the host has no GPU, nothing is known, and that is said. Leaves the driver to the sampler.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from statistics import fmean
from types import TracebackType

SAMPLER = ("-m", "env.probes.gpu_use")
END_S = 5.0


class GpuSampler:
    """Samples this host's GPUs within a context.

    Attributes:
        uses: mean use of each GPU, 0 .. 1, by its number; empty where nothing is known.
        problem: why nothing is known; "" otherwise.
    """

    def __init__(self, *, enabled: bool, command: Sequence[str] = SAMPLER) -> None:
        self.uses: dict[int, float] = {}
        self.problem = "" if enabled else "not asked"
        self._enabled = enabled
        self._command = [sys.executable, *command]

    def __enter__(self) -> GpuSampler:
        if self._enabled:
            self._out = tempfile.TemporaryFile(mode="w+", encoding="utf-8")
            self._err = tempfile.TemporaryFile(mode="w+", encoding="utf-8")
            self._child = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=self._out, stderr=self._err
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._enabled:
            return
        self._child.terminate()
        try:
            self._child.wait(END_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._out.seek(0)
        self._err.seek(0)
        self.uses = read_samples(self._out)
        if not self.uses:
            self.problem = self._err.read().strip()[-300:] or "the sampler told nothing"
        self._out.close()
        self._err.close()


def read_samples(lines: Iterable[str]) -> dict[int, float]:
    """Return the mean use of each GPU over the sampler's lines; the last may be cut short.

    The first sample is of the time before, and left out where there are others.
    """
    samples: list[dict[int, float]] = []
    for line in lines:
        try:
            gpus = json.loads(line)["gpus"]
            samples.append({g["index"]: g["use"] for g in gpus if g["use"] is not None})
        except (ValueError, KeyError, TypeError):
            continue
    counted = samples[1:] or samples
    indices = sorted({index for sample in counted for index in sample})
    return {i: fmean(sample[i] for sample in counted if i in sample) for i in indices}


def mean_use(hosts: Sequence[tuple[str, dict[int, float]]]) -> float | None:
    """Return the mean use of the ranks' GPUs: on each host as many as ranks, the busiest.

    Args:
        hosts: for each rank its host, and what was sampled there; empty but for one rank a host.
    """
    uses: list[float] = []
    for host in dict.fromkeys(name for name, _ in hosts):
        ranks = sum(name == host for name, _ in hosts)
        known = [use for name, found in hosts if name == host for use in found.values()]
        uses += sorted(known, reverse=True)[:ranks]
    return fmean(uses) if uses else None
