"""Whether two builds of an image are the same, and how long they take.

Builds the Singularity image twice from one saved folder of packages, each time in another
folder, and compares the two file by file. The second build finds an empty cache (cold: base,
wheels and Horovod are made). So does the first, unless it is given the cache of a build done
earlier in another folder, whose compiled stage it then takes (warm); otherwise a third build,
with the second's cache, tells how long a warm one takes.

    python -m benchmarks.reproducible --output FILE.json [--stack cpu] [--packages DIR] [--home DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from benchmarks.record import write_record

COMPILE = "compile the first stage"
"""The step that only a cold build has."""


def measure_builds(
    stack_name: str, *, packages: Path, folder: Path, home: Path | None = None
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Return the numbers of the builds, and every path that differs between the first two.

    Args:
        stack_name: a stack of the catalogue.
        packages: a folder saved by ``fetch-packages``.
        folder: takes the images and the caches.
        home: the CHEXNET_HOME of an earlier build, for the first; None for an empty one.
    """
    from containers.build import BuildResult, build_image
    from containers.compare import compare_images, render_json
    from env.stack import load_stack

    results: list[dict[str, object]] = []

    def build(name: str, cache: Path) -> BuildResult:
        os.environ["CHEXNET_HOME"] = str(cache)
        (folder / name).mkdir()
        made = build_image(load_stack(stack_name), format="singularity", packages=packages,
                           output=folder / name / f"{stack_name}.sif")  # fmt: skip
        kind = f"{name}, {'cold' if COMPILE in made.seconds else 'warm'}"
        results.append(_number(f"{kind}: size", made.size_bytes / 2**20, "MiB"))
        results.extend(_number(f"{kind}: {step}", s, "s") for step, s in made.seconds.items())
        return made

    first = build("first", home or folder / "home-a")
    second = build("second", folder / "home-b")
    compared = json.loads(render_json(compare_images(first.output, second.output)))
    if COMPILE in first.seconds:
        build("third", folder / "home-b")
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
    parser.add_argument("--home", type=Path, metavar="DIR", help="an earlier build's CHEXNET_HOME")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chexnet-twice-", ignore_cleanup_errors=True) as name:
        packages = given.packages or Path(name) / "packages"
        if not given.packages:
            save_packages(load_stack(given.stack), folder=packages)
        results, files = measure_builds(
            given.stack, packages=packages, folder=Path(name), home=given.home
        )
    write_record(
        given.output,
        command=[
            "python",
            "-m",
            "benchmarks.reproducible",
            "--stack",
            given.stack,
            *(("--home", "EARLIER") if given.home else ()),
        ],
        packages=("hpccm",),
        results=results,
        ratios={},
    )
    for change in files:
        print(f"{change['path']}: {change['change']}", file=sys.stderr)
    return 1 if files else 0


if __name__ == "__main__":
    sys.exit(main())
