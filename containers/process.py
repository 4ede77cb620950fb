"""Long commands: run with their output in a log, progress shown, no orphans left.

Knows how to show that something is happening, and how to stop it. Leaves which
command to run to its callers.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TextIO

from env.errors import EXIT_FAILED, UserError

LAST_LINES = 20
_PLAIN_EVERY_S = 30.0
_POLL_S = 0.25
_GRACE_S = 20.0
_TAIL_COLUMNS = 120
_SPINNER = "|/-\\"


@dataclass(frozen=True)
class Step:
    """One command line with what it is for.

    Attributes:
        title: said while it runs, e.g. ``"compile Horovod"``.
        argv: the command line, as tokens.
        cwd: the folder it runs in, None for the current one.
        product: what it makes, and where that is moved to once it is whole.
    """

    title: str
    argv: tuple[str, ...]
    cwd: Path | None = None
    product: tuple[Path, Path] | None = None

    def __str__(self) -> str:
        """Return what runs as a shell would take it."""
        lines = [shlex.join(self.argv)]
        if self.cwd:
            lines.insert(0, shlex.join(("cd", str(self.cwd))))
        if self.product:
            lines.append(shlex.join(("mv", "-T", *map(str, self.product))))
        return " && ".join(lines)


def run_step(step: Step, *, log: Path, stream: TextIO | None = None) -> float:
    """Run one step, its output appended to a log, its progress shown.

    Args:
        step: what to run.
        log: the file that gets everything it prints, and the line itself.
        stream: where progress goes, standard error by default.

    Returns:
        How long it took, in seconds.

    Raises:
        UserError: the program is not there, or it failed: the log is named and its last
            lines are shown (exit code 1).
    """
    stream = stream or sys.stderr
    started = time.monotonic()
    with log.open("a", encoding="utf-8") as sink:
        print(f"$ {step}", file=sink, flush=True)
        begin = sink.tell()
        child = None
        try:
            with stop_later():
                child = _start(step, sink=sink)
            _wait(child, step.title, log=log, stream=stream)
        finally:
            if child:
                _stop(child)
    if child.returncode:
        raise UserError(
            f"to {step.title}",
            found=f"exit code {child.returncode}, after:\n{last_lines(log, begin=begin)}",
            fix=f"see the whole log: {log}",
            exit_code=EXIT_FAILED,
        )
    if step.product:
        settle(*step.product)
    return time.monotonic() - started


def settle(made: Path, final: Path) -> None:
    """Move what was made to its place; a folder that is there by now came from the same inputs."""
    try:
        made.replace(final)
    except OSError:
        if not final.is_dir():
            raise
        shutil.rmtree(made, ignore_errors=True)


def last_lines(log: Path, *, begin: int = 0, count: int = LAST_LINES) -> str:
    """Return the last lines of a log, of what was written after byte ``begin``."""
    with log.open("rb") as source:
        source.seek(max(begin, source.seek(0, os.SEEK_END) - 64 * 1024))
        text = source.read().decode("utf-8", errors="replace")
    return "\n".join(f"    {line}" for line in text.splitlines()[-count:])


@contextmanager
def stoppable() -> Iterator[None]:
    """Turn SIGTERM into an exit that runs every ``finally`` on its way, as ctrl-C does.

    SIGUSR1 too, by which a scheduler announces the end: there is no checkpoint to write yet.
    """

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    with _handled(leave):
        yield


@contextmanager
def stop_later() -> Iterator[None]:
    """Note what asks us to stop, and let it act at the end: a child is being started.

    An exception inside ``Popen`` would leave a child that nobody knows. To be entered inside the
    ``try`` that ends the child.
    """
    early: list[int] = []
    with _handled(lambda number, _frame: early.append(number)):
        yield
    for number in early:
        signal.raise_signal(number)


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Take over the signals that ask us to stop; the old handlers are back afterwards."""
    numbers = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP]
    # A dropped connection hangs up; under nohup that is ignored, and stays so.
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        numbers.remove(signal.SIGHUP)
    # Signals come to the main thread alone: in another there is nothing to take over.
    if threading.current_thread() is not threading.main_thread():
        numbers = []
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _start(step: Step, *, sink: TextIO) -> subprocess.Popen:
    try:
        return subprocess.Popen(
            step.argv, cwd=step.cwd,
            stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT,
            # A strict mask would close the image's own folders to its users.
            start_new_session=True, umask=0o022,
        )  # fmt: skip
    except OSError as error:
        raise UserError(f"{step.argv[0]!r} to run", found=str(error.strerror),
                        fix="install it", exit_code=EXIT_FAILED) from error  # fmt: skip


def _wait(child: subprocess.Popen, title: str, *, log: Path, stream: TextIO) -> None:
    """Wait for the child, saying how long it has been and what its log says last."""
    started, told, turn = time.monotonic(), 0.0, 0
    if not stream.isatty():
        print(f"{title} …", file=stream, flush=True)
    while True:
        try:
            child.wait(timeout=_POLL_S)
            break
        except subprocess.TimeoutExpired:
            elapsed = time.monotonic() - started
            if stream.isatty():
                line = f"{_SPINNER[turn % 4]} {title}  {elapsed:.0f} s  {_tail(log)}"
                print(f"\r\x1b[2K{line[: _columns(stream)]}", end="", file=stream, flush=True)
                turn += 1
            elif elapsed - told >= _PLAIN_EVERY_S:
                told = elapsed
                print(f"{title}: {elapsed:.0f} s  {_tail(log)}", file=stream, flush=True)
    elapsed = time.monotonic() - started
    clear = "\r\x1b[2K" if stream.isatty() else ""
    outcome = "done" if child.returncode == 0 else "FAILED"
    print(f"{clear}{title}: {outcome} in {elapsed:.0f} s", file=stream, flush=True)


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns - 1
    except OSError:
        return 79


def _tail(log: Path) -> str:
    return last_lines(log, count=1).strip()[:_TAIL_COLUMNS]


def _stop(child: subprocess.Popen) -> None:
    """End the child and all it started; its session is its own, so no one else is hit."""
    if child.poll() is not None:
        return
    for number, patience_s in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, None)):
        try:
            os.killpg(child.pid, number)
            child.wait(timeout=patience_s)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
        break
    child.wait()
