"""A host's topology is read from the kernel's files under a root prefix."""

import os
import runpy
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from env.cpulist import parse_cpu_list
from env.probes.topology import probe_cpuset, probe_topology
from env.topology import topology_from_json, topology_to_json

RENDER = runpy.run_path(str(Path(__file__).parents[1] / "topologies" / "render.py"))
MACHINES, write_kernel = RENDER["MACHINES"], RENDER["write_kernel"]


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


def cpus_of(topology):
    return [core.cpus for core in topology.cores]


@pytest.mark.parametrize(
    ("text", "ids"), [("0", (0,)), ("0-3,8", (0, 1, 2, 3, 8)), ("4,0-1\n", (0, 1, 4)), ("", ())]
)
def test_cpu_lists(text, ids):
    assert parse_cpu_list(text) == ids


@given(st.sets(st.integers(0, 300)))
def test_any_set_of_ids_comes_back(ids):
    assert set(parse_cpu_list(",".join(map(str, ids)))) == ids


def test_sockets_numbered_in_turn_come_one_after_the_other(tmp_path):
    write_kernel(MACHINES["c4140"], tmp_path)
    cpus = [cpu for (cpu,) in cpus_of(probe_topology(tmp_path, environ={}))]
    assert cpus == [*range(0, 40, 2), *range(1, 40, 2)]


def test_hardware_threads_share_a_core(tmp_path):
    write_kernel(MACHINES["dgx1"], tmp_path)
    topology = probe_topology(tmp_path, environ={})
    assert cpus_of(topology) == [(n, n + 40) for n in range(40)]
    assert [core.node for core in topology.cores] == [0] * 20 + [1] * 20


def test_nodes_inside_a_socket_keep_to_their_caches(tmp_path):
    write_kernel(MACHINES["dgx-a100"], tmp_path)
    topology = probe_topology(tmp_path, environ={})
    assert cpus_of(topology) == [(n, n + 128) for n in range(128)]
    assert [core.node for core in topology.cores[::16]] == list(range(8))
    assert [core.socket for core in topology.cores[::16]] == [0] * 4 + [1] * 4
    assert len({core.cache for core in topology.cores}) == 32


def test_a_mask_is_told_from_the_control_group(tmp_path):
    write_kernel(MACHINES["half"], tmp_path, mask={20, 21, 60})
    topology = probe_topology(tmp_path, environ={})
    assert topology.allowed == (20, 21, 60)
    assert topology.cpuset == (*range(20, 40), *range(60, 80))
    assert [core.cpus for core in topology.usable] == [(20, 60), (21,)]
    assert [core.cpus for core in topology.dealt] == [(n, n + 40) for n in range(20, 40)]


def test_a_quota_of_the_control_group(tmp_path):
    write_kernel(MACHINES["plain"], tmp_path)
    assert probe_topology(tmp_path, environ={}).quota is None
    write(tmp_path, {"sys/fs/cgroup/job/cpu.max": "250000 100000"})
    topology = probe_topology(tmp_path, environ={})
    assert topology.quota == 2.5
    assert topology_from_json(topology_to_json(topology)) == topology


def test_unreadable_topology_counts_each_cpu_as_a_core(tmp_path):
    write(tmp_path, {"proc/self/status": "Cpus_allowed_list:\t0-1"})
    topology = probe_topology(tmp_path, environ={})
    assert cpus_of(topology) == [(0,), (1,)]
    assert topology.allowed == topology.cpuset == (0, 1)
    assert {core.node for core in topology.cores} == {None}


def test_the_mask_of_a_machine_with_room_for_more_cpus_is_cut_to_those_there(tmp_path):
    write_kernel(MACHINES["plain"], tmp_path, mask=set(range(64)))
    assert probe_topology(tmp_path, environ={}).allowed == tuple(range(8))


@pytest.mark.parametrize("driver", [True, False])
def test_gpus_and_their_nodes(tmp_path, driver):
    write_kernel(MACHINES["epyc-nps4"], tmp_path, driver=driver)
    write(tmp_path, {"sys/bus/pci/devices/0000:00:1f.0/vendor": "0x8086"})
    gpus = probe_topology(tmp_path, environ={}).gpus
    assert [(gpu.pci, gpu.node) for gpu in gpus] == [
        ("0000:03:00.0", 3), ("0000:41:00.0", 2), ("0000:82:00.0", 1), ("0000:c1:00.0", 0),
    ]  # fmt: skip
    assert gpus[1].uuid == ("GPU-00000001-aaaa" if driver else None)
    assert gpus[1].model == ("A100-SXM4-40GB" if driver else None)


def test_minus_one_is_no_node(tmp_path):
    write_kernel(MACHINES["virtual"], tmp_path)
    assert [gpu.node for gpu in probe_topology(tmp_path, environ={}).gpus] == [None, None]


@pytest.mark.parametrize(
    ("visible", "buses"),
    [
        (None, ["03", "41", "82", "c1"]),
        ("", []),
        ("2,0", ["82", "03"]),
        ("GPU-00000003", ["c1"]),
        ("GPU-0000000", []),  # fits four
        ("1,7,0", ["41"]),  # CUDA stops at the first that is not there
        ("1,1", []),  # ... and takes none where one is named twice
        ("NoDevFiles", []),
        ("-1", []),
    ],
)
def test_a_job_gets_the_gpus_its_environment_names(tmp_path, visible, buses):
    write_kernel(MACHINES["epyc-nps4"], tmp_path)
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    gpus = probe_topology(tmp_path, environ=environ).gpus
    assert [gpu.pci[5:7] for gpu in gpus] == buses


def test_a_slice_of_a_gpu_has_a_name_and_no_place(tmp_path):
    write_kernel(MACHINES["virtual"], tmp_path)
    (gpu,) = probe_topology(tmp_path, environ={"CUDA_VISIBLE_DEVICES": "MIG-a1,MIG-a2"}).gpus
    assert (gpu.uuid, gpu.node) == ("MIG-a1", None)


def test_the_older_name_of_a_slice_tells_its_gpu(tmp_path):
    write_kernel(MACHINES["dgx1"], tmp_path)
    name = "MIG-GPU-00000005-aaaa/7/0"
    (gpu,) = probe_topology(tmp_path, environ={"CUDA_VISIBLE_DEVICES": name}).gpus
    assert (gpu.uuid, gpu.pci, gpu.node) == (name, "0000:86:00.0", 1)


@pytest.mark.parametrize(
    ("group", "files", "allowed"),
    [
        ("0::/job\n", {"job/cpuset.cpus.effective": "2-3"}, (2, 3)),
        ("0::/job/step\n", {"job/cpuset.cpus.effective": "1"}, (1,)),
        ("0::/\n", {"cpuset.cpus.effective": "0,2"}, (0, 2)),
        ("3:cpu:/a\n2:cpuset,memory:/b\n", {"cpuset/b/cpuset.cpus": "0"}, (0,)),
        ("0::/gone\n", {}, (0, 1, 2, 3)),
        ("", {}, (0, 1, 2, 3)),
        ("nonsense", {}, (0, 1, 2, 3)),
    ],
)
def test_the_control_group_s_cpus(tmp_path, group, files, allowed):
    write(tmp_path, {"proc/self/cgroup": group, "sys/devices/system/cpu/online": "0-3"})
    write(tmp_path, {f"sys/fs/cgroup/{name}": text for name, text in files.items()})
    assert probe_cpuset(root=tmp_path) == allowed


@pytest.mark.parametrize("name", MACHINES)
def test_a_topology_survives_json(tmp_path, name):
    write_kernel(MACHINES[name], tmp_path)
    topology = probe_topology(tmp_path, environ={})
    assert topology_from_json(topology_to_json(topology)) == topology


def test_this_machine_reports_the_affinity_mask():
    topology = probe_topology()
    assert set(topology.allowed) == os.sched_getaffinity(0)
    assert {cpu for core in topology.usable for cpu in core.cpus} == set(topology.allowed)
