"""The plan deals cores out in equal shares near the GPUs, and says when it cannot."""

import json
import os
import re
import runpy
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from env.binding import (
    CORES,
    NONE,
    SLOT,
    THREADS,
    HostShare,
    load_plan,
    plan_job,
    render_plan,
    render_rankfile,
)
from env.cpulist import parse_cpu_list, render_cpu_list
from env.errors import UserError
from env.lstopo import parse_lstopo
from env.topology import Core, Gpu, HostTopology, launcher_order

RENDER = runpy.run_path(str(Path(__file__).parent / "topologies" / "render.py"))
CPUS = tuple(range(8))
EIGHT = HostTopology("n1", tuple(Core((n,)) for n in CPUS), CPUS, CPUS)


def machine(name, **changes):
    return replace(parse_lstopo(RENDER["xml_of"](RENDER["MACHINES"][name]), host=name), **changes)


def planned(name, ranks, *, mask=None, **settings):
    topology = machine(name, **({"allowed": parse_cpu_list(mask)} if mask else {}))
    return plan_job([HostShare(topology, ranks)], **settings)


def cores_of(plan):
    return [render_cpu_list(rank.cores) for rank in plan.ranks]


def test_two_ranks_on_eight_cores_get_four_each():
    plan = plan_job([HostShare(EIGHT, 2)])
    assert [rank.cores for rank in plan.ranks] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert [rank.threads for rank in plan.ranks] == [4, 4]
    assert (plan.cores_per_rank, plan.mapping) == (4, SLOT)


def test_left_over_cores_stay_free():
    plan = plan_job([HostShare(EIGHT, 3)])
    assert [rank.cores for rank in plan.ranks] == [(0, 1), (2, 3), (4, 5)]


def test_a_core_brings_its_hardware_threads_and_counts_once():
    twofold = tuple(Core((n, n + 4)) for n in range(4))
    plan = plan_job([HostShare(replace(EIGHT, cores=twofold), 2)])
    assert [rank.cores for rank in plan.ranks] == [(0, 1, 4, 5), (2, 3, 6, 7)]
    assert plan.ranks[0].threads == 2


# Cores worked out by hand from the machines' descriptions.
@pytest.mark.parametrize(
    ("name", "ranks", "cores", "nodes", "mapping"),
    [
        ("dgx1", 2, ["0-9,40-49", "10-19,50-59"], [0, 0], SLOT),
        ("dgx-a100", 4, ["48-55,176-183", "56-63,184-191", "16-23,144-151", "24-31,152-159"],
         [3, 3, 1, 1], CORES),
        ("c4140", 4, ["0,2,4,6,8,10,12,14,16,18", "20,22,24,26,28,30,32,34,36,38",
                      "1,3,5,7,9,11,13,15,17,19", "21,23,25,27,29,31,33,35,37,39"],
         [0, 0, 1, 1], SLOT),
        ("c4140-one-switch", 4, ["0,2,4,6,8", "10,12,14,16,18", "20,22,24,26,28",
                                 "30,32,34,36,38"], [0] * 4, SLOT),
        ("epyc-nps4", 4, ["48-63,112-127", "32-47,96-111", "16-31,80-95", "0-15,64-79"],
         [3, 2, 1, 0], CORES),
        ("uneven", 4, ["0-3", "4-7", "8-11", "16-19"], [0, 0, 0, 1], CORES),
        ("laptop", 1, ["0-7"], [0], SLOT),
        ("plain", 2, ["0-3", "4-7"], [0, 0], SLOT),
        ("half", 4, ["20-24,60-64", "25-29,65-69", "30-34,70-74", "35-39,75-79"], [1] * 4, SLOT),
        ("virtual", 2, ["0-7", "8-15"], [0, 1], SLOT),
    ],
)  # fmt: skip
def test_ranks_sit_near_their_gpus(name, ranks, cores, nodes, mapping):
    plan = planned(name, ranks)
    assert cores_of(plan) == cores
    assert [rank.memory_node for rank in plan.ranks] == nodes
    assert plan.mapping == mapping
    gpus = RENDER["MACHINES"][name]["gpus"]
    assert [rank.gpu for rank in plan.ranks] == (list(range(ranks)) if gpus else [None] * ranks)
    assert [rank.gpu_pci for rank in plan.ranks if gpus] == [
        f"0000:{bus}:00.0" for bus in list(gpus)[:ranks]
    ]


def test_on_the_cpu_ranks_keep_to_a_node_and_take_every_core():
    plan = planned("dgx-a100", 16, use_gpus=False)
    assert cores_of(plan)[:3] == ["0-7,128-135", "8-15,136-143", "16-23,144-151"]
    assert [rank.memory_node for rank in plan.ranks] == [n // 2 for n in range(16)]
    assert {rank.gpu for rank in plan.ranks} == {None}


def test_on_the_cpu_more_cores_come_before_one_node():
    # Five ranks on two sockets of 8: 3 cores each if one rank spans, 2 if none may.
    plan = planned("uneven", 5, use_gpus=False)
    assert plan.cores_per_rank == 3
    assert [rank.memory_node for rank in plan.ranks] == [0, 0, None, 1, 1]


def test_a_mask_without_the_gpus_node_puts_ranks_on_their_socket():
    plan = planned("epyc-nps4", 2, mask="0-31,64-95")  # nodes 0 and 1; the GPUs are at 3 and 2
    assert cores_of(plan) == ["0-15,64-79", "16-31,80-95"]
    assert all("on other cores of its socket" in rank.note for rank in plan.ranks)


def test_a_rank_that_cannot_be_near_says_why():
    plan = planned("dgx1", 8, mask="0-19")  # the first threads of the first socket
    assert [bool(rank.note) for rank in plan.ranks] == [False] * 4 + [True] * 4
    assert "node 1 of GPU 0000:85:00.0" in plan.ranks[4].note
    assert plan.cores_per_rank == 2
    unknown = planned("virtual", 2).ranks
    assert all("unknown" in rank.note for rank in unknown)


@pytest.mark.parametrize(
    ("mask", "mapping", "slots"),
    [
        ("0-15", SLOT, [(0, 1, 2, 3), (4, 5, 6, 7)]),
        ("4-15", CORES, [(2, 3, 4), (5, 6, 7)]),  # two cores of the launcher's stay free
        ("0,2,4,6", THREADS, [(0, 2), (4, 6)]),  # half of each core
    ],
)
def test_inside_a_mask_cores_are_named_by_the_launchers_count(mask, mapping, slots):
    plan = planned("uneven", 2, mask=mask)
    assert plan.mapping == mapping
    assert [rank.slots for rank in plan.ranks] == slots
    allowed = set(parse_cpu_list(mask))
    assert all(set(rank.cores) <= allowed for rank in plan.ranks)


@pytest.mark.parametrize(
    ("quota", "ranks", "threads"), [(None, 2, 4), (8, 2, 4), (5, 2, 2), (1.5, 2, 1), (2, 1, 2)]
)
def test_a_quota_of_time_limits_threads_and_not_cores(quota, ranks, threads):
    plan = plan_job([HostShare(machine("plain", quota=quota), ranks)])
    assert {rank.threads for rank in plan.ranks} == {threads}
    assert plan.cores_per_rank == 8 // ranks


def test_the_rankfile_names_every_rank_and_host():
    hosts = [HostShare(machine("uneven", host=f"n{n}"), 2) for n in range(2)]
    hosts[1] = HostShare(replace(hosts[1].topology, allowed=tuple(range(8, 16))), 2)
    plan = plan_job(hosts)
    assert render_rankfile(plan).splitlines() == [
        "rank 0=n0 slot=0-1", "rank 1=n0 slot=2-3", "rank 2=n1 slot=4-5", "rank 3=n1 slot=6-7",
    ]  # fmt: skip


def test_ranks_of_all_hosts_are_numbered_in_a_row_and_equally_wide():
    small, large = machine("plain", host="small"), machine("uneven", host="large", gpus=())
    plan = plan_job([HostShare(large, 2), HostShare(small, 2)])
    assert [(r.rank, r.host, r.local_rank) for r in plan.ranks] == [
        (0, "large", 0), (1, "large", 1), (2, "small", 0), (3, "small", 1),
    ]  # fmt: skip
    assert {rank.threads for rank in plan.ranks} == {4}
    assert list(plan.hosts) == ["large", "small"]
    # The wide host has cores to spare: its ranks take one socket each.
    assert cores_of(plan) == ["0-7", "16-23", "0-3", "4-7"]
    assert plan.mapping == CORES


def test_a_host_without_gpus_among_others_is_named():
    with pytest.raises(UserError, match="plain") as caught:
        plan_job([HostShare(machine("dgx1"), 1), HostShare(machine("plain"), 1)])
    assert "plain" in caught.value.fix


@pytest.mark.parametrize(
    ("ranks", "gpus", "named"), [(0, 0, "0 ranks"), (9, 0, "9 ranks"), (5, 4, "5 ranks")]
)
def test_impossible_plans_name_the_number_and_the_cure(ranks, gpus, named):
    with_gpus = replace(EIGHT, gpus=tuple(Gpu(f"pci{n}") for n in range(gpus)))
    with pytest.raises(UserError) as caught:
        plan_job([HostShare(with_gpus, ranks)])
    assert caught.value.exit_code == 2
    assert named in caught.value.found
    assert "--ranks" in caught.value.fix


def test_shared_cores_bind_nothing():
    plan = plan_job([HostShare(EIGHT, 9)], share_cores=True)
    assert (plan.cores_per_rank, plan.mapping) == (0, NONE)
    assert {rank.cores for rank in plan.ranks} == {()}
    assert {rank.threads for rank in plan.ranks} == {1}
    assert render_rankfile(plan) == ""


@st.composite
def topologies(draw):
    """Any machine: sockets, nodes, cores of one or two threads, GPUs anywhere, any mask."""
    sockets, nodes, size = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 6))
    threads = draw(st.integers(1, 2))
    total = sockets * nodes * size
    ids = draw(st.permutations(range(total * threads)))
    cores = launcher_order(
        Core(tuple(sorted(ids[n * threads : (n + 1) * threads])), n // (nodes * size), n // size)
        for n in range(total)
    )
    places = st.one_of(st.none(), st.integers(0, sockets * nodes - 1))
    gpus = tuple(Gpu(f"pci{n}", node) for n, node in enumerate(draw(st.lists(places, max_size=6))))
    every = range(total * threads)
    cpuset = draw(st.sets(st.sampled_from(every), min_size=1))
    allowed = draw(st.sets(st.sampled_from(sorted(cpuset)), min_size=1))
    return HostTopology("h", cores, tuple(sorted(allowed)), tuple(sorted(cpuset)), gpus)


@given(topology=topologies(), data=st.data())
def test_any_plan_is_disjoint_inside_the_mask_balanced_and_as_near_as_can_be(topology, data):
    most = len(topology.usable)
    if topology.gpus:
        most = min(most, len(topology.gpus))
    ranks = data.draw(st.integers(1, most))
    plan = plan_job([HostShare(topology, ranks)])
    assert plan == plan_job([HostShare(topology, ranks)])
    dealt = [cpu for rank in plan.ranks for cpu in rank.cores]
    assert len(dealt) == len(set(dealt))
    assert set(dealt) <= set(topology.allowed)
    of_cpu = {cpu: core for core in topology.usable for cpu in core.cpus}
    nodes_of = []
    for rank in plan.ranks:
        cores = {of_cpu[cpu] for cpu in rank.cores}
        assert len(cores) == plan.cores_per_rank == rank.threads >= 1
        assert sorted(rank.cores) == sorted(cpu for core in cores for cpu in core.cpus)
        nodes_of.append({core.node for core in cores})
        assert rank.memory_node == (min(nodes_of[-1]) if len(nodes_of[-1]) == 1 else None)
    homes = [gpu.node for gpu in topology.gpus[:ranks]]
    room = [core.node for core in topology.usable]
    if homes and None not in homes and all(homes.count(n) <= room.count(n) for n in homes):
        assert nodes_of == [{home} for home in homes]
        assert not any(rank.note for rank in plan.ranks)


@given(topology=topologies())
def test_without_gpus_no_core_is_wasted_that_equal_shares_allow(topology):
    for ranks in range(1, len(topology.usable) + 1):
        plan = plan_job([HostShare(topology, ranks)], use_gpus=False)
        assert plan.cores_per_rank == len(topology.usable) // ranks


@given(topology=topologies())
def test_slots_name_the_same_cores_as_the_launcher_counts_them(topology):
    plan = plan_job([HostShare(topology, 1)], use_gpus=False)
    (rank,) = plan.ranks
    units = [core.cpus for core in topology.dealt]
    if plan.mapping == THREADS:
        units = [(cpu,) for core in topology.dealt for cpu in core.cpus]
    assert sorted(cpu for slot in rank.slots for cpu in units[slot]) == sorted(rank.cores)


# --- Open MPI's own word -----------------------------------------------------------------


def open_mpi_is_5():
    told = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
    return " 5." in told


def bound_by_open_mpi(tmp_path, name, *options, ranks):
    """Return the slots of each rank by Open MPI's own map of a recorded machine."""
    (tmp_path / "machine.xml").write_text(RENDER["xml_of"](RENDER["MACHINES"][name]))
    environ = {
        **os.environ, "HWLOC_XMLFILE": str(tmp_path / "machine.xml"), "HWLOC_THISSYSTEM": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }  # fmt: skip
    show = ["--display", "map-devel"] if open_mpi_is_5() else ["--display-devel-map"]
    host = f"{os.uname().nodename}:{ranks}"
    done = subprocess.run(
        ["mpirun", "--host", host, "-np", str(ranks), "--do-not-launch", *show, *options, "true"],
        env=environ, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    bound = re.findall(r"Binding:\s*(\S+\[.*|\[.*)", done.stdout)
    numbers = [_numbers_in(line) for line in bound]
    cores = machine(name).dealt
    if open_mpi_is_5() and all(len(core.cpus) == 1 for core in cores):
        # Where a core is one hardware thread, 5 shows the kernel's numbers, not its own count.
        order = {core.cpus[0]: slot for slot, core in enumerate(cores)}
        numbers = [tuple(sorted(order[cpu] for cpu in cpus)) for cpus in numbers]
    return numbers


def _numbers_in(line):
    if "core:" in line:  # Open MPI 5: package[0][core:0-2]
        return tuple(
            n for part in re.findall(r"core:([\d,-]+)", line) for n in parse_cpu_list(part)
        )
    cells = [cell for text in re.findall(r"\[([^\]]+)\]", line) for cell in text.split("/")]
    return tuple(n for n, cell in enumerate(cells) if "B" in cell)


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("name", "ranks"), [("dgx1", 8), ("c4140", 4), ("plain", 3), ("half", 4), ("dgx-a100", 16)]
)
def test_the_launchers_order_is_open_mpis(tmp_path, name, ranks):
    plan = planned(name, ranks, use_gpus=name != "dgx-a100")
    assert plan.mapping == SLOT
    options = ["--map-by", f"slot:PE={plan.cores_per_rank}", "--bind-to", "core"]
    bound = bound_by_open_mpi(tmp_path, name, *options, ranks=ranks)
    assert bound == [rank.slots for rank in plan.ranks]


@pytest.mark.mpi
@pytest.mark.parametrize(("name", "far"), [("c4140", [1, 2]), ("dgx1", [1, 3, 4, 6])])
def test_mapping_by_socket_leaves_half_of_the_ranks_far_from_their_gpus(tmp_path, name, far):
    # Open MPI 4 gives the sockets in turn; the GPUs of a socket follow each other. 5 fills one
    # socket after the other.
    topology = machine(name)
    ranks = len(topology.gpus)
    options = ["--map-by", "socket", "--bind-to", "socket"]
    bound = bound_by_open_mpi(tmp_path, name, *options, ranks=ranks)
    nodes = [{topology.cores[slot].node for slot in slots} for slots in bound]
    found = [n for n in range(ranks) if nodes[n] != {topology.gpus[n].node}]
    assert found == ([] if open_mpi_is_5() else far)
    plan = planned(name, ranks)
    assert [rank.memory_node for rank in plan.ranks] == [gpu.node for gpu in topology.gpus]


# --- the file ----------------------------------------------------------------------------


def test_a_plan_survives_its_file(tmp_path):
    plan = planned("uneven", 3)
    path = tmp_path / "plan.json"
    path.write_text(render_plan(plan))
    assert load_plan(path) == plan


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", json.dumps({"schema_version": 1, "ranks": []}), '{"schema_version": 2}'],
)
def test_a_bad_plan_file_is_named(tmp_path, text):
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        load_plan(path)
    assert str(path) in caught.value.found


def test_a_missing_plan_file_is_named(tmp_path):
    with pytest.raises(UserError, match="nowhere"):
        load_plan(tmp_path / "nowhere.json")
