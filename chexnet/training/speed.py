"""What is ``auto`` about speed, by device.

Knows what suits CPUs and GPUs. Leaves using it to ``step``, and what was asked for to the run's
config.json.
"""

from __future__ import annotations

from dataclasses import replace

from chexnet.config import TrainConfig

# A GPU must not wait for Python after each step. On CPUs a step lasts long, and signals are
# looked at between calls.
STEPS_PER_CALL = {"gpu": 8, "cpu": 1}


def settle_speed(config: TrainConfig, *, device: str) -> TrainConfig:
    """Return the configuration with precision, XLA and steps a call chosen for the device.

    XLA is for GPUs, whose steps it shortens; on CPUs it compiles for minutes and gains
    little. Where batch normalisation exchanges its statistics, Horovod's operations lie
    within the step, and XLA cannot compile them.

    Args:
        config: with ``auto`` or 0 where the device decides.
        device: ``gpu`` or ``cpu``.
    """
    on_gpu = device == "gpu"
    precision, xla = config.precision, config.xla
    if precision == "auto":
        precision = "mixed_float16" if on_gpu else "float32"
    if xla == "auto":
        xla = "on" if on_gpu and config.batch_statistics == "local" else "off"
    steps = config.steps_per_call or STEPS_PER_CALL[device]
    return replace(config, precision=precision, xla=xla, steps_per_call=steps)
