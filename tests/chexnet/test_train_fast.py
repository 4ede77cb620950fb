"""Whole runs on fast data: the same losses on any number of ranks, and from a resume."""

import json

import pytest

from chexnet.input.fitting import MOST_INPUT_WAIT, PIPELINES, advise_on_wait

EXACT = ["preset=demo", "model=tiny", "device=cpu", "precision=float64", "epochs=2",
         "batch_statistics=global", "scale_learning_rate=none", "crop_size=28"]  # fmt: skip


def losses(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [(line["step"], line["loss"]) for line in map(json.loads, lines)]


def train(chexnet, data, folder, *settings, ranks=0):
    words = [word for setting in (*EXACT, *settings) for word in ("--set", setting)]
    done = chexnet("train", "--data", data, "--run", folder, *words, ranks=ranks)
    assert done.code == 0, done.err
    return folder


@pytest.mark.mpi
def test_losses_are_those_of_one_rank_with_the_whole_batch(chexnet, fast_data, tmp_path):
    one = train(chexnet, fast_data, tmp_path / "one", "batch_size=12")
    three = train(chexnet, fast_data, tmp_path / "three", "batch_size=4", ranks=3)
    assert json.loads((one / "config.json").read_text())["pipeline"] == "fast"
    for (step, loss), (other_step, other) in zip(losses(one), losses(three), strict=True):
        assert step == other_step
        # Sums in another order; float64 has 16 digits.
        assert loss == pytest.approx(other, rel=1e-9)


@pytest.mark.mpi
def test_evaluation_looks_at_the_middle_that_was_trained_for(chexnet, fast_data, tmp_path):
    run = train(chexnet, fast_data, tmp_path / "run", "batch_size=12")
    done = chexnet("evaluate", "--run", run)
    assert done.code == 0, done.err
    assert json.loads((run / "evaluation.json").read_text())["num_examples"] > 0


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_every_pipeline_has_its_advice(pipeline):
    assert MOST_INPUT_WAIT == 0.05
    text = advise_on_wait(0.234, pipeline)
    assert text.startswith("input: steps waited 23% of the time for films; ")
    assert ("--format fast" in text) == (pipeline != "fast")
