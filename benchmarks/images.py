"""How long the images take to build, and how large they are.

Builds the Singularity image twice in an empty cache (cold: packages are fetched, the base and
Horovod made; warm: only what changed is), and the Docker image once with the engine's own
layer cache as it is found: an engine that has built it before does less.

    python -m benchmarks.images --output FILE.json [--stack cpu]
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from benchmarks.record import write_record

# What is built, in this order: name of the result and format.
BUILDS = (
    ("sif cold", "singularity"),
    ("sif warm", "singularity"),
    ("oci, layer cache as found", "docker"),
)


def measure_builds(stack_name: str, *, folder: Path) -> list[dict[str, object]]:
    """Return the seconds and the size of every build.

    Args:
        stack_name: a stack of the catalogue.
        folder: takes the images and the empty cache.
    """
    from containers.build import build_image
    from env.stack import load_stack

    os.environ["CHEXNET_HOME"] = str(folder / "home")
    results: list[dict[str, object]] = []
    for name, format in BUILDS:
        made = build_image(
            load_stack(stack_name), format=format, output=folder / "image", force=True
        )
        size_mib = round(made.size_bytes / 2**20, 1)
        results.append({"name": f"{name}: size", "value": size_mib, "unit": "MiB"})
        for step, seconds in made.seconds.items():
            results.append({"name": f"{name}: {step}", "value": seconds, "unit": "s"})
    return results


def main() -> None:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, metavar="FILE.json")
    parser.add_argument("--stack", default="cpu", metavar="S")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chexnet-images-", ignore_cleanup_errors=True) as name:
        results = measure_builds(arguments.stack, folder=Path(name))
    write_record(
        arguments.output,
        command=["python", "-m", "benchmarks.images", "--stack", arguments.stack],
        packages=("hpccm",),
        results=results,
        ratios={},
    )


if __name__ == "__main__":
    main()
