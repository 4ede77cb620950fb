"""A process that ends at once still finishes its checkpoint, and waits for nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys, threading, time
from pathlib import Path
from chexnet.training import ending
ending.PATIENCE_S = float(sys.argv[3])
def work():
    time.sleep(1)
    Path(sys.argv[1]).write_text("whole")
threading.Thread(target=work, name=sys.argv[2]).start()
print("said", end="")
ending.end_now(3)
"""


@pytest.mark.parametrize(
    ("name", "patience_s", "is_whole"),
    [("checkpoint", 60, True), ("checkpoint", 0, False), ("another", 60, False)],
)
def test_a_checkpoint_in_the_works_is_waited_for(tmp_path, name, patience_s, is_whole):
    path = tmp_path / "file"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path), name, str(patience_s)],
        capture_output=True, text=True, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "said")
    assert path.exists() == is_whole
