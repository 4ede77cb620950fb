"""How ranks and other commands are stopped: what they get, when, and how often."""

import os
import pty
import signal
import subprocess
import sys
import threading
import time

import pytest

from containers.launch import run_command
from containers.stopping import AsRanks
from env.stack import PROJECT

PATIENCE_S = 60
# Leaves a line for every signal; on USR1 it goes on for a moment, as a checkpoint takes it.
CHILD = """
import pathlib, signal, sys, time
log, answer = pathlib.Path(sys.argv[1]), sys.argv[2]
def note(number, frame):
    with log.open("a") as file:
        file.write(signal.Signals(number).name + "\\n")
    if number == signal.SIGTERM and answer != "deaf":
        sys.exit(9)
    if number == signal.SIGUSR1 and answer == "leaves":
        time.sleep(0.3)
        sys.exit(75)
for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
    signal.signal(number, note)
log.write_text("up\\n")
end = time.monotonic() + 120
while time.monotonic() < end:
    time.sleep(0.05)
sys.exit(99)
"""


def wait_until_up(log):
    deadline = time.monotonic() + PATIENCE_S
    while not log.exists() or "up" not in log.read_text():
        assert time.monotonic() < deadline, "the child did not come up"
        time.sleep(0.02)


@pytest.fixture
def send(tmp_path):
    """Send this process signals once the child is up; returns the child's log."""
    log = tmp_path / "log"

    def start(*numbers, to=os.getpid):
        def work():
            wait_until_up(log)
            for number in numbers:
                os.kill(to(), number)
                time.sleep(0.2)

        threading.Thread(target=work, daemon=True).start()
        return log

    return start


def child(log, answer):
    return [sys.executable, "-S", "-c", CHILD, str(log), answer]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP])
def test_ranks_are_asked_for_a_checkpoint_first(send, number, capfd):
    log = send(number)
    assert run_command(child(log, "leaves"), ask_ranks=signal.SIGUSR1) == 75
    assert log.read_text().split() == ["up", "SIGUSR1"]
    assert f"{number.name}: asking the ranks for a checkpoint" in capfd.readouterr().err


def test_a_second_time_ends_ranks_without_one(send):
    log = send(signal.SIGTERM, signal.SIGTERM)
    assert run_command(child(log, "stays"), ask_ranks=signal.SIGUSR1) == 9
    assert log.read_text().split() == ["up", "SIGUSR1", "SIGTERM"]


def test_a_second_announcement_of_the_scheduler_does_not(send):
    log = send(signal.SIGUSR1, signal.SIGUSR1, signal.SIGTERM)
    assert run_command(child(log, "stays"), ask_ranks=signal.SIGUSR1) == 9
    assert log.read_text().split() == ["up", "SIGUSR1", "SIGTERM"]


def test_ranks_that_do_not_leave_are_ended_and_at_last_killed(send):
    log = send(signal.SIGTERM)
    stopping = AsRanks(checkpoint_s=0.3, end_s=0.3)
    with stopping.signals():
        process = subprocess.Popen(child(log, "deaf"), process_group=0)
        assert stopping.wait(process) == -signal.SIGKILL
    assert log.read_text().split() == ["up", "SIGUSR1", "SIGTERM"]


def test_ctrl_c_on_a_terminal_reaches_the_ranks_through_us_alone(tmp_path):
    """They have a group of their own: else mpirun would see the key too, and end its ranks."""
    log = tmp_path / "log"
    start = (
        "import signal, sys; from containers.launch import run_command; "
        "sys.exit(run_command(sys.argv[1:], ask_ranks=signal.SIGUSR1))"
    )
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(PROJECT)
        os.execv(sys.executable, [sys.executable, "-c", start, *child(log, "leaves")])
    try:
        wait_until_up(log)
        os.write(terminal, b"\x03")
        deadline = time.monotonic() + PATIENCE_S
        while (ended := os.waitpid(pid, os.WNOHANG)) == (0, 0):
            assert time.monotonic() < deadline, "ctrl-C ended nothing"
            time.sleep(0.02)
        pid, status = 0, ended[1]
    finally:
        os.close(terminal)  # which hangs up on both, where they are still there
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 75
    assert log.read_text().split() == ["up", "SIGUSR1"]


def test_a_signal_that_comes_before_the_child_is_not_lost(send, tmp_path):
    stopping = AsRanks(checkpoint_s=20)
    with stopping.signals():
        os.kill(os.getpid(), signal.SIGTERM)
        process = subprocess.Popen(["sleep", "30"], process_group=0)
        assert stopping.wait(process) == -signal.SIGUSR1


def test_other_commands_get_sigterm_for_what_a_scheduler_announces(send):
    log = send(signal.SIGUSR1)
    assert run_command(child(log, "stays")) == 9
    assert log.read_text().split() == ["up", "SIGTERM"]


def test_the_old_handlers_are_back(send):
    before = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)]
    assert run_command(["true"], ask_ranks=signal.SIGUSR1) == 0
    assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)] == before
