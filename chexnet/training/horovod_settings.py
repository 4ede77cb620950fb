"""Horovod's settings: environment variables that it reads once, when it starts.

Knows which keys of the configuration become which variables, that a variable which the
user's environment has wins, and what holds in the end. Leaves starting Horovod to
``distributed``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from chexnet.config import TrainConfig
from chexnet.errors import UserError

AUTOTUNE_LOG = "autotune.csv"
_LOG_VARIABLE = "HOROVOD_AUTOTUNE_LOG"
MIB = 2**20
# Where a launcher says which rank this is, before Horovod knows it.
RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", "HOROVOD_RANK")


@dataclass(frozen=True)
class Setting:
    """A variable of Horovod's and where its value comes from.

    Attributes:
        variable: its name in the environment.
        value: its text.
        origin: ``environment``, the configuration key, or ``Horovod`` for its own default.
    """

    variable: str
    value: str
    origin: str


def render_settings(config: TrainConfig, *, folder: Path | None = None) -> dict[str, Setting]:
    """Return the variables that a configuration asks for, by name.

    What the configuration leaves to Horovod is not among them.

    Args:
        config: what to train.
        folder: the run folder, for Autotune's log.
    """
    asked: dict[str, tuple[str, str]] = {}
    if config.fusion_threshold_mib >= 0:
        size = str(round(config.fusion_threshold_mib * MIB))
        asked["HOROVOD_FUSION_THRESHOLD"] = (size, "fusion_threshold_mib")
    if config.cycle_time_ms >= 0:
        asked["HOROVOD_CYCLE_TIME"] = (f"{config.cycle_time_ms:g}", "cycle_time_ms")
    if config.hierarchical_allreduce == "on":
        asked["HOROVOD_HIERARCHICAL_ALLREDUCE"] = ("1", "hierarchical_allreduce")
    if config.exchange == "grouped" and config.fusion_groups > 1:
        # Else Horovod fuses what was parted.
        asked["HOROVOD_DISABLE_GROUP_FUSION"] = ("1", "fusion_groups")
    if config.autotune == "on":
        asked["HOROVOD_AUTOTUNE"] = ("1", "autotune")
        if folder:
            asked[_LOG_VARIABLE] = (str(_next_log(folder)), "autotune")
    asked |= _render_stall(config)
    return {name: Setting(name, value, key) for name, (value, key) in asked.items()}


def _render_stall(config: TrainConfig) -> dict[str, tuple[str, str]]:
    """Return when Horovod names a rank that does not come, and when it ends the training.

    Raises:
        UserError: the end would come before the warning; Horovod would then never end it.
    """
    warning, end = config.stall_warning_s, config.stall_shutdown_s
    if warning == 0:
        return {"HOROVOD_STALL_CHECK_DISABLE": ("1", "stall_warning_s")}
    if 0 < end < warning:
        raise UserError(
            "stall_shutdown_s of at least stall_warning_s, or 0 to wait without end",
            found=f"stall_shutdown_s={end:g} and stall_warning_s={warning:g}",
            fix=f"--set stall_warning_s={end / 2:g}",
        )
    # Horovod reads whole seconds.
    return {
        "HOROVOD_STALL_CHECK_TIME_SECONDS": (str(max(1, round(warning))), "stall_warning_s"),
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": (
            str(max(1, round(end)) if end else 0),
            "stall_shutdown_s",
        ),
    }


def apply_settings(
    config: TrainConfig,
    *,
    folder: Path | None = None,
    environment: MutableMapping[str, str] | None = None,
) -> list[Setting]:
    """Set Horovod's variables for this process, and return what holds; before it starts.

    Where Autotune writes its log is set and not returned: it changes nothing.

    Args:
        config: what to train.
        folder: the run folder, for Autotune's log; made on the first rank if it is missing.
        environment: the process's, by default.

    Raises:
        UserError: settings that contradict each other.
    """
    environment = os.environ if environment is None else environment
    held = []
    for name, setting in render_settings(config, folder=folder).items():
        if name in environment:
            held.append(Setting(name, environment[name], "environment"))
        else:
            environment[name] = setting.value
            held.append(setting)
    held = [setting for setting in held if setting.variable != _LOG_VARIABLE]
    known = {setting.variable for setting in held}
    # Also what was set for Horovod alone: it decides what this training does.
    held += [
        Setting(name, environment[name], "environment")
        for name in TUNING_VARIABLES
        if name in environment and name not in known
    ]
    known = {setting.variable for setting in held}
    held += [
        Setting(name, value, "Horovod") for name, value in DEFAULTS.items() if name not in known
    ]
    if _LOG_VARIABLE in environment and _is_first(environment):
        Path(environment[_LOG_VARIABLE]).parent.mkdir(parents=True, exist_ok=True)
    return held


TUNING_VARIABLES = (
    "HOROVOD_FUSION_THRESHOLD",
    "HOROVOD_CYCLE_TIME",
    "HOROVOD_CACHE_CAPACITY",
    "HOROVOD_HIERARCHICAL_ALLREDUCE",
    "HOROVOD_TORUS_ALLREDUCE",
    "HOROVOD_DISABLE_GROUP_FUSION",
    "HOROVOD_AUTOTUNE",
    "HOROVOD_CPU_OPERATIONS",
    "HOROVOD_CONTROLLER",
    "HOROVOD_STALL_CHECK_DISABLE",
    "HOROVOD_STALL_CHECK_TIME_SECONDS",
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
)
"""What changes how Horovod exchanges, whoever set it."""

DEFAULTS = {"HOROVOD_FUSION_THRESHOLD": str(128 * MIB), "HOROVOD_CYCLE_TIME": "1"}
"""What Horovod 0.28 takes itself: horovod/common/operations.cc, BackgroundThreadLoop."""


def say_overruled(settings: Sequence[Setting], *, config: TrainConfig) -> list[str]:
    """Return a line for each key of the configuration that a variable overrules."""
    asked = render_settings(config)
    return [
        f"{held.variable}={held.value} of the environment holds, not "
        f"{asked[held.variable].origin}={getattr(config, asked[held.variable].origin)}"
        for held in settings
        if held.origin == "environment"
        and held.variable in asked
        and held.value != asked[held.variable].value
    ]


def _next_log(folder: Path) -> Path:
    """Return where Autotune's log of this start belongs: Horovod would empty an older one."""
    path, number = folder / AUTOTUNE_LOG, 1
    while path.exists():
        number += 1
        path = folder / f"autotune-{number}.csv"
    return path


def _is_first(environment: Mapping[str, str]) -> bool:
    """Return whether the launcher calls this rank 0; one rank without a launcher is."""
    ranks = [environment[name] for name in RANK_VARIABLES if name in environment]
    return not ranks or ranks[0] == "0"
