"""How long set-up takes: cold into an empty folder, then with nothing to do.

Cold means an empty CHEXNET_HOME: Python packages are fetched, Horovod is compiled.
System packages are there already; what apt takes on a bare machine is not in it.

    python -m benchmarks.set_up --output FILE.json
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.record import write_record

PROJECT = Path(__file__).resolve().parent.parent
WARM_RUNS = 5


def time_set_up(home: Path) -> float:
    """Return the seconds that `env/bootstrap.sh true` takes with a given folder."""
    # PATH of a login shell: this program's own may hold the Apptainer of another set-up.
    environ = {**os.environ, "CHEXNET_HOME": str(home), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    environ.pop("PYTHONPATH", None)
    started = time.perf_counter()
    subprocess.run([PROJECT / "env" / "bootstrap.sh", "true"], env=environ, check=True)
    return time.perf_counter() - started


def main() -> None:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, metavar="FILE.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chexnet-set-up-") as folder:
        home = Path(folder) / "home"
        cold = time_set_up(home)
        warm = [time_set_up(home) for _ in range(WARM_RUNS)]
    results = [
        {"name": "cold", "value": round(cold, 1), "unit": "s"},
        {
            "name": "warm",
            "value": round(statistics.median(warm), 2),
            "unit": "s",
            "slowest": round(max(warm), 2),
            "fastest": round(min(warm), 2),
            "rounds": WARM_RUNS,
        },
    ]
    write_record(
        arguments.output,
        command=["python", "-m", "benchmarks.set_up"],
        packages=("tensorflow-cpu", "horovod"),
        results=results,
        ratios={},
    )


if __name__ == "__main__":
    main()
