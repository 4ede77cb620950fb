"""Whether two builds of an image are the same, and how long they take.

Builds the Singularity image twice from one saved folder of packages, each time in another
folder with an empty cache (cold: base, wheels and Horovod are made), compares the two file by
file, and builds once more with the cache that is there by then (warm).

    python -m benchmarks.reproducible --output FILE.json [--stack cpu] [--packages DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from benchmarks.record import write_record


def measure_builds(
    stack_name: str, *, packages: Path, folder: Path
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Return the numbers of three builds, and every path that differs between the first two.

    Args:
        stack_name: a stack of the catalogue.
        packages: a folder saved by ``fetch-packages``.
        folder: takes the images and the caches.
    """
    from containers.build import build_image
    from containers.compare import compare_images, render_json
    from env.stack import load_stack

    results: list[dict[str, object]] = []
    images = {}
    for name, home in (("first, cold", "a"), ("second, cold", "b"), ("third, warm", "b")):
        place = folder / home
        place.mkdir(exist_ok=True)
        os.environ["CHEXNET_HOME"] = str(place / "home")
        made = build_image(load_stack(stack_name), format="singularity", packages=packages,
                           output=place / f"{stack_name}.sif", force=True)  # fmt: skip
        images[name] = Path(made.output)
        results.append(_number(f"{name}: size", made.size_bytes / 2**20, "MiB"))
        results += [_number(f"{name}: {step}", s, "s") for step, s in made.seconds.items()]
        if name.startswith("second"):
            told = compare_images(*(str(images[key]) for key in ("first, cold", name)))
            compared = json.loads(render_json(told))
    results.append(_number("paths in each image", compared["paths_a"], "paths"))
    for what in ("files", "packages", "labels", "components"):
        results.append(_number(f"differing {what}", len(compared[what]), what))
    return results, compared["files"]


def _number(name: str, value: float, unit: str) -> dict[str, object]:
    return {"name": name, "value": round(value, 1), "unit": unit}


def main() -> int:
    """Measure and write the record; exit with 1 where the builds differ."""
    from containers.packages import save_packages
    from env.stack import load_stack

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, metavar="FILE.json")
    parser.add_argument("--stack", default="cpu", metavar="S")
    parser.add_argument("--packages", type=Path, metavar="DIR", help="a folder saved before")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chexnet-twice-", ignore_cleanup_errors=True) as name:
        packages = given.packages or Path(name) / "packages"
        if not given.packages:
            save_packages(load_stack(given.stack), folder=packages)
        results, files = measure_builds(given.stack, packages=packages, folder=Path(name))
    write_record(
        given.output,
        command=["python", "-m", "benchmarks.reproducible", "--stack", given.stack],
        packages=("hpccm",),
        results=results,
        ratios={},
    )
    for change in files:
        print(f"{change['path']}: {change['change']}", file=sys.stderr)
    return 1 if files else 0


if __name__ == "__main__":
    sys.exit(main())
