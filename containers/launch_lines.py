"""Renders a launch as the command line of its launcher, token by token.

Knows the launchers' flags, and that Open MPI 4 and 5 differ in some. Leaves which launcher to take
to ``containers.launchers`` and what each rank enters first to ``containers.site``.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

from containers.launchers import GLOO, HOROVODRUN, LOCAL, SRUN, Launch
from env.binding import NONE, SLOT, THREADS, BindingPlan
from env.cpulist import render_cpu_list
from env.errors import UserError
from env.interfaces import DAEMONS, INCLUDE, MPI, NCCL
from env.probes.settings import probe_settings

# What ranks get to leave by themselves when their launcher ends them; a checkpoint is asked for
# before, by SIGUSR1. Open MPI 4 waits four times as long whenever a rank fails, even if none is
# left: so not longer.
STOP_TIMEOUT_S = 2
# A host that is cut off closes no connection. Open MPI would ask after 300 s of silence: ask after
# 10 s, and give a host up that leaves four questions unanswered, after 30 s.
_KEEPALIVE = (("time", 10), ("intvl", 5), ("probes", 4))
# A host that is down refuses nothing: ssh would wait for it for minutes, and ask for a password.
_SSH = "-o ConnectTimeout=10 -o BatchMode=yes"


def render_launch(
    launch: Launch, *, command: Sequence[str], as_root: bool | None = None
) -> list[str]:
    """Return the command line that starts one process for each rank of a plan.

    Args:
        launch: the ranks and what starts them.
        command: what every rank runs.
        as_root: whether root asks; Open MPI refuses root without a flag. By default
            what this process is.
    """
    kind = launch.launcher.kind
    if kind == SRUN:
        return [*_srun(launch), *command]
    if kind == LOCAL:
        return [*_local(launch.plan), *command]
    if kind == HOROVODRUN:
        return [*_horovodrun(launch), *command]
    root = os.geteuid() == 0 if as_root is None else as_root
    return [*_mpirun(launch, root=root), *command]


def _local(plan: BindingPlan) -> list[str]:
    """Return what keeps the one rank on its cores."""
    cores = [] if plan.mapping == NONE else [cpu for rank in plan.ranks for cpu in rank.cores]
    return ["taskset", "--cpu-list", render_cpu_list(cores)] if cores else []


def _horovodrun(launch: Launch) -> list[str]:
    """Return horovodrun and its options; it hands all variables on by itself.

    It binds nothing (gloo) or asks mpirun for ``-bind-to none``: each rank binds itself.
    """
    transport = launch.launcher.transport
    hosts = ",".join(f"{h.name}:{h.ranks}" for h in launch.hosts)
    words = ["horovodrun", "-np", str(len(launch.plan.ranks)), f"--{transport}"]
    words += ["-H", hosts] if hosts else []
    if launch.route is not None and launch.hosts:
        words += ["--network-interfaces", ",".join(launch.route.names)]
    if transport != GLOO:
        # One string, which horovodrun puts into a line for a shell.
        words += ["--mpi-args", shlex.join(["--mca", "odls_base_sigkill_timeout",
                                            str(STOP_TIMEOUT_S), *_ssh(launch),
                                            *_keepalive(launch)])]  # fmt: skip
    if launch.plan.mapping == NONE:
        return words
    number = "${HOROVOD_RANK:-$OMPI_COMM_WORLD_RANK}"
    return [*words, *_bind_oneself(launch.plan, number=number)]


def _mpirun(launch: Launch, *, root: bool) -> list[str]:
    """Return mpirun and its options.

    ``--map-by slot:PE=k`` fills the cores in order, k for each rank: on one socket it is
    the ``--map-by socket`` of the CheXNet scaling study, and a rank keeps k cores for its input
    threads, where Open MPI alone would bind two ranks or fewer to one core each.
    """
    plan, series = launch.plan, launch.launcher.series
    allow = ["--allow-run-as-root"] if root else []
    patience = ["--mca", "odls_base_sigkill_timeout", str(STOP_TIMEOUT_S)]
    label = (["--tag-output"] if series < 5 else ["--output", "tag"]) if launch.label else []
    hosts = (
        ["--host", ",".join(f"{h.name}:{h.ranks}" for h in launch.hosts)] if launch.hosts else []
    )
    return [
        launch.launcher.program, *allow, *patience, *label, *hosts, *_interfaces(launch),
        *_ssh(launch), *_keepalive(launch),
        *(token for name in _forward(launch) for token in ("-x", name)),
        "-np", str(len(plan.ranks)), *_binding(launch),
    ]  # fmt: skip


def _binding(launch: Launch) -> list[str]:
    plan, file = launch.plan, launch.rankfile
    if plan.mapping == SLOT:
        return ["--map-by", f"slot:PE={plan.cores_per_rank}", "--bind-to", "core"]
    if plan.mapping == NONE or file is None:
        return ["--map-by", "slot:OVERSUBSCRIBE", "--bind-to", "none"]
    threads = plan.mapping == THREADS
    if launch.launcher.series >= 5 and "-" in str(file):
        raise UserError(
            "a folder for temporary files without '-' in its path",
            found=f"{file}, from which Open MPI 5 reads no rankfile",
            fix="set TMPDIR to another folder, e.g. TMPDIR=/tmp",
        )
    if launch.launcher.series < 5:
        return ["--rankfile", str(file), *(["--use-hwthread-cpus"] if threads else [])]
    return ["--map-by", f"rankfile:FILE={file}" + (":HWTCPUS" if threads else "")]


def _keepalive(launch: Launch) -> list[str]:
    """Return how soon mpirun notices that a host is cut off, unless the user has told it."""
    old = launch.launcher.series < 5
    option, prefix = ("--mca", "oob_tcp") if old else ("--prtemca", "prte")
    if not launch.hosts or any(f"{prefix}_keepalive" in name for name in _told()):
        return []
    return [w for name, n in _KEEPALIVE for w in (option, f"{prefix}_keepalive_{name}", str(n))]


def _ssh(launch: Launch) -> list[str]:
    """Return how mpirun calls ssh, unless the user has told it or has another agent."""
    option, name = ("--mca", "plm_rsh") if launch.launcher.series < 5 else ("--prtemca", "plm_ssh")
    own = [told for told in _told() if f"{name}_agent" in told or f"{name}_args" in told]
    return [option, f"{name}_args", _SSH] if launch.hosts and not own else []


def _told() -> frozenset[str]:
    """Return the names of all settings, of variables and of the files that MPI and NCCL read."""
    facts = probe_settings()
    return frozenset(row["name"] for row in facts["settings.assigned"].value)


def _interfaces(launch: Launch) -> list[str]:
    """Return how MPI is told which networks to use, unless the user has told it.

    Open MPI stops where one list is to be used and another left out, so what a file of the
    user's or the site's says of a list stands as well.
    """
    if launch.route is None:
        return []
    old = launch.launcher.series < 5
    daemons = (DAEMONS,) if old else ("PRTE_MCA_prte_if", "PRTE_MCA_oob_tcp_if")
    told, networks = _told(), ",".join(launch.route.networks)
    if any(name.startswith(MPI) for name in told):
        return []
    words = ["--mca", "btl_tcp_if_include", networks]
    if not any(name.startswith(daemons) for name in told):
        words += ["--mca", "oob_tcp_if_include"] if old else ["--prtemca", "prte_if_include"]
        words.append(networks)
    return words


def _forward(launch: Launch) -> list[str]:
    """Return what mpirun hands on, and NCCL's interfaces, unless the user has named those."""
    if launch.route is None or NCCL in launch.forward or NCCL in _told():
        return list(launch.forward)
    return [*launch.forward, f"{NCCL}=={','.join(launch.route.names)}"]


def _srun(launch: Launch) -> list[str]:
    """Return srun and its options; Slurm hands all variables on by itself."""
    plan, hosts = launch.plan, launch.hosts
    variables = {}
    if launch.route is not None:
        networks = ",".join(launch.route.networks)
        told = _told()
        if not any(name.startswith(MPI) for name in told):
            variables[MPI + INCLUDE] = networks
        if NCCL not in told:
            variables[NCCL] = f"={','.join(launch.route.names)}"
    if launch.hostfile:
        variables["SLURM_HOSTFILE"] = str(launch.hostfile)
        places = ["--distribution=arbitrary"]
    else:
        names = ",".join(host.name for host in hosts)
        each = len(plan.ranks) // max(1, len(hosts))
        places = [f"--nodelist={names}"] if hosts else []
        places += [f"--ntasks-per-node={each}", "--distribution=block"]
    before = ["env", *(f"{name}={text}" for name, text in variables.items())] if variables else []
    return [
        *before, "srun", f"--mpi={launch.launcher.pmi}", "--overlap", "--kill-on-bad-exit=1",
        *(["--label"] if launch.label else []), f"--nodes={max(1, len(hosts))}",
        f"--ntasks={len(plan.ranks)}", *places, *launch.options, *_cpu_bind(plan),
    ]  # fmt: skip


def _cpu_bind(plan: BindingPlan) -> list[str]:
    """Return srun's binding, and what the ranks' command begins with.

    srun takes one list of masks, by the ranks of a host, for all hosts. Where the hosts gave
    different CPUs each rank binds itself to those that the plan names for it.
    """
    masks = {tuple(rank.cores for rank in ranks) for ranks in plan.hosts.values()}
    longest = max(masks, key=len, default=())
    if plan.mapping == NONE:
        return ["--cpu-bind=none"]
    if all(mask == longest[: len(mask)] for mask in masks):
        numbers = ",".join(hex(sum(1 << n for n in cpus)) for cpus in longest)
        return [f"--cpu-bind=mask_cpu:{numbers}"]
    return ["--cpu-bind=none", *_bind_oneself(plan, number="$SLURM_PROCID")]


def _bind_oneself(plan: BindingPlan, *, number: str) -> list[str]:
    """Return what a rank's command begins with where its launcher does not bind it."""
    own = " ".join(f"{rank.rank}) cpus={render_cpu_list(rank.cores)};;" for rank in plan.ranks)
    script = f'case {number} in {own} esac; exec taskset -c "$cpus" "$@"'
    return ["sh", "-c", script, "rank"]
