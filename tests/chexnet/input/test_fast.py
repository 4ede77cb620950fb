"""The pipeline `fast`: the right pixels and labels, on any number of ranks, in bounded memory."""

import gc
import itertools
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from chexnet.data.films import load_films
from chexnet.errors import UserError
from chexnet.input import stream
from chexnet.input.fast import name_films
from chexnet.input.mapped import FilmArrays
from chexnet.input.order import Order, Turns
from chexnet.pipeline import make_pipeline
from chexnet.prepare import prepare_data
from chexnet.records import load_dataset
from chexnet.synthetic import make_sample_data


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The same 150 films of 40 px as fast and as encoded data."""
    folder = tmp_path_factory.mktemp("both")
    make_sample_data(folder / "nih", num_images=150, size_px=40, seed=3)
    for format in ("fast", "encoded"):
        prepare_data(folder / "nih", output=folder / format, size_px=40, format=format, workers=1)
    return load_dataset(folder / "fast"), load_dataset(folder / "encoded")


def one_pass(dataset, **options):
    name = {"fast": "fast", "encoded": "new"}[dataset.format]
    options = {"split": "train", "batch_size": 16, "training": False, **options}
    found = {}
    for images, labels, names in make_pipeline(dataset, name=name, **options):
        for image, label, film in zip(images.numpy(), labels.numpy(), names.numpy(), strict=True):
            assert film not in found
            found[film] = image, label
    return found


@pytest.mark.parametrize("crop_px", [0, 24, 25])
def test_the_same_films_and_labels_from_both_formats(both, crop_px):
    fast, encoded = (one_pass(dataset, crop_px=crop_px) for dataset in both)
    assert len(fast) == both[0].splits["train"].num_examples
    assert fast.keys() == encoded.keys()
    for film, (image, label) in fast.items():
        assert np.array_equal(image, encoded[film][0])
        assert np.array_equal(label, encoded[film][1])
        assert image.shape == (crop_px or 40, crop_px or 40, 1)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7])
def test_one_pass_gives_every_film_once_on_any_number_of_ranks(both, size):
    parts = [one_pass(both[0], rank=rank, size=size) for rank in range(size)]
    assert sum(map(len, parts)) == len(set().union(*parts)) == len(one_pass(both[0]))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7])
def test_training_gives_the_same_batches_on_any_number_of_ranks(both, size):
    def step(number, ranks, batch):
        parts = [
            next(iter(make_pipeline(both[0], split="train", name="fast", batch_size=batch, seed=4,
                                    rank=rank, size=ranks, first_film=210 * number, crop_px=32)))
            for rank in range(ranks)
        ]  # fmt: skip
        return [np.concatenate([part[k].numpy() for part in parts]) for k in (0, 1)]

    for number in (0, 3):
        for one, many in zip(step(number, 1, 210), step(number, size, 210 // size), strict=True):
            assert np.array_equal(one, many)


def test_crops_and_flips_are_those_of_the_order(both):
    dataset = both[0]
    split = dataset.splits["train"]
    whole = one_pass(dataset)
    names = load_films(dataset.root / split.films.name, num_films=split.num_examples).names
    turns = Order(split.num_examples, seed=9, margin_px=8).take(0, count=64)
    images, _ = next(iter(make_pipeline(dataset, split="train", name="fast", batch_size=64, seed=9,
                                        crop_px=32)))  # fmt: skip
    assert turns.flips.any()
    assert not turns.flips.all()
    for place, image in enumerate(images.numpy()[..., 0]):
        film = whole[names[turns.films[place]].encode()][0][..., 0]
        top, left = turns.tops[place], turns.lefts[place]
        crop = film[top : top + 32, left : left + 32]
        assert np.array_equal(image, np.fliplr(crop) if turns.flips[place] else crop)


@pytest.mark.parametrize("width", [8, 9, 15, 16])
def test_mirrored_copies_of_any_width_are_exact(tmp_path, width):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 19, 19), np.uint8)
    (tmp_path / "a.u8").write_bytes(pixels[:2].tobytes())
    (tmp_path / "b.u8").write_bytes(pixels[2:].tobytes())
    arrays = FilmArrays([tmp_path / "a.u8", tmp_path / "b.u8"], counts=[2, 3], size_px=19)
    assert len(arrays) == 5
    turns = Turns(
        np.array([4, 1, 2]), np.array([0, 3, 1]), np.array([1, 2, 3]), np.array([1, 0, 1])
    )
    out = np.zeros((3, 12, width), np.uint8)
    arrays.copy(out, turns=turns)
    assert np.array_equal(out[0], pixels[4, 0:12, 1 : 1 + width][:, ::-1])
    assert np.array_equal(out[1], pixels[1, 3:15, 2 : 2 + width])
    assert np.array_equal(out[2], pixels[2, 1:13, 3 : 3 + width][:, ::-1])


def test_batches_that_are_kept_are_not_written_over(both):
    batches = iter(make_pipeline(both[0], split="train", name="fast", batch_size=8))
    kept = [next(batches)[0] for _ in range(30)]
    copies = [images.numpy().copy() for images in kept]
    for _ in range(30):
        next(batches)
    assert all(
        np.array_equal(images.numpy(), copy) for images, copy in zip(kept, copies, strict=True)
    )


def test_memory_comes_back_when_tensors_are_gone():
    buffers = stream.Buffers((4, 8, 8))
    first = buffers.take()
    tensor = buffers.hand_over(first, shape=(4, 8, 8, 1))
    assert buffers.take() is not first
    first[...] = 7
    assert tf.reduce_all(tensor == 7)  # no copy was made
    del tensor
    gc.collect()
    assert buffers.take() is first


def test_results_come_in_order_and_not_too_far_ahead():
    begun = []

    def make(number):
        begun.append(number)
        time.sleep(0.002 * (number % 3))
        return number

    results = stream.make_ahead(make, first=5, threads=3, ahead=4)
    assert list(itertools.islice(results, 10)) == list(range(5, 15))
    assert max(begun) <= 5 + 10 + 4
    results.close()


def test_threads_end_with_the_stream(both):
    def films():
        return [t for t in threading.enumerate() if t.name.startswith("films")]

    batches = iter(make_pipeline(both[0], split="train", name="fast", batch_size=8))
    next(batches)
    assert films()
    batches.close()
    deadline = time.monotonic() + 10
    while films() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not films()


def test_an_error_while_filling_reaches_the_one_who_reads():
    def make(number):
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        next(stream.make_ahead(make, first=0, threads=1, ahead=2))


def test_pipelines_and_formats_that_do_not_fit_are_refused(both):
    fast, encoded = both
    for dataset, name, other in ((fast, "new", "fast"), (encoded, "fast", "old or dali or new")):
        with pytest.raises(UserError, match=f"use pipeline={other}"):
            make_pipeline(dataset, split="train", name=name, batch_size=4)
    with pytest.raises(UserError, match="at most 40 px"):
        make_pipeline(fast, split="train", name="fast", batch_size=4, crop_px=41)


@pytest.mark.parametrize("name", ["old", "new"])
def test_the_article_s_pipelines_crop_anywhere(both, name):
    encoded = both[1]
    batches = iter(
        make_pipeline(encoded, split="train", name=name, batch_size=16, crop_px=38, flip=False)
    )
    films = np.stack([image[..., 0] for image, _ in one_pass(encoded).values()])
    places = set()
    for _ in range(8):
        for image in next(batches)[0].numpy()[..., 0]:
            hits = [
                (top, left)
                for top in range(3)
                for left in range(3)
                if (films[:, top : top + 38, left : left + 38] == image).all(axis=(1, 2)).any()
            ]
            assert len(hits) == 1
            places.update(hits)
    assert len(places) == 9


def test_the_films_of_a_place_have_the_names_that_are_trained_on(both):
    dataset = both[0]
    about = dataset.splits["train"]
    names = load_films(dataset.root / about.films.name, num_films=about.num_examples).names
    films = Order(about.num_examples, seed=2).take(5, count=7).films
    found = name_films(dataset, split="train", seed=2, first=5, count=7)
    assert found == [names[film] for film in films]


@pytest.mark.parametrize("pipeline", ["fast", "new", "old"])
def test_a_stream_goes_on_from_the_middle_as_if_it_had_not_stopped(both, pipeline):
    dataset = both[0] if pipeline == "fast" else both[1]
    about = {"split": "train", "name": pipeline, "batch_size": 8, "rank": 1, "size": 2,
             "seed": 3, "epoch": 2, "crop_px": 32}  # fmt: skip
    # 60 batches of 8 are more than twice this rank's films: it is repeated on the way.
    whole = list(itertools.islice(make_pipeline(dataset, **about), 60))
    rest = make_pipeline(dataset, **about, first_film=16 * 50, skip_batches=50)
    for (image, label), (other, other_label) in zip(whole[50:], rest, strict=False):
        assert np.array_equal(image, other)
        assert np.array_equal(label, other_label)
