"""A launcher is waited for no longer than told, and what it leaves is ended; its words are kept."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from containers.launch import project_environ
from containers.ranks import start_ranks
from env.errors import UserError
from env.records import load_launch, load_records

REPORT = (
    "import os; from functools import partial; from env.facts import Fact\n"
    "from env.records import print_record\n"
    "print_record({'launch.rank': Fact(%d, 'x')}, write=partial(os.write, 1))\n"
)


def script(*lines):
    return ["sh", "-c", "\n".join(lines)]


def runs(pid):
    """Return whether a process runs; one that ended and that nobody has waited for does not."""
    try:
        return Path(f"/proc/{int(pid)}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_ranks_print_lies_in_the_folder_afterwards(tmp_path):
    code = REPORT % 1 + "print('and more')"
    ranks = start_ranks([sys.executable, "-c", code], folder=tmp_path, timeout_s=30)
    assert set(ranks) == set(load_records(tmp_path)) == {1}
    launch = load_launch(tmp_path)
    assert (launch.value("launcher.end"), launch.value("launcher.timed_out")) == (
        "exit code 0",
        False,
    )
    assert launch.value("launcher.words") == "and more"


def test_the_words_of_a_launcher_that_fails(tmp_path):
    line = script("echo '[1,0]<stderr>:one' >&2", "echo '[1,1]<stderr>:two' >&2", "exit 7")
    assert start_ranks(line, folder=tmp_path, timeout_s=30) == {}
    launch = load_launch(tmp_path)
    assert launch.value("launcher.end") == "exit code 7"
    assert launch.value("launcher.words") == "one\ntwo"


def test_one_that_hangs_is_ended_with_all_it_started_and_what_it_told_counts(tmp_path):
    (tmp_path / "rank.py").write_text(REPORT % 0)
    line = script(f"{sys.executable} {tmp_path}/rank.py", "sleep 977 &", "echo $! >$0", "wait")
    begin = time.monotonic()
    ranks = start_ranks([*line, str(tmp_path / "pid")], folder=tmp_path, timeout_s=3)
    assert time.monotonic() - begin < 25
    assert set(ranks) == {0}
    launch = load_launch(tmp_path)
    assert launch.value("launcher.end") == "no end within 3 s"
    assert launch.value("launcher.timed_out") is True
    assert not runs((tmp_path / "pid").read_text())


def test_a_launcher_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match="no-such-launcher"):
        start_ranks(["no-such-launcher"], folder=tmp_path, timeout_s=3)


def test_stopped_ourselves_we_take_the_launcher_along(tmp_path):
    code = (
        "from pathlib import Path; from containers.ranks import start_ranks\n"
        f"start_ranks(['sh', '-c', 'echo $$ >{tmp_path}/pid; exec sleep 977'], "
        f"folder=Path({str(tmp_path)!r}), timeout_s=60)\n"
    )
    us = subprocess.Popen([sys.executable, "-c", code], env=project_environ())
    file = tmp_path / "pid"
    while not (file.exists() and file.read_text().strip()):
        assert us.poll() is None
        time.sleep(0.05)
    us.send_signal(signal.SIGTERM)
    assert us.wait(timeout=30) == 128 + signal.SIGTERM
    assert not runs(file.read_text())
