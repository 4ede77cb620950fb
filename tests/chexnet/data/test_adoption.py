"""TFRecord files of others: described as they lie, or refused by file and record."""

import hashlib
import io
import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import chexnet
from chexnet.data.adoption import adopt_records
from chexnet.data.verification import verify_data
from chexnet.errors import UserError
from chexnet.pipeline import make_pipeline

_STREAM = io.BytesIO()
Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 8), np.uint8)).save(_STREAM, "PNG")
PNG = _STREAM.getvalue()


def example(name, label, *, size=(8, 8), grey=7, **others):
    stream = io.BytesIO()
    Image.fromarray(np.full(size, grey, np.uint8)).save(stream, "PNG")
    values = {
        "image/encoded": tf.train.BytesList(value=[stream.getvalue()]),
        "image/filename": tf.train.BytesList(value=[name.encode()]),
        "image/label": tf.train.Int64List(value=label),
        **others,
    }
    feature = {
        key: tf.train.Feature(int64_list=value)
        if isinstance(value, tf.train.Int64List)
        else tf.train.Feature(bytes_list=value)
        for key, value in values.items()
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


HTML = {"image/encoded": tf.train.BytesList(value=[b"<html>"])}
HALF = {"image/encoded": tf.train.BytesList(value=[PNG[: len(PNG) // 2]])}


def write(path, *examples):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for one in examples:
            writer.write(one)


def label(*places):
    return [int(k in places) for k in range(14)]


@pytest.fixture
def folder(tmp_path):
    """Files named and filled as the public Dell data is."""
    write(tmp_path / "train-00000-of-00002", example("00000001_000.png", label(1), grey=1),
          example("00000001_001.png", label(1, 13), grey=2))  # fmt: skip
    write(tmp_path / "train-00001-of-00002", example("00000002_000.png", label(), grey=3))
    write(tmp_path / "valid-00000-of-00001", example("00000003_000.png", label(0), grey=4))
    write(tmp_path / "test-00000-of-00001.tfrecord", example("00000004_000.png", label(2), grey=5))
    return tmp_path


def test_they_are_trained_on_as_they_lie(folder):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    dataset = adopt_records(folder)
    data = json.loads((folder / "dataset.json").read_text())
    schema = json.loads((Path(chexnet.__file__).parent / "dataset.schema.json").read_text())
    jsonschema.validate(data, schema)
    assert {name: s.num_examples for name, s in dataset.splits.items()} == {
        "train": 3, "validation": 1, "test": 1,
    }  # fmt: skip
    assert dataset.splits["train"].positives["Hernia"] == 1
    assert (dataset.image_size, dataset.format) == (8, "encoded")
    assert all((folder / name).read_bytes() == content for name, content in before.items())
    assert verify_data(folder) == []
    batches = make_pipeline(dataset, split="train", name="new", batch_size=3, training=False)
    images, labels, names = next(iter(batches))
    assert names.numpy().tolist() == [b"00000001_000.png", b"00000001_001.png", b"00000002_000.png"]
    assert images.numpy()[:, 0, 0, 0].tolist() == [1, 2, 3]
    assert labels.numpy().sum(axis=1).tolist() == [1, 2, 0]
    with pytest.raises(UserError, match="has one"):
        adopt_records(folder)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (example("b.png", [1, 0]), "label [1, 0]"),
        (example("b.png", [2] * 14), "label [2"),
        (example("b.png", label(), size=(8, 9)), "an image of 9x8 px"),
        (example("b.png", label(), **HTML), "image"),
        (example("b.png", label(), **HALF), "PNG"),
        (example("b.png", label(), **{"image/filename": tf.train.BytesList()}), "not enough"),
        (b"\xff\xff\xff", "DecodeError"),
    ],
)  # fmt: skip
def test_a_record_of_another_kind_is_named(folder, bad, words):
    write(folder / "train-00001-of-00002", example("a.png", label()), bad)
    with pytest.raises(UserError) as error:
        adopt_records(folder)
    assert f"record 1 of {folder / 'train-00001-of-00002'}" in error.value.expected
    assert words in error.value.found
    assert not (folder / "dataset.json").exists()


def test_a_film_that_cannot_be_decoded_is_named_by_verify_data(folder):
    """Adopted by a program that looked at its header alone."""
    shard = folder / "train-00001-of-00002"
    write(shard, example("00000002_000.png", label()), example("00000002_001.png", label()))
    adopt_records(folder)
    data = json.loads((folder / "dataset.json").read_text())
    write(shard, example("00000002_000.png", label()), example("00000002_001.png", label(), **HALF))
    [described] = [one for one in data["splits"]["train"]["shards"] if one["name"] == shard.name]
    described["sha256"] = hashlib.sha256(shard.read_bytes()).hexdigest()
    described["num_bytes"] = shard.stat().st_size
    (folder / "dataset.json").write_text(json.dumps(data))
    [line] = verify_data(folder)
    assert line.startswith("train: 00000002_001.png: ")


def test_a_file_that_is_cut_off_is_named(folder):
    path = folder / "train-00000-of-00002"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(UserError, match="train-00000-of-00002"):
        adopt_records(folder)


def test_films_of_two_sizes_and_patients_on_two_sides_are_refused(folder):
    write(folder / "test-00000-of-00001.tfrecord", example("00000002_009.png", label()))
    with pytest.raises(UserError, match="patient 00000002 in train"):
        adopt_records(folder)
    write(folder / "test-00000-of-00001.tfrecord", example("x.png", label(), size=(9, 9)))
    with pytest.raises(UserError, match="of one size"):
        adopt_records(folder)


def test_a_folder_without_records_is_refused(tmp_path):
    with pytest.raises(UserError, match="train-"):
        adopt_records(tmp_path)
