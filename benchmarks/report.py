"""How large the page of a run is, and how long it takes to make.

Makes a run folder of 14 findings with full curves, a long log of steps and a full gallery, then
runs `invoke report` on it as a user would, several times.

    python -m benchmarks.report --output FILE.json
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

from benchmarks.record import write_record
from benchmarks.report_run import make_run

PROJECT = Path(__file__).resolve().parent.parent
REPEATS = 5


def make_full_run(folder: Path) -> Path:
    """Return a run folder with as much of everything as a real one may have."""
    run = make_run(folder / "run", data=folder / "data", epochs=50)
    plots = run / "plots"
    for path in plots.glob("gallery-*.png"):
        # Noise packs badly: near the 60 kB that `chexnet.prediction.gallery` allows a picture.
        Image.effect_noise((240, 240), 60).save(path)
    return run


def measure(run: Path, *, repeats: int) -> list[dict[str, object]]:
    """Make the page some times and return its size and the seconds that took."""
    invoke = [sys.executable, "-m", "invoke", "--search-root", str(PROJECT)]
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        subprocess.run([*invoke, "report", "--run", str(run)], check=True)
        seconds.append(time.perf_counter() - started)
    page = (run / "report.html").stat().st_size
    pictures = [path.stat().st_size for path in (run / "plots").glob("gallery-*.png")]
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").count("\n")
    return [
        {"name": "page", "value": page, "unit": "B"},
        {"name": "pictures in it", "value": sum(pictures), "unit": "B"},
        {"name": "lines of metrics.jsonl", "value": lines, "unit": "lines"},
        {"name": "invoke report, median", "value": round(statistics.median(seconds), 2),
         "unit": "s", "repeats": repeats},
        {"name": "invoke report, slowest", "value": round(max(seconds), 2), "unit": "s"},
    ]  # fmt: skip


def main() -> None:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, metavar="FILE.json")
    parser.add_argument("--repeats", type=int, default=REPEATS, metavar="N")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chexnet-report-") as folder:
        results = measure(make_full_run(Path(folder)), repeats=arguments.repeats)
    write_record(
        arguments.output,
        command=["python", "-m", "benchmarks.report"],
        packages=("jinja2", "matplotlib", "pillow"),
        results=results,
        ratios={},
    )


if __name__ == "__main__":
    main()
