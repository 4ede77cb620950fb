"""Adam and its loss scale: what overflows is left out, and the scale follows."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from chexnet import optimizer as module
from chexnet.optimizer import Optimizer


def make(scaled):
    weight = keras.Variable(np.ones(3, np.float32))
    return weight, Optimizer([weight], scaled=scaled)


def apply(optimizer, values):
    optimizer.apply([tf.constant(values)], rate=tf.constant(0.1))


def test_first_step_of_adam_is_as_long_as_the_rate():
    # m / sqrt(v) of one gradient is its sign (Kingma and Ba 2015, algorithm 1).
    weight, optimizer = make(scaled=False)
    apply(optimizer, [5.0, -0.1, 3.0])
    assert weight.numpy() == pytest.approx([0.9, 1.1, 0.9], abs=1e-5)
    assert float(optimizer.scale) == 1
    assert optimizer.scaling == {}


def test_scaled_gradients_move_the_weights_as_plain_ones():
    plain, one = make(scaled=False)
    weight, other = make(scaled=True)
    gradient = np.array([1e-3, -2e-3, 3e-3], np.float32)
    for _ in range(3):
        apply(one, gradient)
        apply(other, gradient * float(other.scale))
    assert weight.numpy() == pytest.approx(plain.numpy(), rel=1e-6)


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_overflow_is_left_out_and_halves_the_scale(bad):
    weight, optimizer = make(scaled=True)
    before = float(optimizer.scale)
    state = [variable.numpy() for variable in optimizer.variables[:-3]]
    apply(optimizer, [1.0, bad, 1.0])
    assert (weight.numpy() == 1).all()
    assert optimizer.scaling == {"loss_scale": before / 2, "skipped_steps": 1}
    changed = [
        variable.name
        for variable, old in zip(optimizer.variables, state, strict=False)
        if (variable.numpy() != old).any()
    ]
    # The learning rate is part of Adam's state, and alone may change.
    assert changed == ["learning_rate"]


def test_scale_doubles_after_some_good_steps(monkeypatch):
    monkeypatch.setattr(module, "STEPS_TO_DOUBLE", 3)
    _, optimizer = make(scaled=True)
    before = float(optimizer.scale)
    scales = []
    for values in ([1.0] * 3, [1.0] * 3, [np.inf] * 3, [1.0] * 3, [1.0] * 3, [1.0] * 3):
        apply(optimizer, values)
        scales.append(float(optimizer.scale) / before)
    assert scales == [1, 1, 0.5, 0.5, 0.5, 1]


def test_scale_stays_at_least_1():
    _, optimizer = make(scaled=True)
    for _ in range(20):
        apply(optimizer, [np.nan] * 3)
    assert float(optimizer.scale) == 1
