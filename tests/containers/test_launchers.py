"""Exact command lines of each launcher, and which of them is taken where."""

import subprocess
from pathlib import Path

import pytest

from containers.hosts import HostSlots
from containers.job import Job, choose_launcher
from containers.launch_lines import render_launch
from containers.launchers import (
    Launch,
    Launcher,
    find_launcher,
    forwarded,
    in_foreign_step,
    require_agent,
)
from env.binding import CORES, NONE, THREADS, BindingPlan, HostShare, RankBinding, plan_job
from env.errors import UserError
from env.network import Route
from env.topology import Core, HostTopology

FOUR = HostTopology("h", tuple(Core((n,)) for n in range(4)), (0, 1, 2, 3), (0, 1, 2, 3))
PATIENCE = "--mca odls_base_sigkill_timeout 2"
SSH = "-o ConnectTimeout=10 -o BatchMode=yes"
KEEPALIVE = (
    "--mca oob_tcp_keepalive_time 10 --mca oob_tcp_keepalive_intvl 5 "
    "--mca oob_tcp_keepalive_probes 4"
)
OPEN_MPI_5 = Launcher(series=5)
SRUN = Launcher("srun", pmi="pmix")
ROUTE = Route(("10.0.0.0/24",), ("eth0", "ens3"))
MCA = ".openmpi/mca-params.conf"
TWO = (HostSlots("a", 2), HostSlots("b", 2))


def plan(*cores, mapping, width=2):
    """Return a plan of two hosts with the same cores on each."""
    bindings = [
        RankBinding(len(cores) * h + n, n, host, cpus, None, 2, slots=cpus)
        for h, host in enumerate(("a", "b"))
        for n, cpus in enumerate(cores)
    ]
    return BindingPlan(tuple(bindings), width if mapping != NONE else 0, mapping=mapping)


SPLIT = plan((0, 2), (1, 3), mapping=CORES)
FREE = plan((), (), mapping=NONE)


def line(launch, *, as_root=False):
    return " ".join(render_launch(launch, command=["prog"], as_root=as_root))


@pytest.mark.parametrize(
    ("ranks", "share", "as_root", "expected"),
    [
        (2, False, False, f"mpirun {PATIENCE} -np 2 --map-by slot:PE=2 --bind-to core prog"),
        (4, False, True,
         f"mpirun --allow-run-as-root {PATIENCE} -np 4 --map-by slot:PE=1 --bind-to core prog"),
        (1, False, False, f"mpirun {PATIENCE} -np 1 --map-by slot:PE=4 --bind-to core prog"),
        (6, True, False,
         f"mpirun {PATIENCE} -np 6 --map-by slot:OVERSUBSCRIBE --bind-to none prog"),
    ],
)  # fmt: skip
def test_mpirun_on_this_machine(ranks, share, as_root, expected):
    launch = Launch(plan_job([HostShare(FOUR, ranks)], share_cores=share))
    assert line(launch, as_root=as_root) == expected


@pytest.mark.parametrize(
    ("launcher", "plan", "expected"),
    [
        (Launcher(), SPLIT, "--rankfile /f/rankfile"),
        (OPEN_MPI_5, SPLIT, "--map-by rankfile:FILE=/f/rankfile"),
        (Launcher(), plan((0, 2), mapping=THREADS), "--rankfile /f/rankfile --use-hwthread-cpus"),
        (OPEN_MPI_5, plan((0, 2), mapping=THREADS), "--map-by rankfile:FILE=/f/rankfile:HWTCPUS"),
    ],
)
def test_cores_that_must_be_named_stand_in_a_file(launcher, plan, expected):
    launch = Launch(plan, launcher, folder=Path("/f"))
    assert line(launch).endswith(f" -np {len(plan.ranks)} {expected} prog")
    ((path, text),) = launch.files().items()
    assert path == Path("/f/rankfile")
    assert text.startswith("rank 0=a slot=0,2\n")


def test_mpirun_over_hosts_names_hosts_networks_and_variables(monkeypatch):
    monkeypatch.delenv("OMPI_MCA_btl_tcp_if_include", raising=False)
    launch = Launch(FREE, Launcher(), TWO, ROUTE, ("PYTHONPATH",), label=True)
    assert line(launch) == (
        f"mpirun {PATIENCE} --tag-output --host a:2,b:2 "
        "--mca btl_tcp_if_include 10.0.0.0/24 --mca oob_tcp_if_include 10.0.0.0/24 "
        f"--mca plm_rsh_args {SSH} {KEEPALIVE} -x PYTHONPATH -x NCCL_SOCKET_IFNAME==eth0,ens3 "
        "-np 4 --map-by slot:OVERSUBSCRIBE --bind-to none prog"
    )
    fifth = line(Launch(FREE, OPEN_MPI_5, TWO, ROUTE, label=True))
    assert "--output tag --host a:2,b:2 --mca btl_tcp_if_include 10.0.0.0/24 " in fifth
    assert f"--prtemca prte_if_include 10.0.0.0/24 --prtemca plm_ssh_args {SSH} " in fifth


def test_what_the_user_said_of_interfaces_stands(monkeypatch):
    monkeypatch.setenv("OMPI_MCA_btl_tcp_if_exclude", "docker0")
    launch = Launch(FREE, Launcher(), TWO, ROUTE, ("NCCL_SOCKET_IFNAME",))
    text = line(launch)
    assert "if_include" not in text
    assert "-x NCCL_SOCKET_IFNAME -np" in text


@pytest.mark.parametrize(
    ("file", "text", "left_out", "kept"),
    [
        (MCA, "oob_tcp_if_exclude = lo\n", "oob_tcp_if", "btl_tcp_if_include"),
        (MCA, "btl_tcp_if_exclude = lo\n", "btl_tcp_if", "NCCL_SOCKET_IFNAME"),
        (MCA, "plm_rsh_args = -p 2222\n", "ConnectTimeout", "btl_tcp_if_include"),
        (MCA, "plm_rsh_agent = /opt/agent\n", "ConnectTimeout", "btl_tcp_if_include"),
        (".nccl.conf", "NCCL_SOCKET_IFNAME=ib0\n", "NCCL_SOCKET_IFNAME", "btl_tcp_if_include"),
    ],
)  # fmt: skip
def test_what_a_file_says_of_interfaces_and_ssh_stands(
    monkeypatch, tmp_path, file, text, left_out, kept
):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(text)
    words = line(Launch(FREE, Launcher(), TWO, ROUTE))
    assert left_out not in words
    assert kept in words
    by_slurm = line(Launch(FREE, SRUN, TWO, ROUTE))
    assert left_out not in by_slurm


def test_srun_gives_each_rank_of_a_host_its_mask():
    launch = Launch(SPLIT, SRUN, TWO, folder=Path("/f"), label=True)
    assert line(launch) == (
        "srun --mpi=pmix --overlap --kill-on-bad-exit=1 --label --nodes=2 --ntasks=4 "
        "--nodelist=a,b --ntasks-per-node=2 --distribution=block --cpu-bind=mask_cpu:0x5,0xa prog"
    )
    assert launch.files() == {}


def test_ranks_of_hosts_with_other_cpus_bind_themselves_under_srun(tmp_path):
    """srun takes one list of masks for all hosts: here host a gave CPUs 0-3, host b 8-11."""
    cores = {"a": ((0, 1), (2, 3)), "b": ((8, 9), (10, 11))}
    bindings = [
        RankBinding(2 * h + n, n, host, cpus, None, 2, slots=(2 * n, 2 * n + 1))
        for h, (host, both) in enumerate(cores.items())
        for n, cpus in enumerate(both)
    ]
    launch = Launch(BindingPlan(tuple(bindings), 2), SRUN, TWO)
    argv = render_launch(launch, command=["prog", "a b; $HOME"])
    assert "--cpu-bind=none" in argv
    assert argv[-2:] == ["prog", "a b; $HOME"]
    taskset = tmp_path / "taskset"
    taskset.write_text("#!/bin/sh\nprintf '<%s>' \"$@\"\n")
    taskset.chmod(0o755)
    own = argv[argv.index("--cpu-bind=none") + 1 :]
    told = [
        subprocess.run(own, env={"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_PROCID": str(rank)},
                       capture_output=True, text=True, check=True).stdout
        for rank in range(4)
    ]  # fmt: skip
    assert told == [f"<-c><{cpus}><prog><a b; $HOME>" for cpus in ("0-1", "2-3", "8-9", "10-11")]


def test_srun_with_unequal_hosts_reads_them_from_a_file(monkeypatch):
    for name in ("OMPI_MCA_btl_tcp_if_include", "NCCL_SOCKET_IFNAME"):
        monkeypatch.delenv(name, raising=False)
    bindings = tuple(RankBinding(n, max(0, n - 1), h, (), None, 1) for n, h in enumerate("abb"))
    hosts = (HostSlots("a", 1), HostSlots("b", 2))
    launch = Launch(BindingPlan(bindings, 0, mapping=NONE), SRUN, hosts, ROUTE, folder=Path("/f"))
    assert line(launch) == (
        "env OMPI_MCA_btl_tcp_if_include=10.0.0.0/24 NCCL_SOCKET_IFNAME==eth0,ens3 "
        "SLURM_HOSTFILE=/f/hosts srun --mpi=pmix --overlap --kill-on-bad-exit=1 --nodes=2 "
        "--ntasks=3 --distribution=arbitrary --cpu-bind=none prog"
    )
    assert launch.files() == {Path("/f/hosts"): "a\nb\nb\n"}


def stubs(folder, **programs):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in programs.items():
        path = folder / name
        path.write_text(f"#!/bin/sh\necho '{text}'\n")
        path.chmod(0o755)
    return {"PATH": str(folder)}


@pytest.mark.parametrize(
    ("banner", "series"),
    [("mpirun (Open MPI) 4.1.4", 4), ("mpirun (Open MPI) 5.0.7", 5), ("HYDRA build details:", 4)],
)
def test_mpirun_tells_its_series(tmp_path, banner, series):
    environ = stubs(tmp_path / "bin", mpirun=banner)
    launcher = find_launcher(remote=True, environ=environ)
    assert launcher.series == series
    # By its path, so that the other hosts look for its daemon at the same place.
    assert launcher.program == str(tmp_path / "bin/mpirun")


def test_srun_is_taken_inside_a_job_for_several_hosts(tmp_path, monkeypatch):
    info = "mca:pmix:ext3x:version"
    environ = stubs(
        tmp_path, mpirun="mpirun (Open MPI) 4.1.4", srun="none pmix pmi2", ompi_info=info
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_launcher(remote=True, environ=environ).kind == "mpirun"
    job = {**environ, "SLURM_JOB_ID": "7"}
    assert find_launcher(remote=True, environ=job) == SRUN
    assert find_launcher(remote=False, environ=job).kind == "mpirun"
    assert find_launcher("mpirun", remote=True, environ=job).kind == "mpirun"
    with pytest.raises(UserError, match="no SLURM_JOB_ID"):
        find_launcher("srun", remote=True, environ=environ)
    with pytest.raises(UserError, match="a known launcher"):
        find_launcher("lsf", remote=True, environ=environ)


def test_one_rank_needs_no_launcher():
    assert find_launcher("local", remote=False).kind == "local"
    with pytest.raises(UserError, match="ranks on other hosts"):
        find_launcher("local", remote=True)
    with pytest.raises(UserError, match="needs no launcher"):
        choose_launcher(Job(ranks=2, oversubscribe=True, launcher="local"))


@pytest.mark.parametrize(("programs", "transport"), [(("mpirun",), "mpi"), ((), "gloo")])
def test_horovodrun_takes_mpi_where_there_is_some(tmp_path, programs, transport):
    environ = stubs(tmp_path, horovodrun="x", **dict.fromkeys(programs, "mpirun (Open MPI) 4.1.4"))
    launcher = find_launcher("horovodrun", remote=True, environ=environ)
    assert (launcher.kind, launcher.transport) == ("horovodrun", transport)
    # horovodrun with gloo hands SIGUSR1 on to nobody, and dies of it.
    assert launcher.checkpoint_signal.name == ("SIGUSR1" if transport == "mpi" else "SIGTERM")


def test_horovodrun_is_refused_inside_an_image_and_where_there_is_none(tmp_path):
    environ = stubs(tmp_path, horovodrun="x") | {"APPTAINER_CONTAINER": "/i/x.sif"}
    with pytest.raises(UserError) as error:
        find_launcher("horovodrun", remote=True, environ=environ)
    assert "invoke … --launcher horovodrun --image /i/x.sif" in error.value.fix
    with pytest.raises(UserError, match="horovodrun on PATH"):
        find_launcher("horovodrun", remote=True, environ={"PATH": str(tmp_path / "none")})


def test_srun_without_a_common_pmi_is_refused_or_left(tmp_path, monkeypatch):
    environ = stubs(tmp_path, mpirun="mpirun (Open MPI) 4.1.4", srun="none pmi2", ompi_info="x")
    monkeypatch.setenv("PATH", str(tmp_path))
    job = {**environ, "SLURM_JOB_ID": "7"}
    assert find_launcher(remote=True, environ=job).kind == "mpirun"
    with pytest.raises(UserError, match="a PMI in common"):
        find_launcher("srun", remote=True, environ=job)


def test_an_image_without_ssh_names_the_command_to_use_outside(tmp_path):
    environ = stubs(tmp_path, mpirun="x") | {"APPTAINER_CONTAINER": "/i/chexnet.sif"}
    with pytest.raises(UserError) as error:
        require_agent(Launcher(), environ=environ)
    assert "--image /i/chexnet.sif" in error.value.fix
    assert "singularity exec /i/chexnet.sif" in error.value.fix
    require_agent(Launcher(), environ=stubs(tmp_path / "more", ssh="x"))
    require_agent(SRUN, environ=environ)
    require_agent(Launcher(), environ=environ | {"OMPI_MCA_plm_rsh_agent": "/opt/agent"})


@pytest.mark.parametrize(
    ("step", "more", "foreign"),
    [("0", {}, True), ("4294967290", {}, False), ("4294967291", {}, False), ("", {}, False),
     ("3", {"SLURM_OVERLAP": "1"}, False)],
)  # fmt: skip
def test_a_step_of_the_job_is_no_place_for_mpirun(step, more, foreign):
    assert in_foreign_step({"SLURM_STEP_ID": step, **more}) is foreign


def test_mpirun_under_srun_is_refused_rather_than_left_to_hang(tmp_path):
    environ = stubs(tmp_path, mpirun="mpirun (Open MPI) 4.1.4", ssh="x")
    environ |= {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}
    job = Job(hosts=TWO, launcher="mpirun")
    with pytest.raises(UserError, match="step 0 of job 7") as error:
        choose_launcher(job, environ=environ)
    assert error.value.exit_code == 1
    assert choose_launcher(Job(launcher="mpirun"), environ=environ).kind == "mpirun"


def test_only_what_ranks_need_is_handed_on():
    names = "PATH HOME NCCL_DEBUG PYTHONPATH CUDA_VISIBLE_DEVICES OMPI_MCA_btl CHEXNET_LOCK"
    environ = dict.fromkeys([*names.split(), "SECRET_TOKEN", "TF_XLA_FLAGS"], "")
    assert forwarded(environ) == ("CHEXNET_LOCK", "NCCL_DEBUG", "PYTHONPATH", "TF_XLA_FLAGS")
