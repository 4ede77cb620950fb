"""The films teach what their labels say and where that is; random labels teach nothing."""

import json

import pytest

from chexnet.prepare import prepare_data
from chexnet.synthetic import make_sample_data

SETTINGS = [
    "preset=demo",
    "model=tiny",
    "device=cpu",
    "batch_size=16",
    "epochs=8",
    "learning_rate=3e-3",
]


@pytest.fixture(scope="module")
def score(chexnet, tmp_path_factory):
    """Return a function: train the tiny model on a sample, return the test scores."""

    def run(*, random_labels):
        folder = tmp_path_factory.mktemp("learning")
        make_sample_data(
            folder / "nih", num_images=1000, size_px=48, seed=11, random_labels=random_labels
        )
        prepare_data(folder / "nih", output=folder / "data", size_px=48)
        settings = [word for setting in SETTINGS for word in ("--set", setting)]
        done = chexnet("train", "--data", folder / "data", "--run", folder / "run", *settings)
        assert done.code == 0, done.err
        options = ("--boxes", folder / "nih" / "BBox_List_2017.csv", "--no-gallery")
        done = chexnet("evaluate", "--run", folder / "run", "--resamples", "0", *options)
        assert done.code == 0, done.err
        return json.loads((folder / "run" / "evaluation.json").read_text())

    return run


def test_true_labels_are_learned_and_the_heat_lies_where_they_were_planted(score):
    found = score(random_labels=False)
    assert found["mean_auroc"] > 0.65
    boxes = found["boxes"]
    # Even this small network: 0.19 of the heat in boxes that cover 0.055 of the films.
    assert boxes["mass_by_chance"] == pytest.approx(0.055, abs=0.01)
    assert boxes["mass_inside"] > 2 * boxes["mass_by_chance"]
    assert len(boxes["findings"]) == 14
    better = [row for row in boxes["findings"] if row["mass_inside"] > row["mass_by_chance"]]
    assert len(better) >= 12


@pytest.mark.slow
def test_random_labels_give_a_half(score):
    found = score(random_labels=True)
    # 14 findings on some 150 films: the mean of their AUROCs has a standard deviation
    # near 0.055 / sqrt(14) = 0.015.
    assert found["mean_auroc"] == pytest.approx(0.5, abs=0.05)
    assert found["boxes"] is None  # nothing was planted for those labels
