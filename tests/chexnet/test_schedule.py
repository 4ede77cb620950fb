"""Learning rates against values worked out by hand."""

import json
import math

import pytest

from chexnet.schedule import learning_rate, make_schedule, watch_plateau


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


# Of 4 ranks, by hand: base 0.001, and what is reached after the warm-up.
@pytest.mark.parametrize(("scaling", "peak"), [("linear", 0.004), ("sqrt", 0.002), ("none", 0.001)])
def test_scaling_by_the_number_of_ranks(scaling, peak):
    assert make(scaling=scaling).peak == pytest.approx(peak, rel=1e-12)


def see(losses, **changes):
    """Return the factor after each epoch of 10 steps."""
    schedule, seen, factors = make(decay="plateau", **changes), {}, []
    for epoch, loss in enumerate(losses, start=1):
        seen = watch_plateau(schedule, step=10 * epoch, loss=loss, seen=seen)
        factors.append(seen["factor"])
    return factors


def test_plateau_takes_a_tenth_whenever_the_loss_has_not_fallen():
    factors = see([0.5, 0.4, 0.4, 0.3, 0.35, 0.36], warmup_epochs=0)
    assert factors == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.001])


def test_plateau_waits_for_the_end_of_the_warmup():
    # Two epochs of warm-up; the third is the first at the full rate.
    assert see([0.5, 0.6, 0.7], warmup_epochs=2) == pytest.approx([1, 1, 0.1])


def test_plateau_without_a_validation_loss_changes_nothing():
    assert see([0.5, None, None], warmup_epochs=0) == [1, 1, 1]


def test_plateau_goes_on_from_what_a_checkpoint_kept():
    schedule = make(decay="plateau", warmup_epochs=0)
    kept = json.loads(json.dumps(watch_plateau(schedule, step=10, loss=0.5, seen={})))
    seen = watch_plateau(schedule, step=20, loss=0.6, seen=kept)
    assert seen["factor"] == pytest.approx(0.1)
    assert learning_rate(schedule, step=20, factor=seen["factor"]) == pytest.approx(0.0004)


def test_other_decays_follow_no_loss():
    schedule = make(decay="cosine")
    seen = watch_plateau(schedule, step=60, loss=0.9, seen={"best": 0.1, "waited": 0, "factor": 1})
    assert seen["factor"] == 1
