import os
import signal

import pytest

from chexnet.errors import UserError
from chexnet.parallel import map_in_order


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
