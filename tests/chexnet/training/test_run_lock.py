"""One writer for a run folder; the dead hold nothing."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chexnet.errors import UserError
from chexnet.training.run_lock import RunLock

HOLD = """
import sys, time
from pathlib import Path
from chexnet.training.run_lock import RunLock
with RunLock(Path(sys.argv[1]), say=print):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_writer_is_refused_until_the_first_is_dead(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True,
        cwd=Path(__file__).parents[3],
    ) as holder:  # fmt: skip
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UserError, match=f"process {holder.pid} on ") as caught:
            RunLock(tmp_path, say=pytest.fail).__enter__()
        assert caught.value.exit_code == 2
        holder.send_signal(signal.SIGKILL)
    with RunLock(tmp_path, say=pytest.fail):
        assert f"process {os.getpid()} " in (tmp_path / ".lock").read_text()
    with RunLock(tmp_path, say=pytest.fail):
        pass


def test_a_file_system_without_locks_is_told_and_used(tmp_path, monkeypatch):
    def refuse(handle, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    said = []
    with RunLock(tmp_path, say=said.append):
        assert "No locks available" in said[0]


def test_a_folder_that_cannot_be_written_is_a_message(tmp_path):
    with pytest.raises(UserError, match="can be written"):
        RunLock(tmp_path / "none", say=print).__enter__()
