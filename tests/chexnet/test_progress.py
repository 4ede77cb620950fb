"""What is shown while it runs: a bar for a person, lines for a log, nothing from other ranks."""

import io
import os
import pty
import re
import sys

import pytest
from rich.console import Console

import chexnet.progress
from chexnet.progress import Reporter


@pytest.fixture
def alone(monkeypatch):
    for name in ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "CHEXNET_TERMINAL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def watched(monkeypatch):
    """Return what a terminal of 120 columns is sent."""
    sent = io.StringIO()
    monkeypatch.setattr(chexnet.progress, "_is_watched", lambda: True)
    monkeypatch.setattr(
        chexnet.progress, "Console",
        lambda **options: Console(**options, file=sent, force_terminal=True, width=120),
    )  # fmt: skip
    return sent


def plain(text):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_a_person_sees_a_bar_with_numbers_and_the_time_that_remains(watched):
    with Reporter(enabled=True, total_steps=40) as reporter:
        reporter.show_step(10, epoch=2)
        reporter.show_window("loss 0.5000  80 images/s", where="epoch 2  step 10/40")
        reporter._bar.refresh()
    last = plain(watched.getvalue()).splitlines()[-1]
    assert "epoch 2" in last
    assert "10/40" in last
    assert "loss 0.5000  80 images/s" in last
    assert re.search(r"\d:\d\d|-:--", last)
    # The bar tells the place; the line of a log would repeat it.
    assert "step 10/40" not in watched.getvalue()


def test_other_work_names_itself(watched):
    with Reporter(enabled=True, total_steps=6, work="building") as reporter:
        reporter._bar.refresh()
        assert "building" in plain(watched.getvalue())
        reporter.show(3, work="measuring")
        reporter._bar.refresh()
    assert "measuring" in plain(watched.getvalue()).splitlines()[-1]


def test_a_log_gets_lines(alone, capsys, monkeypatch):
    monkeypatch.setattr(chexnet.progress, "_is_watched", lambda: False)
    with Reporter(enabled=True, total_steps=40) as reporter:
        reporter.show_step(10, epoch=2)
        reporter.show_window("loss 0.5000  80 images/s", where="epoch 2  step 10/40")
        reporter.say("a [bracketed] word")
    out = capsys.readouterr().out
    assert out == "epoch 2  step 10/40  loss 0.5000  80 images/s\na [bracketed] word\n"


def test_other_ranks_say_nothing(watched, capsys):
    with Reporter(enabled=False, total_steps=40) as reporter:
        reporter.show_step(10, epoch=2)
        reporter.show_window("loss", where="here")
        reporter.say("something")
    assert watched.getvalue() == ""
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("variables", "terminal", "expected"),
    [
        ({}, True, True),
        ({}, False, False),
        # mpirun gives its ranks a terminal of its own making.
        ({"OMPI_COMM_WORLD_RANK": "0"}, True, False),
        ({"OMPI_COMM_WORLD_RANK": "0", "CHEXNET_TERMINAL": "1"}, False, True),
    ],
)
def test_who_is_watched(alone, monkeypatch, variables, terminal, expected):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    main, side = pty.openpty()
    with os.fdopen(main), os.fdopen(side, "w") as screen:
        monkeypatch.setattr(sys, "stdout", screen if terminal else io.StringIO())
        assert chexnet.progress._is_watched() is expected
