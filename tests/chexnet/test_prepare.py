import contextlib
import hashlib
import json
import os
import random
import shutil
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
from chexnet.data import shards
from chexnet.errors import UserError

HEADER = "Image Index,Finding Labels,Follow-up #,Patient ID,Size[w,h],\n"


def grey(number):
    return np.full((16, 16), 23 * number, np.uint8)


@pytest.fixture
def source(tmp_path):
    """Twelve films of six patients: film n is grey 23 n; one JPEG, one RGBA, one 16 bit."""
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
    options = {"size_px": 8, "workers": 1, "format": "encoded", **options}
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
        assert abs(value - 23 * number) <= 1, name
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
    tables = {f"{side}-films.csv" for side in records.SPLITS}
    assert {path.name for path in dataset.root.iterdir()} == shards | tables | {"dataset.json"}
    assert "test-00003-of-00004.tfrecord" in shards


def test_patient_split_needs_no_lists(source):
    (source / "test_list.txt").unlink()
    with pytest.raises(UserError, match="--split patient"):
        run(source)
    dataset = run(source, split="patient")
    assert [dataset.splits[side].num_examples for side in records.SPLITS] == [8, 2, 2]


def test_the_user_s_lists_divide_the_films(source, tmp_path):
    with pytest.raises(UserError, match="--lists DIR"):
        run(source, split="lists")
    lists = tmp_path / "lists"
    lists.mkdir()
    for side, names in {"train": "0.png\n1.png\n4.png", "validation": "2.png", "test": ""}.items():
        (lists / f"{side}.txt").write_text(names)
    dataset = run(source, split="lists", lists=lists)
    assert [dataset.splits[side].num_examples for side in records.SPLITS] == [3, 1, 0]
    data = json.loads((dataset.root / "dataset.json").read_text())
    assert set(data["source"]) == {"Data_Entry_2017.csv", "train.txt", "validation.txt", "test.txt"}
    (lists / "test.txt").write_text("3.png\n")  # of the patient of film 2
    with pytest.raises(UserError, match="patient 1 in validation"):
        run(source, split="lists", lists=lists, force=True)
    (lists / "test.txt").write_text("../3.png\n")
    with pytest.raises(UserError, match="without a folder"):
        run(source, split="lists", lists=lists, force=True)


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
    assert shards.count_shards(num_films) == num_shards


def test_shards_are_balanced():
    plans = shards.plan_shards("train", films=list(range(1000)), format="fast")
    assert {len(plan.films) for plan in plans} == {15, 16}
    assert [film for plan in plans for film in plan.films] == list(range(1000))
    assert (plans[0].name, len(plans)) == ("train-00000-of-00064.u8", 64)


def spoil(source):
    """Make three images unreadable and return their names with the reasons to expect."""
    content = (source / "images" / "2.png").read_bytes()
    (source / "images" / "2.png").write_bytes(content[: len(content) // 2])
    (source / "images" / "7.png").write_bytes(b"")
    (source / "images" / "9.png").write_text("<html>not found</html>")
    return {"2.png": "not an image", "7.png": "an empty file", "9.png": "not an image"}


@pytest.mark.parametrize("format", records.FORMATS)
def test_bad_images_are_left_out_by_name(source, format, capsys):
    bad = spoil(source)
    dataset = run(source, format=format, max_bad=3)
    data = json.loads((dataset.root / "dataset.json").read_text())
    schema = json.loads((Path(chexnet.__file__).parent / "dataset.schema.json").read_text())
    jsonschema.validate(data, schema)
    named = {one["film"]: one["reason"] for one in data["quarantined"]}
    assert set(named) == set(bad)
    assert all(named[film].startswith(reason) for film, reason in bad.items())
    assert sum(split.num_examples for split in dataset.splits.values()) == 9
    assert "3 films left out, named in dataset.json" in capsys.readouterr().err
    # 8 films of train_val and 4 of test: 2 and 7 are of the former, 9 of the latter.
    assert dataset.splits["test"].num_examples == 3
    names = (dataset.root / "test-films.csv").read_text().split()
    assert [line.split(",")[0] for line in names[1:]] == ["8.png", "10.png", "11.jpeg"]


def test_too_many_bad_images_stop_the_work_and_it_goes_on(source):
    bad = spoil(source)
    with pytest.raises(UserError, match="at most 2 images that cannot be read") as error:
        run(source, max_bad=2)
    assert all(str(source / "images" / name) in error.value.found for name in bad)
    assert error.value.exit_code == 1
    assert sorted(path.name for path in source.parent.iterdir()) == [".out.partial", "nih"]
    with pytest.raises(UserError, match="at most 0 images"):  # 1 in 100 of 12
        run(source)
    assert (
        len(json.loads((run(source, max_bad=3).root / "dataset.json").read_text())["quarantined"])
        == 3
    )
    assert sorted(path.name for path in source.parent.iterdir()) == ["nih", "out"]


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
        ({"format": "slow"}, "use one of: encoded, fast"),
        ({"max_bad": -1}, "0 or more"),
        ({"split": "mine"}, "use one of: lists, official, patient"),
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


PROGRAM = (
    "from pathlib import Path; from chexnet.prepare import prepare_data; import sys;"
    "prepare_data(Path(sys.argv[1]), output=Path(sys.argv[2]), workers=1, size_px=64,"
    " format=sys.argv[3])"
)


@pytest.mark.parametrize(("format", "num_shards"), [("fast", 1), ("fast", 40), ("encoded", 7)])
def test_killed_in_the_middle_it_goes_on_and_gives_the_same_bytes(tmp_path, format, num_shards):
    sample = synthetic.make_sample_data(tmp_path / "s", num_images=200, size_px=256, workers=1)
    command = [sys.executable, "-c", PROGRAM, str(sample), str(tmp_path / "out"), format]
    child = subprocess.Popen(command, stderr=subprocess.DEVNULL,
                             cwd=Path(chexnet.__file__).parents[1])  # fmt: skip
    partial = tmp_path / ".out.partial"
    while len(list(partial.glob(f"*{records.SUFFIXES[format]}"))) < num_shards:
        assert child.poll() is None, "it ended before it could be killed"
        time.sleep(0.002)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert not (tmp_path / "out").exists()
    kept = {p.name: p.stat().st_mtime_ns for p in partial.glob(f"*{records.SUFFIXES[format]}")}
    options = {"size_px": 64, "workers": 1, "format": format}
    done = prepare.prepare_data(sample, output=tmp_path / "out", **options)
    again = [name for name, time in kept.items() if (done.root / name).stat().st_mtime_ns == time]
    assert len(again) >= len(kept) - 1  # the last one may not have been in the journal yet
    fresh = prepare.prepare_data(sample, output=tmp_path / "fresh", **options)
    assert {p.name: p.read_bytes() for p in done.root.iterdir()} == {
        p.name: p.read_bytes() for p in fresh.root.iterdir()
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fresh", "out", "s"]


@pytest.mark.parametrize(
    ("kills", "format"),
    [(5, "fast"), pytest.param(50, "fast", marks=pytest.mark.slow),
     pytest.param(50, "encoded", marks=pytest.mark.slow)],
)  # fmt: skip
def test_killed_at_random_moments_again_and_again_it_gives_the_same_bytes(tmp_path, kills, format):
    """Each run is killed some moments after it began to work; what is done is never lost."""
    sample = synthetic.make_sample_data(tmp_path / "s", num_images=400, size_px=64, workers=1)
    options = {"size_px": 64, "workers": 1, "format": format}
    fresh = prepare.prepare_data(sample, output=tmp_path / "fresh", **options)
    chance = random.Random(kills)
    out, partial = tmp_path / "out", tmp_path / ".out.partial"
    program = PROGRAM.replace("workers=1", "workers=2")

    def count(folder):
        return len(list(folder.glob(f"*{records.SUFFIXES[format]}")))

    killed = []
    while len(killed) < kills:
        child = subprocess.Popen(
            [sys.executable, "-c", program, str(sample), str(out), format],
            stderr=subprocess.DEVNULL, cwd=Path(chexnet.__file__).parents[1],
        )  # fmt: skip
        before = count(partial)
        while count(partial) <= before and child.poll() is None:
            time.sleep(0.001)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=chance.uniform(0, 0.1))
        child.kill()
        child.wait()
        if out.exists():  # this one was done before its moment came: begin anew
            shutil.rmtree(out)
        else:
            killed.append(count(partial))
    # In the midst of the work: what is done grows until a run comes to the end of it.
    assert len(set(killed)) > kills / 2, killed
    assert 0 < min(killed) < max(killed) <= count(fresh.root), killed
    done = prepare.prepare_data(sample, output=out, **options)
    assert {p.name: p.read_bytes() for p in done.root.iterdir()} == {
        p.name: p.read_bytes() for p in fresh.root.iterdir()
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fresh", "out", "s"]


def test_other_work_does_not_use_what_an_interrupted_run_left(source):
    spoil(source)
    with pytest.raises(UserError, match="at most 0"):
        run(source, max_bad=0)
    left = source.parent / ".out.partial"
    assert (left / "journal.jsonl").is_file()
    dataset = run(source, max_bad=3, size_px=16)
    assert dataset.image_size == 16
    assert records.find_damaged_shards(dataset) == []


def test_a_file_changed_behind_the_journal_is_made_again(source):
    spoil(source)
    with pytest.raises(UserError, match="at most 0"):
        run(source, max_bad=0, format="fast")
    [first, *_] = sorted((source.parent / ".out.partial").glob("*.u8"))
    first.write_bytes(bytes(len(first.read_bytes())))
    dataset = run(source, max_bad=3, format="fast")
    assert records.find_damaged_shards(dataset) == []


def test_a_full_disk_is_told_before_the_work(source, monkeypatch):
    usage = shutil.disk_usage(source)
    # The pixels would have room, and not the tables, the description and what a record adds.
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=12 * 8 * 8))
    with pytest.raises(UserError, match="GiB free"):
        run(source)
    assert not (source.parent / "out").exists()


@pytest.fixture
def small_disk(tmp_path):
    """Return a folder on a disk of its own, and what gives that disk so many pages."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def resize(pages, *options):
        words = ["mount", "-t", "tmpfs", "-o", ",".join([*options, f"nr_blocks={pages}"])]
        subprocess.run([*words, "none", str(folder)], check=True)

    resize(20)
    yield folder, lambda pages: resize(pages, "remount")
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
@pytest.mark.parametrize("format", records.FORMATS)
def test_a_disk_that_fills_up_meanwhile_loses_nothing(small_disk, tmp_path, format, monkeypatch):
    """Again and again, with a little more room each time: in the records, and after them."""
    disk, resize = small_disk
    sample = synthetic.make_sample_data(tmp_path / "s", num_images=70, size_px=64, workers=1)
    options = {"size_px": 64, "workers": 1, "format": format}
    fresh = prepare.prepare_data(sample, output=tmp_path / "fresh", **options)
    shards = {one.name for split in fresh.splits.values() for one in split.shards}
    monkeypatch.setattr(prepare, "_check_space", lambda folder, num_bytes: None)
    seen = {}  # when each shard was written
    failed_with = []  # how many shards
    told = set()
    for pages in range(20, 400, 4):
        resize(pages)
        try:
            prepare.prepare_data(sample, output=disk / "out", **options)
            break
        except UserError as error:
            told.add((error.exit_code, error.found.partition(":")[0], error.fix.partition(",")[0]))
        there = {path.name: path.stat().st_mtime_ns for path in (disk / ".out.partial").iterdir()}
        lost = [name for name, when in seen.items() if there.get(name) != when]
        assert len(lost) <= 1  # the last one may not have been in the journal yet
        seen = {name: when for name, when in there.items() if name in shards}
        failed_with.append(len(seen))
    assert told == {(1, "No space left on device", "make room there")}
    assert len(set(failed_with)) > 5
    assert max(failed_with) == len(shards)  # the tables and the description had no room
    assert {p.name: p.read_bytes() for p in (disk / "out").iterdir()} == {
        p.name: p.read_bytes() for p in fresh.root.iterdir()
    }


def test_the_summary_tells_what_became_of_the_films(source, capsys):
    spoil(source)
    with pytest.raises(UserError):
        run(source, max_bad=0, format="fast")
    capsys.readouterr()
    dataset = run(source, max_bad=3, format="fast")
    first, second, third = capsys.readouterr().out.splitlines()
    size = (
        sum(path.stat().st_size for path in dataset.root.iterdir())
        - (dataset.root / "dataset.json").stat().st_size
    )
    assert first.startswith(f"{dataset.root}: ")
    assert first.endswith(f" 3 test films of 8 px, fast, {size / 1e6:,.1f} MB")
    # Of the source's odd films; a JPEG of one channel needs no turning.
    assert second == "left out: 3; turned to 8 bit grey: 1 I;16, 1 RGBA; enlarged: 0"
    kept = int(third.rpartition(" ")[2])
    assert third.startswith(f"{9 - kept} films in ")


@pytest.mark.parametrize("format", records.FORMATS)
def test_the_summary_counts_films_that_are_smaller_than_they_are_stored(source, format, capsys):
    """All of an interrupted run and of the one that ends it: 9 films of 16 px, stored with 20."""
    spoil(source)
    with pytest.raises(UserError):
        run(source, max_bad=0, format=format, size_px=20)
    run(source, max_bad=3, format=format, size_px=20)
    assert "; enlarged: 9\n" in capsys.readouterr().out


def test_lists_that_would_not_be_read_are_refused(source):
    with pytest.raises(UserError, match="add --split lists"):
        run(source, lists=source)
    assert [path.name for path in source.parent.iterdir()] == ["nih"]
