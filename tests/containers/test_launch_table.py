"""Exact lines for every launcher, container and series of MPI; the printed one is what runs."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from containers.hosts import HostSlots
from containers.launch import launch_command, run_command
from containers.launchers import Launch, Launcher
from containers.site import Site
from env.binding import CORES, SLOT, BindingPlan, RankBinding
from env.errors import UserError
from env.network import Route

PROGRAM = ["python", "-m", "chexnet", "train"]
ROUTE = Route(("10.0.0.0/24",), ("eth0",))
TWO = (HostSlots("a", 1), HostSlots("b", 1))
FOUR_KEEPALIVE = ["time", "10", "intvl", "5", "probes", "4"]
SSH = "'-o ConnectTimeout=10 -o BatchMode=yes'"
PATIENCE = "--mca odls_base_sigkill_timeout 2"


def keepalive(option, prefix):
    pairs = zip(FOUR_KEEPALIVE[::2], FOUR_KEEPALIVE[1::2], strict=True)
    return " ".join(f"{option} {prefix}_keepalive_{name} {value}" for name, value in pairs)


KEEPALIVE = keepalive("--mca", "oob_tcp")


def launch(kind, where):
    """Return two ranks of a kind of launcher: on this machine, or one on each of two hosts."""
    launcher = {
        "local": Launcher("local"),
        "mpirun 4": Launcher(),
        "mpirun 5": Launcher(program="/opt/mpi/bin/mpirun", series=5),
        "srun pmix": Launcher("srun"),
        "srun pmi2": Launcher("srun", pmi="pmi2"),
        "horovodrun mpi": Launcher("horovodrun", transport="mpi"),
        "horovodrun gloo": Launcher("horovodrun", transport="gloo"),
    }[kind]
    if where == "here":
        count = 1 if kind == "local" else 2
        ranks = tuple(RankBinding(n, n, "here", (n,), None, 1, slots=(n,)) for n in range(count))
        return Launch(BindingPlan(ranks, 1, mapping=SLOT), launcher, folder=Path("/f"))
    ranks = tuple(
        RankBinding(n, 0, h.name, (0, 2), None, 2, slots=(0, 2)) for n, h in enumerate(TWO)
    )
    plan = BindingPlan(ranks, 2, mapping=CORES)
    return Launch(plan, launcher, TWO, ROUTE, ("NCCL_DEBUG",), folder=Path("/f"))


# What stands before the program, on this machine and over two hosts.
LAUNCHERS = {
    ("local", "here"): "taskset --cpu-list 0",
    ("mpirun 4", "here"): f"mpirun {PATIENCE} -np 2 --map-by slot:PE=1 --bind-to core",
    ("mpirun 5", "here"):
        f"/opt/mpi/bin/mpirun {PATIENCE} -np 2 --map-by slot:PE=1 --bind-to core",
    ("mpirun 4", "hosts"):
        f"mpirun {PATIENCE} --host a:1,b:1 --mca btl_tcp_if_include 10.0.0.0/24 "
        f"--mca oob_tcp_if_include 10.0.0.0/24 --mca plm_rsh_args {SSH} "
        f"{KEEPALIVE} "
        "-x NCCL_DEBUG -x NCCL_SOCKET_IFNAME==eth0 -np 2 --rankfile /f/rankfile",
    ("mpirun 5", "hosts"):
        f"/opt/mpi/bin/mpirun {PATIENCE} --host a:1,b:1 --mca btl_tcp_if_include 10.0.0.0/24 "
        f"--prtemca prte_if_include 10.0.0.0/24 --prtemca plm_ssh_args {SSH} "
        f"{keepalive('--prtemca', 'prte')} "
        "-x NCCL_DEBUG -x NCCL_SOCKET_IFNAME==eth0 -np 2 --map-by rankfile:FILE=/f/rankfile",
    ("srun pmix", "hosts"):
        "env OMPI_MCA_btl_tcp_if_include=10.0.0.0/24 NCCL_SOCKET_IFNAME==eth0 srun --mpi=pmix "
        "--overlap --kill-on-bad-exit=1 --nodes=2 --ntasks=2 --nodelist=a,b --ntasks-per-node=1 "
        "--distribution=block SRUN_OPTIONS --cpu-bind=mask_cpu:0x5",
    ("srun pmi2", "hosts"):
        "env OMPI_MCA_btl_tcp_if_include=10.0.0.0/24 NCCL_SOCKET_IFNAME==eth0 srun --mpi=pmi2 "
        "--overlap --kill-on-bad-exit=1 --nodes=2 --ntasks=2 --nodelist=a,b --ntasks-per-node=1 "
        "--distribution=block SRUN_OPTIONS --cpu-bind=mask_cpu:0x5",
    ("srun pmix", "here"):
        "srun --mpi=pmix --overlap --kill-on-bad-exit=1 --nodes=1 --ntasks=2 --ntasks-per-node=2 "
        "--distribution=block SRUN_OPTIONS --cpu-bind=mask_cpu:0x1,0x2",
    ("horovodrun mpi", "here"):
        f"horovodrun -np 2 --mpi --mpi-args '{PATIENCE}' sh -c "
        "'case ${HOROVOD_RANK:-$OMPI_COMM_WORLD_RANK} in 0) cpus=0;; 1) cpus=1;; esac; "
        "exec taskset -c \"$cpus\" \"$@\"' rank",
    ("horovodrun mpi", "hosts"):
        "horovodrun -np 2 --mpi -H a:1,b:1 --network-interfaces eth0 --mpi-args "
        f"{shlex.quote(f'{PATIENCE} --mca plm_rsh_args {SSH} ' + KEEPALIVE)} sh -c "
        "'case ${HOROVOD_RANK:-$OMPI_COMM_WORLD_RANK} in 0) cpus=0,2;; 1) cpus=0,2;; esac; "
        "exec taskset -c \"$cpus\" \"$@\"' rank",
    ("horovodrun gloo", "hosts"):
        "horovodrun -np 2 --gloo -H a:1,b:1 --network-interfaces eth0 sh -c "
        "'case ${HOROVOD_RANK:-$OMPI_COMM_WORLD_RANK} in 0) cpus=0,2;; 1) cpus=0,2;; esac; "
        "exec taskset -c \"$cpus\" \"$@\"' rank",
}  # fmt: skip
RUN = "--rm --network host --ipc host"
INSIDE = "--pid host --volume /tmp:/tmp --env OMPI_MCA_btl_vader_single_copy_mechanism=none"
# What stands between the launcher and the program's words; IMAGE is a file, HERE this folder.
CONTAINERS = {
    "none": "{python}",
    "sif": "apptainer exec --bind /d:/d --bind /r:/r IMAGE python",
    "sif gpu": "apptainer exec --nv --bind /d:/d --bind /r:/r IMAGE python",
    "podman": f"sh -c SCRIPT rank podman {RUN} {INSIDE} --volume /d:/d --volume /r:/r "
    "--workdir HERE localhost/chexnet:cpu python",
    "podman gpu": f"sh -c SCRIPT rank podman {RUN} --device nvidia.com/gpu=all {INSIDE} "
    "--volume /d:/d --volume /r:/r --workdir HERE localhost/chexnet:cpu python",
    "docker": f"sh -c SCRIPT rank docker {RUN} {INSIDE} --volume /d:/d --volume /r:/r "
    "--workdir HERE chexnet:cpu python",
    "docker gpu": f"sh -c SCRIPT rank docker {RUN} --gpus all {INSIDE} --volume /d:/d "
    "--volume /r:/r --workdir HERE chexnet:cpu python",
    "pyxis": "python",
    "sqsh": "python",
}
IMAGES = {"podman": "podman:localhost/chexnet:cpu", "docker": "docker:chexnet:cpu",
          "pyxis": "pyxis:nvcr.io#lab/chexnet:1", "sqsh": "/images/chexnet.sqsh"}  # fmt: skip
MOUNTS = "--container-mounts=/d:/d,/r:/r --no-container-mount-home"
SRUN_OPTIONS = {"pyxis": f"--container-image=nvcr.io#lab/chexnet:1 {MOUNTS}",
                "sqsh": f"--container-image=/images/chexnet.sqsh {MOUNTS}"}  # fmt: skip


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Make this a machine with every engine and launcher, none of which does anything but note."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("apptainer", "singularity", "podman", "docker", "mpirun", "srun", "horovodrun",
                 "taskset", "env"):  # fmt: skip
        note = f"#!{sys.executable} -S\nimport json, sys\n"
        note += f"json.dump(sys.argv, open({str(tmp_path / 'ran')!r}, 'w'))\n"
        (folder / name).write_text(note)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("TMPDIR", "/tmp")
    monkeypatch.setattr("tempfile.tempdir", "/tmp")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("containers.runtime.has_capability", lambda bit: True)
    for name in list(os.environ):
        if name.startswith(("OMPI_MCA", "NCCL", "PRTE_MCA")):
            monkeypatch.delenv(name)
    (tmp_path / "x.sif").touch()
    return tmp_path


def site(container, folder):
    kind, _, gpu = container.partition(" ")
    image = {"none": None, "sif": folder / "x.sif"}.get(kind, IMAGES.get(kind))
    binds = (Path("/d"), Path("/r"))
    return Site(Path(image) if image else None, binds if image else (), gpu=bool(gpu))


def expected(launcher, where, container, folder):
    text = LAUNCHERS[launcher, where].replace("SRUN_OPTIONS", SRUN_OPTIONS.get(container, ""))
    text += " " + CONTAINERS[container].replace("{python}", sys.executable)
    for engine in ("apptainer", "podman", "docker"):  # by its path: mpirun hands no PATH on
        text = text.replace(f" {engine} ", f" {folder}/bin/{engine} ")
    text = text.replace("IMAGE", str(folder / "x.sif")).replace("HERE", str(Path.cwd()))
    return [*shlex.split(text), *PROGRAM[1:]]


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize(("launcher", "where"), LAUNCHERS)
def test_the_exact_line(machine, launcher, where, container):
    place = site(container, machine)
    if place.by_srun and not launcher.startswith("srun"):
        with pytest.raises(UserError, match="srun, whose plugin enters") as error:
            launch_command(launch(launcher, where), command=PROGRAM, site=place)
        assert "--hosts slurm" in error.value.fix
        return
    line = launch_command(launch(launcher, where), command=PROGRAM, site=place)
    told = ["--allow-run-as-root"]
    wanted = expected(launcher, where, container, machine)
    if "SCRIPT" in wanted:
        line = ["SCRIPT" if "awk" in word else word for word in line]
    assert [word for word in line if word not in told] == wanted
    assert ("--allow-run-as-root" in line) == launcher.startswith("mpirun")


@pytest.mark.parametrize("container", ["none", "podman"])
@pytest.mark.parametrize(("launcher", "where"), [k for k in LAUNCHERS if k[0] != "mpirun 5"])
def test_what_a_dry_run_prints_is_what_runs(machine, launcher, where, container, capsys):
    command, place = [*PROGRAM, "a b; $HOME"], site(container, machine)
    line = launch_command(launch(launcher, where), command=command, site=place)
    assert run_command(line, dry_run=True) == 0
    printed = capsys.readouterr().out
    assert run_command(line) == 0
    ran = json.loads((machine / "ran").read_text())
    assert [Path(ran[0]).name, *ran[1:]] == shlex.split(printed)


@pytest.mark.parametrize("engine", ["podman", "docker"])
def test_a_rank_in_a_stored_image_gets_what_its_launcher_says_and_no_more(machine, engine):
    line = Site(Path(IMAGES[engine]), (Path("/a b"),)).enter(["python", "-m", "x"], rank=True)
    environ = {"PATH": os.environ["PATH"], "OMPI_COMM_WORLD_RANK": "1", "PMIX_RANK": "1",
               "NCCL_DEBUG": "two\nlines", "PYTHONPATH": "/host", "SECRET": "x", "HOME": "/h",
               "CHEXNET_VENV": "/v", "SLURM_PROCID": "1"}  # fmt: skip
    subprocess.run(line, env=environ, check=True)
    ran = json.loads((machine / "ran").read_text())
    names = {ran[n + 1] for n, word in enumerate(ran) if word == "--env"}
    told = "OMPI_MCA_btl_vader_single_copy_mechanism=none"
    assert names == {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "NCCL_DEBUG", "SLURM_PROCID", told}
    assert Path(ran[0]).name == engine
    assert ran[1] == "run"
    assert "/a b:/a b" in ran
    assert ran[-3:] == ["python", "-m", "x"]


def test_files_written_in_a_stored_image_are_the_users(machine, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr("os.getuid", lambda: 1000)
    monkeypatch.setattr("os.getgid", lambda: 100)
    docker = Site(Path("docker:x")).enter(["id"])
    assert docker[docker.index("--user") + 1] == "1000:100"
    podman = Site(Path("podman:x")).enter(["id"])
    assert podman[podman.index("--userns") + 1] == "keep-id"


def test_one_command_at_pyxis_is_a_step_of_its_own(machine):
    assert Site(Path("pyxis:x#y"), (Path("/d"),)).enter(["python", "-m", "env"]) == [
        "srun", "--overlap", "--nodes=1", "--ntasks=1", "--container-image=x#y",
        "--container-mounts=/d:/d", "--no-container-mount-home", "python", "-m", "env",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/a b'$c", ["--bind", "/a b'$c:/a b'$c"]),
        ("/a,b", ["--mount", '"type=bind","source=/a,b","target=/a,b"']),
        ('/a:"b', ["--mount", '"type=bind","source=/a:""b","target=/a:""b"']),
    ],
)
def test_paths_with_separators_are_passed_in_the_long_form(machine, path, words):
    line = Site(machine / "x.sif", (Path(path),)).enter(["id"])
    assert line[2:4] == words


def test_paths_that_cannot_be_passed_are_refused(machine):
    with pytest.raises(UserError, match="in one line"):
        Site(machine / "x.sif", (Path("/a\nb"),)).enter(["id"])
    with pytest.raises(UserError, match="for pyxis to mount"):
        Site(Path("pyxis:x"), (Path("/a,b"),)).enter(["id"])
