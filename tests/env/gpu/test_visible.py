"""Which GPUs CUDA shows, from the variable and the list of devices alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from env.visible import resolve_visible

GPUS = [
    {"index": 0, "uuid": "GPU-a1"},
    {"index": 1, "uuid": "GPU-a2"},
    {"index": 2, "uuid": "GPU-b3"},
]
SLICED = [
    {"index": 0, "uuid": "GPU-a1", "mig_mode": [1, 1],
     "mig_devices": [{"uuid": "MIG-x1", "instance": "7/0"}, {"uuid": "MIG-x2", "instance": "8/0"}]},
    {"index": 1, "uuid": "GPU-a2", "mig_mode": [0, 0]},
    {"index": 2, "uuid": "GPU-b3", "mig_mode": [1, 1], "mig_devices": []},
]  # fmt: skip


@pytest.mark.parametrize(
    ("raw", "indices", "problem"),
    [
        (None, (0, 1, 2), ""),
        ("", (), ""),
        ("   ", (), ""),
        ("-1", (), ""),
        ("NoDevFiles", (), ""),
        ("void", (), ""),
        ("none", (), ""),
        ("0", (0,), ""),
        ("2,0", (2, 0), ""),
        (" 1 , 2 ", (1, 2), ""),
        ("+1", (1,), ""),
        ("01", (1,), ""),
        ("1gpu", (1,), ""),
        ("0,-1,1", (0,), "-1 ends the list"),
        ("0,-1", (0,), ""),
        ("3", (), "'3' names no GPU, there are 0 to 2"),
        ("0,9,1", (0,), "'9' names no GPU"),
        ("0,,1", (0,), "an empty entry"),
        ("0,1,", (0, 1), ""),  # what scripts leave that join with commas: nothing is lost
        ("0,,", (0,), ""),
        (",0", (), "an empty entry"),
        ("\u0661", (), "means nothing to CUDA"),  # a digit, but none of C's
        ("all", (), "'all' means nothing to CUDA"),
        ("gpu-a1", (), "means nothing"),
        ("1,1", (), "'1' names a device a second time"),
        ("0,GPU-a1", (), "'GPU-a1' names a device a second time"),
        ("GPU-a1", (0,), ""),
        ("GPU-b", (2,), ""),
        ("GPU-b,GPU-a2", (2, 1), ""),
        ("GPU-a", (), "'GPU-a' names 2 GPUs"),
        ("GPU-c", (), "names no GPU of this host"),
        ("MIG-x1", (), "names no MIG slice"),
        ("99999999999999999999", (), "names no GPU"),
        ("\x1b[2J", (), "'\\x1b[2J' means nothing"),
    ],
)
def test_whole_gpus(raw, indices, problem):
    shown = resolve_visible(raw, GPUS)
    assert shown.indices == indices
    assert shown.uuids == tuple(GPUS[index]["uuid"] for index in indices)
    assert problem in shown.problem
    assert bool(problem) == bool(shown.problem)


@pytest.mark.parametrize(
    ("raw", "uuids", "problem"),
    [
        (None, ("GPU-a2",), ""),  # whole GPUs first
        ("0", ("MIG-x1",), ""),  # the first slice
        ("GPU-a1", ("MIG-x1",), ""),
        ("MIG-x2", ("MIG-x2",), ""),
        ("MIG-GPU-a1/8/0", ("MIG-x2",), ""),
        ("MIG-GPU-a1/9/0", (), "names no MIG slice"),
        ("MIG-x", (), "names 2 MIG slices"),
        ("MIG-x2,MIG-x1", ("MIG-x2",), "one MIG slice"),
        ("2", (), "GPU 2: MIG is on and it has no slice"),
        ("1", ("GPU-a2",), ""),
    ],
)
def test_slices(raw, uuids, problem):
    shown = resolve_visible(raw, SLICED)
    assert shown.uuids == uuids
    assert problem in shown.problem
    assert bool(problem) == bool(shown.problem)


def test_only_slices():
    assert resolve_visible(None, SLICED[:1]).uuids == ("MIG-x1",)
    assert resolve_visible(None, SLICED[2:]).uuids == ()


def test_a_lost_gpu_keeps_its_number_and_is_not_shown():
    devices = [GPUS[0], {"index": 1, "error": "GPU is lost", "error_code": 15}, GPUS[2]]
    assert resolve_visible(None, devices).indices == (0, 2)
    assert resolve_visible("2", devices).indices == (2,)
    shown = resolve_visible("0,1,2", devices)
    assert shown.indices == (0,)
    assert "GPU 1: GPU is lost" in shown.problem


def test_gpus_of_other_jobs_are_not_counted():
    devices = [{"index": 0, "error": "no permission", "error_code": 4}, *GPUS[1:]]
    assert resolve_visible("0", devices).uuids == ("GPU-a2",)
    assert resolve_visible(None, devices).indices == (1, 2)


def test_numbers_are_told_apart_from_names():
    assert resolve_visible("0,GPU-b", GPUS).numbered
    assert not resolve_visible("GPU-b", GPUS).numbered
    assert not resolve_visible(None, GPUS).numbered


ENTRIES = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["0", "1", "2", "7", "-1", "", "GPU-a", "GPU-a1", "GPU-b", "MIG-x1", "void"]),
)


@given(st.lists(ENTRIES, max_size=6).map(",".join))
def test_whatever_the_variable_holds(raw):
    shown = resolve_visible(raw, SLICED)
    assert len(shown.uuids) == len(shown.indices) == len(set(shown.uuids))
    assert all(0 <= index < len(SLICED) for index in shown.indices)
    # A slice comes alone: a process can use one.
    assert len(shown.uuids) <= 1 or not any(uuid.startswith("MIG-") for uuid in shown.uuids)
    # An entry that means nothing shows no more than was shown without it.
    worse = resolve_visible(f"{raw},nonsense,1", SLICED)
    assert worse.uuids == (shown.uuids if raw.strip() else ())
    assert worse.problem
