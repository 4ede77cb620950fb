"""What starts ranks: Open MPI's mpirun, Slurm's srun, horovodrun, or nothing for a single one.

Knows which there are, which is taken where, and from where ranks on other hosts cannot be reached.
Leaves their flags to ``containers.launch_lines``, the plan to ``env.binding``, which hosts there
are to ``containers.hosts`` and running to ``containers.launch``.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from containers.hosts import HostSlots
from env.binding import CORES, THREADS, BindingPlan, render_rankfile
from env.checks.mpi import OPEN_MPI, family_of, version_of
from env.errors import EXIT_FAILED, UserError
from env.network import Route

AUTO, LOCAL, MPIRUN, SRUN, HOROVODRUN = "auto", "local", "mpirun", "srun", "horovodrun"
LAUNCHERS = (AUTO, LOCAL, MPIRUN, SRUN, HOROVODRUN)
GLOO = "gloo"  # what horovodrun starts ranks with where there is no MPI
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
        kind: ``LOCAL``, ``MPIRUN``, ``SRUN`` or ``HOROVODRUN``.
        program: mpirun as it is to be called: by its path where that is not one of the system's,
            which makes Open MPI look at the same place on the other hosts.
        series: Open MPI's first number.
        pmi: how srun and MPI are to meet, e.g. ``"pmix"``.
        transport: what horovodrun starts ranks with, ``"mpi"`` or ``"gloo"``.
    """

    kind: str = MPIRUN
    program: str = "mpirun"
    series: int = 4
    pmi: str = "pmix"
    transport: str = "mpi"

    @property
    def checkpoint_signal(self) -> signal.Signals:
        """What asks the ranks for a checkpoint: horovodrun with gloo hands no SIGUSR1 on."""
        gloo = self.kind == HOROVODRUN and self.transport == GLOO
        return signal.SIGTERM if gloo else signal.SIGUSR1


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
        options: of srun's plugins.
    """

    plan: BindingPlan
    launcher: Launcher = field(default_factory=Launcher)
    hosts: tuple[HostSlots, ...] = ()
    route: Route | None = None
    forward: tuple[str, ...] = ()
    folder: Path | None = None
    label: bool = False
    options: tuple[str, ...] = ()

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
        name: one of ``LAUNCHERS``.
        remote: whether there are ranks on other hosts.
        environ: where Slurm says that this is a job of it.

    Raises:
        UserError: an unknown name, no such program, srun outside a job, or horovodrun in an image.
    """
    if name not in LAUNCHERS:
        fix = f"use one of: {', '.join(LAUNCHERS)}"
        raise UserError("a known launcher", found=repr(name), fix=fix)
    if name == LOCAL:
        return _local(remote=remote)
    if name == HOROVODRUN:
        return _horovodrun(environ)
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


def _local(*, remote: bool) -> Launcher:
    if remote:
        raise UserError("a launcher for ranks on other hosts", found="--launcher local",
                        fix="use --launcher mpirun or srun, or leave --hosts out")  # fmt: skip
    return Launcher(LOCAL)


def _horovodrun(environ: Mapping[str, str]) -> Launcher:
    image = image_of(environ)
    if image:
        raise UserError(
            "horovodrun outside the image, whose ssh and mpirun it uses",
            found=f"--launcher horovodrun inside {image}",
            fix="inside, take mpirun: leave --launcher out; or outside: "
            f"invoke … --launcher horovodrun --image {image}",
        )  # fmt: skip
    if not shutil.which("horovodrun", path=environ.get("PATH")):
        raise UserError("horovodrun on PATH", found="none", exit_code=EXIT_FAILED,
                        fix="run through env/bootstrap.sh, or use --launcher mpirun")  # fmt: skip
    mpirun = _open_mpi(environ)
    there = shutil.which("mpirun", path=environ.get("PATH"))
    return Launcher(HOROVODRUN, series=mpirun.series, transport="mpi" if there else GLOO)


def image_of(environ: Mapping[str, str]) -> str | None:
    """Return the image that this process runs in, as its engine names it; None outside one."""
    return environ.get("APPTAINER_CONTAINER") or environ.get("SINGULARITY_CONTAINER")


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


def forwarded(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of those of a launcher's variables that ranks on other hosts need."""
    return tuple(sorted(name for name in environ if _FORWARDED.match(name)))


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
    image = image_of(environ)
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
