"""Probes run side by side, and a broken one hides nothing but its own facts."""

import json
import os
import threading
from pathlib import Path

import pytest

from env.checks.evidence import Evidence
from env.checks.registry import known_checks, run_all
from env.facts import CannotTellError, Fact, Facts
from env.observe import run_probe, run_probes
from env.validate import PROBES


def good(root, environ):
    return {"good.key": Fact(str(root), "x")}


def broken(root, environ):
    return {"broken.key": Fact(environ["no such name"], "x")}


def broken_checks(facts):
    """Return what each check says that trips over facts, on a machine for CPUs or for GPUs."""
    results = [
        result
        for device in ("cpu", "gpu")
        for one in known_checks().values()
        for result in run_all(one, Evidence(facts, num_ranks=2, stack_device=device))
    ]
    return [f"{r.id}: {r.found}" for r in results if "the check itself broke" in r.found]


def test_a_broken_probe_says_where_and_hides_no_other():
    facts = run_probes({"broken": broken, "good": good}, root=Path("/r"), environ={})
    assert facts.value("good.key") == "/r"
    with pytest.raises(CannotTellError, match=r"KeyError: 'no such name' \(test_observe.py:\d+\)"):
        facts.value("broken.key")
    with pytest.raises(CannotTellError, match="was not observed"):
        facts.value("other.key")


def test_probes_run_side_by_side():
    met = threading.Barrier(2, timeout=20)

    def meet(root, environ):
        return {"x.at": Fact(met.wait() in (0, 1), "x")}

    facts = run_probes({"a": meet, "b": meet}, root=Path("/"), environ={})
    assert facts.value("x.at") is True


def test_without_threads_they_run_one_by_one(monkeypatch):
    def refused(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    facts = run_probes({"good": good, "broken": broken}, root=Path("/"), environ={})
    assert facts.value("good.key") == "/"


def test_a_probe_alone():
    assert run_probe("good", good, Path("/"), {})["good.key"].value == "/"


@pytest.mark.parametrize("name", sorted(set(PROBES) - {"frameworks"}))
def test_no_probe_breaks_on_an_empty_root_and_hostile_variables(name, tmp_path):
    hostile = "\x1b[31m\n" + "x" * 100_000 + "\udcff"
    environ = dict.fromkeys((
        "LD_LIBRARY_PATH", "LD_PRELOAD", "TMPDIR", "HOME", "PYTHONPATH", "CUDA_VISIBLE_DEVICES",
        "NCCL_CONF_FILE", "PMIX_SERVER_URI4", "XLA_FLAGS", "SLURM_JOB_ID", "NCCL_DEBUG", "PWD",
        "APPTAINER_TMPDIR", "OMPI_MCA_btl", "SLURM_SUBMIT_DIR", "KERAS_HOME", "OPAL_PREFIX",
    ), hostile)  # fmt: skip
    environ["PATH"] = os.environ["PATH"]
    facts = Facts(run_probe(name, PROBES[name], tmp_path, environ))
    assert f"{name}.probe" not in facts, facts[f"{name}.probe"]
    json.dumps({key: facts[key].value for key in facts})
    assert broken_checks(facts) == []


FILES = (
    "proc/self/status", "proc/self/limits", "proc/self/cgroup", "proc/self/mountinfo",
    "proc/meminfo", "proc/cpuinfo", "proc/modules", "proc/cmdline", "proc/driver/nvidia/version",
    "proc/sys/kernel/hostname", "proc/sys/kernel/random/boot_id",
    "proc/sys/user/max_user_namespaces", "proc/sys/kernel/yama/ptrace_scope",
    "proc/sys/kernel/unprivileged_userns_clone", "etc/os-release", "etc/ld.so.cache",
    "etc/ld.so.preload", "etc/nccl.conf", "home/u/.nccl.conf", "home/u/.openmpi/mca-params.conf",
    "home/u/.keras/keras.json", "home/u/.openmpi/components",
    "etc/openmpi/openmpi-mca-params.conf", "etc/libibverbs.d", "dev/infiniband", "dev/shm",
    "sys/class/infiniband", "sys/devices/system/node/node0/cpulist",
    "sys/devices/system/cpu/online", "sys/fs/cgroup/cpu.max", "sys/fs/cgroup/memory.max",
    "sys/fs/cgroup/memory.events", "sys/fs/cgroup/pids.max", "sys/kernel/mm/memory_peers",
    ".singularity.d/Singularity", ".singularity.d/libs", "usr/lib64", "sys/bus/pci/devices",
    "sys/class/net",
)  # fmt: skip
MAKERS = {
    "loops of links": lambda path: path.symlink_to(path),
    "folders": lambda path: path.mkdir(),
    "bytes that are no text": lambda path: path.write_bytes(b"\xff\x00\x1b[2J\n:::\n= =\n" * 99),
    "a line of a megabyte": lambda path: path.write_bytes(b"9" * 2**20),
    "nothing in them": lambda path: path.touch(),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_no_probe_breaks_on_hostile_files(kind, tmp_path):
    for name in FILES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        MAKERS[kind](path)
    environ = {"PATH": os.environ["PATH"], "HOME": "/home/u"}
    probes = {name: probe for name, probe in PROBES.items() if name != "frameworks"}
    facts = run_probes(probes, root=tmp_path, environ=environ)
    assert [str(facts[key]) for key in facts if key.endswith(".probe")] == []
    json.dumps({key: facts[key].value for key in facts})
    assert broken_checks(facts) == []
