import multiprocessing
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chexnet.errors import UserError
from chexnet.parallel import CHUNKS_AHEAD, map_in_order, with_progress

PATIENCE_S = 20


def double(number):
    return 2 * number


def end_this_process(_):
    os.kill(os.getpid(), signal.SIGKILL)


def process_of(_):
    return os.getpid()


@pytest.mark.parametrize("workers", [1, 2, None])
def test_order_is_kept(workers, capsys):
    results = map_in_order(double, items=range(50), workers=workers, chunk=3, label="numbers")
    assert list(results) == list(range(0, 100, 2))
    assert "50/50 numbers" in capsys.readouterr().err


def test_one_worker_is_this_process_and_two_are_others():
    def processes(workers):
        return set(map_in_order(process_of, items=range(4), workers=workers, chunk=1, label="x"))

    assert processes(1) == {os.getpid()}
    assert os.getpid() not in processes(2)


def test_a_killed_worker_is_an_error_and_not_a_hang():
    with pytest.raises(UserError, match="ended from outside") as error:
        list(map_in_order(end_this_process, items=range(4), workers=2, chunk=1, label="x"))
    assert error.value.exit_code == 1


def test_no_workers():
    with pytest.raises(UserError, match="--workers 1"):
        list(map_in_order(double, items=[1], workers=0, chunk=1, label="x"))


def wait_until(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_workers_are_a_few_chunks_ahead_and_no_further(tmp_path):
    """However slowly what they give is taken: its memory does not grow."""
    paths = [tmp_path / str(number) for number in range(200)]
    results = map_in_order(Path.touch, items=paths, workers=2, chunk=3, label="x")
    next(results)
    ahead = 3 * 2 * CHUNKS_AHEAD
    wait_until(lambda: len(list(tmp_path.iterdir())) >= ahead)
    time.sleep(0.3)  # to those that would go on
    assert sorted(tmp_path.iterdir()) == sorted(paths[:ahead])
    assert len(list(results)) == 199
    assert len(list(tmp_path.iterdir())) == 200


IDLE = (
    "import time; from chexnet.parallel import map_in_order;"
    "results = map_in_order(abs, items=range(99), workers=2, chunk=1, label='x');"
    "next(results); print('begun', flush=True); time.sleep(600)"
)


def is_alive(process):
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_no_worker_outlives_a_parent_that_is_killed():
    with subprocess.Popen(
        [sys.executable, "-c", IDLE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        cwd=Path(__file__).parents[2],
    ) as parent:  # fmt: skip
        assert parent.stdout.readline() == b"begun\n"
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        assert sum(map(is_alive, children)) == 3  # two workers, and Python's own helper of theirs
        parent.kill()
    wait_until(lambda: not any(map(is_alive, children)))


def sleep_long_after_the_first(number):
    time.sleep(600 if number else 0)
    return number


def test_results_that_are_given_up_are_not_waited_for():
    """As an error or ctrl-C does while the next items are worked on for minutes."""
    results = map_in_order(
        sleep_long_after_the_first, items=range(9), workers=2, chunk=1, label="x"
    )
    assert next(results) == 0
    children = {child.pid for child in multiprocessing.active_children()}
    assert len(children) == 2
    results.close()
    wait_until(lambda: not any(map(is_alive, children)))


def test_an_item_may_be_several_of_what_is_counted(capsys):
    list(map_in_order(sum, items=[[1, 2], [3]], workers=1, chunk=1, label="films", weigh=len))
    assert re.match(r"3/3 films, \d+/s", capsys.readouterr().err)


def test_a_log_is_told_how_much_is_done_at_what_rate_and_how_long_it_takes_yet(monkeypatch, capsys):
    times = iter([0.0, 5.0, 12.0, 15.0, 20.0])
    monkeypatch.setattr("chexnet.counter.time.monotonic", lambda: next(times))
    assert list(with_progress(iter("abcd"), total=4, label="films")) == list("abcd")
    # After 12 s two are done: as many are left.
    assert capsys.readouterr().err == (
        "2/4 films, 0/s, 0:00:12 left\n4/4 films, 0/s, 0:00:00 left\n"
    )


def test_a_person_sees_a_bar_with_the_rate_and_the_time_that_remains(monkeypatch):
    main, side = pty.openpty()
    with os.fdopen(main, "rb", 0) as terminal, os.fdopen(side, "w") as screen:
        monkeypatch.setattr(sys, "stderr", screen)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "120")
        for number in with_progress(iter(range(40)), total=40, label="films"):
            time.sleep(0.02 if number < 39 else 0)
        shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.read(100_000).decode())
    assert re.search(r"films .* \d+/40 +\d+/s (\d:\d\d:\d\d|-:--:--)", shown)
