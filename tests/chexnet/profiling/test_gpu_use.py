"""How busy the GPUs are: a sampler that is ended, one that is not there, and what it told."""

import json
import sys

import pytest

from chexnet.profiling.gpu_use import GpuSampler, mean_use, read_samples


def line(*uses):
    return json.dumps({"gpus": [{"index": i, "use": use} for i, use in enumerate(uses)]})


def test_the_first_sample_is_of_the_time_before():
    assert read_samples([line(0.0, 0.0), line(0.5, 1.0), line(1.0, 1.0)]) == {0: 0.75, 1: 1.0}
    assert read_samples([line(0.25)]) == {0: 0.25}


def test_what_a_gpu_does_not_tell_and_a_cut_line_are_left_out():
    assert read_samples([line(0.5, None), line(0.5, None), '{"gpus": [{"ind', "noise"]) == {0: 0.5}
    assert read_samples([]) == {}


def test_ranks_have_the_busiest_gpus_of_their_host():
    hosts = [("a", {0: 0.9, 1: 0.0, 2: 0.7}), ("a", {}), ("b", {0: 0.5, 1: 0.1})]
    assert mean_use(hosts) == pytest.approx((0.9 + 0.7 + 0.5) / 3)
    assert mean_use([("a", {})]) is None


def test_a_sampler_is_ended_and_read(tmp_path):
    # Stands for the child that asks the driver, which no machine of the tests has.
    begun = tmp_path / "begun"
    code = (
        "import sys, time, pathlib\n"
        f"for _ in range(3): print({line(0.5)!r}, flush=True)\n"
        f"pathlib.Path({str(begun)!r}).touch()\n"
        "time.sleep(60)"
    )
    with GpuSampler(enabled=True, command=["-c", code]) as sampler:
        while not begun.exists() and sampler._child.poll() is None:
            pass
    assert sampler.uses == {0: 0.5}
    assert sampler.problem == ""
    assert sampler._child.returncode is not None


@pytest.mark.parametrize("code", ["raise SystemExit('no GPU to ask')", "pass"])
def test_a_sampler_that_tells_nothing_is_a_problem_and_no_error(code):
    with GpuSampler(enabled=True, command=["-c", code]) as sampler:
        sampler._child.wait()
    assert sampler.uses == {}
    assert sampler.problem in ("no GPU to ask", "the sampler told nothing")


def test_a_sampler_that_is_not_wanted_starts_nothing(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere")
    with GpuSampler(enabled=False) as sampler:
        pass
    assert (sampler.uses, sampler.problem) == ({}, "not asked")
