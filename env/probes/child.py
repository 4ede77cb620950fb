"""Running a child process whose death is an observation, never an accident of ours.

Knows signals, exit codes and time limits. Leaves what to run, and what its output
means, to the other probes.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Variables by which a launcher tells a process that it is one of many. A child that
# inherits them by mistake joins, or waits for, a job that is not its own.
LAUNCHER_PREFIXES = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "HYDRA_", "SLURM_", "HOROVOD_RANK",
                     "HOROVOD_SIZE", "HOROVOD_LOCAL_", "HOROVOD_CROSS_")  # fmt: skip
# ... but these permit root to start mpirun, and say nothing about a job.
_PERMISSIONS = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")


@dataclass(frozen=True)
class Outcome:
    """How a child ended.

    Attributes:
        argv: what was run.
        exit_code: None where a signal or the time limit ended it, or it never started.
        signal: the name of the signal that ended it, e.g. ``"SIGILL"``.
        problem: why its end is unknown: it did not start, or the time limit passed.
        stdout: all it printed.
        stderr: all it printed to standard error.
    """

    argv: tuple[str, ...]
    exit_code: int | None
    signal: str | None
    problem: str | None
    stdout: str
    stderr: str

    @property
    def origin(self) -> str:
        """The command line, as the origin of what it told."""
        return " ".join(self.argv)

    @property
    def end(self) -> str:
        """Say in words how it ended, with the last line it wrote to standard error."""
        how = self.problem or (f"died by {self.signal}" if self.signal else "")
        how = how or f"exit code {self.exit_code}"
        lines = [line for line in self.stderr.splitlines() if line.strip()]
        return f"{how}: {lines[-1].strip()}" if lines else how


def without_launcher(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which a child does not take itself for a rank."""
    return {
        key: value
        for key, value in environ.items()
        if key in _PERMISSIONS or not key.startswith(LAUNCHER_PREFIXES)
    }


def run_child(argv: Sequence[str], *, environ: Mapping[str, str], timeout_s: float) -> Outcome:
    """Run a command and return how it ended; never raises for what the child does.

    Args:
        argv: the command line.
        environ: the child's whole environment.
        timeout_s: seconds after which it is killed.
    """
    try:
        child = subprocess.Popen(
            list(argv), env=dict(environ), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, errors="replace",
        )  # fmt: skip
    except (OSError, ValueError) as error:  # ValueError: a null byte in an argument
        return Outcome(tuple(argv), None, None, f"did not start: {error}", "", "")
    try:
        stdout, stderr = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        child.kill()
        stdout, stderr = _leftovers(child)
        problem = f"no answer within {timeout_s:g} s"
        return Outcome(tuple(argv), None, None, problem, stdout, stderr)
    code = child.returncode
    # A shell reports a signal's death of what it ran as 128 + number.
    number = -code if code < 0 else code - 128 if code > 128 else 0
    name = _signal_name(number)
    return Outcome(tuple(argv), None if name else code, name, None, stdout, stderr)


def _leftovers(child: subprocess.Popen[str]) -> tuple[str, str]:
    """Return what a killed child had printed; its own children may hold the pipes open."""
    try:
        return child.communicate(timeout=1)
    except subprocess.TimeoutExpired as error:
        for pipe in (child.stdout, child.stderr):
            if pipe:
                pipe.close()
        texts = (error.stdout, error.stderr)
        first, second = (t.decode(errors="replace") if isinstance(t, bytes) else t for t in texts)
        return first or "", second or ""


def _signal_name(number: int) -> str | None:
    try:
        return signal.Signals(number).name
    except ValueError:
        return None
