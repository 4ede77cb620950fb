"""Whether starting and stopping ranks leaves anything behind: processes, memory, folders, locks.

Each cycle starts ranks by the very path of a training, and stops them in the middle of their work
with SIGTERM, ctrl-C, by the death of a rank, or not at all. What this machine holds before and
after each is compared; root looks at a /dev/shm of its own, which other programs do not use. The
ranks join through MPI and hold shared memory; they need no TensorFlow, so that a hundred cycles
take minutes.

    python -m benchmarks.cycles --output FILE.json [--cycles N]
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from benchmarks.record import write_record
from containers.launch import Site, launch_command, plan_ranks, project_environ
from containers.launchers import Launch, find_launcher

RANKS = 2
SETTLE_S = 10.0
# Ranks join within seconds, and leave within a minute.
PATIENCE_S = 120.0
WAYS = ("SIGTERM", "SIGINT", "end", "SIGKILL of a rank")
_RANK = """
import ctypes, os, pathlib, signal, sys, time
mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
mpi.MPI_Init(None, None)
stop = []
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, lambda n, frame: stop.append(n))
folder, rank = pathlib.Path(sys.argv[1]), os.environ["OMPI_COMM_WORLD_RANK"]
(folder / rank).write_text(str(os.getpid()))
end = time.monotonic() + float(sys.argv[2])
while not stop and time.monotonic() < end:
    time.sleep(0.02)
mpi.MPI_Finalize()
sys.exit(75 if stop else 0)
"""
_START = """
import signal, sys
from containers.launch import run_command
sys.exit(run_command(sys.argv[1:], ask_ranks=signal.SIGUSR1))
"""


def holdings(mark: str) -> dict[str, set[str]]:
    """Return what this machine holds of ranks and launchers, by kind.

    Args:
        mark: a word in the environment of all that belongs to the cycles.
    """
    temporary = Path(tempfile.gettempdir())
    return {
        "processes": {str(pid) for pid in _processes(mark)},
        "shared memory": {path.name for path in Path("/dev/shm").iterdir() if _is_ours(path)},
        "folders": {path.name for path in temporary.iterdir() if not path.name.endswith(".lock")},
        "locks": {path.name for path in temporary.glob("*.lock")},
    }


def _is_ours(path: Path) -> bool:
    try:
        return path.stat().st_uid == os.getuid()
    except OSError:
        return False


def _processes(mark: str) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def run_cycle(way: str, *, mark: str) -> tuple[int, float]:
    """Start ranks and stop them in one of `WAYS`; return the exit code and the seconds to the end.

    Args:
        way: how they are stopped.
        mark: stands in the environment of all that is started.

    Raises:
        RuntimeError: the ranks did not join, or did not leave.
    """
    with tempfile.TemporaryDirectory(prefix="chexnet_cycle_") as name:
        folder = Path(name)
        launch = Launch(plan_ranks(RANKS, oversubscribe=True), find_launcher(remote=False),
                        folder=folder)  # fmt: skip
        ends_after = "0.2" if way == "end" else "60"
        command = ["python", "-c", _RANK, str(folder), ends_after]
        line = launch_command(launch, command=command, site=Site())
        environ = {**project_environ(), "CHEXNET_CYCLE": mark, "TMPDIR": tempfile.gettempdir()}
        child = subprocess.Popen([sys.executable, "-c", _START, *line], env=environ,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
        try:
            return _stop(child, way, ranks=[folder / str(rank) for rank in range(RANKS)])
        except BaseException:  # what hangs is not left; what leaves by itself is measured
            for pid in (child.pid, *_processes(mark)):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            child.wait()
            raise


def _stop(child: subprocess.Popen[bytes], way: str, *, ranks: Sequence[Path]) -> tuple[int, float]:
    """Stop ranks once each has written its file; return the exit code and the seconds it took."""
    deadline = time.monotonic() + PATIENCE_S
    while child.poll() is None and not all(p.exists() and p.read_text() for p in ranks):
        if time.monotonic() > deadline:
            raise RuntimeError(f"{RANKS} ranks did not join within {PATIENCE_S:g} s")
        time.sleep(0.02)
    begin = time.monotonic()
    if way == "SIGKILL of a rank":
        os.kill(int(ranks[-1].read_text()), signal.SIGKILL)
    elif way != "end":
        child.send_signal(signal.Signals[way])
    try:
        return child.wait(timeout=PATIENCE_S), time.monotonic() - begin
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"no end within {PATIENCE_S:g} s after {way}") from error


def run_cycles(count: int, *, ways: Sequence[str] = WAYS) -> list[dict[str, object]]:
    """Return one result for each way of stopping: how often, what was left, how long it took."""
    tallies: dict[str, Counter[str]] = {way: Counter() for way in ways}
    codes: dict[str, Counter[str]] = {way: Counter() for way in ways}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(count):
        way, mark = ways[number % len(ways)], f"cycle-{os.getpid()}-{number}"
        before = holdings(mark)
        code, took = run_cycle(way, mark=mark)
        seconds[way].append(took)
        codes[way][str(code)] += 1
        for kind, left in left_behind(before, mark=mark).items():
            tallies[way][kind] += len(left)
    return [
        {"name": f"left after {way}", "value": sum(tallies[way].values()), "unit": "things",
         "cycles": len(seconds[way]), "left": dict(tallies[way]), "exit_codes": dict(codes[way]),
         "longest_s": round(max(seconds[way]), 2)}
        for way in ways if seconds[way]
    ]  # fmt: skip


def left_behind(before: dict[str, set[str]], *, mark: str) -> dict[str, set[str]]:
    """Return what is there more than before, once it has had the time to go."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        now = holdings(mark)
        more = {kind: now[kind] - before[kind] for kind in now if now[kind] - before[kind]}
        if not more or time.monotonic() > deadline:
            return more
        time.sleep(0.1)


def apart(words: Sequence[str]) -> list[str]:
    """Return the command line that runs this program with shared memory of its own."""
    again = [sys.executable, "-m", "benchmarks.cycles", *words, "--apart"]
    own = 'mount -t tmpfs tmpfs /dev/shm && exec "$0" "$@"'
    return ["unshare", "--mount", "sh", "-c", own, *again] if os.geteuid() == 0 else again


def main(words: Sequence[str] | None = None) -> int:
    """Run the cycles and write the record; fail where anything was left."""
    words = list(sys.argv[1:] if words is None else words)
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, required=True, metavar="FILE")
    parser.add_argument("--cycles", type=int, default=100, metavar="N")
    parser.add_argument("--apart", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args(words)
    if not arguments.apart:
        with tempfile.TemporaryDirectory(prefix="cycles_") as name:
            environ = {**project_environ(), "TMPDIR": name}
            return subprocess.run(apart(words), env=environ, check=False).returncode
    results = run_cycles(arguments.cycles)
    left = sum(int(str(result["value"])) for result in results)
    said = [word for word in words if word != "--apart"]
    command = ["python", "-m", "benchmarks.cycles", *said]
    write_record(arguments.output, command=command, packages=(), results=results,
                 ratios={"left a cycle": left / arguments.cycles})  # fmt: skip
    print(f"{arguments.cycles} cycles left {left} things behind; {arguments.output}")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
