"""Where ranks can run: cores, slots, masks, threads, neighbours, memory nodes of a host.

Judged before anything is launched, on every host. Where they do run is judged by
``env.checks.binding``.
"""

from __future__ import annotations

from collections import Counter

from env.binding import NONE, THREADS, RankBinding
from env.checks.evidence import Evidence
from env.checks.mpi import version_of
from env.checks.registry import check
from env.cpulist import parse_cpu_list, render_cpu_list
from env.facts import CannotTellError
from env.result import Finding, Status
from env.topology import HostTopology, topology_from_json

# Open MPI leaves cores out of whose threads the control group allows some only (ompi#9647).
_WHOLE_CORES_SINCE = 5
# The topology, and which rank has looked at it: none where no launcher was needed for that.
_HERE = ("topology.host", "launch.rank")


@check(
    "binding.room",
    title="this host has a core for each of its ranks",
    covers=("BIND-02", "BIND-04", "BIND-06"),
    reads=(*_HERE, "topology.bindings"),
    fix="use fewer ranks, or ask the scheduler for more cores (Slurm: --ntasks, --cpus-per-task); "
    "inside a step bound to few cores: srun --cpu-bind=none; to share cores: --oversubscribe",
)
def check_room(evidence: Evidence) -> Finding:
    """FAIL if there are more ranks than cores this job may use here.

    WARN if ``--map-by socket``, which Open MPI takes by itself for more than two ranks, would
    give a socket more ranks than cores, and no plan says better. PASS where a plan shares cores.
    """
    topology = _topology(evidence)
    ranks, cores = _ranks_here(evidence, topology), len(topology.usable)
    sockets = Counter(core.socket for core in topology.usable)
    found = f"{cores} cores for {ranks} ranks on {topology.host} ({_per_socket(sockets)})"
    settings = evidence.facts["topology.bindings"].value or {}
    found += "".join(f", {name}={value}" for name, value in settings.items())
    expected = "at least one core a rank"
    if _shares(evidence):
        return Finding(Status.PASS, expected, f"{found}; the plan shares them")
    if ranks > cores:
        return Finding(Status.FAIL, expected, found, hosts=(topology.host,))
    crowded = {s: n for s, n in sockets.items() if -(-ranks // len(sockets)) > n}
    if crowded and evidence.plan is None and ranks > 2:
        text = f"{found}: --map-by socket would put more ranks than cores on {_names(crowded)}"
        return Finding(Status.WARN, expected, text, hosts=(topology.host,))
    return Finding(Status.PASS, expected, found)


@check(
    "binding.whole-cores",
    title="the control group allows whole cores",
    covers=("BIND-05",),
    reads=(*_HERE, "mpi.banner"),
    required=False,
    fix="ask the scheduler for whole cores (Slurm: --hint=nomultithread or --exclusive), or bind "
    "to hardware threads: mpirun --use-hwthread-cpus",
)
def check_whole_cores(evidence: Evidence) -> Finding:
    """FAIL if Open MPI 5 would find fewer whole cores than there are ranks.

    WARN if it finds enough, or another release counts half cores as whole. INFO where the
    plan names hardware threads, which every release takes.
    """
    topology = _topology(evidence)
    whole = {core.cpus for core in topology.cores}
    number = sum(core.cpus in whole for core in topology.dealt)
    expected = "all hardware threads of each core, or none"
    if number == len(topology.dealt):
        return Finding(Status.PASS, expected, f"{number} whole cores")
    found = f"{number} of {len(topology.dealt)} cores whole, in CPUs "
    found += render_cpu_list(topology.cpuset)
    if evidence.plan is not None and evidence.plan.mapping in (THREADS, NONE):
        return Finding(Status.INFO, expected, f"{found}; the plan binds to hardware threads")
    release = version_of(evidence.facts.value("mpi.banner")) or "0"
    drops = int(release.partition(".")[0]) >= _WHOLE_CORES_SINCE
    lacking = drops and number < _ranks_here(evidence, topology)
    status = Status.FAIL if lacking else Status.WARN
    return Finding(status, expected, found, hosts=(topology.host,))


@check(
    "binding.mask",
    title="a launcher deals out no core that this job may not use",
    covers=("BIND-06",),
    reads=_HERE,
    fix="let invoke train launch: its plan names the cores of each rank; by hand give mpirun "
    "--bind-to none, or a rankfile (invoke plan-binding prints one)",
)
def check_mask(evidence: Evidence) -> Finding:
    """WARN if the affinity mask is narrower than the control group, and no plan minds it.

    Open MPI deals out what the control group allows, whatever mask is around it.
    """
    topology = _topology(evidence)
    allowed, dealt = render_cpu_list(topology.allowed), render_cpu_list(topology.cpuset)
    expected = f"CPUs {allowed}"
    if set(topology.cpuset) <= set(topology.allowed):
        return Finding(Status.PASS, expected, "the control group allows the same")
    found = f"mpirun would deal out {dealt}"
    mine = _planned_here(evidence, topology)
    if mine and all(set(rank.cores) <= set(topology.allowed) for rank in mine):
        return Finding(Status.PASS, expected, f"{found}; the plan keeps to the mask")
    return Finding(Status.WARN, expected, found, hosts=(topology.host,))


@check(
    "binding.slots",
    title="the slots of scheduler or hostfile hold the ranks",
    covers=("BIND-07",),
    reads=("topology.slots",),
    fix="ask for as many tasks as ranks (Slurm: --ntasks=N with --cpus-per-task=K, not one task of "
    "many CPUs; PBS: mpiprocs=N; a hostfile: slots=N); --oversubscribe would only crowd them",
)
def check_slots(evidence: Evidence) -> Finding:
    """FAIL if there are fewer slots than ranks: mpirun and srun would refuse to start.

    Without scheduler and hostfile a slot is a core, which ``binding.room`` counts. Hosts named
    with ``--hosts`` have the slots named there, whatever a default hostfile says.
    """
    told = evidence.facts.value("topology.slots")
    expected = f"at least {evidence.num_ranks} slots"
    if told is None or (told["hostfile"] and evidence.num_hosts > 1):
        return Finding(Status.PASS, expected, "nobody limits slots: a core is one")
    total = sum(told["nodes"])
    found = f"{' + '.join(map(str, told['nodes'][:16])) or '0'} = {total} slots"
    found = found if len(told["nodes"]) > 1 else f"{total} slots"
    short = total < evidence.num_ranks and not _shares(evidence)
    status = Status.FAIL if short else Status.PASS
    return Finding(status, expected, f"{found} for {evidence.num_ranks} ranks", told["source"])


@check(
    "binding.thread-variables",
    title="the ranks' thread pools fit the cores",
    covers=("BIND-11",),
    reads=(*_HERE, "topology.threads"),
    required=False,
    fix="unset it, or set it to the cores of one rank: OMP_NUM_THREADS=K",
)
def check_thread_variables(evidence: Evidence) -> Finding:
    """WARN if a variable gives all ranks of a host together more threads than it has CPUs."""
    topology = _topology(evidence)
    cpus, ranks = len(topology.allowed), _ranks_here(evidence, topology)
    expected = f"at most {max(1, cpus // ranks)} threads for each of {ranks} ranks on {cpus} CPUs"
    threads = evidence.facts.value("topology.threads")
    large = {name: n for name, n in threads.items() if n * ranks > cpus}
    if large:
        text = ", ".join(f"{name}={number}" for name, number in large.items())
        return Finding(Status.WARN, expected, text, where="environment", hosts=(topology.host,))
    text = ", ".join(f"{name}={number}" for name, number in threads.items())
    return Finding(Status.PASS, expected, text or "no variable sets a number")


@check(
    "binding.neighbours",
    title="no other job is bound to this job's cores",
    covers=("BIND-03",),
    reads=(*_HERE, "topology.neighbours"),
    required=False,
    fix="give each job cores of its own: a control group by the scheduler, taskset -c LIST around "
    "the whole command, or mpirun --bind-to none for both",
)
def check_neighbours(evidence: Evidence) -> Finding:
    """WARN if bound processes of others keep cores busy, or are to, that the ranks will use.

    Each mpirun binds from the first core on and knows nothing of another one.
    """
    topology = _topology(evidence)
    planned = {cpu for rank in _planned_here(evidence, topology) for cpu in rank.cores}
    mine = planned or set(topology.allowed)
    expected = f"CPUs {render_cpu_list(mine)} for this job"
    shared = {
        f"{p['name']} ({p['pid']}): {render_cpu_list(mine & set(parse_cpu_list(p['cpus'])))}"
        for p in evidence.facts.value("topology.neighbours")
        if mine & set(parse_cpu_list(p["cpus"]))
    }
    if not shared:
        return Finding(Status.PASS, expected, "no bound process of another job on them")
    text = f"also bound there: {'; '.join(sorted(shared)[:8])}"
    return Finding(Status.WARN, expected, text, hosts=(topology.host,))


@check(
    "binding.memory",
    title="processes may say from which node their memory comes",
    covers=("BIND-10",),
    reads=("topology.memory_policy", "topology.host"),
    required=False,
    fix="docker: --cap-add=SYS_NICE, or a seccomp profile that allows set_mempolicy and mbind; "
    "or silence mpirun: --mca hwloc_base_mem_bind_failure_action silent",
)
def check_memory(evidence: Evidence) -> Finding:
    """WARN if the kernel refuses to set a memory policy on a machine of several nodes.

    INFO with one node, where there is nothing to choose and mpirun only prints a warning.
    """
    policy = evidence.facts.value("topology.memory_policy")
    if policy == 0:
        return Finding(Status.PASS, "set_mempolicy allowed", "it is")
    nodes = _topology(evidence).known_nodes
    status = Status.WARN if len(nodes) > 1 else Status.INFO
    return Finding(status, "set_mempolicy allowed", f"{policy}; {len(nodes)} memory nodes")


@check(
    "binding.gpu-node",
    title="the kernel tells at which memory node each GPU is",
    covers=("BIND-09",),
    reads=("topology.host",),
    required=False,
    fix="publish the machine's topology in firmware or to the virtual machine; until then bind by "
    "hand: nvidia-smi topo -m may know where the GPUs are",
)
def check_gpu_node(evidence: Evidence) -> Finding:
    """WARN if the node of a GPU is unknown on a machine of several; node -1 is not node 0.

    INFO on a machine of one node: TensorFlow prints a warning there that means nothing.
    """
    topology = _topology(evidence)
    lost = [gpu.pci for gpu in topology.gpus if gpu.node is None]
    nodes = topology.known_nodes
    expected = "a node for each GPU"
    if not lost:
        return Finding(Status.PASS, expected, f"{len(topology.gpus)} GPUs, each with its node")
    if len(nodes) < 2:
        text = f"none for {', '.join(lost)}, but there is one node only: harmless"
        return Finding(Status.INFO, expected, text)
    text = f"none for {', '.join(lost)}: which of {len(nodes)} nodes is near is unknown"
    return Finding(Status.WARN, expected, text, hosts=(topology.host,))


def _topology(evidence: Evidence) -> HostTopology:
    """Return the topology of the host that is judged.

    Raises:
        CannotTellError: it could not be read, or names no CPU.
    """
    topology = topology_from_json(evidence.facts.value("topology.host"))
    if not topology.usable:
        raise CannotTellError("topology.host: no CPU that this process may use")
    return topology


def _planned_here(evidence: Evidence, topology: HostTopology) -> tuple[RankBinding, ...]:
    """Return what the plan says of this host's ranks; nothing where it names hosts otherwise."""
    hosts = evidence.plan.hosts if evidence.plan else {}
    rank = evidence.planned().get(evidence.facts["launch.rank"].value)
    named = rank.host if rank else topology.host
    return hosts.get(named) or (next(iter(hosts.values())) if len(hosts) == 1 else ())


def _ranks_here(evidence: Evidence, topology: HostTopology) -> int:
    return len(_planned_here(evidence, topology)) or evidence.ranks_a_host


def _shares(evidence: Evidence) -> bool:
    return evidence.plan is not None and evidence.plan.mapping == NONE


def _per_socket(sockets: Counter[int]) -> str:
    return ", ".join(f"socket {socket}: {number}" for socket, number in sorted(sockets.items()))


def _names(sockets: dict[int, int]) -> str:
    return " and ".join(f"socket {s} ({n} cores)" for s, n in sorted(sockets.items()))
