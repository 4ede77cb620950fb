"""metrics.jsonl is whole, and loses exactly what a resumed run does again."""

import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest

from chexnet.training.metrics_log import append_metrics, trim_metrics
from chexnet.training.position import Position


def steps_of(folder):
    return [
        json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()
    ]


def write(folder, *lines):
    for kind, epoch, step, examples in lines:
        values = {"kind": kind, "epoch": epoch, "step": step, "examples": examples}
        append_metrics(folder, values=values)


def test_lines_after_the_position_are_dropped_with_the_torn_one(tmp_path):
    # The second epoch on twice the ranks of the first: steps fall, films do not.
    write(tmp_path, ("steps", 1, 10, 80), ("epoch", 1, 10, 80), ("steps", 2, 7, 112),
          ("steps", 2, 9, 144))  # fmt: skip
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "st')
    trim_metrics(tmp_path, position=Position(epoch=1, epoch_step=2, examples=112))
    assert steps_of(tmp_path) == [10, 10, 7]


def test_an_epoch_that_was_trained_but_not_validated_loses_its_line(tmp_path):
    write(tmp_path, ("steps", 1, 10, 80), ("epoch", 1, 10, 80))
    trim_metrics(tmp_path, position=Position(epoch=0, epoch_step=10, examples=80))
    assert steps_of(tmp_path) == [10]


def test_the_beginning_keeps_nothing(tmp_path):
    trim_metrics(tmp_path, position=Position())
    write(tmp_path, ("steps", 1, 10, 80))
    trim_metrics(tmp_path, position=Position())
    assert steps_of(tmp_path) == []


FILL = """
import sys, resource
from pathlib import Path
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
from chexnet.training.metrics_log import append_metrics
try:
    for step in range(1000):
        append_metrics(Path(sys.argv[1]), values={"step": step})
except OSError as error:
    print(error.errno, step)
"""


def test_a_full_disk_leaves_whole_lines(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FILL, str(tmp_path)], capture_output=True, text=True, check=True,
        cwd=Path(__file__).parents[3],
    )  # fmt: skip
    number, step = map(int, done.stdout.split())
    assert number == errno.EFBIG
    assert steps_of(tmp_path) == list(range(step))


@pytest.mark.parametrize("line", ["[]", '{"kind": "steps"}', "3"])
def test_lines_of_something_else_are_dropped(tmp_path, line):
    (tmp_path / "metrics.jsonl").write_text(line + "\n")
    trim_metrics(tmp_path, position=Position(examples=10**9))
    assert (tmp_path / "metrics.jsonl").read_text() == ""
