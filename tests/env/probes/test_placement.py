"""What bears on where ranks run, tried for real where this machine can: taskset, a busy process,
a filter of system calls, variables; machines of several nodes from the kernel's files."""

import os
import runpy
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from env.binding import HostShare, plan_job
from env.facts import Facts
from env.lstopo import parse_lstopo
from env.probes.host import probe_host
from env.probes.neighbours import probe_neighbours
from env.probes.placement import probe_placement, probe_places
from env.probes.topology import probe_topology
from env.result import Status
from env.topology import topology_from_json

RENDER = runpy.run_path(str(Path(__file__).parents[1] / "topologies" / "render.py"))
MACHINES, write_kernel = RENDER["MACHINES"], RENDER["write_kernel"]
CORES = sorted(os.sched_getaffinity(0))
BANNER = "mpirun (Open MPI) {}"


def machine(root, name, *, environ=None, mask=None, **changes):
    """Write a machine's files and return what the probe finds there."""
    write_kernel(MACHINES[name] | changes, root, mask=mask)
    return probe_placement(root, environ=environ or {})


def judged(verdict, name, facts, *, ranks=2, use_gpus=True, planned=True):
    topology = topology_from_json(facts["topology.host"].value)
    plan = plan_job([HostShare(topology, ranks)], use_gpus=use_gpus) if planned else None
    return verdict(name, facts, num_ranks=ranks, plan=plan)


def run(code, *argv, prefix=()):
    return subprocess.run(
        [*prefix, sys.executable, "-c", code, *argv], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )  # fmt: skip


def test_this_machine_passes(verdict):
    facts = probe_placement(environ={})
    for name in ("room", "mask", "slots", "thread-variables", "memory", "gpu-node"):
        result = verdict(f"binding.{name}", facts, num_ranks=1)
        assert result.status is Status.PASS, result


# --- BIND-02, BIND-04, BIND-06: fewer cores than ranks, a mask around the launcher -----------


def test_a_mask_of_one_core_has_no_room_for_two_ranks(run_env):
    one = str(CORES[-1])
    done = run_env("--only", "binding.room,binding.mask", "--ranks", "2",
                   prefix=("taskset", "-c", one))  # fmt: skip
    assert done.returncode == 1
    assert "1 cores for 2 ranks" in done.stdout
    assert f"CPUs {one}" in done.stdout or len(CORES) == 1  # mpirun would leave the mask


@pytest.mark.mpi
def test_open_mpi_itself_refuses_what_has_no_room(verdict, real_environ):
    ranks = len(CORES) + 1
    line = ["mpirun", "--host", f"{os.uname().nodename}:{ranks}", "-np", str(ranks)]
    done = subprocess.run([*line, "--bind-to", "core", "true"], env=real_environ,
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode != 0
    assert "overload-allowed" in done.stderr
    assert verdict("binding.room", probe_placement(environ={}), num_ranks=ranks).status == "FAIL"


def test_a_plan_keeps_to_a_narrow_mask(tmp_path, verdict):
    facts = machine(tmp_path, "plain", mask={4, 5, 6, 7})
    assert judged(verdict, "binding.mask", facts).status is Status.PASS
    result = judged(verdict, "binding.mask", facts, planned=False)
    assert (result.status, result.found) == (Status.WARN, "mpirun would deal out 0-7")


# --- BIND-05 --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("release", "cpuset", "status"),
    [
        ("5.0.7", "0-19", Status.FAIL),  # the first threads of a socket's cores: no whole one
        ("4.1.4", "0-19", Status.WARN),
        ("5.0.7", "0-19,40-44", Status.WARN),  # five whole ones
        ("5.0.7", "0-19,40-59", Status.PASS),
    ],
)
def test_half_cores_in_the_control_group(tmp_path, verdict, release, cpuset, status):
    facts = machine(tmp_path, "dgx1", cpuset=cpuset)
    banner = {"mpi.banner": type(facts["topology.host"])(BANNER.format(release), "mpirun")}
    result = judged(verdict, "binding.whole-cores", facts | banner, planned=False)
    assert result.status is status
    planned = judged(verdict, "binding.whole-cores", facts | banner)
    assert planned.status is (Status.PASS if status is Status.PASS else Status.INFO)


# --- BIND-07 --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "ranks", "found"),
    [("1", 4, "1 slots for 4"), ("2(x3),1", 8, "2 + 2 + 2 + 1 = 7 slots for 8")],
)
def test_slurm_gave_fewer_tasks_than_ranks(tmp_path, verdict, text, ranks, found):
    facts = machine(tmp_path, "plain", environ={"SLURM_TASKS_PER_NODE": text})
    result = verdict("binding.slots", facts, num_ranks=ranks)
    assert result.status is Status.FAIL
    assert found in result.found


@pytest.mark.parametrize(
    ("environ", "nodes"),
    [
        ({}, None),
        ({"SLURM_TASKS_PER_NODE": "4"}, [4]),
        ({"LSB_MCPU_HOSTS": "a 2 b 4"}, [2, 4]),
        ({"PBS_NODEFILE": "{file}"}, [2, 1]),
        ({"OMPI_MCA_orte_default_hostfile": "{hosts}"}, [4, 2]),
        ({"PRTE_MCA_prte_default_hostfile": "{file}"}, None),  # as many as there are cores
    ],
)
def test_what_each_scheduler_gave(tmp_path, environ, nodes):
    (tmp_path / "nodes").write_text("a\nb\na\n")
    (tmp_path / "hosts").write_text("# ours\na slots=4\nb  slots = 2 max_slots=3  # old\n\n")
    files = {"file": tmp_path / "nodes", "hosts": tmp_path / "hosts"}
    environ = {key: value.format(**files) for key, value in environ.items()}
    told = machine(tmp_path, "plain", environ=environ)["topology.slots"].value
    assert (told and told["nodes"]) == nodes


@pytest.mark.mpi
def test_open_mpi_itself_counts_so(tmp_path, verdict, real_environ):
    host = os.uname().nodename
    (tmp_path / "hosts").write_text("localhost slots=1\n")
    file = str(tmp_path / "hosts")
    allocation = {"SLURM_JOBID": "1", "SLURM_JOB_ID": "1", "SLURM_NODELIST": host,
                  "SLURM_JOB_NODELIST": host, "SLURM_TASKS_PER_NODE": "1"}  # fmt: skip
    names = ("OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile")
    hostfile = dict.fromkeys(names, file)
    for environ in (allocation, hostfile):
        done = subprocess.run(["mpirun", "-np", "2", "true"], env={**real_environ, **environ},
                              capture_output=True, text=True)  # fmt: skip
        assert done.returncode != 0
        assert "not enough slots" in done.stderr
        facts = probe_placement(environ=environ)
        assert verdict("binding.slots", facts, num_ranks=2).status is Status.FAIL


def test_a_hostfile_that_a_file_of_mpi_names(tmp_path, verdict):
    (tmp_path / "home/u/.openmpi").mkdir(parents=True)
    (tmp_path / "hosts").write_text("node1 slots=1\n")
    text = f"orte_default_hostfile = {tmp_path}/hosts\n"
    (tmp_path / "home/u/.openmpi/mca-params.conf").write_text(text)
    facts = probe_placement(tmp_path, environ={"HOME": "/home/u"})
    result = verdict("binding.slots", facts, num_ranks=2)
    assert (result.status, result.found) == (Status.FAIL, "1 slots for 2 ranks")
    assert verdict("binding.slots", facts, num_ranks=1).status is Status.PASS


def test_the_distributions_empty_hostfile_limits_nothing(tmp_path, verdict):
    (tmp_path / "etc/openmpi").mkdir(parents=True)
    usual = tmp_path / "etc/openmpi/openmpi-default-hostfile"
    usual.write_text("# This is the default hostfile\n")
    assert verdict("binding.slots", machine(tmp_path, "plain"), num_ranks=2).status == "PASS"
    usual.write_text("localhost slots=1\n")
    result = verdict("binding.slots", machine(tmp_path, "plain"), num_ranks=2)
    assert result.status == "FAIL"
    assert str(usual) in result.where


@pytest.mark.parametrize("text", ["2(x", "two", "2(x9999999)", "1,,2"])
def test_slots_that_make_no_sense_are_unknown(tmp_path, verdict, text):
    facts = machine(tmp_path, "plain", environ={"SLURM_TASKS_PER_NODE": text})
    assert verdict("binding.slots", facts, num_ranks=2).status is Status.UNKNOWN


# --- BIND-11 --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "status"),
    [
        ({"OMP_NUM_THREADS": "8"}, Status.WARN),
        ({"TF_NUM_INTRAOP_THREADS": "5"}, Status.WARN),
        ({"OMP_NUM_THREADS": "4,2"}, Status.PASS),
        ({"OMP_NUM_THREADS": "lots"}, Status.PASS),
    ],
)
def test_threads_of_all_ranks_together(tmp_path, verdict, environ, status):
    facts = machine(tmp_path, "plain", environ=environ)  # 8 cores
    assert judged(verdict, "binding.thread-variables", facts).status is status


# --- BIND-03 --------------------------------------------------------------------------------

SPIN = "while True: pass"
STRANGER = -1  # somebody who has started nothing here


def seconds_used(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def bound():
    """Start processes that are bound to one core, not by us as far as they can tell."""
    started = []

    def start(core, *argv, **environ):
        process = subprocess.Popen(["taskset", "-c", str(core), *argv],
                                   env={**os.environ, **environ})  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.skipif(len(CORES) < 2, reason="one core cannot be bound to a part")
def test_a_busy_process_on_our_cores(bound, verdict):
    core = CORES[0]
    process = bound(core, sys.executable, "-c", SPIN)
    while seconds_used(process.pid) < 1.1:
        time.sleep(0.05)
    told = probe_neighbours(topology=probe_topology(), pid=STRANGER, environ={})
    mine = [other for other in told.value if other["pid"] == process.pid]
    assert [other["cpus"] for other in mine] == [str(core)]
    facts = probe_placement(environ={}) | {"topology.neighbours": told}
    result = verdict("binding.neighbours", facts, num_ranks=1)
    assert result.status is Status.WARN
    assert f"({process.pid}): {core}" in result.found
    # Our own children are no other job.
    told = probe_neighbours(topology=probe_topology(), environ={}).value
    assert process.pid not in {other["pid"] for other in told}


@pytest.mark.skipif(len(CORES) < 2, reason="one core cannot be bound to a part")
def test_ranks_of_another_job_count_even_when_they_wait(bound):
    process = bound(CORES[0], "sleep", "60", OMPI_COMM_WORLD_RANK="0", PMIX_NAMESPACE="job.1")
    while b"sleep" not in Path(f"/proc/{process.pid}/cmdline").read_bytes():
        time.sleep(0.01)

    def seen(**environ):
        told = probe_neighbours(topology=probe_topology(), pid=STRANGER, environ=environ).value
        return process.pid in {other["pid"] for other in told}

    assert seen()
    assert seen(PMIX_NAMESPACE="job.2")
    assert not seen(PMIX_NAMESPACE="job.1")  # of our own job


def test_processes_whose_files_are_strange_are_left_out(tmp_path):
    write_kernel(MACHINES["plain"], tmp_path)
    started = "S 1 1 1 0 -1 0 0 0 0 0 {busy} 0 0 0 20 0 1 0 100 0 0"
    processes = {
        11: (f"11 (a) b\x1b[31m) {started.format(busy=99000)}", "0"),
        12: ("12 (gone", "0"),
        13: (f"13 (idle) {started.format(busy=0)}", "0"),
        14: (f"14 (x) {started.format(busy=99000)}", "0-99999999999"),
        15: (f"15 (y) {started.format(busy=99000)}", "0-7"),
    }
    files = {"uptime": "1000.0 0"}
    for pid, (text, mask) in processes.items():
        files |= {f"{pid}/stat": text, f"{pid}/status": f"Cpus_allowed_list:\t{mask}"}
    for name, text in files.items():
        (tmp_path / "proc" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "proc" / name).write_text(text)
    told = probe_neighbours(tmp_path, topology=probe_topology(tmp_path, environ={}), environ={})
    assert [(other["pid"], other["name"], other["cpus"]) for other in told.value] == [
        (11, "a) b?[31m", "0")
    ]


# --- BIND-10 --------------------------------------------------------------------------------

# Puts a filter on this process under which set_mempolicy gives EPERM, as a container engine's
# default profile does, and then runs what follows. 238 and 237: set_mempolicy on x86-64, Arm.
FILTERED = """
import ctypes, os, platform, struct, sys
number = {"x86_64": 238, "aarch64": 237}[platform.machine()]
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
program = Program(len(steps), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
assert libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0, ctypes.get_errno()  # PR_SET_SECCOMP
from env.probes.placement import probe_placement
print(probe_placement(environ=dict(os.environ))["topology.memory_policy"].value)
"""


def test_a_filter_of_system_calls_forbids_memory_policies(tmp_path, verdict):
    done = run(FILTERED)
    assert done.stdout == "EPERM\n", done.stderr
    facts = machine(tmp_path, "uneven")
    told = {"topology.memory_policy": type(facts["topology.host"])("EPERM", "set_mempolicy")}
    assert verdict("binding.memory", facts | told).status is Status.WARN
    one = machine(tmp_path / "one", "laptop")
    assert verdict("binding.memory", one | told).status is Status.INFO


# --- BIND-08, BIND-09 -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "status"),
    [("virtual", Status.WARN), ("laptop", Status.INFO), ("dgx1", Status.PASS)],
)
def test_minus_one_is_no_node(tmp_path, verdict, name, status):
    assert verdict("binding.gpu-node", machine(tmp_path, name)).status is status


def ranks_on(root, name, masks, *, environs=None):
    """Return the facts of ranks with these masks, read by the probes from a machine's files."""
    ranks = {}
    write_kernel(MACHINES[name], root)
    for rank, mask in enumerate(masks):
        status = f"Cpus_allowed_list:\t{','.join(map(str, sorted(mask)))}\n"
        (root / "proc/self/status").write_text(status)
        environ = environs[rank] if environs else {}
        facts = Facts(probe_host(root, environ=environ)) | probe_places(root, environ=environ)
        told = {"launch.local_rank": rank, "host.name": "node1"}
        fact = type(facts["host.affinity"])
        ranks[rank] = facts | {key: fact(value, "test") for key, value in told.items()}
    return ranks


@pytest.mark.parametrize(
    ("masks", "status", "far"),
    [
        ([range(8), range(8), range(8), range(16, 32)], Status.PASS, ()),
        ([range(8), range(8), range(16, 24), range(16, 24)], Status.WARN, (2,)),
        ([range(32)] * 4, Status.WARN, (0, 1, 2, 3)),  # bound to nothing
    ],
)
def test_cores_of_the_gpus_node(tmp_path, verdict, masks, status, far):
    ranks = ranks_on(tmp_path, "uneven", [set(mask) for mask in masks])
    result = verdict("binding.gpu", ranks=ranks, num_ranks=4)
    assert (result.status, result.ranks) == (status, far)


def test_a_rank_that_sees_its_own_gpu_alone(tmp_path, verdict):
    environs = [{"CUDA_VISIBLE_DEVICES": str(n)} for n in (3, 0)]
    ranks = ranks_on(tmp_path, "uneven", [set(range(16, 32)), set(range(16))], environs=environs)
    assert verdict("binding.gpu", ranks=ranks, num_ranks=2).status is Status.PASS


def test_the_plan_passes_its_own_check_on_every_machine(tmp_path, verdict):
    for name in ("dgx-a100", "uneven", "epyc-nps4", "half", "laptop"):
        described = MACHINES[name]
        number = len(described["gpus"])
        topology = parse_lstopo(RENDER["xml_of"](described), host="node1")
        plan = plan_job([HostShare(topology, number)])
        ranks = ranks_on(tmp_path / name, name, [set(r.cores) for r in plan.ranks])
        result = verdict("binding.gpu", ranks=ranks, num_ranks=number, plan=plan)
        assert result.status is Status.PASS, (name, result)


# --- anything at all ------------------------------------------------------------------------


@given(st.text(max_size=300))
def test_any_text_in_a_variable_is_a_fact_or_a_problem(text):
    text = text.replace("\0", "")
    names = ("SLURM_TASKS_PER_NODE", "LSB_MCPU_HOSTS", "PBS_NODEFILE", "OMP_NUM_THREADS",
             "CUDA_VISIBLE_DEVICES", "SLURM_CPU_BIND")  # fmt: skip
    for name in names:
        probe_places(Path("/nowhere"), environ={name: text})
        assert set(_variables_only({name: text})) == {"slots", "threads"}


def _variables_only(environ):
    from env.probes import placement

    return {
        "slots": placement._slots(Path("/nowhere"), environ),
        "threads": placement._threads(environ),
    }


@settings(max_examples=20)
@given(st.text(max_size=60))
def test_a_kernel_that_writes_nonsense_is_a_problem_and_no_crash(tmp_path_factory, text):
    root = tmp_path_factory.mktemp("root")
    write_kernel(MACHINES["laptop"], root)
    (root / "sys/devices/system/cpu/cpu1/topology/physical_package_id").write_text(text)
    (root / "sys/devices/system/node/node0/cpulist").write_text(text)
    probe_places(root, environ={})
