"""How long starting takes: our launch beside a bare mpirun, and a whole preflight over three hosts.

The three hosts are namespaces on this machine, as in the tests: every process of all of them shares
its cores, and their network is memory. They need root; without it that number is left out.

    python -m benchmarks.launching --output FILE.json [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import runpy
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.record import write_record
from containers.launch import project_environ
from env.stack import PROJECT

RANKS = 2
PATIENCE_S = 600.0
HOSTS = "node1:1,node2:1,node3:1"
_OURS = """
import sys
from containers.job import Job, choose_launcher, launch_here
from containers.launch import Site, launch_command, run_command
from pathlib import Path
job = Job(ranks=int(sys.argv[1]), oversubscribe=True)
launch = launch_here(job, launcher=choose_launcher(job), folder=Path(sys.argv[2]), device="cpu")
sys.exit(run_command(launch_command(launch, command=["true"], site=Site())))
"""


def time_line(line: Sequence[str]) -> float:
    """Run a command line and return its seconds.

    Raises:
        RuntimeError: it failed, or did not end.
    """
    begin = time.perf_counter()
    child = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, env=project_environ(),
                             cwd=PROJECT, start_new_session=True)  # fmt: skip
    try:
        said, _ = child.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"{line[0]}: no end within {PATIENCE_S:g} s") from error
    finally:
        if child.poll() is None:  # and with it what it started, which may hold the pipe
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    if child.returncode:
        raise RuntimeError(f"{line[0]} failed: {said[-4000:]}")
    return time.perf_counter() - begin


def measure_launch(rounds: int, folder: Path) -> list[dict[str, object]]:
    """Return the seconds of a bare mpirun of processes that do nothing, and of ours."""
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    options = ("-np", str(RANKS), "--map-by", "slot:OVERSUBSCRIBE", "--bind-to", "none")
    bare = ["mpirun", *root, *options, "true"]
    ours = [sys.executable, "-c", _OURS, str(RANKS), str(folder)]
    times: dict[str, list[float]] = {"bare mpirun": [], "our launch": []}
    for _ in range(rounds):  # by turns, so that what else runs disturbs both alike
        times["bare mpirun"].append(time_line(bare))
        times["our launch"].append(time_line(ours))
    return [
        {"name": name, "value": round(statistics.median(runs), 3), "unit": "s", "ranks": RANKS,
         "runs": [round(run, 3) for run in runs]}
        for name, runs in times.items()
    ]  # fmt: skip


def measure_preflight(rounds: int, folder: Path) -> list[dict[str, object]]:
    """Return the seconds of the whole validation over three hosts; nothing without root."""
    if os.geteuid():
        print("no root: the preflight over three hosts is left out", file=sys.stderr)
        return []
    hosts = runpy.run_path(str(PROJECT / "tests/hosts/lan.py"), run_name="lan")
    line = [sys.executable, "-m", "invoke", "validate-env", "--hosts", HOSTS, "--device", "cpu"]
    runs = []
    with hosts["Lan"](folder / "lan", "node1", "node2", "node3") as lan:
        for _ in range(rounds):
            runs.append(time_line(lan["node1"].enter(["env", "-C", str(PROJECT), *line])))
    median = round(statistics.median(runs), 3)
    told = {"hosts": 3, "ranks": 3, "runs": [round(run, 3) for run in runs]}
    return [{"name": "preflight over 3 hosts", "value": median, "unit": "s", **told}]


def main(words: Sequence[str] | None = None) -> int:
    """Measure and write the record."""
    words = list(sys.argv[1:] if words is None else words)
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, required=True, metavar="FILE")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    arguments = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="launching_") as name:
        results = measure_launch(arguments.rounds, Path(name))
        results += measure_preflight(max(1, arguments.rounds // 2), Path(name))
    seconds = {str(result["name"]): float(str(result["value"])) for result in results}
    added = round(seconds["our launch"] - seconds["bare mpirun"], 3)
    results.append({"name": "added by our launch", "value": added, "unit": "s", "ranks": RANKS})
    command = ["python", "-m", "benchmarks.launching", *words]
    write_record(arguments.output, command=command, packages=(), results=results, ratios={})
    for result in results:
        print(f"{result['name']}: {result['value']} {result['unit']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
