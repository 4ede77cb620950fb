import hashlib
import json

import numpy as np
import pytest
import tensorflow as tf

from chexnet import records
from chexnet.errors import UserError
from chexnet.labels import FINDINGS


@pytest.fixture
def folder(tmp_path):
    """A data folder of two films, written without the code under test."""
    path = tmp_path / "train-00000-of-00001.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for grey in (10, 200):
            image = np.full([4, 4, 1], grey, np.uint8)
            features = {
                "image/encoded": tf.train.Feature(
                    bytes_list=tf.train.BytesList(value=[tf.io.encode_png(image).numpy()])
                ),
                "image/label": tf.train.Feature(
                    int64_list=tf.train.Int64List(value=[1] + [0] * 12 + [1])
                ),
                "image/filename": tf.train.Feature(
                    bytes_list=tf.train.BytesList(value=[b"%d.png" % grey])
                ),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())
    content = path.read_bytes()
    shard = {
        "name": path.name,
        "num_examples": 2,
        "sha256": hashlib.sha256(content).hexdigest(),
        "num_bytes": len(content),
    }
    (tmp_path / "films.csv").write_text("films\n")
    films = {
        "name": "films.csv",
        "num_bytes": 6,
        "sha256": hashlib.sha256(b"films\n").hexdigest(),
    }
    empty = {"num_examples": 0, "positives": {}, "films": films, "shards": []}
    train = {"num_examples": 2, "positives": {"Hernia": 2}, "films": films, "shards": [shard]}
    description = {
        "schema_version": 2,
        "classes": list(FINDINGS),
        "split": "official",
        "image_size": 4,
        "format": "encoded",
        "quarantined": [],
        "splits": {"train": train, "validation": empty, "test": empty},
    }
    (tmp_path / "dataset.json").write_text(json.dumps(description))
    return tmp_path


def change(folder, **values):
    path = folder / "dataset.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def read_all(dataset):
    stream = tf.data.TFRecordDataset(dataset.shard_paths("train"))
    return list(stream.map(lambda r: records.parse_example(r, image_size=dataset.image_size)))


def test_load_and_read(folder):
    dataset = records.load_dataset(folder)
    assert dataset.sha256 == hashlib.sha256((folder / "dataset.json").read_bytes()).hexdigest()
    assert dataset.splits["train"].positives == {"Hernia": 2}
    assert (dataset.image_size, dataset.split, dataset.format) == (4, "official", "encoded")
    films = read_all(dataset)
    assert [name.numpy() for _, _, name in films] == [b"10.png", b"200.png"]
    assert [int(image[3, 3, 0]) for image, _, _ in films] == [10, 200]
    assert films[0][1].numpy().tolist() == [1.0] + [0.0] * 12 + [1.0]
    assert records.find_damaged_shards(dataset) == []


def test_encode_example_uses_the_dell_keys():
    example = tf.train.Example.FromString(
        records.encode_example(b"png", label=[0] * 13 + [1], filename="a.png")
    )
    feature = example.features.feature
    assert sorted(feature) == ["image/encoded", "image/filename", "image/label"]
    assert feature["image/label"].int64_list.value[13] == 1
    assert feature["image/encoded"].bytes_list.value == [b"png"]
    assert feature["image/filename"].bytes_list.value == [b"a.png"]


@pytest.mark.parametrize("make", [False, True])
def test_missing_or_empty_folder(tmp_path, make):
    folder = tmp_path / "data"
    if make:
        folder.mkdir()
    with pytest.raises(UserError, match="invoke prepare-data") as error:
        records.load_dataset(folder)
    assert str(folder) in error.value.expected
    assert error.value.found == ("no dataset.json there" if make else "no such folder")


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({"schema_version": 1}, "schema_version is 1"),
        ({"classes": list(reversed(FINDINGS))}, "another order"),
        ({"format": "quick"}, "only encoded, fast is known"),
        ({"splits": {}}, "KeyError"),
        ({"splits": []}, "TypeError"),
        ({"image_size": None}, "TypeError"),
    ],
)
def test_other_descriptions_are_refused(folder, values, found):
    change(folder, **values)
    with pytest.raises(UserError) as error:
        records.load_dataset(folder)
    assert found in error.value.found
    assert str(folder / "dataset.json") in error.value.expected


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_text_that_is_no_description(folder, text):
    (folder / "dataset.json").write_text(text)
    with pytest.raises(UserError, match="schema 2"):
        records.load_dataset(folder)


def test_counts_must_add_up_and_shards_stay_inside(folder):
    splits = json.loads((folder / "dataset.json").read_text())["splits"]
    splits["train"]["num_examples"] = 3
    change(folder, splits=splits)
    with pytest.raises(UserError, match="do not add up"):
        records.load_dataset(folder)
    splits["train"]["num_examples"] = 2
    splits["train"]["shards"][0]["name"] = "../else.tfrecord"
    change(folder, splits=splits)
    with pytest.raises(UserError, match="outside the data folder"):
        records.load_dataset(folder)


def test_missing_and_shortened_shards_are_named(folder):
    path = folder / "train-00000-of-00001.tfrecord"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(UserError, match=r"train-00000-of-00001\.tfrecord of") as error:
        records.load_dataset(folder)
    assert error.value.found == f"{path.stat().st_size} bytes"
    path.unlink()
    with pytest.raises(UserError, match="no such file"):
        records.load_dataset(folder)


@pytest.mark.parametrize("place", [4, 40, -3])
def test_a_flipped_bit_is_named_while_reading(folder, place):
    dataset = records.load_dataset(folder)
    path = folder / "train-00000-of-00001.tfrecord"
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    records.load_dataset(folder)  # the length is right: only reading finds it
    with pytest.raises(UserError) as error, records.named_damage(dataset):
        read_all(dataset)
    assert str(path) in error.value.found
    assert error.value.exit_code == 1


def test_errors_of_the_step_itself_pass_through(folder):
    dataset = records.load_dataset(folder)
    with pytest.raises(tf.errors.InvalidArgumentError), records.named_damage(dataset):
        tf.reshape(tf.zeros([3]), [2])
