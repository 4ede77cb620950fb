"""The roll call by real datagrams of this machine; two ranks have one in test_distributed.py."""

import threading
import time

import pytest

from chexnet.errors import UserError
from chexnet.training.roll_call import RollCall, together


def open_both():
    """Return the roll calls of ranks 0 and 1, which have heard of each other's sockets."""
    calls, members, barrier = [RollCall(), RollCall()], [None, None], threading.Barrier(2)

    def gather(member):
        members[member.rank] = member
        barrier.wait()
        return list(members)

    threads = [
        threading.Thread(target=call.open, args=(rank,), kwargs={"gather": gather})
        for rank, call in enumerate(calls)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return calls


def wait_for(look):
    for _ in range(200):
        if look():
            return
        time.sleep(0.05)
    raise AssertionError("not heard in 10 s")


def test_the_one_behind_is_found_by_the_other():
    first, second = open_both()
    first.come, second.come = 5, 4
    wait_for(lambda: [member.rank for member in first.find_missing()] == [1])
    first.come, second.come = 5, 6
    wait_for(lambda: [member.rank for member in second.find_missing()] == [0])


def test_nothing_heard_accuses_nobody():
    call = RollCall()
    call.come = 3
    assert call.find_missing() == []


def test_other_errors_pass():
    with pytest.raises(ValueError, match="another"), together():
        raise ValueError("another")


def test_shutdown_without_a_name_says_so():
    with pytest.raises(UserError, match="a rank was lost") as caught, together():
        raise RuntimeError("Horovod has been shut down. This was caused by")
    assert caught.value.exit_code == 1
