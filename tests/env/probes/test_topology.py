"""Cores are read from the kernel's files under a root prefix."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from env.probes.topology import parse_cpu_list, probe_cores, probe_cpuset


def make_sys(root, siblings, packages):
    for cpu, (text, package) in enumerate(zip(siblings, packages, strict=True)):
        folder = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(text + "\n")
        (folder / "physical_package_id").write_text(f"{package}\n")


@pytest.mark.parametrize(
    ("text", "ids"), [("0", (0,)), ("0-3,8", (0, 1, 2, 3, 8)), ("4,0-1\n", (0, 1, 4)), ("", ())]
)
def test_cpu_lists(text, ids):
    assert parse_cpu_list(text) == ids


@given(st.sets(st.integers(0, 300)))
def test_any_set_of_ids_comes_back(ids):
    assert set(parse_cpu_list(",".join(map(str, ids)))) == ids


def test_hardware_threads_share_a_core_and_sockets_come_in_order(tmp_path):
    # Four cores with two threads each; the kernel numbers the sockets in turn.
    make_sys(tmp_path, ["0,4", "1,5", "2,6", "3,7"] * 2, [0, 1, 0, 1] * 2)
    assert probe_cores(root=tmp_path, allowed=range(8)) == ((0, 4), (2, 6), (1, 5), (3, 7))


def test_only_allowed_threads_are_dealt(tmp_path):
    make_sys(tmp_path, ["0,2", "1,3"] * 2, [0] * 4)
    assert probe_cores(root=tmp_path, allowed={0, 1, 3}) == ((0,), (1, 3))


def test_unreadable_topology_counts_each_cpu_as_a_core(tmp_path):
    assert probe_cores(root=tmp_path, allowed={0, 1}) == ((0,), (1,))


@pytest.mark.parametrize(
    ("group", "files", "allowed"),
    [
        ("0::/job\n", {"job/cpuset.cpus.effective": "2-3"}, (2, 3)),
        ("0::/job/step\n", {"job/cpuset.cpus.effective": "1"}, (1,)),
        ("0::/\n", {"cpuset.cpus.effective": "0,2"}, (0, 2)),
        ("3:cpu:/a\n2:cpuset,memory:/b\n", {"cpuset/b/cpuset.cpus": "0"}, (0,)),
        ("0::/gone\n", {}, (0, 1, 2, 3)),
        ("", {}, (0, 1, 2, 3)),
    ],
)
def test_the_control_group_s_cpus(tmp_path, group, files, allowed):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(group)
    online = tmp_path / "sys/devices/system/cpu/online"
    online.parent.mkdir(parents=True)
    online.write_text("0-3\n")
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True)
        path.write_text(text + "\n")
    assert probe_cpuset(root=tmp_path) == allowed


def test_this_machine_reports_the_affinity_mask():
    cpus = {cpu for core in probe_cores() for cpu in core}
    assert cpus == os.sched_getaffinity(0)
