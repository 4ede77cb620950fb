import hashlib
import json

import numpy as np
import pytest
import tensorflow as tf

from chexnet import pipeline, records
from chexnet.errors import UserError
from chexnet.labels import FINDINGS

SIZE_PX = 8


def write_data(folder, sizes, *, image_size=SIZE_PX):
    """A data folder by hand: film number n is grey n on the left, 255-n on the right."""
    folder.mkdir()
    shards, number = [], 0
    for index, num_examples in enumerate(sizes):
        path = folder / f"train-{index:05d}-of-{len(sizes):05d}.tfrecord"
        with tf.io.TFRecordWriter(str(path)) as writer:
            for _ in range(num_examples):
                image = np.full([image_size, image_size, 1], number, np.uint8)
                image[:, image_size // 2 :] = 255 - number
                label = [int(k == number % 14) for k in range(14)]
                writer.write(
                    records.encode_example(
                        tf.io.encode_png(image).numpy(), label=label, filename=f"{number:03d}.png"
                    )
                )
                number += 1
        content = path.read_bytes()
        shards.append(
            {
                "name": path.name,
                "num_examples": num_examples,
                "sha256": hashlib.sha256(content).hexdigest(),
                "num_bytes": len(content),
            }
        )
    (folder / "films.csv").write_text("films\n")
    films = {
        "name": "films.csv",
        "num_bytes": 6,
        "sha256": hashlib.sha256(b"films\n").hexdigest(),
    }
    empty = {"num_examples": 0, "positives": {}, "films": films, "shards": []}
    train = {"num_examples": number, "positives": {}, "films": films, "shards": shards}
    description = {
        "schema_version": 2,
        "classes": list(FINDINGS),
        "split": "official",
        "image_size": image_size,
        "format": "encoded",
        "quarantined": [],
        "splits": {"train": train, "validation": empty, "test": empty},
    }
    (folder / "dataset.json").write_text(json.dumps(description))
    return records.load_dataset(folder)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    # 7 files, none as long as another's neighbour: no number of ranks divides them.
    return write_data(tmp_path_factory.mktemp("data") / "d", [5, 4, 6, 4, 5, 3, 4])


def graph_ops(stream):
    graph = tf.compat.v1.GraphDef()
    graph.ParseFromString(tf.raw_ops.DatasetToGraphV2(input_dataset=stream._variant_tensor).numpy())
    return [node.op for node in graph.node if "Dataset" in node.op]


def numbers_of(images):
    """Which films these are, whether mirrored or not."""
    left, right = images[:, 0, 0, 0], images[:, 0, -1, 0]
    assert np.all(left.astype(int) + right == 255)
    return np.minimum(left, right)


def make(dataset, name, **kwargs):
    kwargs = {"split": "train", "batch_size": 4, **kwargs}
    return pipeline.make_pipeline(dataset, name=name, **kwargs)


def test_old_shards_after_the_map(dataset):
    assert graph_ops(make(dataset, "old", rank=1, size=2)) == [
        "TensorSliceDataset",
        "FlatMapDataset",
        "RandomDatasetV2",
        "ZipDataset",
        "ParallelMapDatasetV2",
        "ShardDataset",
        "ShuffleDatasetV3",
        "RepeatDataset",
        "BatchDatasetV2",
        "PrefetchDataset",
        "OptionsDataset",
    ]


def test_new_shards_before_reading_and_decodes_while_batching(dataset):
    assert graph_ops(make(dataset, "new", rank=1, size=2)) == [
        "TensorSliceDataset",
        "ShardDataset",
        "ShuffleDatasetV3",
        "ParallelInterleaveDatasetV4",
        "PrefetchDataset",
        "ShuffleDatasetV3",
        "RepeatDataset",
        "RandomDatasetV2",
        "ZipDataset",
        "ParallelMapDatasetV2",
        "BatchDatasetV2",
        "PrefetchDataset",
        "OptionsDataset",
    ]
    assert make(dataset, "new").options().experimental_optimization.map_and_batch_fusion


@pytest.mark.parametrize("name", ["old", "new"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_one_pass_gives_every_film_once(dataset, name, size):
    seen = []
    for rank in range(size):
        for image, label, filename in make(dataset, name, rank=rank, size=size, training=False):
            assert (image.dtype, label.dtype) == (tf.uint8, tf.float32)
            numbers = numbers_of(image.numpy())
            assert np.array_equal(image.numpy()[:, 0, 0, 0], numbers), "mirrored while evaluating"
            assert filename.numpy().tolist() == [b"%03d.png" % n for n in numbers]
            assert label.numpy().argmax(1).tolist() == [n % 14 for n in numbers]
            assert label.numpy().sum() == len(numbers)
            seen.extend(numbers.tolist())
    assert sorted(seen) == list(range(31))


def test_one_pass_of_more_ranks_than_files_leaves_some_ranks_empty(dataset):
    shares = [
        sum(len(batch[0]) for batch in make(dataset, "new", rank=rank, size=9, training=False))
        for rank in range(9)
    ]
    assert shares == [5, 4, 6, 4, 5, 3, 4, 0, 0]


@pytest.mark.parametrize("name", ["old", "new"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_training_covers_all_films_in_equal_counts(dataset, name, size):
    counts = np.zeros(31, int)
    for rank in range(size):
        stream = make(dataset, name, rank=rank, size=size, batch_size=1, seed=3)
        share = make(dataset, name, rank=rank, size=size, batch_size=1, training=False)
        num_films = len(list(share)) if name == "new" else -(-(31 - rank) // size)
        for image, _ in stream.take(2 * num_films):
            counts[numbers_of(image.numpy())] += 1
    # Two whole rounds of each share: each film twice, on one rank alone.
    assert counts.tolist() == [2] * 31


@pytest.mark.parametrize("name", ["old", "new"])
def test_batches_are_full_fixed_by_the_seed_and_shuffled(dataset, name):
    def first(seed):
        stream = make(dataset, name, seed=seed).take(20)
        return np.stack([image.numpy() for image, _ in stream])

    one = first(1)
    assert one.shape == (20, 4, SIZE_PX, SIZE_PX, 1)
    assert np.array_equal(one, first(1))
    assert not np.array_equal(one, first(2))
    order = numbers_of(one.reshape(-1, SIZE_PX, SIZE_PX, 1))
    assert order[:31].tolist() != sorted(order[:31])
    assert order[:31].tolist() != order[31:62].tolist()


@pytest.mark.parametrize("name", ["old", "new"])
def test_a_film_is_mirrored_in_some_epochs_only(dataset, name):
    stream = make(dataset, name, batch_size=1).take(31 * 40)
    left = np.array([image.numpy()[0, 0, 0, 0] for image, _ in stream])
    mirrored = np.array([np.mean(left[(left == n) | (left == 255 - n)] == n) for n in range(31)])
    # 40 fair coins: outside 0.1..0.9 with probability below 1e-6 a film.
    assert np.all((mirrored > 0.1) & (mirrored < 0.9))
    still = make(dataset, name, batch_size=1, flip=False).take(62)
    assert max(int(image[0, 0, 0, 0]) for image, _ in still) == 30


def test_steps_per_epoch_is_the_same_for_all_and_at_least_one(dataset):
    def steps(batch_size, size):
        return pipeline.steps_per_epoch(dataset, split="train", batch_size=batch_size, size=size)

    assert [steps(4, 1), steps(4, 2), steps(5, 3), steps(64, 8)] == [7, 3, 2, 1]


def test_new_needs_a_file_for_each_rank_and_old_does_not(dataset):
    with pytest.raises(UserError, match="7 record files") as error:
        make(dataset, "new", rank=0, size=8)
    assert "at most 7 ranks" in error.value.fix
    assert error.value.exit_code == 2
    make(dataset, "old", rank=0, size=8)


@pytest.mark.parametrize(
    ("kwargs", "known"),
    [({"name": "fastest"}, "new, old"), ({"split": "dev"}, "test, train, validation")],
)
def test_unknown_names_list_the_known(dataset, kwargs, known):
    with pytest.raises(UserError) as error:
        make(dataset, **{"name": "new", **kwargs})
    assert known in error.value.fix


def test_an_empty_split_is_refused(dataset):
    with pytest.raises(UserError, match="films in the split 'test'"):
        make(dataset, "new", split="test")
