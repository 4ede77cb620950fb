"""Adam and its loss scale: what overflows is left out, and the scale follows."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from chexnet.training import optimizer as module
from chexnet.training.optimizer import Optimizer


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


@pytest.mark.parametrize("compiled", [False, True])
def test_the_update_is_that_of_the_paper(compiled):
    # Kingma and Ba 2015, arXiv:1412.6980, algorithm 1, with epsilon as they suggest to reorder
    # it in section 2, which TensorFlow and Keras follow.
    random = np.random.default_rng(0)
    first = [random.normal(size=shape) for shape in ((3, 4), (5,))]
    variables = [keras.Variable(value, dtype="float64") for value in first]
    optimizer = Optimizer(variables, scaled=False)
    update = tf.function(lambda rate, *grads: optimizer.apply(grads, rate=rate),
                         jit_compile=compiled)  # fmt: skip
    values = [value.copy() for value in first]
    moments = [[np.zeros_like(value), np.zeros_like(value)] for value in first]
    for step in range(1, 31):
        rate = np.float32(1e-3 * step)
        gradients = [random.normal(size=value.shape) for value in first]
        update(tf.constant(rate), *map(tf.constant, gradients))
        alpha = np.float64(rate) * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        for value, (mean, square), gradient in zip(values, moments, gradients, strict=True):
            mean[...] = 0.9 * mean + 0.1 * gradient
            square[...] = 0.999 * square + 0.001 * gradient**2
            value[...] = value - alpha * mean / (np.sqrt(square) + 1e-7)
    for variable, value in zip(variables, values, strict=True):
        assert np.abs(variable.numpy() - value).max() < 1e-12
    assert int(optimizer.variables[0].numpy()) == 30
