"""What auto means on each device."""

import pytest

from chexnet.config import load_config
from chexnet.training.speed import settle_speed


def settle(device, **changes):
    config = load_config(settings=[f"{key}={value}" for key, value in changes.items()])
    settled = settle_speed(config, device=device)
    return settled.precision, settled.xla, settled.steps_per_call


def test_cpu_computes_in_float32_step_by_step():
    assert settle("cpu") == ("float32", "off", 1)


def test_gpu_computes_in_float16_with_xla_in_calls_of_several_steps():
    precision, xla, steps = settle("gpu")
    assert (precision, xla) == ("mixed_float16", "on")
    assert steps > 1


def test_statistics_that_cross_within_the_step_leave_xla_off():
    assert settle("gpu", batch_statistics="global")[1] == "off"


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_what_is_asked_for_stays(device):
    asked = {"precision": "mixed_bfloat16", "xla": "off", "steps_per_call": 3}
    assert settle(device, **asked) == ("mixed_bfloat16", "off", 3)
