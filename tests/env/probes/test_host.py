"""The host is read from files under a root prefix; limits for real with ulimit."""

import contextlib
import json
import os
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from env.facts import Facts
from env.probes.host import parse_priority, probe_host
from env.result import Status

FILES = {
    "proc/sys/kernel/hostname": "node7\n",
    "proc/sys/kernel/random/boot_id": "b-1\n",
    "etc/os-release": 'ID=debian\nVERSION_ID="12"\nNAME="Debian"\n',
    "proc/self/status": "Name:\tpython\nUid:\t1000\t1000\t1000\t1000\nCpus_allowed_list:\t0-1,4\n",
    "proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu avx avx2 fma\n\nprocessor\t: 1\nflags : x\n",
    "proc/meminfo": "MemTotal:       33554432 kB\nMemAvailable:   16777216 kB\n",
    "proc/self/limits": "Limit            Soft Limit   Hard Limit   Units\n"
    "Max processes    unlimited    unlimited    processes\n"
    "Max open files   1024         4096         files\n",
    "proc/self/cgroup": "0::/job\n",
    "proc/self/stat": f"7 (a) (b) R {' '.join(['0'] * 15)} 5 {' '.join(['0'] * 21)} 3 0 0\n",
    "dev/shm/x": "",
    "sys/devices/system/node/node0/cpulist": "0-1\n",
    "sys/devices/system/node/node1/cpulist": "4-5\n",
}


@pytest.fixture
def host(tmp_path):
    """Probe a made-up root folder: the files above, some changed, added or absent (None)."""

    def probe(changes=None, shm=(8 * 2**30, 8 * 2**30), **environ):
        for name, text in {**FILES, **(changes or {})}.items():
            if text is not None:
                (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / name).write_text(text)
        size = SimpleNamespace(f_frsize=4096, f_blocks=shm[0] // 4096, f_bavail=shm[1] // 4096)
        return Facts(probe_host(tmp_path, environ=environ, statvfs=lambda path: size))

    return probe


def test_everything_is_read_with_its_origin(host, tmp_path):
    facts = host()
    assert {key: facts.value(f"host.{key}") for key in ("name", "boot_id", "uid", "os")} == {
        "name": "node7", "boot_id": "b-1", "uid": 1000,
        "os": {"id": "debian", "version_id": "12"},
    }  # fmt: skip
    assert facts.value("host.affinity") == [0, 1, 4]
    assert facts.value("host.cpu_flags") == ["avx", "avx2", "fma", "fpu"]
    assert facts.value("host.memory_available") == 16 * 2**30
    assert facts.value("host.numa_nodes") == {"0": [0, 1], "1": [4, 5]}
    assert facts.value("host.open_files") == 1024
    assert facts.value("host.processes") is None
    assert facts["host.affinity"].origin == str(tmp_path / "proc/self/status")


def test_an_absent_file_is_a_fact_without_value(host):
    fact = host({"proc/sys/kernel/hostname": None})["host.name"]
    assert (fact.value, fact.problem) == (None, "No such file or directory")


def test_a_garbled_file_is_not_believed(host):
    facts = host({"proc/meminfo": "MemAvailable: lots\n", "proc/self/status": "Name: x\n"})
    assert "not understood" in facts["host.memory_available"].problem
    assert "not understood" in facts["host.affinity"].problem


def test_this_very_host_can_be_read():
    facts = Facts(probe_host())
    assert set(facts.value("host.affinity")) == os.sched_getaffinity(0)
    assert facts.value("host.uid") == os.getuid()
    assert facts.value("host.name") == os.uname().nodename
    assert [key for key in facts if facts[key].problem] == []


@pytest.mark.parametrize(
    ("mark", "environ", "kind"),
    [(".singularity.d/x", {}, "apptainer"), (".dockerenv", {}, "docker"),
     ("run/.containerenv", {}, "podman"), ("tmp/x", {"APPTAINER_CONTAINER": "i"}, "apptainer"),
     ("tmp/x", {}, None)],
)  # fmt: skip
def test_containers(host, mark, environ, kind):
    assert host({mark: ""}, **environ).value("host.container") == kind


def test_a_cpu_without_avx(host, verdict):
    result = verdict("cpu.instructions", host({"proc/cpuinfo": "flags : fpu sse4_2\n"}))
    assert (result.status, result.found) == (Status.FAIL, "no avx among the CPU's flags")
    assert verdict("cpu.instructions", host()).status is Status.PASS
    assert verdict("cpu.instructions", host({"proc/cpuinfo": "x"})).status is Status.UNKNOWN


@pytest.mark.parametrize(
    ("changes", "quota"),
    [
        ({"sys/fs/cgroup/job/cpu.max": "200000 100000\n"}, 2.0),
        ({"sys/fs/cgroup/job/cpu.max": "max 100000\n"}, None),
        ({"sys/fs/cgroup/job/cpu.max": "max 1000", "sys/fs/cgroup/cpu.max": "1500 1000"}, 1.5),
        ({"proc/self/cgroup": "3:cpu,cpuacct:/job\n0::/\n",
          "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "50000\n",
          "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000\n"}, 0.5),
        ({"proc/self/cgroup": "3:cpu:/job\n", "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "-1\n",
          "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000\n"}, None),
        # Inside a container the named group is not visible, its limits lie at the top.
        ({"sys/fs/cgroup/cpu.max": "100000 100000\n"}, 1.0),
    ],
)  # fmt: skip
def test_the_tightest_quota_counts_in_both_versions(host, verdict, changes, quota):
    facts = host(changes)
    assert facts.value("host.cpu_quota") == quota
    # The mask has three cores.
    expected = Status.PASS if quota is None else Status.WARN
    assert verdict("cpu.quota", facts).status is expected


def test_a_quota_that_cannot_be_read(host, verdict):
    facts = host({"proc/self/cgroup": None})
    assert verdict("cpu.quota", facts).status is Status.UNKNOWN
    facts = host({"proc/self/cgroup": "0::/job\n", "sys/fs/cgroup/job/cpu.max": "nonsense\n"})
    assert verdict("cpu.quota", facts).status is Status.UNKNOWN


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, Status.PASS),  # 16 GiB for 4 ranks
        # 6 GiB limit, 3 used of which 1 can be dropped: 4 left, 1 a rank.
        ({"sys/fs/cgroup/job/memory.max": str(6 * 2**30),
          "sys/fs/cgroup/job/memory.current": str(3 * 2**30),
          "sys/fs/cgroup/job/memory.stat": f"anon 1\ninactive_file {2**30}\n"}, Status.WARN),
        ({"sys/fs/cgroup/memory.max": str(3 * 2**30)}, Status.FAIL),
        ({"sys/fs/cgroup/job/memory.max": str(64 * 2**30),
          "sys/fs/cgroup/job/memory.high": str(3 * 2**30)}, Status.FAIL),
        ({"proc/self/cgroup": "4:memory:/job\n",
          "sys/fs/cgroup/memory/job/memory.limit_in_bytes": str(3 * 2**30),
          "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712"}, Status.FAIL),
        ({"proc/meminfo": "MemAvailable: 2097152 kB\n"}, Status.FAIL),
        ({"proc/meminfo": "MemTotal: 1 kB\n"}, Status.UNKNOWN),
    ],
)  # fmt: skip
def test_memory_for_four_ranks(host, verdict, changes, status):
    assert verdict("memory.ranks", host(changes), num_ranks=4).status is status


@pytest.mark.parametrize(
    ("environ", "status"),
    [({"SLURM_MEM_PER_NODE": "2048"}, Status.FAIL), ({"SLURM_MEM_PER_NODE": "0"}, Status.PASS),
     ({"SLURM_MEM_PER_CPU": "3000", "SLURM_CPUS_ON_NODE": "2"}, Status.WARN),
     ({"SLURM_MEM_PER_CPU": "3000", "SLURM_CPUS_ON_NODE": "many"}, Status.PASS),
     ({"SLURM_MEM_PER_GPU": "1000", "SLURM_GPUS_ON_NODE": "2"}, Status.FAIL)],
)  # fmt: skip
def test_memory_that_slurm_gave_four_ranks(host, verdict, environ, status):
    assert verdict("memory.ranks", host(**environ), num_ranks=4).status is status


@pytest.mark.parametrize(
    "files",
    [{"sys/fs/cgroup/job/memory.events": "low 0\noom 2\noom_kill 2\n"},
     {"proc/self/cgroup": "4:memory:/job\n",
      "sys/fs/cgroup/memory/job/memory.oom_control": "under_oom 0\noom_kill 2\n"}],
)  # fmt: skip
def test_processes_that_were_killed_for_memory(host, verdict, files):
    result = verdict("memory.ranks", host(files))
    assert (result.status, "2 killed for memory" in result.found) == (Status.WARN, True)


@pytest.mark.parametrize(
    ("shm", "status"),
    [((64 * 2**20, 64 * 2**20), Status.FAIL), ((2**29, 2**29), Status.WARN),
     ((2**33, 2**33), Status.PASS), ((2**33, 2**20), Status.FAIL)],
)  # fmt: skip
def test_shared_memory(host, verdict, shm, status):
    result = verdict("memory.shm", host(shm=shm), num_ranks=2)
    assert result.status is status
    assert result.where.endswith("dev/shm")


def test_no_shared_memory_file_system(tmp_path, verdict):
    result = verdict("memory.shm", probe_host(tmp_path, environ={}), num_ranks=2)
    assert result.status is Status.UNKNOWN
    assert "No such file or directory" in result.found


@pytest.mark.parametrize(
    ("left", "status"), [(90, Status.PASS), (50, Status.WARN), (40, Status.FAIL)]
)
def test_a_limit_on_processes(host, verdict, left, status):
    # One rank on three cores: 32 + 4 x 3 = 44 threads.
    limits = {
        "sys/fs/cgroup/job/pids.max": f"{left + 5}\n",
        "sys/fs/cgroup/job/pids.current": "5\n",
    }
    assert verdict("limits.processes", host(limits)).status is status


@pytest.mark.parametrize(
    ("changes", "status"),
    [({"proc/sys/kernel/pid_max": "32768\n"}, Status.PASS),
     ({"proc/sys/kernel/threads-max": "20\n"}, Status.FAIL),
     ({"proc/sys/vm/overcommit_memory": "2\n"}, Status.WARN),
     ({"proc/sys/fs/file-nr": "9000\t0\t9100\n"}, Status.FAIL),
     ({"proc/sys/net/ipv4/ip_local_port_range": "61000\t61100\n"}, Status.WARN),
     ({"proc/sys/vm/max_map_count": "much\n"}, Status.UNKNOWN), ({}, Status.UNKNOWN)],
)  # fmt: skip
def test_limits_of_the_whole_system(host, verdict, changes, status):
    assert verdict("limits.system", host(changes)).status is status


def test_ulimit_for_real(run_env):
    shell = ("bash", "-c", 'ulimit -n 255; exec "$@"', "bash")
    done = run_env("--only", "limits.files", "--json", "-", prefix=shell)
    (result,) = json.loads(done.stdout)["results"]
    assert (done.returncode, result["status"], result["found"]) == (1, "FAIL", "255")


def test_open_files_from_the_probe(host, verdict):
    assert verdict("limits.files", host()).status is Status.PASS
    assert verdict("limits.files", host({"proc/self/limits": "x\n"})).status is Status.UNKNOWN


def test_priority(host, verdict):
    facts = host()  # fields 19 and 41 of proc(5): 5 and 3
    assert facts.value("host.priority") == {"nice": 5, "policy": "batch"}
    assert verdict("cpu.priority", facts).status is Status.INFO
    assert verdict("cpu.priority", host({"proc/self/stat": "7 (x"})).status is Status.UNKNOWN


@given(st.text())
def test_no_text_breaks_the_parser_of_priorities(text):
    with contextlib.suppress(ValueError, IndexError):
        assert set(parse_priority(text)) == {"nice", "policy"}


@pytest.mark.parametrize(
    ("prefix", "status", "found"),
    [(("nice", "-n", "7"), "INFO", "policy other, nice 7"),
     (("chrt", "-i", "0"), "WARN", "policy idle, nice 0"), ((), "PASS", "policy other, nice 0")],
)  # fmt: skip
def test_priority_for_real(run_env, prefix, status, found):
    done = run_env("--only", "cpu.priority", "--json", "-", prefix=prefix)
    (result,) = json.loads(done.stdout)["results"]
    assert (done.returncode, result["status"], result["found"]) == (0, status, found)


def test_root_is_only_mentioned(host, verdict):
    root = host({"proc/self/status": FILES["proc/self/status"].replace("1000", "0")})
    assert verdict("host.root", root).status is Status.INFO
    assert verdict("host.root", host()).status is Status.PASS
