"""Two images of one saved folder, built in different folders at different times: the same files."""

import json
import subprocess
import sys

import pytest

from containers.packages import save_packages
from env.stack import PROJECT, load_stack

pytestmark = [pytest.mark.container, pytest.mark.slow]


def test_two_cold_builds_without_a_network_give_the_same_files(tmp_path, networkless):
    """Ten minutes and more: Horovod is compiled twice."""
    save_packages(load_stack("cpu"), folder=tmp_path / "packages")
    command = [*networkless, sys.executable, "-m", "benchmarks.reproducible", "--output",
               tmp_path / "record.json", "--packages", tmp_path / "packages"]  # fmt: skip
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "record.json").read_text())["results"]
    values = {result["name"]: result["value"] for result in results}
    assert values["paths in each image"] > 10_000
    for what in ("files", "packages", "labels", "components"):
        assert values[f"differing {what}"] == 0
    # Both were cold: neither took its first stage from a cache.
    assert all(f"{name}, cold: compile the first stage" in values for name in ("first", "second"))
