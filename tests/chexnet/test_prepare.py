import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import chexnet
from chexnet import prepare, records, synthetic
from chexnet.errors import UserError

HEADER = "Image Index,Finding Labels,Follow-up #,Patient ID,Size[w,h],\n"


def grey(number):
    return np.full((16, 16), 5 * number, np.uint8)


@pytest.fixture
def source(tmp_path):
    """Twelve films of six patients: film n is grey 5 n; one JPEG, one RGBA, one 16 bit."""
    folder = tmp_path / "nih"
    (folder / "images").mkdir(parents=True)
    names = [f"{n}.png" for n in range(11)] + ["11.jpeg"]
    rows = [
        f"{name},{'Hernia|Mass' if n % 4 == 0 else 'No Finding'},0,{n // 2},16,16,\n"
        for n, name in enumerate(names)
    ]
    for n, name in enumerate(names):
        image = Image.fromarray(grey(n))
        if n == 3:
            clear = np.zeros((16, 16), np.uint8)
            image = Image.fromarray(np.stack([grey(3)] * 3 + [clear], -1))
        if n == 4:
            image = Image.fromarray(grey(4).astype(np.uint16) * 257)
        image.save(folder / "images" / name)
    (folder / "Data_Entry_2017.csv").write_text(HEADER + "".join(rows))
    (folder / "train_val_list.txt").write_text("\n".join(names[:8]))
    (folder / "test_list.txt").write_text("\n".join(names[8:]))
    return folder


def run(source, name="out", **options):
    options = {"size_px": 8, "workers": 1, **options}
    return prepare.prepare_data(source, output=source.parent / name, **options)


def read(dataset, side):
    stream = tf.data.TFRecordDataset(dataset.shard_paths(side))
    films = stream.map(lambda r: records.parse_example(r, image_size=dataset.image_size))
    return {
        name.numpy().decode(): (int(np.median(image)), label.numpy())
        for image, label, name in films
    }


def test_every_film_once_with_its_pixels_and_labels(source):
    dataset = run(source)
    films = [read(dataset, side) for side in ("train", "validation", "test")]
    assert sorted(map(len, films)) == [2, 4, 6]
    assert set(films[2]) == {"8.png", "9.png", "10.png", "11.jpeg"}
    together = films[0] | films[1] | films[2]
    assert len(together) == 12
    for name, (value, label) in together.items():
        number = int(Path(name).stem)
        assert abs(value - 5 * number) <= 1, name
        assert np.flatnonzero(label).tolist() == ([4, 13] if number % 4 == 0 else [])
    test = dataset.splits["test"]
    assert (test.num_examples, test.positives["Hernia"], test.positives["Edema"]) == (4, 1, 0)


def test_description_follows_the_schema_and_names_its_source(source):
    dataset = run(source)
    data = json.loads((dataset.root / "dataset.json").read_text())
    schema = json.loads((Path(chexnet.__file__).parent / "dataset.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(data, schema)
    table = (source / "Data_Entry_2017.csv").read_bytes()
    assert data["source"]["Data_Entry_2017.csv"] == hashlib.sha256(table).hexdigest()
    assert set(data["source"]) == {"Data_Entry_2017.csv", "train_val_list.txt", "test_list.txt"}
    assert (data["split"], data["image_size"], data["format"]) == ("official", 8, "encoded")
    assert records.find_damaged_shards(dataset) == []
    shards = {shard.name for split in dataset.splits.values() for shard in split.shards}
    assert {path.name for path in dataset.root.iterdir()} == shards | {"dataset.json"}
    assert "test-00003-of-00004.tfrecord" in shards


def test_patient_split_needs_no_lists(source):
    (source / "test_list.txt").unlink()
    with pytest.raises(UserError, match="--split patient"):
        run(source)
    dataset = run(source, split="patient")
    assert [dataset.splits[side].num_examples for side in records.SPLITS] == [8, 2, 2]


def test_same_bytes_whatever_the_workers(tmp_path):
    sample = synthetic.make_sample_data(tmp_path / "s", num_images=60, size_px=48, workers=1)

    def digests(name, **options):
        dataset = prepare.prepare_data(sample, output=tmp_path / name, size_px=32, **options)
        return {path.name: path.read_bytes() for path in dataset.root.iterdir()}

    one = digests("one", workers=1)
    assert digests("three", workers=3) == one
    assert digests("other", workers=1, seed=1) != one


@pytest.mark.parametrize(
    ("num_films", "num_shards"),
    [(0, 0), (1, 1), (63, 63), (64, 64), (4000, 64), (77871, 320), (86524, 384)],
)
def test_number_of_shards(num_films, num_shards):
    assert prepare.count_shards(num_films) == num_shards


def test_shards_are_balanced():
    dealt = list(prepare._deal(list(range(1000)), 64))
    assert {len(films) for films in dealt} == {15, 16}
    assert [film for films in dealt for film in films] == list(range(1000))


def test_bad_images_are_all_named_and_nothing_is_written(source):
    content = (source / "images" / "2.png").read_bytes()
    (source / "images" / "2.png").write_bytes(content[: len(content) // 2])
    (source / "images" / "7.png").write_bytes(b"")
    (source / "images" / "9.png").write_text("<html>not found</html>")
    with pytest.raises(UserError) as error:
        run(source)
    assert error.value.found.startswith("3 that cannot: ")
    for name in ("2.png", "7.png (an empty file)", "9.png (not an image"):
        assert str(source / "images" / name) in error.value.found
    assert error.value.exit_code == 2
    assert [path.name for path in source.parent.iterdir()] == ["nih"]


def test_missing_images_and_unknown_findings_write_nothing(source):
    (source / "images" / "5.png").unlink()
    with pytest.raises(UserError, match=r"1 missing: 5\.png"):
        run(source)
    table = source / "Data_Entry_2017.csv"
    table.write_text(table.read_text().replace("Hernia|Mass", "Hernia|Gout"))
    with pytest.raises(UserError, match="'Gout'"):
        run(source)
    assert [path.name for path in source.parent.iterdir()] == ["nih"]


@pytest.mark.parametrize(
    ("options", "known"),
    [
        ({"format": "fast"}, "use one of: encoded"),
        ({"split": "mine"}, "use one of: official, patient"),
        ({"size_px": 0}, "8 to 4096 px"),
    ],
)
def test_unknown_options(source, options, known):
    with pytest.raises(UserError, match=known):
        run(source, **options)


def test_an_output_is_kept_unless_forced(source):
    before = run(source).sha256
    with pytest.raises(UserError, match="new or empty"):
        run(source, size_px=16)
    assert records.load_dataset(source.parent / "out").sha256 == before
    assert run(source, size_px=16, force=True).image_size == 16


def test_films_in_no_list_are_left_out_aloud(source, capsys):
    (source / "test_list.txt").write_text("8.png\n")
    dataset = run(source)
    assert sum(split.num_examples for split in dataset.splits.values()) == 9
    assert "3 films are in no list: left out" in capsys.readouterr().err


def test_no_films_to_train_on(source):
    (source / "train_val_list.txt").write_text("")
    with pytest.raises(UserError, match="films to train on"):
        run(source)


def test_killed_in_the_middle_leaves_no_output_and_can_run_again(tmp_path):
    sample = synthetic.make_sample_data(tmp_path / "s", num_images=300, size_px=256, workers=1)
    program = (
        "from pathlib import Path; from chexnet.prepare import prepare_data; import sys;"
        "prepare_data(Path(sys.argv[1]), output=Path(sys.argv[2]), workers=1)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(sample), str(tmp_path / "out")],
        stderr=subprocess.DEVNULL,
        cwd=Path(chexnet.__file__).parents[1],
    )
    partial = tmp_path / ".out.partial"
    while not list(partial.glob("*.tfrecord")):
        assert child.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert not (tmp_path / "out").exists()
    prepare.prepare_data(sample, output=tmp_path / "out", size_px=32, workers=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "s"]
