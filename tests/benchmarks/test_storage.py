"""Cold files, and storage that gives few reads a second, by the kernel and by made-up trees."""

import os
import time
from pathlib import Path

import pytest

from benchmarks import storage
from chexnet.errors import UserError

PAGE = 4096
CONTENT = bytes(range(256)) * 16 * 100  # 100 pages


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(CONTENT)
    return path


def test_a_cold_file_is_out_of_memory_and_still_the_same(file):
    assert storage.pages_in_memory(file).sum() == 100
    storage.make_cold([file])
    assert storage.pages_in_memory(file).sum() == 0
    assert file.read_bytes() == CONTENT


def test_files_that_memory_keeps_are_named():
    """Those of a file system that is memory."""
    path = Path("/dev/shm") / f"kept-{os.getpid()}"
    path.write_bytes(CONTENT)
    try:
        with pytest.raises(UserError, match="page cache can forget") as error:
            storage.make_cold([path], patience_s=0.1)
    finally:
        path.unlink()
    assert path.name in error.value.found


def trees(tmp_path, *, files):
    """Make a tree of control groups that has these files."""
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_the_bound_is_written_as_the_kernel_takes_it(tmp_path):
    old = trees(tmp_path / "1", files={"blkio/blkio.throttle.read_iops_device": ""})
    interface, root = storage.find_interface(old)
    assert root == old / "blkio"
    assert interface.line.format(device="8:16", reads=150) == "8:16 150"
    new = trees(tmp_path / "2", files={"cgroup.subtree_control": "cpu io memory\n"})
    interface, root = storage.find_interface(new)
    assert (root, interface.file) == (new, "io.max")
    assert interface.line.format(device="8:16", reads=150) == "8:16 riops=150"
    none = trees(tmp_path / "3", files={"cgroup.subtree_control": "cpu memory\n"})
    with pytest.raises(UserError, match="bounds reads"):
        storage.find_interface(none)


def test_the_group_that_a_process_was_in():
    text = "9:cpu,cpuacct:/a\n7:blkio:/jobs/3\n0::/user.slice/x\n"
    assert storage.find_group(text, controller="blkio") == "/jobs/3"
    assert storage.find_group(text, controller="") == "/user.slice/x"
    assert storage.find_group("", controller="blkio") == "/"


def test_a_partition_is_bounded_by_its_disk(tmp_path):
    number = tmp_path.stat().st_dev
    name = f"{os.major(number)}:{os.minor(number)}"
    with pytest.raises(UserError, match=f"device {name}"):
        storage.find_device(tmp_path, devices=tmp_path)
    part = trees(tmp_path / "sda", files={"dev": "8:0\n", "sda1/partition": "1\n"}) / "sda1"
    (tmp_path / name).symlink_to(part)
    assert storage.find_device(tmp_path, devices=tmp_path) == "8:0"
    (part / "partition").unlink()
    assert storage.find_device(tmp_path, devices=tmp_path) == name


def test_the_kernel_gives_few_reads(file):
    """Sixty reads at twenty a second: no less than two seconds, whatever else the machine does."""
    try:
        storage.find_interface()
        storage.find_device(file.parent)
    except UserError as error:
        pytest.xfail(f"this kernel takes no bound: {error.found}")
    storage.make_cold([file])
    mine = Path("/proc/self/cgroup").read_text()
    ahead = storage.DEVICES / storage.find_device(file.parent) / "queue" / "read_ahead_kb"
    ahead_before = ahead.read_text()
    with storage.few_reads(file.parent, each_second=20), file.open("rb", buffering=0) as stream:
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        begun = time.monotonic()
        for page in range(0, 60 * PAGE, PAGE):
            os.preadv(stream.fileno(), [bytearray(1)], page)
        assert time.monotonic() - begun > 2
        assert ahead.read_text() == "128\n"
    assert ahead.read_text() == ahead_before
    assert Path("/proc/self/cgroup").read_text() == mine
