"""Learning rates against values worked out by hand."""

import math

import pytest

from chexnet.schedule import learning_rate, make_schedule


def make(**changes):
    values = {
        "size": 4,
        "scaling": "linear",
        "steps_per_epoch": 10,
        "epochs": 6,
        "warmup_epochs": 2,
        "decay": "none",
    }
    return make_schedule(0.001, **values | changes)


# 0.001 rises to 4 * 0.001 over 20 steps: 0.00015 a step.
@pytest.mark.parametrize(
    ("step", "expected"), [(0, 0.001), (1, 0.00115), (10, 0.0025), (20, 0.004), (59, 0.004)]
)
def test_warmup_rises_linearly_to_the_scaled_rate(step, expected):
    assert learning_rate(make(), step=step) == pytest.approx(expected, rel=1e-12)


# After 20 steps, 40 steps of cosine: half way down at step 40, three quarters at 50.
@pytest.mark.parametrize(
    ("step", "expected"),
    [(20, 0.004), (40, 0.002), (50, 0.002 * (1 - math.sqrt(0.5))), (60, 0.0), (70, 0.0)],
)
def test_cosine_falls_to_zero_at_the_end(step, expected):
    assert learning_rate(make(decay="cosine"), step=step) == pytest.approx(expected, abs=1e-15)


def test_without_scaling_the_warmup_starts_at_a_tenth():
    schedule = make(scaling="none")
    assert learning_rate(schedule, step=0) == pytest.approx(0.0001)
    assert learning_rate(schedule, step=10) == pytest.approx(0.00055)
    assert learning_rate(schedule, step=20) == pytest.approx(0.001)


def test_without_warmup_the_first_step_is_at_the_peak():
    assert learning_rate(make(warmup_epochs=0), step=0) == pytest.approx(0.004)


def test_fraction_of_an_epoch():
    schedule = make(warmup_epochs=0.5)
    assert schedule.warmup_steps == 5
    assert learning_rate(schedule, step=5) == pytest.approx(0.004)
