"""What ranks report of themselves: stand-in frameworks, and real launches by mpirun."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from env.binding import BindingPlan, RankBinding, render_plan
from env.checks.evidence import Evidence
from env.checks.registry import find_check, run_all
from env.facts import Fact, Facts, load_facts, write_facts
from env.launched import plan_look
from env.lock import render_lock
from env.probes.launch import probe_launch
from env.probes.rank import observe_rank
from env.records import load_records, write_records
from env.result import Status
from env.validate import PROBES, select_checks

CORES = sorted(os.sched_getaffinity(0))
SAME_LOCK = Fact("1" * 64, "lock.json")


@pytest.fixture
def launch(tmp_path, fakes):
    """Record ranks one after the other, as a launcher's variables would name them."""

    def record(*changes, size=None, timeout_s=30.0, lock=SAME_LOCK, **modules):
        environ = fakes(**modules)
        seen = {}
        for rank, change in enumerate(changes):
            own = {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_LOCAL_RANK": str(rank),
                   "OMPI_COMM_WORLD_SIZE": str(size or len(changes)), **change}  # fmt: skip
            look = plan_look(select_checks(launched=True)[0], probes=PROBES, of_host=False,
                             environ={**environ, **own}, timeout_s=timeout_s)  # fmt: skip
            for part in observe_rank(look, lock_sha256=lock):
                seen[rank] = seen.get(rank, Facts()) | part
        write_records(tmp_path / "records", seen)
        return load_records(tmp_path / "records")

    return record


def mpirun(*argv, environ=None, prefix=()):
    return subprocess.run(
        [*prefix, "mpirun", "--oversubscribe", *map(str, argv)], env=environ, check=False,
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("environ", "rank", "size"),
    [({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8", "SLURM_PROCID": "0"}, 3, 8),
     ({"PMIX_RANK": "2"}, 2, None), ({"PMI_RANK": "1", "PMI_SIZE": "2"}, 1, 2),
     ({"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "6"}, 5, 6), ({}, None, None)],
)  # fmt: skip
def test_the_variables_of_each_launcher(environ, rank, size):
    facts = probe_launch(environ=environ)
    assert (facts["launch.rank"].value, facts["launch.size"].value) == (rank, size)


def test_a_rank_that_is_no_number_is_not_believed():
    assert "not a number" in probe_launch(environ={"PMI_RANK": "x"})["launch.rank"].problem


def test_settings_leave_out_what_each_rank_has_of_its_own():
    environ = {
        "NCCL_DEBUG": "INFO",
        "HOROVOD_RANK": "1",
        "HOME": "/root",
        "HOROVOD_CYCLE_TIME": "1",
    }
    settings = probe_launch(environ=environ)["launch.settings"].value
    assert settings == {"NCCL_DEBUG": "INFO", "HOROVOD_CYCLE_TIME": "1"}


@pytest.mark.parametrize(
    "setting",
    ["NVIDIA_TF32_OVERRIDE", "NCCL_CROSS_NIC", "MKL_CBWR", "CUDA_LAUNCH_BLOCKING", "LD_PRELOAD",
     "OMPI_MCA_mpi_leave_pinned", "OMPI_MCA_btl_tcp_if_include", "PYTHONHASHSEED", "XLA_FLAGS",
     "NCCL_BUFFSIZE", "UCX_RNDV_THRESH", "CUBLAS_WORKSPACE_CONFIG", "KMP_BLOCKTIME",
     "HOROVOD_FUSION_THRESHOLD", "OPENBLAS_NUM_THREADS", "PRTE_MCA_oob_tcp_if_include"],
)  # fmt: skip
def test_a_setting_of_one_rank_alone(setting):
    ranks = {n: Facts(probe_launch(environ={setting: "1"} if n else {})) for n in (0, 1)}
    results = run_all(find_check("ranks.alike"), Evidence(Facts(), num_ranks=2, ranks=ranks))
    assert (results[0].status, results[0].ranks) == (Status.WARN, (1,))
    assert f"{setting}: 1, elsewhere none" in results[0].found


# What mpirun of Open MPI 4 and 5 and srun give each rank, containers each host, and users rightly.
OF_ONE_RANK = [
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_FIRST_RANKS",
    "OMPI_MCA_ess_base_vpid", "OMPI_MCA_orte_ess_node_rank", "OMPI_MCA_initial_wdir",
    "OMPI_MCA_mpi_yield_when_idle", "OMPI_FILE_LOCATION", "OMPI_MCA_mpi_oversubscribe",
    "OMPI_MCA_shmem_RUNTIME_QUERY_hint", "PMIX_RANK", "PMIX_SERVER_URI41", "PMIX_SERVER_TMPDIR",
    "PMIX_HOSTNAME", "PMIX_MCA_mca_base_component_show_load_errors", "PMI_RANK", "PMI_FD",
    "PRTE_MCA_prte_ess_base_vpid", "PRTE_LAUNCHED", "OPAL_PREFIX", "SLURM_PROCID",
    "SLURM_CPU_BIND_LIST", "SLURMD_NODENAME", "SRUN_DEBUG", "HOROVOD_RANK",
    "HOROVOD_CROSS_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_HOSTNAME", "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES", "APPTAINER_BIND", "APPTAINERENV_X", "SINGULARITY_NAME",
    "CONDA_PREFIX", "CUDA_HOME", "GOMP_CPU_AFFINITY", "PYTHONUNBUFFERED", "PYTHONSTARTUP",
    "NVIDIA_API_KEY", "HOME", "TMPDIR", "HYDRA_LAUNCHER", "TF_CONFIG", "MPIEXEC_TIMEOUT",
    "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE",
]  # fmt: skip


@pytest.mark.parametrize("name", OF_ONE_RANK)
def test_what_each_rank_may_have_of_its_own_is_not_compared(name):
    assert probe_launch(environ={name: "1"})["launch.settings"].value == {}


def test_the_surroundings_of_ranks_of_one_host(launch, verdict):
    ranks = launch({}, {"TMPDIR": "/var/tmp", "LANG": "tr_TR.UTF-8"})
    result = verdict("ranks.alike", ranks=ranks, num_ranks=2)
    assert (result.status, result.ranks) == (Status.INFO, (1,))
    assert "TMPDIR: /var/tmp, elsewhere" in result.found
    # Hosts may well differ.
    ranks[1] |= {"host.name": Fact("node2", "x"), "host.boot_id": Fact("b2", "x")}
    assert verdict("ranks.alike", ranks=ranks, num_ranks=2).status is Status.PASS


def test_the_ranks_agree(launch, verdict):
    ranks = launch({}, {})
    assert sorted(ranks) == [0, 1]
    for name in ("mpi.size", "ranks.alike", "ranks.reported"):
        assert verdict(name, ranks=ranks, num_ranks=2).status is Status.PASS, name


def test_a_singleton_under_a_launcher(launch, verdict):
    ranks = launch({"FAKE_HOROVOD": "alone"}, {"FAKE_HOROVOD": "alone"})
    result = verdict("mpi.size", ranks=ranks, num_ranks=2)
    assert (result.status, result.ranks) == (Status.FAIL, (0, 1))
    assert "Horovod sees 1, the launcher says 2" in result.found


def test_ranks_that_wait_for_ever_report_all_the_same(launch, verdict):
    ranks = launch({"FAKE_HOROVOD": "stuck"}, timeout_s=2)
    result = verdict("mpi.size", ranks=ranks, num_ranks=1)
    assert (result.status, "no answer within 2 s" in result.found) == (Status.UNKNOWN, True)
    assert ranks[0].value("host.affinity") == CORES


@pytest.mark.parametrize(
    ("mode", "words"), [("killed", "died by SIGSEGV"), ("refused", "horovod_init gave false")]
)
def test_a_join_that_fails_is_a_failure(launch, verdict, mode, words):
    result = verdict("mpi.size", ranks=launch({"FAKE_HOROVOD": mode}), num_ranks=1)
    assert (result.status, words in result.found) == (Status.FAIL, True)


def test_a_rank_killed_while_joining_has_reported_and_leaves_no_orphan(fakes, tmp_path, verdict):
    environ = fakes({"FAKE_HOROVOD": "orphaned"})
    argv = [sys.executable, "-m", "env", "rank", "--records", str(tmp_path / "records")]
    done = subprocess.run(argv, env=environ, timeout=60)
    assert done.returncode == -signal.SIGKILL
    ranks = load_records(tmp_path / "records")
    assert ranks[0].value("host.affinity") == CORES
    result = verdict("mpi.size", ranks=ranks, num_ranks=1)
    assert (result.status, "never came back" in result.found) == (Status.UNKNOWN, True)
    left = subprocess.run(["pgrep", "-f", "env/probes/join.py"], capture_output=True, text=True)
    ours = [pid for pid in left.stdout.split() if is_below(pid, tmp_path)]
    assert ours == []


def is_below(pid, folder):
    """Return whether a process has this test's folder in its environment."""
    try:
        return str(folder).encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def test_a_rank_that_never_reports_is_named(launch, verdict):
    ranks = launch({}, size=2)
    plan = BindingPlan(tuple(RankBinding(n, n, f"node{n}", (), None, 1) for n in range(2)), 0)
    result = verdict("ranks.reported", ranks=ranks, num_ranks=2, plan=plan)
    assert (result.status, result.ranks, result.hosts) == (Status.FAIL, (1,), ("node1",))
    assert result.found == "rank 1 on node1 did not report"


def test_settings_that_differ(launch, verdict):
    ranks = launch({"NCCL_DEBUG": "INFO"}, {"NCCL_DEBUG": "INFO"}, {})
    result = verdict("ranks.alike", ranks=ranks, num_ranks=3)
    assert (result.status, result.ranks) == (Status.WARN, (2,))
    assert "NCCL_DEBUG: none, elsewhere INFO" in result.found


def test_a_record_is_whole_or_absent(launch, tmp_path):
    launch({})
    assert [path.name for path in (tmp_path / "records").iterdir()] == ["rank-00000.json"]
    assert load_facts(tmp_path / "records/rank-00000.json").value("launch.rank") == 0


def masks(launcher_mask, environ, folder, *options):
    """Launch two real processes that record themselves, with stand-in frameworks."""
    code = [sys.executable, "-m", "env", "rank", "--records", str(folder)]
    done = mpirun("-np", 2, *options, *code, environ=environ, prefix=launcher_mask)
    assert done.returncode == 0, done.stderr
    return load_records(folder)


@pytest.mark.mpi
def test_all_ranks_on_one_core_for_real(fakes, tmp_path, verdict):
    prefix = ("taskset", "-c", str(CORES[0]))
    ranks = masks(prefix, fakes(), tmp_path / "r", "--bind-to", "none")
    plan = BindingPlan(
        tuple(RankBinding(n, n, "h", (CORES[n % len(CORES)],), None, 2) for n in range(2)), 1
    )
    settings = {"ranks": ranks, "num_ranks": 2, "plan": plan}
    result = verdict("binding.same-core", **settings)
    assert (result.status, result.ranks) == (Status.FAIL, (0, 1))
    assert f"all on core {CORES[0]}" in result.found
    assert verdict("binding.overlap", **settings).status is Status.WARN
    assert verdict("binding.threads", **settings).status is Status.FAIL
    result = verdict("binding.plan", **settings)
    assert (result.status, result.ranks) == (Status.FAIL, (1,))


@pytest.mark.mpi
def test_a_core_each_for_real(fakes, tmp_path, verdict):
    ranks = masks((), fakes(), tmp_path / "r", "--bind-to", "core", "--map-by", "core")
    seen = {rank: facts.value("host.affinity") for rank, facts in ranks.items()}
    plan = BindingPlan(tuple(RankBinding(n, n, "h", tuple(seen[n]), None, 1) for n in range(2)), 1)
    assert set(seen[0]).isdisjoint(seen[1])
    for name in ("binding.same-core", "binding.overlap", "binding.threads", "binding.plan"):
        assert verdict(name, ranks=ranks, num_ranks=2, plan=plan).status is Status.PASS, name


@pytest.mark.mpi
def test_real_ranks_join_and_are_judged(healthy, run_env, real_environ, lock, tmp_path):
    (tmp_path / "lock.json").write_text(render_lock(lock))
    records = tmp_path / "records"
    rank = [
        sys.executable,
        "-m",
        "env",
        "rank",
        "--records",
        records,
        "--lock",
        tmp_path / "lock.json",
    ]
    done = mpirun("-np", 2, "--bind-to", "core", *rank, environ=real_environ)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    facts = tmp_path / "facts.json"
    write_facts(facts, healthy[1])
    plan = BindingPlan(
        tuple(
            RankBinding(n, n, os.uname().nodename, tuple(f.value("host.affinity")), None, 1)
            for n, f in load_records(records).items()
        ),
        1,
    )
    (tmp_path / "plan.json").write_text(render_plan(plan))
    done = run_env("--lock", tmp_path / "lock.json", "--facts", facts, "--records", records,
                   "--ranks", "2", "--plan", tmp_path / "plan.json", "--json", "-")  # fmt: skip
    report = json.loads(done.stdout)
    bad = [r for r in report["results"] if r["status"] in ("FAIL", "WARN", "UNKNOWN")]
    assert (done.returncode, bad) == (0, [])
    launched = {r["id"]: r["status"] for r in report["results"] if r["phase"] == "launched"}
    passed = {name for name, status in launched.items() if status == "PASS"}
    assert passed >= {"mpi.size", "ranks.reported", "ranks.alike", "hosts.network", "binding.plan"}
    # Nobody wrote down how this launch went, asked for an allreduce, or has a GPU.
    skipped = {name for name in set(launched) - passed if "gpu" not in name}
    assert skipped == {"launch.ended", "ranks.allreduce"}


def test_a_path_that_a_rank_does_not_see(tmp_path, verdict):
    seen = {}
    for rank, path in enumerate((tmp_path, tmp_path / "absent")):
        look = plan_look([], probes=PROBES, paths=[path],
                         environ={"OMPI_COMM_WORLD_RANK": str(rank)})  # fmt: skip
        seen[rank] = next(iter(observe_rank(look, lock_sha256=SAME_LOCK)))
    result = verdict("ranks.paths", ranks=seen, num_ranks=2)
    assert (result.status, result.ranks, result.where) == (Status.FAIL, (1,), str(path))


@pytest.mark.parametrize(
    ("text", "kept"),
    [("/usr/lib:/usr/lib/x86_64-linux-gnu/pmix2/lib:", None),
     ("/opt/mpi/lib:/usr/lib", "/opt/mpi/lib"), ("/lib64:/usr/libexec", "/usr/libexec")],
)  # fmt: skip
def test_the_systems_own_folders_are_no_setting(text, kept):
    settings = probe_launch(environ={"LD_LIBRARY_PATH": text})["launch.settings"].value
    assert settings.get("LD_LIBRARY_PATH") == kept


@pytest.mark.mpi
@pytest.mark.slow
def test_a_real_allreduce_is_summed_and_timed(real_environ, tmp_path, verdict):
    rank = [sys.executable, "-m", "env", "rank", "--records", tmp_path, "--only", "ranks.allreduce"]
    done = mpirun("-np", 2, "--bind-to", "core", *rank, "--allreduce", 1, environ=real_environ)
    assert done.returncode == 0, done.stderr
    ranks = load_records(tmp_path)
    result = verdict("ranks.allreduce", ranks=ranks, num_ranks=2)
    assert result.status is Status.PASS
    assert re.match(r"\d+\.\d\d GB/s \(rank [01]; 1 MiB, 2 ranks\)$", result.found)
    # 1 MiB over two ranks: each sends and gets as much as it has.
    told = ranks[0].value("rank.allreduce")
    assert told["gb_s"] == pytest.approx(2**20 / told["seconds"] / 1e9)


@pytest.mark.mpi
def test_a_real_singleton_that_is_told_of_four(run_env, tmp_path, verdict):
    done = run_env("rank", "--records", tmp_path, OMPI_COMM_WORLD_SIZE="4")
    assert done.returncode == 0, done.stderr
    result = verdict("mpi.size", ranks=load_records(tmp_path), num_ranks=4)
    assert result.status is Status.FAIL
    assert "Horovod sees 1, the launcher says 4" in result.found
