"""A machine with GPUs out of a scenario: a fake driver, and a root with the files it leaves."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from env.binding import BindingPlan, RankBinding
from env.checks.evidence import Evidence
from env.facts import Facts
from env.lock import load_lock
from env.probes.child import without_launcher
from env.probes.driver import probe_driver
from env.probes.gpu import VARIABLES, kernel_pci, probe_gpu
from env.probes.host import probe_host
from env.probes.launch import probe_launch
from env.probes.rdma import probe_rdma

HERE = Path(__file__).parent
LOCK = load_lock(HERE.parents[2] / "containers/cuda12/stack.lock.json")
LIBRARIES = {"nvml": ("libnvidia-ml.so.1",), "both": ("libnvidia-ml.so.1", "libcuda.so.1")}


@pytest.fixture(scope="session")
def driver_folders(tmp_path_factory):
    """The fake driver's libraries, compiled: ``{nvml: folder, both: folder}``."""
    folders = {}
    for name, libraries in LIBRARIES.items():
        folders[name] = tmp_path_factory.mktemp(name)
        for library in libraries:
            flags = ["-DCUDA"] if "cuda" in library else []
            source = HERE / "fake_driver.c"
            subprocess.run(["cc", *flags, "-Wall", "-Werror", "-shared", "-fPIC", "-o",
                            folders[name] / library, source], check=True)  # fmt: skip
    return folders


@pytest.fixture
def driver(driver_folders, tmp_path):
    """Write a scenario of the fake driver; returns an environment that meets it."""

    def environ(scenario, libraries="both", **more):
        path = tmp_path / f"driver-{len(list(tmp_path.glob('driver-*')))}.json"
        path.write_text(json.dumps(scenario))
        kept = {k: v for k, v in without_launcher(os.environ).items() if k not in VARIABLES}
        folder = {} if libraries == "none" else {"LD_LIBRARY_PATH": str(driver_folders[libraries])}
        return {**kept, **folder, "FAKE_DRIVER": str(path), **more}

    return environ


def expand(driver):
    """Return a fake driver's scenario with every device written out.

    ``devices`` is a list, their number, or what is changed of some of ``count``; ``each`` is
    what all of them have.
    """
    each, own = driver.get("each", {}), driver.get("devices", 0)
    if isinstance(own, int):
        own = [{}] * own
    if isinstance(own, dict):
        own = [own.get(str(n), {}) for n in range(driver["count"])]
    devices = [
        {
            "uuid": f"GPU-{n:08x}-0000-4000-8000-{n:012x}",
            "pci": f"00000000:{0x18 + 8 * n:02X}:00.0",
            "minor": n,
            **each,
            **mine,
        }
        for n, mine in enumerate(own)
    ]
    told = {key: value for key, value in driver.items() if key not in ("each", "count")}
    cuda = driver.get("cuda_devices", [device["uuid"] for device in devices])
    return {**told, "devices": devices, "cuda_devices": cuda}


def write_root(root, driver, scenario):
    """Write what a driver and the kernel leave in /proc, /sys and /dev, and its libraries."""
    release, library = driver["driver"], "usr/lib/x86_64-linux-gnu"
    files = {
        "proc/sys/kernel/hostname": scenario.get("host", "node1"),
        "proc/driver/nvidia/version": f"NVRM version: NVIDIA UNIX Kernel Module  {release}  x",
        "proc/modules": "nvidia_uvm 1 0 - Live\nnvidia 1 2 nvidia_uvm, Live\n",
        "proc/cmdline": "BOOT_IMAGE=/vmlinuz ro",
        "dev/nvidiactl": "", "dev/nvidia-uvm": "",
        f"{library}/libcuda.so.{release}": "", f"{library}/libnvidia-ml.so.{release}": "",
    }  # fmt: skip
    links = {
        "proc/self/ns/pid": "pid:[4026531836]",
        f"{library}/libcuda.so.1": f"libcuda.so.{release}",
        f"{library}/libnvidia-ml.so.1": f"libnvidia-ml.so.{release}",
    }
    for device in driver["devices"]:
        pci, minor = kernel_pci(device["pci"]), device["minor"]
        files |= {
            f"dev/nvidia{minor}": "",
            f"proc/driver/nvidia/gpus/{pci}/information": f"Device Minor: \t {minor}\n",
            f"sys/bus/pci/devices/{pci}/vendor": "0x10de\n",
            f"sys/bus/pci/devices/{pci}/class": "0x030200\n",
            f"sys/bus/pci/devices/{pci}/numa_node": f"{minor // 4}\n",
        }
        links[f"sys/bus/pci/devices/{pci}/driver"] = "/proc/driver/nvidia"
    for n in range(scenario.get("switches", 0)):
        files |= {f"sys/bus/pci/devices/0000:c{n}:00.0/{key}": value
                  for key, value in (("vendor", "0x10de"), ("class", "0x068000"))}  # fmt: skip
    files |= scenario.get("files", {})
    links |= scenario.get("links", {})
    gone = tuple(scenario.get("without", ()))
    for name, text in files.items():
        if not name.startswith(gone or ("\0",)) and text is not None:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
    for name, target in links.items():
        if not name.startswith(gone or ("\0",)) and target is not None:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).symlink_to(target)


def merge(base, changes):
    """Return JSON with changes laid over it, objects key by key."""
    if not (isinstance(base, dict) and isinstance(changes, dict)):
        return changes
    return {**base, **{key: merge(base.get(key), value) for key, value in changes.items()}}


def load_scenario(path):
    """Return a scenario's JSON, laid over that of the machine it names."""
    scenario = json.loads(path.read_text())
    if "machine" not in scenario:
        return scenario
    return merge(load_scenario(HERE / f"machines/{scenario['machine']}.json"), scenario)


def make_plan(ranks):
    pci = [f"0000:{0x18 + 8 * n:02x}:00.0" for n in range(ranks)]
    bindings = (RankBinding(n, n, "node1", (n,), n, 1, gpu_pci=pci[n]) for n in range(ranks))
    return BindingPlan(tuple(bindings), 1)


@pytest.fixture
def observe(driver, tmp_path):
    """Probe a scenario's machine, and each of its ranks, for real.

    Returns the scenario and the evidence.
    """

    def look(scenario, root):
        told = expand(scenario["driver"])
        write_root(root, told, scenario)
        environ = driver(told, scenario.get("libraries", "both"))
        extra = dict(scenario.get("environ", {}))
        paths = extra.pop("LD_LIBRARY_PATH", ""), environ.get("LD_LIBRARY_PATH")
        path = ":".join(filter(None, paths))
        environ |= extra | ({"LD_LIBRARY_PATH": path} if path else {})
        facts = Facts(probe_host(root, environ=environ)) | probe_gpu(root, environ=environ)
        facts |= probe_driver(root, environ=environ) | probe_launch(environ=environ)
        return facts | probe_rdma(root, environ=environ)

    def build(path):
        scenario, ranks, counts = load_scenario(path), {}, {}
        for rank, changes in enumerate(scenario.get("ranks", [])):
            host = changes.get("host", "node1")
            counts[host] = local = counts.get(host, -1) + 1
            launched = {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_LOCAL_RANK": str(local)}
            mine = merge(merge(scenario, changes), {"environ": launched})
            ranks[rank] = look(mine, tmp_path / f"rank{rank}")
        return scenario, Evidence(
            facts=look(scenario, tmp_path / "root"), ranks=ranks, stack_device="gpu",
            num_ranks=scenario.get("num_ranks", len(ranks) or 1),
            lock=LOCK, plan=make_plan(len(ranks)) if scenario.get("plan") else None,
        )  # fmt: skip

    return build
