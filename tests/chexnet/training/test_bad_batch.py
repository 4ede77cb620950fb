"""A loss that ends the training is found at its first step, and its films are named."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import numpy as np
import pytest

import chexnet.training.bad_batch
from chexnet.errors import UserError
from chexnet.training.bad_batch import MOST_LOSS, BadLoss, find_bad, refuse_losses


@pytest.mark.parametrize(
    ("losses", "step"),
    [
        ([], None),
        ([0.7, 69.0], None),
        ([0.7, math.nan, math.inf], 1),
        ([math.inf], 0),
        ([-math.inf], 0),
        ([0.7, 0.7, 70.0], 2),
    ],
)
def test_the_first_loss_that_is_no_number_or_too_large(losses, step):
    assert math.isclose(MOST_LOSS, 69.3147, abs_tol=1e-4)  # a hundred times ln 2
    found = find_bad(np.array(losses, np.float32))
    assert (found.step if found else None) == step


@pytest.fixture
def job(tmp_path, monkeypatch):
    """Return what is asked of a job of two ranks, batches of 3, two of them a step."""

    def name(dataset, *, split, seed, first, count):
        return [f"film-{first + n}" for n in range(count)]

    monkeypatch.setattr(chexnet.training.bad_batch, "name_films", name)
    config = SimpleNamespace(batch_size=3, pipeline="fast", seed=0)
    ranks = SimpleNamespace(size=2, is_first=True)
    return SimpleNamespace(
        folder=tmp_path, config=config, ranks=ranks, dataset=None, images_per_step=12
    )


def refuse(job, *bad, examples=100):
    with pytest.raises(UserError) as caught:
        refuse_losses(list(bad), job=job, epoch=2, step=40, examples=examples)
    assert caught.value.exit_code == 1
    path = Path(chexnet.training.bad_batch.__file__).with_name("bad_batch.schema.json")
    values = json.loads((job.folder / "bad-batch.json").read_text())
    jsonschema.validate(values, json.loads(path.read_text()))
    return str(caught.value), values


@pytest.mark.parametrize("pipeline", ["fast", "dali"])
def test_the_films_are_those_of_the_rank_at_that_step_and_the_one_before(job, pipeline):
    job.config.pipeline = pipeline
    # Steps 41 and 42 take the films 100..111 and 112..123: rank 0 the first and third threes.
    said, values = refuse(job, BadLoss(1, math.nan, rank=1), BadLoss(3, math.inf, rank=0))
    assert "nan in epoch 2 at step 42, rank 1" in said
    assert "film-115" in said
    assert values["losses"] == [{"rank": 1, "loss": "nan"}]
    at, before = values["batches"]
    assert at["films"] == [f"film-{n}" for n in (115, 116, 117, 121, 122, 123)]
    assert before["films"] == [f"film-{n}" for n in (103, 104, 105, 109, 110, 111)]
    assert (at["step"], before["step"]) == (42, 41)


def test_the_first_step_of_a_run_has_none_before(job):
    _, values = refuse(job, BadLoss(0, 80.0, rank=0), examples=0)
    assert values["batches"][1]["films"] == []


def test_other_pipelines_do_not_name_films(job):
    job.config.pipeline = "new"
    said, values = refuse(job, BadLoss(0, math.nan, rank=0))
    assert "films that this pipeline does not name" in said
    assert values["batches"][0]["films"] == []
