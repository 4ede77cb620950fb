"""Records by number; and, where DALI can be had, its batches beside the order's own."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from chexnet import prepare, synthetic
from chexnet.config import load_config
from chexnet.errors import UserError
from chexnet.input.dali import DaliPipeline, RecordFiles, device_of
from chexnet.input.fitting import best_pipeline
from chexnet.pipeline import make_pipeline

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def encoded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dali")
    films = synthetic.make_sample_data(folder / "films", num_images=80, size_px=32, workers=1)
    return prepare.prepare_data(films, output=folder / "data", format="encoded", size_px=32,
                                workers=1)  # fmt: skip


def test_a_record_read_by_number_is_the_one_read_in_sequence(encoded):
    paths = encoded.shard_paths("train")
    records = RecordFiles(tuple(map(Path, paths)))
    in_sequence = [
        tf.train.Example.FromString(raw.numpy()).features.feature["image/encoded"]
        for raw in tf.data.TFRecordDataset(paths)
    ]
    assert len(records) == len(in_sequence) == encoded.splits["train"].num_examples
    for number in (0, 7, len(records) - 1, 3):
        assert records.read_image(number).tobytes() == in_sequence[number].bytes_list.value[0]


def test_a_file_that_ends_too_soon_is_named(encoded, tmp_path):
    whole = Path(encoded.shard_paths("train")[0]).read_bytes()
    short = tmp_path / "short.tfrecord"
    short.write_bytes(whole[:-3])
    with pytest.raises(UserError, match=r"short\.tfrecord"):
        len(RecordFiles((short,)))


def test_the_films_of_all_ranks_are_one_stream(encoded):
    """Two ranks of 3 films take what one rank of 6 takes: same films, crops and flips."""
    one = next(DaliPipeline(encoded, "train", batch_size=6, crop_px=24, seed=5).batches())
    two = [
        next(DaliPipeline(encoded, "train", batch_size=3, crop_px=24, seed=5, rank=rank,
                          size=2).batches())
        for rank in (0, 1)
    ]  # fmt: skip
    for column in range(4):
        assert [a.tolist() for a in one[column]] == [
            a.tolist() for part in two for a in part[column]
        ]


def test_each_rank_decodes_on_its_own_gpu():
    """A rank that sees the fourth of four GPUs alone decodes there, and not on the first."""
    assert device_of(["/physical_device:GPU:3"]) == 3
    assert device_of(["/physical_device:GPU:10"]) == 10
    assert device_of([]) is None


def test_without_dali_it_says_what_to_use(encoded):
    if any((Path(folder) / "nvidia" / "dali").is_dir() for folder in sys.path):
        pytest.fail("DALI is in no stack: this test tells what happens without it")
    with pytest.raises(UserError, match="pipeline=new"):
        next(iter(make_pipeline(encoded, split="train", name="dali", batch_size=2)))


def test_it_is_never_chosen_by_itself(encoded):
    assert best_pipeline(encoded) == "new"
    assert load_config(settings=["pipeline=dali"]).pipeline == "dali"


PROGRAM = """
import json, sys
sys.path.append(sys.argv[1])
from pathlib import Path
from chexnet.pipeline import make_pipeline
from chexnet.records import load_dataset
batches = iter(make_pipeline(load_dataset(Path(sys.argv[2])), split="train", name="dali",
                             batch_size=4, crop_px=24, seed=3))
images, labels = next(batches)
print(json.dumps([images.numpy().tolist(), labels.numpy().tolist()]))
"""


@pytest.mark.slow
def test_dali_gives_the_very_films_crops_and_flips(encoded):
    from benchmarks.peers.environment import ensure_environment

    site = next((ensure_environment().parent.parent / "lib").glob("python*/site-packages"))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(site), str(encoded.root)], check=True, text=True,
        stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    images, labels = json.loads(done.stdout.splitlines()[-1])
    raw, starts, flips, expected = next(
        DaliPipeline(encoded, "train", batch_size=4, crop_px=24, seed=3).batches()
    )
    for film, bytes_, (top, left), flip in zip(images, raw, starts, flips, strict=True):
        pixels = np.asarray(Image.open(io.BytesIO(bytes_.tobytes())))
        cut = pixels[top : top + 24, left : left + 24]
        assert np.array_equal(np.array(film)[..., 0], cut[:, ::-1] if flip else cut)
    assert np.array_equal(labels, expected)
