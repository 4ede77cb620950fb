"""Turns a binding plan into the command line of a launcher: Open MPI's mpirun, or Slurm's srun.

Knows the launchers' flags, and that Open MPI 4 and 5 differ in some. Leaves the plan to
``env.binding``, which hosts there are to ``containers.hosts``, running to ``containers.launch``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from containers.hosts import HostSlots
from env.binding import CORES, NONE, SLOT, THREADS, BindingPlan, render_rankfile
from env.checks.mpi import OPEN_MPI, family_of, version_of
from env.cpulist import render_cpu_list
from env.errors import EXIT_FAILED, UserError
from env.interfaces import DAEMONS, INCLUDE, MPI, NCCL
from env.network import Route
from env.probes.settings import probe_settings

AUTO, MPIRUN, SRUN = "auto", "mpirun", "srun"
LAUNCHERS = (AUTO, MPIRUN, SRUN)
STOP_TIMEOUT_S = 5
# Slurm's own numbers for steps that are not one of the job's: batch script, interactive shell.
_SPECIAL_STEPS = 0xFFFFFFF0
# Variables that change what ranks do, and that only Slurm would hand on by itself. What belongs
# to one host (PATH, HOME, CUDA_VISIBLE_DEVICES) is not handed on.
_FORWARDED = re.compile(
    r"(PYTHONPATH|LD_LIBRARY_PATH|CUDA_DEVICE_ORDER)$"
    r"|(CHEXNET_|NCCL_|HOROVOD_|TF_|XLA_|KERAS_|OMP_|KMP_|UCX_|PMIX_MCA_)"
)
_PMI = ("pmix", "pmi2")


@dataclass(frozen=True)
class Launcher:
    """What starts ranks.

    Attributes:
        kind: ``MPIRUN`` or ``SRUN``.
        program: mpirun as it is to be called: by its path where that is not one of the system's,
            which makes Open MPI look at the same place on the other hosts.
        series: Open MPI's first number.
        pmi: how srun and MPI are to meet, e.g. ``"pmix"``.
    """

    kind: str = MPIRUN
    program: str = "mpirun"
    series: int = 4
    pmi: str = "pmix"


@dataclass(frozen=True)
class Launch:
    """How ranks are started; the same for the validation's and the training's.

    Attributes:
        plan: the ranks.
        launcher: what starts them.
        hosts: by the names that lead to them; none for this machine alone.
        route: the networks between the hosts, None where nobody knows better than MPI.
        forward: names of variables that every rank gets from this process.
        folder: where files that a launcher reads may be written.
        label: whether each piece of output is to name its rank.
    """

    plan: BindingPlan
    launcher: Launcher = field(default_factory=Launcher)
    hosts: tuple[HostSlots, ...] = ()
    route: Route | None = None
    forward: tuple[str, ...] = ()
    folder: Path | None = None
    label: bool = False

    @property
    def rankfile(self) -> Path | None:
        """Where the launcher reads each rank's cores; None where it needs no file for that."""
        needed = self.launcher.kind == MPIRUN and self.plan.mapping in (CORES, THREADS)
        return self.folder / "rankfile" if needed and self.folder else None

    @property
    def hostfile(self) -> Path | None:
        """Where srun reads each rank's host; None where equal numbers need no file."""
        uneven = len({host.ranks for host in self.hosts}) > 1
        return self.folder / "hosts" if self.launcher.kind == SRUN and uneven else None

    def files(self) -> dict[Path, str]:
        """Return the files that the launcher reads, with their texts."""
        texts = {self.rankfile: render_rankfile(self.plan)}
        lines = [host.name for host in self.hosts for _ in range(host.ranks)]
        texts[self.hostfile] = "".join(f"{line}\n" for line in lines)
        return {path: text for path, text in texts.items() if path}


def find_launcher(
    name: str = AUTO, *, remote: bool, environ: Mapping[str, str] = os.environ
) -> Launcher:
    """Return what starts ranks here.

    Inside a Slurm job ranks on several hosts are srun's, if it and Open MPI have a PMI in common:
    Slurm then binds, watches and ends them itself. Everywhere else it is mpirun.

    Args:
        name: ``AUTO``, ``MPIRUN`` or ``SRUN``.
        remote: whether there are ranks on other hosts.
        environ: where Slurm says that this is a job of it.

    Raises:
        UserError: an unknown name, no such program, or srun outside a job.
    """
    if name not in LAUNCHERS:
        fix = f"use one of: {', '.join(LAUNCHERS)}"
        raise UserError("a known launcher", found=repr(name), fix=fix)
    in_job = "SLURM_JOB_ID" in environ
    if name == SRUN and not in_job:
        raise UserError(
            "a Slurm job, in which srun starts ranks", found="no SLURM_JOB_ID",
            fix="run it inside sbatch or salloc, or use --launcher mpirun",
        )  # fmt: skip
    if name == SRUN or (name == AUTO and remote and in_job):
        pmi = _common_pmi(environ)
        if pmi:
            return Launcher(SRUN, pmi=pmi)
        if name == SRUN:
            raise UserError(
                "srun and Open MPI with a PMI in common",
                found=f"srun --mpi=list shows none of {', '.join(_PMI)}",
                fix="install Slurm's PMIx plugin, or use --launcher mpirun",
            )  # fmt: skip
    return _open_mpi(environ)


def in_foreign_step(environ: Mapping[str, str]) -> bool:
    """Return whether this process is a task of a Slurm step, which holds the job's resources."""
    step = environ.get("SLURM_STEP_ID", "")
    return step.isdigit() and int(step) < _SPECIAL_STEPS and "SLURM_OVERLAP" not in environ


def _open_mpi(environ: Mapping[str, str]) -> Launcher:
    """Return mpirun; what is wrong with it is for the static phase to say."""
    path = shutil.which("mpirun", path=environ.get("PATH"))
    said = _output([path, "--version"]) if path else ""
    first = said.splitlines()[0] if said else ""
    number = (version_of(first) or "4").partition(".")[0] if family_of(first) == OPEN_MPI else "4"
    usual = path is None or Path(path).parent in (Path("/usr/bin"), Path("/usr/local/bin"))
    return Launcher(MPIRUN, program="mpirun" if usual else path, series=int(number))


def _common_pmi(environ: Mapping[str, str]) -> str | None:
    """Return the way in which srun and Open MPI meet, None without one."""
    if not shutil.which("srun", path=environ.get("PATH")):
        return None
    offered = set(re.findall(r"[a-z0-9_]+", _output(["srun", "--mpi=list"])))
    # Open MPI 5 knows PMIx alone; 4 is built for PMI-2 only where its makers asked for that.
    components = _output(["ompi_info", "--parsable", "--param", "pmix", "all"])
    known = {"pmix"} | ({"pmi2"} if "mca:pmix:s2" in components else set())
    return next((pmi for pmi in _PMI if pmi in offered & known), None)


def _output(argv: Sequence[str]) -> str:
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace", timeout=20, check=False)  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


def forwarded(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the names of the variables that ranks on other hosts need."""
    return tuple(sorted(name for name in environ if _FORWARDED.match(name)))


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
    if launch.launcher.kind == SRUN:
        return [*_srun(launch), *command]
    root = os.geteuid() == 0 if as_root is None else as_root
    return [*_mpirun(launch, root=root), *command]


def _mpirun(launch: Launch, *, root: bool) -> list[str]:
    """Return mpirun and its options.

    ``--map-by slot:PE=k`` fills the cores in order, k for each rank: on one socket it is
    the ``--map-by socket`` of the CheXNet scaling study, and a rank keeps k cores for its input
    threads, where Open MPI alone would bind two ranks or fewer to one core each.
    """
    plan, series = launch.plan, launch.launcher.series
    allow = ["--allow-run-as-root"] if root else []
    # A rank that is told to stop finishes its step first; Open MPI would kill it after 1 s.
    # It waits that long whenever a rank fails, too, even if none is left: so not longer.
    patience = ["--mca", "odls_base_sigkill_timeout", str(STOP_TIMEOUT_S)]
    label = (["--tag-output"] if series < 5 else ["--output", "tag"]) if launch.label else []
    hosts = (
        ["--host", ",".join(f"{h.name}:{h.ranks}" for h in launch.hosts)] if launch.hosts else []
    )
    return [
        launch.launcher.program, *allow, *patience, *label, *hosts, *_interfaces(launch),
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
        f"--ntasks={len(plan.ranks)}", *places, *_cpu_bind(plan),
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
    own = " ".join(f"{rank.rank}) cpus={render_cpu_list(rank.cores)};;" for rank in plan.ranks)
    script = f'case $SLURM_PROCID in {own} esac; exec taskset -c "$cpus" "$@"'
    return ["--cpu-bind=none", "sh", "-c", script, "rank"]


def require_agent(launcher: Launcher, *, environ: Mapping[str, str] = os.environ) -> None:
    """Refuse to start ranks on other hosts from where nothing can reach them.

    Raises:
        UserError: no ssh here, as in an image; the message has the command to use instead.
    """
    given = any(environ.get(f"{kind}_MCA_plm_{name}_agent")
                for kind, name in (("OMPI", "rsh"), ("PRTE", "ssh")))  # fmt: skip
    in_job = "SLURM_JOB_ID" in environ and shutil.which("srun", path=environ.get("PATH"))
    if launcher.kind == SRUN or given or in_job or shutil.which("ssh", path=environ.get("PATH")):
        return
    image = environ.get("APPTAINER_CONTAINER") or environ.get("SINGULARITY_CONTAINER")
    fix = "install an ssh client, or run it inside a Slurm job"
    if image:
        fix = (
            f"start it outside the image, which mpirun cannot leave: invoke … --image {image}; or "
            f"by hand: mpirun --host NAME:RANKS,… singularity exec {image} python -m …"
        )
    raise UserError(
        "ssh, by which mpirun starts ranks on other hosts",
        found="no ssh on PATH" + (" in this image" if image else ""),
        fix=fix, exit_code=EXIT_FAILED,
    )  # fmt: skip
