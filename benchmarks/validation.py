"""How long validation takes: the static phase, eight ranks, the merging of thousands of records.

The records of the merge are made up: those of this machine, as 8 ranks on each of so many hosts
would have left them. The launched phase is held against the launcher alone, which starts as
many processes that do nothing.

    python -m benchmarks.validation --output FILE.json
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.record import write_record
from containers.job import Job, choose_launcher, launch_here
from containers.launch import Site, launch_command, project_environ
from containers.ranks import start_ranks
from env.checks.evidence import Evidence
from env.checks.registry import STATIC, known_checks
from env.facts import Fact, Facts, load_facts, write_facts
from env.launched import plan_look
from env.probes.rank import observe_rank
from env.records import load_records, write_records
from env.validate import PROBES, collect_static, device_of, find_lock, judge, select_checks

RANKS_A_HOST = 8
LAUNCHED_RANKS = 8
SIZES = (1024, 10_000)
RUNS = 3


def make_records(number: int, folder: Path) -> None:
    """Write the records of so many made-up ranks, and the facts of the static phase."""
    checks, _ = select_checks(launched=True)
    look = replace(plan_look(checks, probes=PROBES, except_boot="none"), join=False)
    mine = Facts()
    every = Facts(next(iter(observe_rank(look, lock_sha256=Fact("1" * 64, "made up")))))
    for part in observe_rank(look, lock_sha256=Fact("1" * 64, "made up")):
        mine |= part
    for rank in range(number):
        host, local = divmod(rank, RANKS_A_HOST)
        first = local == 0 and host > 0
        facts = (mine if first else every) | _of_rank(rank, number=number)
        write_records(folder, {rank: facts | {"rank.of_host": Fact(first, "made up")}})
    write_facts(folder / "static.json", collect_static())


def _of_rank(rank: int, *, number: int) -> dict[str, Fact]:
    """Return what differs from rank to rank."""
    host, local = divmod(rank, RANKS_A_HOST)
    address = f"10.{host // 250}.{host % 250}.1"
    interfaces = [
        {"name": "lo", "up": True, "loopback": True, "addresses": ["127.0.0.1/8"]},
        {"name": "eth0", "up": True, "loopback": False, "addresses": [f"{address}/8"]},
    ]
    values = {
        "host.name": f"node{host}",
        "host.boot_id": f"boot{host}",
        "host.affinity": [2 * local, 2 * local + 1],
        "launch.rank": rank,
        "launch.local_rank": local,
        "launch.size": number,
        "rank.mapped": ["/usr/lib/libmpi.so.40 (1 bytes)"],
        "network.interfaces": [{"speed_mbit": 100_000, "mtu": 9000, **i} for i in interfaces],
        "network.own_name": [address],
        "frameworks.horovod_init": {"rank": rank, "size": number, "local_rank": local},
    }
    return {key: Fact(value, "made up") for key, value in values.items()}


def merge(folder: Path) -> tuple[float, float]:
    """Read and judge the records of a folder; return seconds and the peak memory in MB."""
    checks, _ = select_checks(launched=True)
    _, lock = find_lock(lock=None, stack=None)
    facts = load_facts(folder / "static.json")
    begin = time.perf_counter()
    ranks = load_records(folder)
    evidence = Evidence(facts, len(ranks), ranks, lock=lock, stack_device=device_of(lock))
    report = judge(evidence, checks=checks)
    seconds = time.perf_counter() - begin
    if len(report.hosts) < len(ranks) // RANKS_A_HOST:
        raise RuntimeError(f"only {len(report.hosts)} hosts in the report")
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def measure_merge(number: int, folder: Path) -> list[dict[str, object]]:
    """Return the results of merging so many records, each time in a process of its own."""
    make_records(number, folder)
    runs = []
    for _ in range(RUNS):
        argv = [sys.executable, "-m", "benchmarks.validation", "--merge", str(folder)]
        done = subprocess.run(argv, capture_output=True, text=True, check=True,
                              env=project_environ())  # fmt: skip
        runs.append(tuple(map(float, done.stdout.split())))
    seconds, peaks = zip(*runs, strict=True)
    size_mb = sum(path.stat().st_size for path in folder.glob("rank-*")) / 1e6
    common = {"ranks": number, "hosts": -(-number // RANKS_A_HOST), "records_mb": round(size_mb, 1)}
    return [
        {"name": f"merge {number} records", "value": round(min(seconds), 3), "unit": "s",
         "runs": [round(s, 3) for s in seconds], **common},
        {"name": f"merge {number} records, peak memory", "value": round(max(peaks), 1),
         "unit": "MB", **common},
    ]  # fmt: skip


def measure_static() -> list[dict[str, object]]:
    """Return the results of the static phase with and without an import of TensorFlow."""
    importing = [
        one.id
        for one in known_checks().values()
        if one.phase == STATIC and any(key.startswith("frameworks.") for key in one.reads)
    ]
    judge_all = [sys.executable, "-m", "env"]
    lines = {
        "static phase without TensorFlow": [*judge_all, "--skip", ",".join(importing)],
        "static phase": judge_all,
    }
    results = []
    for name, line in lines.items():
        seconds = _times(lambda line=line: _run(line))
        results.append({"name": name, "value": min(seconds), "unit": "s", "runs": seconds})
    return results


def measure_launched(folder: Path) -> list[dict[str, object]]:
    """Return the results of a launch of ranks, and of one that does nothing."""
    job = Job(LAUNCHED_RANKS, oversubscribe=True)
    launch = launch_here(job, launcher=choose_launcher(job), folder=folder, device="cpu")
    labelled = replace(launch, label=True)
    nothing = launch_command(labelled, command=["true"], site=Site())
    rank = launch_command(labelled, command=["python", "-m", "env", "rank"], site=Site())

    def ranks() -> None:
        told = start_ranks(rank, folder=folder, timeout_s=120)
        if len(told) != LAUNCHED_RANKS:
            raise RuntimeError(f"{len(told)} of {LAUNCHED_RANKS} ranks reported")

    results = []
    for name, work in (("launcher alone", lambda: _run(nothing)), ("launched phase", ranks)):
        seconds = _times(work)
        results.append({"name": f"{name}, {LAUNCHED_RANKS} ranks", "value": min(seconds),
                        "unit": "s", "runs": seconds})  # fmt: skip
    return results


def _times(work: Callable[[], object]) -> list[float]:
    seconds = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        work()
        seconds.append(round(time.perf_counter() - begin, 3))
    return seconds


def _run(argv: Sequence[str]) -> None:
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, env=project_environ())


def main() -> None:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, metavar="FILE.json")
    parser.add_argument(
        "--merge", type=Path, metavar="DIR", help="merge these records; used inside"
    )
    arguments = parser.parse_args()
    if arguments.merge:
        print(*merge(arguments.merge))
        return
    results = measure_static()
    with tempfile.TemporaryDirectory(prefix="chexnet_validation_") as name:
        results += measure_launched(Path(name))
        for number in SIZES:
            folder = Path(name) / str(number)
            folder.mkdir()
            results += measure_merge(number, folder)
    values = {str(result["name"]): float(str(result["value"])) for result in results}
    per_rank = [values[f"merge {n} records"] / n for n in (SIZES[0], SIZES[-1])]
    write_record(
        arguments.output,
        command=["python", "-m", "benchmarks.validation", "--output", arguments.output.name],
        packages=["tensorflow-cpu", "horovod"],
        results=results,
        ratios={f"merge, seconds a record: {SIZES[-1]} over {SIZES[0]}":
                round(per_rank[1] / per_rank[0], 2)},
    )  # fmt: skip


if __name__ == "__main__":
    main()
