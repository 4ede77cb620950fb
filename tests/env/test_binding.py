"""The plan deals cores out in equal, contiguous shares, and says when it cannot."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from env.binding import load_plan, plan_local, render_plan
from env.errors import UserError

EIGHT = tuple((n,) for n in range(8))


def test_two_ranks_on_eight_cores_get_four_each():
    plan = plan_local(2, host="n1", cores=EIGHT)
    assert [rank.cores for rank in plan.ranks] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert [rank.threads for rank in plan.ranks] == [4, 4]
    assert plan.cores_per_rank == 4


def test_left_over_cores_stay_free():
    plan = plan_local(3, host="n1", cores=EIGHT)
    assert [rank.cores for rank in plan.ranks] == [(0, 1), (2, 3), (4, 5)]


def test_a_core_brings_its_hardware_threads_and_counts_once():
    plan = plan_local(2, host="n1", cores=((0, 4), (1, 5), (2, 6), (3, 7)))
    assert [rank.cores for rank in plan.ranks] == [(0, 1, 4, 5), (2, 3, 6, 7)]
    assert plan.ranks[0].threads == 2


def test_each_rank_gets_its_own_gpu():
    plan = plan_local(4, host="n1", cores=EIGHT, num_gpus=4)
    assert [rank.gpu for rank in plan.ranks] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("ranks", "gpus", "named"), [(0, 0, "0 ranks"), (9, 0, "9 ranks"), (5, 4, "5 ranks")]
)
def test_impossible_plans_name_the_number_and_the_cure(ranks, gpus, named):
    with pytest.raises(UserError) as caught:
        plan_local(ranks, host="n1", cores=EIGHT, num_gpus=gpus)
    assert caught.value.exit_code == 2
    assert named in caught.value.found
    assert "--ranks" in caught.value.fix


def test_shared_cores_bind_nothing():
    plan = plan_local(9, host="n1", cores=EIGHT, share_cores=True)
    assert plan.cores_per_rank == 0
    assert {rank.cores for rank in plan.ranks} == {()}
    assert {rank.threads for rank in plan.ranks} == {1}


@given(cores=st.integers(1, 64), ranks=st.integers(1, 64))
def test_no_core_is_dealt_twice(cores, ranks):
    if ranks > cores:
        return
    plan = plan_local(ranks, host="h", cores=tuple((n,) for n in range(cores)))
    dealt = [cpu for rank in plan.ranks for cpu in rank.cores]
    assert len(dealt) == len(set(dealt)) == ranks * (cores // ranks)


def test_a_plan_survives_its_file(tmp_path):
    plan = plan_local(2, host="n1", cores=EIGHT, num_gpus=2)
    path = tmp_path / "plan.json"
    path.write_text(render_plan(plan))
    assert load_plan(path) == plan


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", json.dumps({"schema_version": 1, "ranks": []}), '{"schema_version": 2}'],
)
def test_a_bad_plan_file_is_named(tmp_path, text):
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        load_plan(path)
    assert str(path) in caught.value.found


def test_a_missing_plan_file_is_named(tmp_path):
    with pytest.raises(UserError, match="nowhere"):
        load_plan(tmp_path / "nowhere.json")
