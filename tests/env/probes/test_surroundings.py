"""Folders, limits, containers, Python's hooks and leftovers: for real where a machine allows it."""

import contextlib
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from env.checks.evidence import Evidence
from env.checks.registry import find_check, run_all
from env.facts import Fact, Facts
from env.probes.container import TRIALS, probe_container
from env.probes.host import parse_limits, probe_host
from env.probes.leftover import probe_leftover
from env.probes.packages import probe_packages
from env.probes.python import probe_python
from env.probes.settings import probe_settings
from env.probes.storage import mount_of, parse_mountinfo, probe_storage
from env.result import Status

PROJECT = Path(__file__).resolve().parents[3]
MIB = 2**20


def known(**values):
    return {key.replace("_", ".", 1): Fact(value, "made up") for key, value in values.items()}


OUTSIDE, IN_DOCKER = known(host_container=None), known(host_container="docker")
IN_APPTAINER = known(host_container="apptainer")


def results(done):
    """Return the worst result of each check of a finished run."""
    severity = ["PASS", "SKIP", "INFO", "WARN", "UNKNOWN", "FAIL"]
    found = sorted(json.loads(done.stdout)["results"], key=lambda r: severity.index(r["status"]))
    return {r["id"]: r for r in found}


# --- folders ------------------------------------------------------------------------------------


def storage(root="/", free=50_000 * MIB, **environ):
    size = SimpleNamespace(f_frsize=4096, f_blocks=10**8, f_bavail=free // 4096, f_files=10**6,
                           f_favail=10**5)  # fmt: skip
    return Facts(probe_storage(Path(root), environ=environ, statvfs=lambda path: size))


def test_a_temporary_folder_that_is_not_there(run_env, tmp_path):
    done = run_env("--only", "storage.temporary", "--json", "-", TMPDIR=f"{tmp_path}/none")
    result = results(done)["storage.temporary"]
    assert (done.returncode, result["status"], result["where"]) == (1, "FAIL", "TMPDIR")
    assert result["found"] == f"{tmp_path}/none: No such file or directory"


def test_a_temporary_folder_with_little_room(verdict, tmp_path):
    facts = storage(free=100 * MIB, TMPDIR=str(tmp_path))
    result = verdict("storage.temporary", facts)
    assert (result.status, result.found) == (
        Status.WARN, f"{tmp_path}: 100 MiB free of 390625",
    )  # fmt: skip
    facts = storage(free=10 * MIB, TMPDIR=str(tmp_path))
    assert verdict("storage.temporary", facts).status is Status.FAIL


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_a_small_temporary_file_system_for_real(run_env, tmp_path):
    (tmp_path / "t").mkdir()
    shell = (
        "unshare",
        "-m",
        "sh",
        "-c",
        f'mount -t tmpfs -o size=40m none {tmp_path}/t && exec "$@"',
        "sh",
    )
    done = run_env(
        "--only", "storage.temporary", "--json", "-", prefix=shell, TMPDIR=f"{tmp_path}/t"
    )
    result = results(done)["storage.temporary"]
    assert (done.returncode, result["status"]) == (1, "FAIL"), done.stderr
    assert "40 MiB free of 40" in result["found"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_a_read_only_and_a_full_temporary_folder_for_real(run_env, tmp_path):
    for options, found in (
        ("ro,size=200m", "read-only"),
        ("size=200m,nr_inodes=1", "No space left"),
    ):
        folder = tmp_path / found.split()[0]
        folder.mkdir()
        mount = f'mount -t tmpfs -o {options} none {folder} && exec "$@"'
        done = run_env("--only", "storage.temporary", "--json", "-", TMPDIR=str(folder),
                       prefix=("unshare", "-m", "sh", "-c", mount, "sh"))  # fmt: skip
        result = results(done)["storage.temporary"]
        assert result["status"] == "FAIL"
        assert found in result["found"], result


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_docker_s_small_shared_memory_for_real(run_env):
    mount = 'mount -t tmpfs -o size=64m none /dev/shm && exec "$@"'
    done = run_env("--only", "memory.shm", "--ranks", "2", "--json", "-",
                   prefix=("unshare", "-m", "sh", "-c", mount, "sh"))  # fmt: skip
    assert (done.returncode, results(done)["memory.shm"]["status"]) == (1, "FAIL"), done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_shared_memory_that_takes_no_files_for_real(run_env, ordinary):
    mount = 'mount -t tmpfs -o size=2g,mode=755 none /dev/shm && exec "$@"'
    done = run_env("--only", "memory.shm", "--ranks", "2", "--json", "-",
                   prefix=("unshare", "-m", "sh", "-c", mount, "sh", *ordinary))  # fmt: skip
    assert (done.returncode, results(done)["memory.shm"]["status"]) == (1, "FAIL"), done.stderr
    assert results(done)["memory.shm"]["found"].endswith("; Permission denied")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
@pytest.mark.skipif(not shutil.which("apptainer"), reason="judged where Apptainer is on PATH")
def test_no_room_to_unpack_for_real(run_env, tmp_path):
    mount = f'mount -t tmpfs -o size=100m none {tmp_path} && exec "$@"'
    done = run_env("--only", "storage.unpacking", "--json", "-", APPTAINER_TMPDIR=str(tmp_path),
                   prefix=("unshare", "-m", "sh", "-c", mount, "sh"))  # fmt: skip
    assert (done.returncode, results(done)["storage.unpacking"]["status"]) == (1, "FAIL")


def test_a_path_too_long_for_sockets(verdict, tmp_path):
    folder = tmp_path / ("d" * 68)
    folder.mkdir()
    assert verdict("storage.temporary", storage(TMPDIR=str(folder))).status is Status.WARN


def test_a_temporary_folder_that_a_file_of_mpi_names(verdict, tmp_path):
    file = tmp_path / "home/u/.openmpi/mca-params.conf"
    file.parent.mkdir(parents=True)
    file.write_text("orte_tmpdir_base = /nowhere\n")
    facts = probe_storage(tmp_path, environ={"HOME": "/home/u", "TMPDIR": str(tmp_path)})
    result = verdict("storage.temporary", facts)
    assert (result.status, result.where) == (
        Status.FAIL, f"OMPI_MCA_orte_tmpdir_base in {file}")  # fmt: skip
    told = {"HOME": "/home/u", "OMPI_MCA_orte_tmpdir_base": str(tmp_path)}
    assert verdict("storage.temporary", probe_storage(tmp_path, environ=told)).where == ""


def test_the_look_leaves_nothing_behind(tmp_path):
    before = tmp_path.stat().st_mtime_ns
    facts = storage(TMPDIR=str(tmp_path), HOME=str(tmp_path))
    assert {row["writable"] for row in facts.value("storage.places")} == {"yes"}
    assert (list(tmp_path.iterdir()), tmp_path.stat().st_mtime_ns) == ([], before)


@pytest.mark.parametrize("home", ["", "/no/such/home"])
def test_homes(verdict, home):
    status = Status.WARN if home else Status.PASS
    facts = Facts(probe_storage(environ={"HOME": home} if home else {}))
    assert verdict("storage.home", facts).status is status


def test_room_to_unpack_images(verdict, tmp_path):
    with_apptainer = known(container_programs={"apptainer": "/usr/bin/apptainer"})
    facts = storage(free=100 * MIB, APPTAINER_TMPDIR=str(tmp_path)) | with_apptainer | OUTSIDE
    result = verdict("storage.unpacking", facts)
    assert (result.status, result.where) == (Status.FAIL, "APPTAINER_TMPDIR")
    assert verdict("storage.unpacking", facts | IN_APPTAINER).status is Status.PASS


def test_a_folder_that_the_container_lacks(verdict):
    facts = storage(PWD="/no/such/folder", SLURM_SUBMIT_DIR="/neither")
    result = verdict("storage.folder", facts | IN_APPTAINER)
    assert (result.status, "/no/such/folder is not in" in result.found) == (Status.FAIL, True)
    assert verdict("storage.folder", facts | OUTSIDE).status is Status.WARN
    facts = storage(PWD="/usr", SLURM_SUBMIT_DIR="/neither")
    assert verdict("storage.folder", facts | OUTSIDE).status is Status.PASS
    facts = storage(SLURM_SUBMIT_DIR="/neither")
    assert verdict("storage.folder", facts | IN_APPTAINER).status is Status.WARN


MOUNTS = """\
1 0 8:1 / / rw,relatime shared:1 - ext4 /dev/sda rw
2 1 0:5 / /opt rw,nosuid - nfs4 server:/export/opt rw,vers=4
3 1 0:6 / /with\\040blank ro - tmpfs none ro,size=4k
4 2 0:7 / /opt/chexnet rw - xfs /dev/sdb rw
nonsense
"""


def test_mounts_are_read_as_the_kernel_writes_them():
    mounts = parse_mountinfo(MOUNTS)
    assert [m["point"] for m in mounts] == ["/", "/opt", "/with blank", "/opt/chexnet"]
    kinds = {"/usr": "ext4", "/opt": "nfs4", "/opt/x": "nfs4", "/optional": "ext4",
             "/opt/chexnet/bin": "xfs", "/with blank/a": "tmpfs"}  # fmt: skip
    for path, kind in kinds.items():
        assert mount_of(path, mounts)["type"] == kind


@given(st.text())
def test_no_text_breaks_the_parser_of_mounts(text):
    assert all(
        set(m) == {"point", "root", "type", "source", "options"} for m in parse_mountinfo(text)
    )


# --- limits --------------------------------------------------------------------------------------


def test_the_limits_of_this_very_process():
    found = probe_host()["host.limits"].value
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert found["open files"] == {"soft": soft, "hard": hard}
    assert {"address space", "locked memory", "file size", "cpu time"} <= set(found)


@given(st.text())
def test_no_text_breaks_the_parser_of_limits(text):
    with contextlib.suppress(ValueError):
        assert parse_limits(text)


@pytest.mark.parametrize(
    ("option", "found"),
    [("-f 1000", "file size"), ("-t 3600", "cpu time 1 h"), ("-v 20000000", "address space"),
     ("-s 512", "stack size")],
)  # fmt: skip
def test_a_limit_too_low_for_real(run_env, option, found):
    shell = ("bash", "-c", f'ulimit {option}; exec "$@"', "bash")
    done = run_env("--only", "limits.process", "--json", "-", prefix=shell)
    result = results(done)["limits.process"]
    assert (done.returncode, result["status"]) == (1, "FAIL"), done.stderr
    assert result["found"].startswith(found)


def test_few_processes_for_real(run_env, ordinary):
    shell = [*ordinary, "bash", "-c", 'ulimit -u 40; exec "$@"', "bash"]
    done = run_env("--only", "limits.processes", "--ranks", "2", "--json", "-", prefix=shell)
    result = results(done)["limits.processes"]
    assert (done.returncode, result["status"], result["found"]) == (1, "FAIL", "40"), done.stderr


def test_a_library_forced_into_every_program_for_real(run_env):
    done = run_env("--only", "libraries.preload", "--json", "-", LD_PRELOAD="/nonexistent.so")
    result = results(done)["libraries.preload"]
    assert (result["status"], result["where"]) == ("WARN", "LD_PRELOAD")
    assert "/nonexistent.so: No such file" in result["found"]


def test_no_limit_of_this_machine_is_too_low(verdict):
    assert verdict("limits.process", probe_host()).status is Status.PASS


def test_memory_that_may_be_locked(verdict):
    port = {"device": "mlx5_0", "port": 1, "state": "ACTIVE"}
    limits = known(host_limits={"locked memory": {"soft": 65536, "hard": 65536}})
    assert verdict("network.locked-memory", limits | known(rdma_ports=[])).status is Status.PASS
    assert verdict("network.locked-memory", limits | known(rdma_ports=[port])).status is Status.FAIL


# --- containers ----------------------------------------------------------------------------------


@pytest.fixture
def surroundings(tmp_path):
    files = {
        "proc/self/mountinfo": MOUNTS,
        "proc/self/status": "Seccomp:\t2\n",
        "proc/sys/user/max_user_namespaces": "0\n",
        "proc/sys/kernel/yama/ptrace_scope": "1",
    }

    def probe(changes=None, environ=None, **options):
        for name, text in {**files, **(changes or {})}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if text is None:
                path.unlink(missing_ok=True)
            else:
                path.write_text(text)
        return Facts(
            probe_container(tmp_path, environ={"PATH": "/usr/bin"} | (environ or {}), **options)
        )

    return probe


def test_everything_is_allowed_here(verdict):
    facts = Facts(probe_container())
    assert facts.value("container.trials")["thread"] is None
    assert verdict("container.threads", facts).status is Status.PASS
    result = verdict("container.peer-memory", {**facts, **probe_settings(environ={}),
                     **known(mpi_ucx=None, mpi_banner="mpirun (Open MPI) 4.1.4")})  # fmt: skip
    assert result.status is (Status.PASS if facts.value("container.trials")["peer_memory"] is None
                             else Status.WARN)  # fmt: skip


def refusing(tmp_path, name, code):
    """Write a Python whose trials find one system call refused, as a filter would refuse it."""
    script = tmp_path / "trials.py"
    text = TRIALS.read_text().replace(f'("{name}", try_{name})', f'("{name}", lambda: {code})')
    script.write_text(text)
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -I -S {script}\n")
    program.chmod(0o755)
    return str(program)


def test_a_filter_that_refuses_threads(surroundings, verdict, tmp_path):
    facts = surroundings(python=refusing(tmp_path, "thread", 1))
    result = verdict("container.threads", facts)
    assert (result.status, result.found) == (
        Status.FAIL, "refused: EPERM, with a seccomp filter on this process",
    )  # fmt: skip


def test_threads_beyond_the_limit_for_real(run_env, ordinary):
    shell = [*ordinary, "bash", "-c", 'ulimit -u 1; exec "$@"', "bash"]
    done = run_env("--only", "container.threads", "--json", "-", prefix=shell)
    # Without a thread the child may not even start: then nobody can tell.
    assert results(done)["container.threads"]["status"] in ("FAIL", "UNKNOWN")
    assert done.returncode in (1, 3)


def test_a_filter_that_refuses_peer_memory(surroundings, verdict, tmp_path):
    facts = surroundings(python=refusing(tmp_path, "peer_memory", 1))
    facts |= Facts(probe_settings(tmp_path, environ={}))
    old = known(mpi_ucx=None, mpi_banner="mpirun (Open MPI) 4.1.4")
    assert verdict("container.peer-memory", facts | old).status is Status.WARN
    new = known(mpi_ucx=None, mpi_banner="mpirun (Open MPI) 5.0.7")
    assert verdict("container.peer-memory", facts | new).status is Status.INFO


def test_trials_that_die_are_told(surroundings, verdict, tmp_path):
    program = tmp_path / "dies"
    program.write_text("#!/bin/sh\nkill -SYS $$\n")
    program.chmod(0o755)
    assert verdict("container.threads", surroundings(python=str(program))).status is Status.UNKNOWN
    program.write_text("#!/bin/sh\necho '[\"thread\", null]'; echo junk; kill -SYS $$\n")
    facts = surroundings(python=str(program))
    assert facts.value("container.trials") == {"thread": None, "peer_memory": "died by SIGSYS"}


def test_a_mount_over_the_image(surroundings, verdict):
    facts = surroundings()
    result = verdict("container.covered", facts | IN_APPTAINER)
    assert result.status is Status.FAIL
    assert "/opt is server:/export/opt (nfs4)" in result.found
    assert verdict("container.covered", facts | OUTSIDE).status is Status.PASS
    plain = surroundings({"proc/self/mountinfo": MOUNTS.splitlines()[0]})
    assert verdict("container.covered", plain | IN_APPTAINER).status is Status.PASS


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_a_mount_over_the_image_for_real(run_env, tmp_path):
    mount = f'mount --bind {tmp_path} /opt && exec "$@"' if not sys.prefix.startswith("/opt") else (
        f'mount -t tmpfs none {tmp_path} && mount --rbind /opt /opt && exec "$@"')  # fmt: skip
    done = run_env("--only", "container.covered", "--json", "-", APPTAINER_CONTAINER="x.sif",
                   prefix=("unshare", "-m", "sh", "-c", mount, "sh"))  # fmt: skip
    assert "/opt is " in results(done)["container.covered"]["found"], done.stderr


@pytest.mark.parametrize(
    ("limit", "suid", "uid", "status"),
    [("0", False, 1000, Status.FAIL), ("1", False, 1000, Status.WARN),
     ("9", False, 1000, Status.PASS), ("0", True, 1000, Status.PASS),
     ("0", False, 0, Status.PASS)],
)  # fmt: skip
def test_user_namespaces(surroundings, verdict, tmp_path, limit, suid, uid, status):
    for name, mode in (("bin/apptainer", 0o755), ("libexec/apptainer/bin/starter-suid", 0o4755)):
        file = tmp_path / "apps" / name
        file.parent.mkdir(parents=True)
        file.touch()
        file.chmod(mode if suid or name.startswith("bin") else 0o755)
    facts = surroundings({"proc/sys/user/max_user_namespaces": limit},
                         {"PATH": str(tmp_path / "apps/bin")})  # fmt: skip
    facts |= known(host_uid=uid) | OUTSIDE
    assert facts.value("container.starter") == (suid and os.geteuid() == 0)
    if suid and os.geteuid() != 0:
        return
    assert verdict("container.namespaces", facts, num_ranks=2).status is status


def test_debians_switch_counts(surroundings):
    facts = surroundings({"proc/sys/user/max_user_namespaces": "1000",
                          "proc/sys/kernel/unprivileged_userns_clone": "0"})  # fmt: skip
    assert facts.value("container.user_namespaces") == 0


def test_an_image_that_is_read_through_fuse(surroundings, verdict):
    line = "1 0 0:9 / / ro,nosuid - fuse.squashfuse_ll squashfuse_ll ro\n"
    facts = surroundings({"proc/self/mountinfo": line}) | IN_APPTAINER
    assert verdict("container.root", facts, num_ranks=4).status is Status.WARN
    assert verdict("container.root", facts).status is Status.INFO
    assert verdict("container.root", facts | OUTSIDE, num_ranks=4).status is Status.PASS
    assert (
        verdict("container.root", surroundings({"proc/self/mountinfo": None})).status
        is Status.UNKNOWN
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root unshares")
def test_ranks_that_share_no_memory_for_real(verdict):
    code = "from env.probes.host import probe_host; import json; print(json.dumps(" \
           "[probe_host()[k].value for k in ('host.spaces', 'host.boot_id')]))"  # fmt: skip

    def rank(*prefix):
        argv = [*prefix, sys.executable, "-c", code]
        done = subprocess.run(argv, capture_output=True, text=True, check=True,
                              env={**os.environ, "PYTHONPATH": str(PROJECT)})  # fmt: skip
        spaces, boot = json.loads(done.stdout)
        return Facts(known(host_spaces=spaces, host_boot_id=boot, host_name="node1"))

    alike = {0: rank(), 1: rank()}
    assert verdict("container.apart", ranks=alike, num_ranks=2).status is Status.PASS
    apart = {0: rank(), 1: rank("unshare", "--ipc")}
    result = verdict("container.apart", ranks=apart, num_ranks=2)
    assert (result.status, result.ranks) == (Status.WARN, (0, 1))


# --- Python --------------------------------------------------------------------------------------


def test_modules_that_hide_others_for_real(run_env, verdict, tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong json')\n")
    (tmp_path / "h5py").mkdir()
    (tmp_path / "h5py/__init__.py").touch()
    (tmp_path / "mine.py").touch()
    done = run_env("--only", "python.hiding", "--json", "-", PYTHONPATH=f"{PROJECT}:{tmp_path}")
    assert done.returncode == 1, done.stderr
    found = results(done)["python.hiding"]["found"]
    assert f"{tmp_path}/json hides Python's own json" in found
    assert "h5py" in found
    assert "mine" not in found
    assert verdict("python.hiding", probe_python(environ={})).status is Status.PASS


def test_hooks_for_real(run_env, tmp_path):
    (tmp_path / "sitecustomize.py").touch()
    done = run_env("--only", "python.hooks", "--json", "-", PYTHONPATH=f"{PROJECT}:{tmp_path}")
    result = results(done)["python.hooks"]
    assert (result["status"], result["where"]) == ("WARN", f"{tmp_path}/sitecustomize.py")


def test_a_pth_file_that_runs_code(verdict, tmp_path, monkeypatch):
    monkeypatch.setattr("site.getusersitepackages", lambda: str(tmp_path))
    monkeypatch.setattr("site.ENABLE_USER_SITE", True)
    (tmp_path / "paths.pth").write_text("/some/folder\n")
    assert verdict("python.hooks", probe_python(environ={})).status is Status.PASS
    (tmp_path / "x.pth").write_text("import os; os.environ['A'] = '1'\n")
    result = verdict("python.hooks", probe_python(environ={}))
    assert (result.status, result.where) == (Status.WARN, str(tmp_path / "x.pth"))


def test_a_package_outside_what_another_declares(verdict, tmp_path):
    def add(name, version, *needs):
        folder = tmp_path / f"{name}-{version}.dist-info"
        folder.mkdir()
        lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {n}" for n in needs)]
        (folder / "METADATA").write_text("Metadata-Version: 2.1\n" + "\n".join(lines) + "\n")

    add("tensorflow", "2.15.0", "numpy<2.0.0,>=1.23.5", "protobuf!=4.21.0,<5.0.0dev,>=3.20.3",
        "gast>=0.2.1; python_version < '3'", "wrapt~=1.1", "h5py (>=2.9.0)")  # fmt: skip
    add("numpy", "2.4.6")
    add("gast", "0.1")
    add("h5py", "2.8")
    path = [str(tmp_path)]
    facts = {**probe_python(environ={}, path=path), **probe_packages(environ={}, path=path)}
    found = run_all(find_check("python.requirements"), Evidence(Facts(facts)))
    assert {(r.status, r.found.split()[0]) for r in found} == {
        (Status.FAIL, "numpy"), (Status.FAIL, "h5py"),
    }  # fmt: skip
    assert verdict("python.requirements", facts).status is Status.FAIL


# --- leftovers -----------------------------------------------------------------------------------


def test_servers_of_a_launcher_that_is_gone(verdict, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        alive = {
            "PMIX_SERVER_URI4": f"ns.0;tcp4://127.0.0.1:{port}",
            "PMIX_SERVER_TMPDIR": str(tmp_path),
        }
        assert verdict("mpi.leftover", probe_leftover(environ=alive)).status is Status.PASS
    result = verdict("mpi.leftover", probe_leftover(environ=alive))
    assert (result.status, result.where) == (Status.FAIL, "PMIX_SERVER_URI4")
    gone = {"PMIX_SERVER_TMPDIR": str(tmp_path / "gone")}
    assert verdict("mpi.leftover", probe_leftover(environ=gone)).status is Status.FAIL


@given(st.text(st.characters(blacklist_characters="\0")))
def test_no_value_breaks_the_look_for_servers(text):
    for value in (text, f"x;tcp4://{text}:99999", f"tcp://[{text}]:1"):
        facts = probe_leftover(environ={"PMIX_SERVER_URI3": value}, timeout_s=0.01)
        assert facts["leftover.servers"].problem is None


def test_a_step_of_slurm(verdict):
    outer = {"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0"}
    assert verdict("slurm.step", probe_settings(environ=outer)).status is Status.WARN
    outer["SLURM_JOB_NUM_NODES"] = "2"
    assert verdict("slurm.step", probe_settings(environ=outer)).status is Status.FAIL
    rank = {**outer, "PMIX_RANK": "0"}
    assert verdict("slurm.step", probe_settings(environ=rank)).status is Status.PASS
