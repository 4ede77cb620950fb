"""Horovod's variables: what the configuration asks for, and that the user's own win."""

import pytest

from chexnet.config import load_config
from chexnet.errors import UserError
from chexnet.training.horovod_settings import (
    apply_settings,
    render_settings,
    say_overruled,
)

STALL = {"HOROVOD_STALL_CHECK_TIME_SECONDS", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"}


def make(**changes):
    return load_config(settings=[f"{key}={value}" for key, value in changes.items()])


def values(config, **arguments):
    return {name: s.value for name, s in render_settings(config, **arguments).items()}


def test_stall_detection_is_on_by_default_and_nothing_else_is_set():
    found = values(make())
    assert set(found) == STALL
    assert int(found["HOROVOD_STALL_CHECK_TIME_SECONDS"]) > 0
    assert int(found["HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"]) > 0


@pytest.mark.parametrize(
    ("key", "value", "variable", "text"),
    [
        ("fusion_threshold_mib", 0, "HOROVOD_FUSION_THRESHOLD", "0"),
        ("fusion_threshold_mib", 32, "HOROVOD_FUSION_THRESHOLD", "33554432"),
        ("cycle_time_ms", 0.1, "HOROVOD_CYCLE_TIME", "0.1"),
        ("hierarchical_allreduce", "on", "HOROVOD_HIERARCHICAL_ALLREDUCE", "1"),
        ("autotune", "on", "HOROVOD_AUTOTUNE", "1"),
        ("fusion_groups", 4, "HOROVOD_DISABLE_GROUP_FUSION", "1"),
        ("stall_warning_s", 0, "HOROVOD_STALL_CHECK_DISABLE", "1"),
        ("stall_shutdown_s", 0, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "0"),
        ("stall_shutdown_s", 90.4, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "90"),
    ],
)
def test_key_becomes_variable(key, value, variable, text):
    assert values(make(**{key: value}))[variable] == text


def test_log_of_autotune_lies_in_the_run_folder_which_the_first_rank_makes(tmp_path):
    folder = tmp_path / "runs" / "one"
    apply_settings(make(autotune="on"), folder=folder, environment={"PMIX_RANK": "1"})
    assert not folder.exists()
    environment = {"OMPI_COMM_WORLD_RANK": "0"}
    apply_settings(make(autotune="on"), folder=folder, environment=environment)
    assert folder.is_dir()
    assert environment["HOROVOD_AUTOTUNE_LOG"] == str(folder / "autotune.csv")


def test_log_of_autotune_is_kept_by_a_later_start_and_is_no_setting(tmp_path):
    for name in ("autotune.csv", "autotune-2.csv"):
        (tmp_path / name).touch()
    environment = {}
    settings = apply_settings(make(autotune="on"), folder=tmp_path, environment=environment)
    assert environment["HOROVOD_AUTOTUNE_LOG"] == str(tmp_path / "autotune-3.csv")
    assert "HOROVOD_AUTOTUNE_LOG" not in [setting.variable for setting in settings]


def test_what_is_left_to_horovod_is_listed_with_its_default_and_not_set():
    environment = {}
    settings = apply_settings(make(fusion_threshold_mib=-1, cycle_time_ms=-1.0),
                              environment=environment)  # fmt: skip
    held = {s.variable: (s.value, s.origin) for s in settings}
    assert held["HOROVOD_FUSION_THRESHOLD"] == ("134217728", "Horovod")
    assert held["HOROVOD_CYCLE_TIME"] == ("1", "Horovod")
    assert set(environment) == STALL
    held = apply_settings(make(cycle_time_ms=2.5), environment={})
    assert [s.value for s in held if s.variable == "HOROVOD_CYCLE_TIME"] == ["2.5"]


def test_environment_wins_and_it_is_said():
    config = make(cycle_time_ms=2.0)
    environment = {"HOROVOD_CYCLE_TIME": "0.5", "HOROVOD_CACHE_CAPACITY": "0"}
    settings = apply_settings(config, environment=environment)
    assert environment["HOROVOD_CYCLE_TIME"] == "0.5"
    assert say_overruled(settings, config=config) == [
        "HOROVOD_CYCLE_TIME=0.5 of the environment holds, not cycle_time_ms=2.0"
    ]
    assert {setting.variable: setting.value for setting in settings}["HOROVOD_CYCLE_TIME"] == "0.5"
    theirs = [setting.variable for setting in settings if setting.origin == "environment"]
    assert theirs == list(environment)[:2]


def test_nothing_is_overruled_by_the_same_value():
    config = make(cycle_time_ms=2.0)
    settings = apply_settings(config, environment={"HOROVOD_CYCLE_TIME": "2"})
    assert say_overruled(settings, config=config) == []


def test_shutdown_before_the_warning_is_refused():
    # Horovod itself then never shuts down, and says so in a log that nobody reads.
    with pytest.raises(UserError, match="stall_shutdown_s=10"):
        render_settings(make(stall_shutdown_s=10))
