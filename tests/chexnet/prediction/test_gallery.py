"""The gallery: which films it shows, and files small enough for a report."""

import json
import shutil
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from PIL import Image

import chexnet.prediction.gallery
from chexnet.data.films import load_films
from chexnet.errors import UserError
from chexnet.labels import FINDINGS
from chexnet.model import build_model
from chexnet.prediction.gallery import (
    MOST_BYTES,
    cut_middle,
    encode_small,
    load_gallery,
    write_gallery,
)
from chexnet.records import load_dataset

SCHEMA = Path(chexnet.prediction.gallery.__file__).with_name("gallery.schema.json")


@pytest.fixture(scope="module")
def table(fast_data):
    split = load_dataset(fast_data).splits["test"]
    return load_films(fast_data / split.films.name, num_films=split.num_examples)


@pytest.fixture(scope="module", params=["fast", "encoded"])
def drawn(request, small_data, fast_data, table, tmp_path_factory):
    """Return a run folder with a gallery of a network that knows nothing."""
    run = tmp_path_factory.mktemp("gallery")
    (run / "plots").mkdir()
    (run / "plots" / "gallery-99.png").write_bytes(b"of an earlier evaluation")
    order = np.random.default_rng(5).permutation(len(table.names))
    probabilities = np.linspace(0.1, 0.9, len(order))[:, None] * np.ones(14)
    labels = table.labels[order].copy()
    labels[:, FINDINGS.index("Hernia")] = 0
    write_gallery(
        run, model=build_model("tiny", input_size=24, image_size=24),
        dataset=load_dataset(fast_data if request.param == "fast" else small_data), split="test",
        names=[table.names[row] for row in order], labels=labels, probabilities=probabilities,
        checkpoint_sha256="ab" * 32, crop_px=24, calibrated=True,
    )  # fmt: skip
    return run, labels, [table.names[row] for row in order]


def test_the_surest_positive_film_of_each_finding_is_shown(drawn):
    run, labels, names = drawn
    listed = json.loads((run / "plots" / "gallery.json").read_text())
    jsonschema.validate(listed, json.loads(SCHEMA.read_text()))
    assert listed["calibrated"] is True
    assert listed["checkpoint_sha256"] == "ab" * 32
    # The probabilities rise with the row: the last positive one is the surest.
    wanted = {
        finding: names[np.flatnonzero(labels[:, index])[-1]]
        for index, finding in enumerate(FINDINGS)
        if labels[:, index].any()
    }
    assert {one["finding"]: one["film"] for one in listed["pictures"]} == wanted
    assert "Hernia" not in wanted


def test_old_pictures_are_gone_and_each_one_is_small(drawn):
    run, _, _ = drawn
    files = sorted(path.name for path in (run / "plots").glob("*.png"))
    assert files == sorted(one.file for one in load_gallery(run))
    for name in files:
        assert (run / "plots" / name).stat().st_size <= MOST_BYTES
        Image.open(run / "plots" / name).verify()


def test_the_list_goes_first_and_comes_last(drawn, fast_data, table, tmp_path, monkeypatch):
    """An evaluation that is stopped while it draws leaves no list of another one's pictures."""
    run = shutil.copytree(drawn[0], tmp_path / "run")

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(chexnet.prediction.gallery, "draw_overlay", stop)
    with pytest.raises(KeyboardInterrupt):
        write_gallery(
            run, model=build_model("tiny", input_size=32, image_size=32),
            dataset=load_dataset(fast_data), split="test", names=table.names,
            labels=np.ones((len(table.names), 14)), probabilities=np.ones((len(table.names), 14)),
            checkpoint_sha256="",
        )  # fmt: skip
    assert list((run / "plots").iterdir()) == []


def test_a_picture_that_was_removed_is_not_listed(drawn, tmp_path):
    run, _, _ = drawn
    (tmp_path / "plots").mkdir()
    (tmp_path / "plots" / "gallery.json").write_bytes((run / "plots/gallery.json").read_bytes())
    assert load_gallery(tmp_path) == ()
    assert load_gallery(tmp_path / "elsewhere") == ()


def test_a_film_of_other_data_is_refused(fast_data, tmp_path):
    with pytest.raises(UserError, match=r"no strange\.png"):
        write_gallery(
            tmp_path, model=build_model("tiny", input_size=32, image_size=32),
            dataset=load_dataset(fast_data), split="test", names=["strange.png"],
            labels=np.ones((1, 14)), probabilities=np.ones((1, 14)), checkpoint_sha256="",
        )  # fmt: skip


def test_even_noise_fits():
    noise = np.random.default_rng(0).integers(0, 256, (60, 60, 3), np.uint8)
    assert len(encode_small(Image.fromarray(noise))) > 2_500
    assert len(encode_small(Image.fromarray(noise), most_bytes=2_500)) <= 2_500


def test_the_middle_is_that_of_the_pipeline():
    film = np.arange(49, dtype=np.uint8).reshape(7, 7)
    middle, covered = cut_middle(film, size_px=4)
    assert middle[0].tolist() == [8, 9, 10, 11]  # (7 - 4) // 2 = 1 from the top and the left
    assert covered == pytest.approx((1 / 7, 1 / 7, 5 / 7, 5 / 7))
