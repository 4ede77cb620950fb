"""A stop is remembered and made at the next safe point."""

import os
import signal

import pytest

from chexnet.signals import Interrupted, StopSignal


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_signal_stops_at_the_next_check_and_names_itself(number):
    with StopSignal() as stop:
        stop.check("before")
        os.kill(os.getpid(), number)
        with pytest.raises(
            Interrupted, match=f"{signal.Signals(number).name} in epoch 3"
        ) as stopped:
            stop.check("in epoch 3")
    assert stopped.value.exit_code == 75


def test_old_handlers_come_back():
    before = signal.getsignal(signal.SIGTERM)
    with StopSignal():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
