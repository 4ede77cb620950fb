"""CheXNet itself on small made-up films: it learns to tell findings, and where they are."""

import json

import pytest

from chexnet.prepare import prepare_data
from chexnet.synthetic import make_sample_data

# The paper's recipe, from scratch and at the size of the films.
SETTINGS = [
    "preset=paper",
    "weights=none",
    "device=cpu",
    "image_size=64",
    "batch_size=32",
    "epochs=10",
]
LIMIT_S = 3600  # minutes on a machine that is quiet


@pytest.fixture(scope="module")
def found(start, tmp_path_factory):
    """Return the evaluation of DenseNet-121, trained for minutes on 4,000 films."""
    folder = tmp_path_factory.mktemp("paper")
    films, data, run = folder / "films", folder / "data", folder / "run"
    make_sample_data(films, num_images=4000, size_px=64, seed=5)
    prepare_data(films, output=data, size_px=64)
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    boxes = ("--boxes", films / "BBox_List_2017.csv", "--method", "gradcam")
    for words in (
        ("train", "--data", data, "--run", run, *settings),
        ("evaluate", "--run", run, *boxes, "--no-gallery"),
    ):
        with start(*words) as program:
            _, said = program.communicate(timeout=LIMIT_S)
        assert program.returncode == 0, said
    return json.loads((run / "evaluation.json").read_text())


@pytest.mark.slow
def test_the_findings_are_told_apart(found):
    assert found["mean_auroc"] >= 0.97


@pytest.mark.slow
def test_the_heat_of_each_finding_lies_where_it_was_planted(found):
    assert len(found["boxes"]["findings"]) == 14
    for row in found["boxes"]["findings"]:
        assert row["mass_inside"] > 2 * row["mass_by_chance"], row
    assert found["boxes"]["hit_rate"] > 0.5
