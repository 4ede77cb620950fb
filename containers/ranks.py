"""Starts the ranks of a validation and collects what they report, whatever becomes of the launch.

Knows how to wait no longer than told, and how to end a launcher so that it takes its ranks along
on every host. Leaves command lines to ``containers.launchers``, the form of records to
``env.records`` and judging to ``env``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from containers.launch import missing_program, project_environ
from containers.process import stop_later, stoppable
from env.facts import Fact, Facts, write_facts
from env.records import LAUNCH_FILE, parse_output, write_records

# What a launcher needs to tell its daemons on other hosts to stop, and they their ranks.
_GRACE_S = 10.0
_MAX_BYTES = 256 * 2**20
_MAX_WORDS = 4000


def start_ranks(argv: Sequence[str], *, folder: Path, timeout_s: float) -> dict[int, Facts]:
    """Run a launcher's command line, and write what its ranks report into a folder.

    How the launch went is written beside the records (``launcher.*``): a launcher that fails or
    hangs is for a check to judge.

    Args:
        argv: the command line, whose ranks print their records.
        folder: takes the records.
        timeout_s: seconds after which the launcher is ended, with all its ranks.

    Returns:
        The ranks' facts, of those that reported.

    Raises:
        UserError: the launcher's program is not there.
    """
    begin = time.monotonic()
    timed_out = False
    child = None
    with stoppable():
        try:
            with stop_later():
                child = _start(argv)
                pipes = [_Drain(child.stdout), _Drain(child.stderr)]
            child.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            if child:
                end_launcher(child)
    told, said = (pipe.text() for pipe in pipes)
    ranks, rest = parse_output(told)
    # Daemons and ranks write to the same place as the launcher itself.
    words = "\n".join(part for part in (parse_output(said)[1], rest) if part)
    launch = _how_it_went(argv, child, words, timeout_s=timeout_s if timed_out else None)
    launch["launcher.seconds"] = Fact(round(time.monotonic() - begin, 3), "clock")
    write_records(folder, ranks)
    write_facts(folder / LAUNCH_FILE, launch)
    return ranks


def _start(argv: Sequence[str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=project_environ(), start_new_session=True,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise missing_program(argv[0]) from error


def _how_it_went(
    argv: Sequence[str], child: subprocess.Popen[bytes], words: str, *, timeout_s: float | None
) -> dict[str, Fact]:
    origin = argv[0]
    code = child.returncode
    end = f"exit code {code}" if code >= 0 else f"died by signal {-code}"
    if timeout_s is not None:
        end = f"no end within {timeout_s:g} s"
    return {
        "launcher.end": Fact(end, origin),
        "launcher.words": Fact(words[-_MAX_WORDS:], origin),
        "launcher.timed_out": Fact(timeout_s is not None, origin),
    }


class _Drain:
    """Empties a pipe into memory, so that nobody who writes to it has to wait."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._parts: list[bytes] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        size = 0
        while part := os.read(self._pipe.fileno(), 2**16):
            size += len(part)
            if size <= _MAX_BYTES:
                self._parts.append(part)

    def text(self) -> str:
        """Return what came; whoever still holds the pipe is not waited for."""
        self._thread.join(timeout=1)
        return b"".join(self._parts).decode("utf-8", errors="replace")


def end_launcher(child: subprocess.Popen[Any]) -> None:
    """End a launcher with a session of its own, first in its way, which ends ranks on all hosts."""
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):  # one that hangs: its daemons end without it
            child.wait(timeout=_GRACE_S)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)  # what it left in its session, ssh among it
    child.wait()
