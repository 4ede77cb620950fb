"""The layouts that ADR 0003 chose from hold the same films, each once an epoch."""

import numpy as np
import pytest

from benchmarks import layouts
from chexnet.prepare import prepare_data
from chexnet.records import load_dataset
from chexnet.synthetic import make_sample_data

SIZE = 32


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("layouts")
    sample = make_sample_data(folder / "s", num_images=150, size_px=SIZE, workers=1)
    prepare_data(sample, output=folder / "d", size_px=SIZE, workers=1, format="fast")
    return load_dataset(folder / "d")


def test_every_layout_gives_every_film(dataset, tmp_path):
    split = dataset.splits["train"]
    stored = [(dataset.root / shard.name).read_bytes() for shard in split.shards]
    films = np.frombuffer(b"".join(stored), np.uint8).reshape(-1, SIZE, SIZE)
    for layout in layouts.write_layouts(dataset, folder=tmp_path):
        batches, found = layout.read(), []
        # Blocks and batches end where an epoch does not: two epochs hold every film.
        while len(found) < 2 * len(films):
            batch = next(batches)
            images = np.asarray(batch[0] if isinstance(batch, tuple) else batch)
            found += list(images.reshape(-1, SIZE, SIZE))
        assert {film.tobytes() for film in found} == {film.tobytes() for film in films}


def test_the_order_of_an_epoch_has_every_number_once(dataset, tmp_path):
    for layout in layouts.write_layouts(dataset, folder=tmp_path):
        assert sorted(layout.order(96)) == list(range(96)), layout.name


def test_quality_is_the_share_of_a_uniform_shuffle():
    assert layouts.shuffle_quality(np.arange(300)) == 0
    # Reversed, film i moves |n - 1 - 2i|: n/2 on average, where a uniform shuffle has n/3.
    assert layouts.shuffle_quality(np.arange(300)[::-1]) == pytest.approx(1.5)
