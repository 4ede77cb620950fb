"""How long the demo takes, by part, and what it learns.

Runs `invoke demo` as a user would, into a new folder, and takes the numbers from the
files it leaves.

    python -m benchmarks.demo --output FILE.json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.record import write_record

PROJECT = Path(__file__).resolve().parent.parent


def run_demo(folder: Path) -> list[dict[str, object]]:
    """Run the demo and return its results: seconds of each part, AUROC of each finding."""
    invoke = [sys.executable, "-m", "invoke", "--search-root", str(PROJECT)]
    command = [*invoke, "demo", "--output", str(folder)]
    started = time.perf_counter()
    subprocess.run(command, check=True)
    total = time.perf_counter() - started
    seconds = json.loads((folder / "demo.json").read_text())["seconds"]
    scores = json.loads((folder / "run" / "evaluation.json").read_text())
    results: list[dict[str, object]] = [
        {"name": name, "value": value, "unit": "s"} for name, value in seconds.items()
    ]
    results.append({"name": "total", "value": round(total, 1), "unit": "s"})
    record = json.loads((folder / "run" / "record.json").read_text())
    for name, value in record["startup_s"].items():
        results.append({"name": f"to the first step: {name}", "value": value, "unit": "s"})
    for name in ("seconds", "images_per_s"):
        unit = "s" if name == "seconds" else "images/s"
        results.append(
            {"name": f"training: {name}", "value": record["throughput"][name], "unit": unit}
        )
    results.append({"name": "mean AUROC", "value": scores["mean_auroc"], "unit": "AUROC"})
    for row in scores["findings"]:
        results.append({"name": f"AUROC {row['finding']}", "value": row["auroc"], "unit": "AUROC"})
    return results


def main() -> None:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, metavar="FILE.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chexnet-demo-") as folder:
        results = run_demo(Path(folder) / "demo")
    write_record(
        arguments.output,
        command=["python", "-m", "benchmarks.demo"],
        packages=("tensorflow-cpu", "keras", "horovod"),
        results=results,
        ratios={},
    )


if __name__ == "__main__":
    main()
