"""Scalars for TensorBoard, read back with TensorFlow's own reader."""

import math

import pytest
import tensorflow as tf

from chexnet.training.events import Events, name_scalars


def read(folder):
    """Return what TensorBoard would: (step, name) -> value, over all files in their order.

    Its rule for files of version 2: a start at step n takes away what was at n and after.
    """
    known = {}
    for path in sorted(folder.iterdir()):
        events = list(tf.compat.v1.train.summary_iterator(str(path)))
        assert events[0].file_version == "brain.Event:2"
        for event in events[1:]:
            if event.session_log.status == tf.compat.v1.SessionLog.START:
                known = {key: value for key, value in known.items() if key[0] < event.step}
            for value in event.summary.value:
                known[event.step, value.tag] = value.simple_value
    return known


def test_scalars_are_read_back(tmp_path):
    with Events(tmp_path / "tensorboard") as events:
        events.scalars(4, {"train/loss": 0.5, "train/lr": 1e-3})
        events.scalars(8, {"train/loss": 0.25, "train/lr": None})
        # Before it is closed: what a run shows while it lasts.
        assert read(tmp_path / "tensorboard") == {
            (4, "train/loss"): 0.5,
            (4, "train/lr"): pytest.approx(1e-3),
            (8, "train/loss"): 0.25,
        }


def test_a_continued_run_replaces_the_steps_it_does_again(tmp_path):
    with Events(tmp_path) as events:
        for step in (1, 2, 3):
            events.scalars(step, {"loss": float(step)})
    with Events(tmp_path, first_step=2) as events:
        assert read(tmp_path) == {(1, "loss"): 1.0, (2, "loss"): 2.0}
        events.scalars(3, {"loss": 30.0})
    assert read(tmp_path) == {(1, "loss"): 1.0, (2, "loss"): 2.0, (3, "loss"): 30.0}


def test_numbers_that_are_none_and_too_large_ones_do_no_harm(tmp_path):
    with Events(tmp_path) as events:
        events.scalars(1, {"a": math.nan, "b": math.inf, "c": 1e300})
    found = read(tmp_path)
    assert math.isnan(found[1, "a"])
    assert found[1, "b"] == math.inf
    assert found[1, "c"] == pytest.approx(3.4028234e38)


def test_curves_of_the_lines_of_metrics():
    line = {
        "schema_version": 1,
        "kind": "steps",
        "step": 5,
        "epoch": 1,
        "examples": 40,
        "lr": 0.1,
        "loss": 2,
    }
    assert name_scalars(line) == {"train/lr": 0.1, "train/loss": 2.0}
    line = {"kind": "epoch", "step": 5, "epoch": 1, "validation_auroc": None, "seconds": 3.0}
    assert name_scalars(line) == {"epoch/seconds": 3.0}
