"""What limits a training: verdicts of times that are worked out by hand."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chexnet.input.fitting import PIPELINES
from chexnet.profiling.bottleneck import (
    COMMUNICATION,
    COMPUTE,
    INPUT,
    KINDS,
    LAUNCH,
    Times,
    judge,
    share_time,
)

# 100 ms a step: 20 ms of it whatever the batch, 2.5 ms a film.
PLAIN = Times(
    ranks=2, batch_size=32, pipeline="new", device="cpu", precision="float32", xla="off",
    steps_per_call=1, accumulation_steps=1, compression="none", batch_statistics="local",
    threads=4, step_s=0.1, wait_s=0.0, memory_step_s=0.1, exchange_s=0.0,
    exchange_mib=28.0, other_batch_size=16, other_step_s=0.06,
)  # fmt: skip


def times(**changes):
    return dataclasses.replace(PLAIN, **changes)


def shares(**changes):
    return dataclasses.astuple(share_time(times(**changes)))


def test_computing_is_what_grows_with_the_batch():
    assert shares() == pytest.approx((0.0, 0.0, 0.2, 0.8))
    # The same line, through twice the batch.
    assert shares(other_batch_size=64, other_step_s=0.18) == pytest.approx((0.0, 0.0, 0.2, 0.8))


def test_input_is_what_films_in_memory_save():
    # 150 ms a step of which 50 are saved; the rest is shared out as before.
    found = shares(step_s=0.15, wait_s=0.05)
    assert found == pytest.approx((1 / 3, 0.0, 0.2 / 1.5, 0.8 / 1.5))


def test_exchange_is_taken_out_of_computing():
    # 40 of 100 ms, and as much of the smaller batch's 60: 60 and 20 ms are computing.
    found = shares(exchange_s=0.04)
    assert found == pytest.approx((0.0, 0.4, 0.0, 0.6))


def test_exchange_of_one_rank_is_none():
    assert shares(ranks=1, exchange_s=0.04)[1] == 0.0


def test_a_slower_step_without_waiting_is_noise_unless_it_is_plain():
    assert shares(step_s=0.12)[0] == 0.0
    assert shares(step_s=0.2)[0] == pytest.approx(0.5)  # input takes the cores


seconds = st.floats(1e-6, 10)


@given(
    step_s=seconds,
    wait_s=seconds,
    memory_step_s=seconds,
    exchange_s=seconds,
    other_step_s=seconds,
    ranks=st.integers(1, 8),
    sizes=st.sampled_from([(1, 2), (32, 16)]),
)
def test_shares_are_shares_and_a_verdict_names_a_share_at_its_limit(sizes, **measured):
    batch_size, other = sizes
    found = times(batch_size=batch_size, other_batch_size=other, **measured)
    parts = dataclasses.astuple(share_time(found))
    assert sum(parts) == pytest.approx(1)
    assert all(0 <= share <= 1 + 1e-9 for share in parts)
    verdict = judge(found)
    if verdict.kind == INPUT:
        assert parts[0] >= 0.10
    elif verdict.kind == COMMUNICATION:
        assert parts[1] >= 0.25
    elif verdict.kind == LAUNCH:
        assert parts[2] >= 0.6 * (parts[2] + parts[3]) - 1e-9
    else:
        assert parts[0] < 0.10
        assert parts[1] < 0.25


VERDICTS = [
    ({}, COMPUTE),
    ({"step_s": 0.111, "wait_s": 0.011}, COMPUTE),  # 9.9 %
    ({"step_s": 0.112, "wait_s": 0.012}, INPUT),  # 10.7 %
    ({"exchange_s": 0.024}, COMPUTE),
    ({"exchange_s": 0.026}, COMMUNICATION),
    ({"other_step_s": 0.079}, COMPUTE),  # half the batch at 0.79 of the time
    ({"other_step_s": 0.081}, LAUNCH),
    ({"other_step_s": 0.1}, LAUNCH),
    ({"other_step_s": 0.09, "other_batch_size": 64}, LAUNCH),  # noise: more films, less time
    # Of two that limit, the larger share.
    ({"step_s": 0.2, "wait_s": 0.1, "exchange_s": 0.06}, INPUT),  # 0.5 and 0.3
    ({"step_s": 0.12, "wait_s": 0.02, "exchange_s": 0.06}, COMMUNICATION),  # 0.17 and 0.5
    ({"step_s": 1.0, "wait_s": 0.9, "other_step_s": 0.1}, INPUT),  # 0.9 and 0.1
]


@pytest.mark.parametrize(("changes", "kind"), VERDICTS)
def test_verdict(changes, kind):
    assert judge(times(**changes)).kind == kind


def test_every_verdict_is_tried():
    assert {kind for _, kind in VERDICTS} == set(KINDS)


def test_reasons_hold_the_numbers():
    assert judge(times(step_s=0.2, wait_s=0.09)).reason == (
        "a step takes 200 ms, and 100 ms with the films in memory: 50% of it goes to input "
        "(waiting: 90 ms)"
    )
    assert (
        "28 MiB of gradients over 2 ranks takes 50 ms (0.55 GiB/s), 50%"
        in judge(times(exchange_s=0.05)).reason
    )  # 28 / 1024 / 0.05
    reason = judge(times(other_step_s=0.095)).reason
    assert "100 ms for 32 films and 95 ms for 16: 90% of it does not grow" in reason


@pytest.mark.parametrize(("changes", "kind"), VERDICTS)
@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_three_steps_follow_each_with_a_number_or_a_command(changes, kind, device, pipeline):
    found = judge(times(device=device, pipeline=pipeline, **changes)).next_steps
    assert len(found) == 3
    assert len(set(found)) == 3
    assert any(character.isdigit() for character in "".join(found))


def test_advice_follows_what_is_set():
    found = judge(times(step_s=0.2, wait_s=0.1, pipeline="new")).next_steps
    assert found[0] == (
        "prepare the data with --format fast, which needs no decoding: up to 2.0 times the images/s"
    )
    assert "must feed 320 films/s and feeds 160" in found[1]
    gpu = {"device": "gpu", "other_step_s": 0.1}
    assert "steps_per_call=8 instead of 1" in judge(times(**gpu)).next_steps[1]
    # The default of GPUs, with which Python comes in between as good as never.
    assert "steps_per_call" not in str(judge(times(**gpu, steps_per_call=8)).next_steps)
    assert "mixed_float16" in judge(times(device="gpu")).next_steps[0]
    assert "mixed_float16" not in str(
        judge(times(device="gpu", precision="mixed_bfloat16", xla="on")).next_steps
    )


def test_what_is_set_is_multiplied_and_not_advised_again():
    slow = {"exchange_s": 0.05, "accumulation_steps": 2}
    # 32 films a rank, in two batches of 16: 4 x 2 batches, 2 ranks x 4 x 32 films.
    first, second, *_ = judge(times(**slow)).next_steps
    assert first.startswith("--set accumulation_steps=8 exchanges a quarter as often")
    assert "(256 films a step)" in first
    assert second == "--set compression=fp16 halves what crosses: 14 MiB instead of 28"
    assert "fp16" not in str(judge(times(**slow, compression="fp16")).next_steps)
    launch = judge(times(other_step_s=0.1, accumulation_steps=2)).next_steps
    assert launch[0].startswith("--set batch_size=64: ")


def test_what_would_be_refused_or_changes_nothing_is_not_advised():
    for device in ("cpu", "gpu"):
        bound = {"other_step_s": 0.1, "steps_per_call": 8, "device": device}
        assert "--set xla=on" in str(judge(times(**bound)).next_steps)
        found = str(judge(times(**bound, batch_statistics="global")).next_steps)
        assert "xla" not in found
        assert "--set batch_statistics=local" in found
    # On one rank nothing crosses, and there are no fewer.
    found = str(judge(times(**bound, batch_statistics="global", ranks=1)).next_steps)
    assert "--set xla=on" in found
    assert "batch_statistics" not in found
    assert "fewer ranks" not in found
