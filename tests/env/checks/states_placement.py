"""States of the checks of cores, slots, masks, threads, neighbours and memory nodes.

The healthy machine has two sockets of four cores with a memory node and a GPU each, two ranks
on it, and no scheduler.
"""
# ruff: noqa: E501 - one state a line

from env.binding import CORES, THREADS, HostShare, plan_job
from env.checks.evidence import Evidence
from env.facts import Fact, Facts
from env.result import Status
from env.topology import Core, Gpu, HostTopology, topology_to_json

FAIL, WARN, INFO, SKIP = Status.FAIL, Status.WARN, Status.INFO, Status.SKIP


def machine(*, allowed=range(8), cpuset=range(8), threads=1, nodes=2, gpus=(0, 1)):
    """Return a host of two sockets; with two threads its core n has CPUs 2n and 2n + 1."""
    cores = tuple(
        Core(tuple(range(n * threads, (n + 1) * threads)), socket, socket if nodes == 2 else 0, n)
        for n in range(8 // threads)
        for socket in [n * threads // 4]
    )
    places = tuple(Gpu(f"0000:0{n}:00.0", node) for n, node in enumerate(gpus))
    return HostTopology("node1", cores, tuple(allowed), tuple(cpuset), places)


def plan(topology, ranks=2, **settings):
    return plan_job([HostShare(topology, ranks)], **settings)


HEALTHY = machine()
STATIC = {
    "topology.host": topology_to_json(HEALTHY),
    "topology.neighbours": [],
    "topology.slots": None,
    "topology.threads": {},
    "topology.bindings": {},
    "topology.memory_policy": 0,
    "mpi.banner": "mpirun (Open MPI) 4.1.4",
    "host.name": "node1",
}
RANK = {
    "host.name": "node1",
    "host.numa_nodes": {"0": [0, 1, 2, 3], "1": [4, 5, 6, 7]},
    "places.gpus": [{"pci": "0000:00:00.0", "node": 0}, {"pci": "0000:01:00.0", "node": 1}],
}


def facts(values, lost):
    known = {key: Fact(value, f"origin of {key}") for key, value in values.items()}
    return Facts({**known, **{key: Fact(None, key, problem="no permission") for key in lost}})


def evidence(static=None, *, topology=None, ranks=({}, {}), lost=(), **settings):
    """Return the healthy machine with some values changed and some facts lost."""
    shape = {"topology.host": topology_to_json(topology)} if topology else {}
    own = [
        {"launch.local_rank": n, "host.affinity": list(range(4 * n, 4 * n + 4))} for n in range(2)
    ]
    records = {n: facts(RANK | own[n] | change, lost) for n, change in enumerate(ranks)}
    defaults = {"num_ranks": 2, "ranks": records, "plan": plan(HEALTHY), "device": "gpu"}
    return Evidence(facts=facts(STATIC | shape | (static or {}), lost), **(defaults | settings))


def alone(topology=HEALTHY, static=None, **settings):
    """Return evidence that nobody planned for."""
    return evidence(static, topology=topology, **({"plan": None, "ranks": ()} | settings))


HALVES = machine(threads=2, allowed=range(0, 8, 2), cpuset=range(0, 8, 2))
ONE_HALF = machine(threads=2, allowed=range(7), cpuset=range(7))
SPLIT = plan(HALVES, 2)
assert SPLIT.mapping == THREADS
UNKNOWN = machine(gpus=(None, 1))
MASKED = machine(allowed=range(2, 8))
assert plan(MASKED).mapping == CORES
OTHER = {"pid": 77, "name": "solver", "cpus": "0-1", "busy": 0.99}
FAR = ({}, {"host.affinity": [0, 1]})

STATES = {
    "binding.room": (
        [(FAIL, "2 cores for 3 ranks on node1 (socket 0: 1, socket 1: 1)", alone(machine(allowed=(0, 5)), num_ranks=3)),
         (FAIL, "SLURM_CPU_BIND=mask", alone(machine(allowed=(0,)), {"topology.bindings": {"SLURM_CPU_BIND": "mask"}})),
         (WARN, "on socket 1 (1 cores)", alone(machine(allowed=range(5)), num_ranks=4))],
        evidence(lost=["topology.host"]),
    ),
    "binding.whole-cores": (
        [(FAIL, "0 of 4 cores whole, in CPUs 0,2,4,6", alone(HALVES, {"mpi.banner": "mpirun (Open MPI) 5.0.7"})),
         (WARN, "0 of 4 cores whole", alone(HALVES)),
         (WARN, "3 of 4 cores whole", alone(ONE_HALF, {"mpi.banner": "mpirun (Open MPI) 5.0.7"})),
         (INFO, "the plan binds to hardware threads", evidence(topology=HALVES, plan=SPLIT))],
        evidence(lost=["topology.host"]),
    ),
    "binding.mask": (
        [(WARN, "mpirun would deal out 0-7", alone(MASKED)),
         (WARN, "mpirun would deal out 0-7", evidence(topology=MASKED))],
        evidence(lost=["topology.host"]),
    ),
    "binding.slots": (
        [(FAIL, "1 slots for 2 ranks", evidence({"topology.slots": {"source": "SLURM_TASKS_PER_NODE", "nodes": [1], "hostfile": False}})),
         (FAIL, "1 slots for 2 ranks", evidence({"topology.slots": {"source": "hosts", "nodes": [1], "hostfile": True}})),
         (FAIL, "2 + 1 = 3 slots for 8 ranks", alone(num_ranks=8, static={"topology.slots": {"source": "SLURM_TASKS_PER_NODE", "nodes": [2, 1], "hostfile": False}}))],
        evidence(lost=["topology.slots"]),
    ),
    "binding.thread-variables": (
        [(WARN, "OMP_NUM_THREADS=8", evidence({"topology.threads": {"OMP_NUM_THREADS": 8, "MKL_NUM_THREADS": 4}})),
         (WARN, "MKL_NUM_THREADS=2", alone(num_ranks=8, static={"topology.threads": {"MKL_NUM_THREADS": 2}}))],
        evidence(lost=["topology.threads"]),
    ),
    "binding.neighbours": (
        [(WARN, "solver (77): 0-1", evidence({"topology.neighbours": [OTHER]})),
         (WARN, "solver (77): 1", alone(machine(allowed=(1, 2)), {"topology.neighbours": [OTHER]}))],
        evidence(lost=["topology.neighbours"]),
    ),
    "binding.memory": (
        [(WARN, "EPERM; 2 memory nodes", evidence({"topology.memory_policy": "EPERM"})),
         (WARN, "SIGSYS", evidence({"topology.memory_policy": "SIGSYS"})),
         (INFO, "EPERM; 1 memory nodes", evidence({"topology.memory_policy": "EPERM"}, topology=machine(nodes=1)))],
        evidence(lost=["topology.memory_policy"]),
    ),
    "binding.gpu-node": (
        [(WARN, "none for 0000:00:00.0: which of 2 nodes", evidence(topology=UNKNOWN)),
         (INFO, "one node only", evidence(topology=machine(nodes=1, gpus=(None,))))],
        evidence(lost=["topology.host"]),
    ),
    "binding.gpu": (
        [(WARN, "rank 1 on 0-1, GPU 0000:01:00.0 at node 1 (4-7)", evidence(ranks=FAR)),
         (WARN, "rank 1 on 0-7", evidence(ranks=({}, {"host.affinity": list(range(8))}), plan=None)),
         (INFO, "too few cores left (0 usable)", evidence(ranks=FAR, plan=plan(machine(allowed=range(4))))),
         (SKIP, "no rank has a GPU", evidence(ranks=({"places.gpus": []},) * 2, plan=None)),
         (SKIP, "no rank has a GPU", evidence(plan=plan(HEALTHY, use_gpus=False)))],
        evidence(lost=["places.gpus"]),
    ),
}  # fmt: skip
PASSES = {
    # Sharing was asked for; as many ranks as cores; one socket has all that is allowed.
    "binding.room": [evidence(), alone(num_ranks=8), alone(machine(allowed=range(4)), num_ranks=4), alone(num_ranks=9, plan=plan(HEALTHY, 9, use_gpus=False, share_cores=True))],
    "binding.whole-cores": [evidence(), alone(machine(threads=2)), alone(machine(threads=2, cpuset=range(4), allowed=range(4)))],
    "binding.mask": [evidence(), evidence(topology=MASKED, plan=plan(MASKED)), alone(machine(cpuset=range(2), allowed=range(2)))],
    "binding.slots": [evidence(), evidence({"topology.slots": {"source": "PBS_NODEFILE", "nodes": [2], "hostfile": True}})],
    "binding.thread-variables": [evidence(), evidence({"topology.threads": {"OMP_NUM_THREADS": 4}})],
    "binding.neighbours": [evidence(), alone(machine(allowed=(4, 5)), {"topology.neighbours": [OTHER]})],
    "binding.gpu-node": [evidence(), evidence(topology=machine(gpus=()))],
    # Each rank may see its own GPU alone; on one node every core is near.
    "binding.gpu": [evidence(), evidence(plan=None), evidence(ranks=tuple({"places.gpus": [gpu]} for gpu in RANK["places.gpus"])),
                    evidence(ranks=({"host.numa_nodes": {"0": list(range(8))}},) * 2)],
}  # fmt: skip
