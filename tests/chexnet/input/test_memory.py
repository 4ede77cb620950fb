"""Files are read into memory in order, where they fit, and only as long as they are wanted."""

import threading
from pathlib import Path

import numpy as np
import pytest

from benchmarks.storage import make_cold, pages_in_memory
from chexnet.input import memory
from chexnet.input.fast import FastPipeline
from chexnet.prepare import prepare_data
from chexnet.synthetic import make_sample_data

CHUNK = 2**20


def readers():
    return [thread for thread in threading.enumerate() if thread.name == "files in order"]


def finish():
    for thread in readers():
        thread.join(20)
    assert not readers()


def name_of(file):
    return Path(f"/proc/self/fd/{file}").readlink().name


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Three files of two chunks and a page; a chunk is 1 MiB."""
    monkeypatch.setattr(memory, "CHUNK", CHUNK)
    paths = [tmp_path / name for name in "abc"]
    for path in paths:
        path.write_bytes(bytes(2 * CHUNK + 4096))
    return paths


def test_all_of_it_comes_into_memory(files):
    make_cold(files)
    assert not any(map(any, map(pages_in_memory, files)))
    with memory.filled_in_order(files):
        finish()
    assert all(map(all, map(pages_in_memory, files)))


def test_in_order_from_the_given_file_round_and_not_what_is_there(files, monkeypatch):
    asked, read = [], []

    def is_there(file, first, last):
        assert last == first + CHUNK - 1
        asked.append((name_of(file), first // CHUNK))
        return asked[-1] == ("a", 1)

    def preadv(file, buffers, start):
        read.append((name_of(file), start // CHUNK))

    monkeypatch.setattr(memory, "_is_there", is_there)
    monkeypatch.setattr(memory.os, "preadv", preadv)
    monkeypatch.setattr(memory, "THREADS", 1)
    with memory.filled_in_order(files, first=1):
        finish()
    assert asked == [(name, number) for name in "bca" for number in range(3)]
    assert read == [one for one in asked if one != ("a", 1)]


def test_it_ends_with_the_stream(files, monkeypatch):
    asked, begun, go_on = [], threading.Event(), threading.Event()

    def is_there(*places):
        asked.append(places)
        begun.set()
        return go_on.wait(20)

    monkeypatch.setattr(memory, "_is_there", is_there)
    monkeypatch.setattr(memory, "THREADS", 1)
    with memory.filled_in_order(files) as filling:
        assert begun.wait(20)
        assert filling()
    go_on.set()
    finish()
    assert len(asked) == 1
    assert not filling()


@pytest.mark.parametrize(("kib", "reads"), [(12300, False), (12312, True)])
def test_nothing_is_read_that_half_the_free_memory_does_not_hold(files, monkeypatch, kib, reads):
    """The three files have 6 MiB and 12 KiB: 6156 KiB."""
    monkeypatch.setattr(memory, "available_memory", lambda: kib * 1024)
    make_cold(files)
    with memory.filled_in_order(files):
        finish()
    assert all(pages_in_memory(files[0])) == reads


@pytest.mark.parametrize(
    ("groups", "limits", "expected"),
    [
        ("0::/\n", {}, 5000 * 1024),
        ("0::/job/step\n", {"job/step/memory.max": "max\n", "job/memory.max": "3000000\n"},
         3_000_000),
        ("0::/job\n", {"job/memory.max": "9000000000\n"}, 5000 * 1024),
        # A container sees its own group as the root of all.
        ("0::/\n", {"memory.max": "2000000\n"}, 2_000_000),
        ("4:memory:/slurm/uid_0\n7:blkio:/\n0::/\n",
         {"memory/slurm/uid_0/memory.limit_in_bytes": "1000000\n",
          "memory/memory.limit_in_bytes": "9223372036854771712\n"}, 1_000_000),
    ],
)  # fmt: skip
def test_a_job_s_bound_on_memory_counts(tmp_path, groups, limits, expected):
    files = {f"sys/fs/cgroup/{name}": text for name, text in limits.items()}
    files["proc/self/cgroup"] = groups
    files["proc/meminfo"] = "MemTotal:  99999 kB\nMemAvailable:   5000 kB\n"
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert memory.available_memory(tmp_path) == expected


@pytest.mark.parametrize("meminfo", [None, "MemTotal: 5 kB\n", "MemAvailable: 5000 kB\n"])
def test_a_machine_that_tells_nothing_has_none_to_fill(tmp_path, meminfo):
    """No table of memory, an old one, and no table of control groups."""
    (tmp_path / "proc").mkdir()
    if meminfo:
        (tmp_path / "proc" / "meminfo").write_text(meminfo)
    assert memory.available_memory(tmp_path) == 0


def test_this_machine_has_some_memory():
    assert 2**20 < memory.available_memory() < 2**50


def test_a_file_that_goes_meanwhile_is_for_others_to_miss(files, monkeypatch):
    monkeypatch.setattr(memory, "_is_there", lambda *places: files[1].unlink(missing_ok=True))
    with memory.filled_in_order(files):
        finish()


@pytest.mark.parametrize("fill", [True, False])
def test_training_fills_memory_and_evaluation_reads_its_films(tmp_path, fill):
    sample = make_sample_data(tmp_path / "s", num_images=600, size_px=64, workers=1)
    dataset = prepare_data(sample, output=tmp_path / "d", size_px=64, format="fast", workers=1)
    shards = [Path(path) for path in dataset.shard_paths("train")]
    make_cold(shards)
    # One film, and those that it asks the kernel for: a few of some hundred.
    batches = iter(FastPipeline(dataset, "train", batch_size=1, crop_px=64, fill_memory=fill))
    next(batches)
    finish()
    found = np.concatenate([pages_in_memory(path) for path in shards])
    assert found.all() == fill
    assert found.any()
