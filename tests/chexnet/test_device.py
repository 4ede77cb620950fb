"""Which GPU and how many threads a rank takes: the plan's, or its own where nobody planned."""

import json
import os

import pytest
import tensorflow as tf

from chexnet.distributed import Ranks, select_device
from chexnet.errors import UserError


@pytest.fixture
def taken(monkeypatch):
    """Stand in for TensorFlow's devices; what a rank takes is noted here."""
    notes = {}
    config = tf.config
    monkeypatch.setattr(config, "set_visible_devices", lambda gpu, kind: notes.update(gpu=gpu))
    monkeypatch.setattr(config.experimental, "set_memory_growth", lambda gpu, on: None)
    monkeypatch.setattr(config.threading, "set_intra_op_parallelism_threads",
                        lambda number: notes.update(threads=number))  # fmt: skip
    monkeypatch.setattr(config.threading, "set_inter_op_parallelism_threads", lambda number: None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return notes


def plan_file(folder, *gpus, threads=3):
    path = folder / "plan.json"
    ranks = [{"rank": n, "gpu": gpu, "threads": threads} for n, gpu in enumerate(gpus)]
    path.write_text(json.dumps({"ranks": ranks}))
    return path


@pytest.mark.parametrize(
    ("gpus", "planned", "shown", "index"),
    [
        (4, None, None, 1),  # the local rank
        (4, (0, 2), None, 2),  # the plan
        (4, (0, 2), "0,1,2,3", 2),
        (1, (0, 2), "GPU-7", 0),  # the only one that this rank is shown
        (1, None, "5", 0),
        (1, (0, 1), None, 0),  # a control group shows one, and the plan gives each its own
    ],
)
def test_the_gpu_of_a_rank(tmp_path, monkeypatch, taken, gpus, planned, shown, index):
    monkeypatch.setattr(
        tf.config, "list_physical_devices", lambda kind: [f"g{n}" for n in range(gpus)]
    )
    if shown:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    plan = plan_file(tmp_path, *planned) if planned else None
    assert select_device("gpu", ranks=Ranks(1, 2, 1), plan=plan) == "gpu"
    assert taken["gpu"] == f"g{index}"


def test_two_ranks_never_share_the_one_gpu_that_both_see(monkeypatch, taken):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["g0"])
    with pytest.raises(UserError, match="GPU 1 for rank 1"):
        select_device("gpu", ranks=Ranks(1, 2, 1))


def test_threads_are_the_plan_s_or_one_a_cpu(tmp_path, taken):
    select_device("cpu", ranks=Ranks(1, 2, 1), plan=plan_file(tmp_path, None, None))
    assert taken == {"threads": 3, "gpu": []}
    select_device("cpu", ranks=Ranks(0, 1, 0))
    assert taken["threads"] == len(os.sched_getaffinity(0))


@pytest.mark.parametrize("text", ["", "[]", '{"ranks": [{}]}'])
def test_a_bad_plan_is_named(tmp_path, taken, text):
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(UserError, match=r"plan\.json"):
        select_device("cpu", ranks=Ranks(0, 1, 0), plan=tmp_path / "plan.json")
