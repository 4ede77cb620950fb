"""GPUs through the real pynvml and our probe, over a driver library compiled here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pynvml
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from env.facts import Fact, Facts
from env.probes.gpu import ASK, kernel_pci, probe_gpu
from env.probes.launch import probe_launch
from env.probes.processes import probe_processes
from env.result import Status

TWO = {
    "driver": "550.54.15",
    "cuda": 12040,
    "devices": [
        {"uuid": f"GPU-0000000{n}", "name": "NVIDIA Fake", "pci": f"00000000:0{n}:00.0",
         "compute_capability": [9, 0], "memory": {"total": 80 << 30, "used": 0, "reserved": 0}}
        for n in range(2)
    ],
}  # fmt: skip


def with_errors(index, **errors):
    devices = [dict(device) for device in TWO["devices"]]
    devices[index]["errors"] = errors
    return {**TWO, "devices": devices}


def probe(environ, root=Path("/no/such/root"), **settings):
    return Facts(probe_gpu(root, environ=environ, **settings))


def test_two_gpus_are_described(driver, tmp_path):
    node = tmp_path / "sys/bus/pci/devices/0000:01:00.0/numa_node"
    node.parent.mkdir(parents=True)
    node.write_text("1\n")
    scenario = {**TWO, "p2p": [[0, 0], [3, 0]], "ancestor": 20}
    facts = probe(driver(scenario), root=tmp_path)
    seen = facts.value("gpu.nvml")
    assert (seen["state"], seen["driver"], seen["cuda_version"]) == ("ok", "550.54.15", 12040)
    assert seen["peers"] == {"ancestor": [[None, 20], [20, None]], "p2p": [[None, 0], [3, None]]}
    assert seen["devices"][1] == {
        "index": 1, "uuid": "GPU-00000001", "name": "NVIDIA Fake", "pci": "00000000:01:00.0",
        "compute_capability": "9.0", "numa_node": 1, "processes": [], "graphics": [],
        "memory": {"total": 80 << 30, "used": 0, "reserved": 0}, "nvlinks": [],
    }  # fmt: skip


def test_every_value_that_the_driver_knows(driver):
    device = {
        "uuid": "GPU-a", "minor": 3, "compute_mode": 3, "mig_mode": [1, 0], "ecc_mode": [1, 0],
        "mig_devices": [{"uuid": "MIG-b", "gpu_instance": 7, "compute_instance": 1,
                         "memory": {"total": 9, "used": 4, "reserved": 1}}],
        "ecc_errors": [[1, 2], [3, 4]], "retired_pending": 1, "clock_reasons": 72,
        "remapped_rows": {"corrected": 1, "uncorrected": 2, "pending": 1, "failure": 1},
        "power_limit_mw": 300000, "power_default_mw": 350000, "clock_mhz": 1410,
        "clock_default_mhz": 1590, "pcie_generation": 1,
        "pcie_generation_max": 4, "pcie_width": 8, "pcie_width_max": 16,
        "nvlinks": [1, 0], "fabric": {"state": 3, "status": 999, "health": 2}, "persistence": 1,
        "processes": [{"pid": 11, "memory": 5}, {"pid": 12}],
        "graphics": [{"pid": 13, "memory": 6}],
    }  # fmt: skip
    seen = probe(driver({"driver": "1.1", "devices": [device]})).value("gpu.nvml")["devices"][0]
    part = {"uuid": "MIG-b", "instance": "7/1", "processes": [],
            "memory": {"total": 9, "used": 4, "reserved": 1}}  # fmt: skip
    told = {"ecc_uncorrected": 3, "mig_devices": [part],
            "processes": [{"pid": 11, "memory": 5}, {"pid": 12, "memory": None}]}  # fmt: skip
    kept = {key: value for key, value in device.items() if key != "ecc_errors"}
    assert seen == {"index": 0, "numa_node": None, **kept, **told}


def test_older_names_of_calls(driver):
    """A driver before 535 has no event reasons, one before 510 no second form of memory."""
    errors = {"nvmlDeviceGetCurrentClocksEventReasons": 13, "nvmlDeviceGetMemoryInfo_v2": 13,
              "nvmlDeviceGetGpuFabricInfoV": 13}  # fmt: skip
    device = {"uuid": "GPU-a", "clock_reasons": 4, "errors": errors,
              "memory": {"total": 100, "used": 10, "reserved": 5},
              "fabric": {"state": 1, "status": 0, "health": 7}}  # fmt: skip
    seen = probe(driver({"driver": "1.1", "devices": [device]})).value("gpu.nvml")["devices"][0]
    assert (seen["clock_reasons"], seen["memory"]) == (4, {"total": 100, "used": 15})
    assert seen["fabric"] == {"state": 1, "status": 0}


def test_a_refusal_is_kept_and_what_is_not_supported_is_not(driver):
    scenario = with_errors(0, nvmlDeviceGetMemoryInfo_v2=4, nvmlDeviceGetComputeMode=3)
    device = probe(driver(scenario)).value("gpu.nvml")["devices"][0]
    assert device["problems"] == {"memory": {"code": 4, "text": "Insufficient Permissions"}}


def test_gpus_where_they_are_wanted(driver, verdict):
    shown = {**TWO, "cuda_devices": ["GPU-00000000", "GPU-00000001"]}
    result = verdict("gpu.present", probe(driver(shown)), stack_device="gpu")
    assert (result.status, result.found) == (
        Status.PASS, "2 GPUs: NVIDIA Fake, driver 550.54.15",
    )  # fmt: skip
    assert verdict("gpu.present", probe(driver(shown))).status is Status.INFO


def test_no_driver_is_no_error(driver, verdict):
    facts = probe(driver({}, libraries="none"))
    assert facts.value("gpu.nvml") == {"state": "absent"}
    assert facts.value("gpu.cuda")["state"] == "absent"
    assert verdict("gpu.present", facts).status is Status.PASS
    # A prolog knows no stack, and drains no node without GPUs.
    assert verdict("gpu.present", facts, stack_device=None).status is Status.PASS


def test_a_library_that_cannot_be_loaded_says_why(driver, driver_folders, tmp_path, verdict):
    # The fake asks for no such release of the C library; a byte or two of it make it ask.
    for library in ("libnvidia-ml.so.1", "libcuda.so.1"):
        data = (driver_folders["both"] / library).read_bytes()
        assert b"GLIBC_2.2.5" in data
        (tmp_path / library).write_bytes(data.replace(b"GLIBC_2.2.5", b"GLIBC_2.9.9"))
    facts = probe(driver(TWO, libraries="none", LD_LIBRARY_PATH=str(tmp_path)))
    assert "GLIBC_2.9.9" in facts.value("gpu.nvml")["error"]
    facts |= {"driver.kernel": Fact("550.54.15", "x")}
    result = verdict("driver.start", facts, stack_device="gpu")
    assert (result.status, "GLIBC_2.9.9' not found" in result.found) == (Status.FAIL, True)


def test_a_driver_that_crashes_at_its_start(driver, verdict):
    facts = probe(driver({"errors": {"nvmlInitWithFlags": "crash"}}))
    result = verdict("gpu.present", facts, stack_device="gpu")
    assert (result.status, "SIGSEGV" in result.found) == (Status.UNKNOWN, True)
    # A node for CPU runs is none the worse.
    assert verdict("gpu.present", facts).status is Status.INFO


def test_calls_that_crash_or_hang_hide_nothing_else(driver):
    scenario = with_errors(0, nvmlDeviceGetName="crash", nvmlDeviceGetMinorNumber="hang")
    seen = probe(driver(scenario), call_limit_s=0.3).value("gpu.nvml")
    first, second = seen["devices"]
    assert first["problems"] == {
        "name": {"code": None, "text": "asking kills the process: died by SIGSEGV"},
        "minor": {"code": None, "text": "asking kills the process: died by SIGALRM"},
    }
    assert (first["compute_capability"], second["name"]) == ("9.0", "NVIDIA Fake")


def test_a_driver_that_dies_too_often_is_left_alone(driver):
    calls = ("Name", "MinorNumber", "ComputeMode", "PersistenceMode", "MigMode")
    scenario = with_errors(1, **{f"nvmlDeviceGet{call}": "crash" for call in calls})
    seen = probe(driver(scenario)).value("gpu.nvml")
    assert seen["state"] == "ok"
    assert "SIGSEGV" in seen["incomplete"]
    assert seen["devices"][0]["name"] == "NVIDIA Fake"
    assert "kills the process" in seen["devices"][1]["error"]


def test_a_start_that_crashes_leaves_what_nvml_told(driver, verdict):
    facts = probe(driver({**TWO, "cuInit": 0, "errors": {"cuInit": "crash"}}))
    assert len(facts.value("gpu.nvml")["devices"]) == 2
    facts |= {"driver.kernel": Fact("550.54.15", "x")}
    result = verdict("driver.start", facts, stack_device="gpu")
    assert (result.status, "cuInit: asking kills" in result.found) == (Status.FAIL, True)


def test_what_a_library_prints_is_no_answer(driver, tmp_path):
    noise = tmp_path / "python"
    lines = [
        "garbage",
        "[1, 2]",
        '{"nvml": {"state": "ok"}}',
        '{"cuda": {"state": "absent"}}',
        "{}",
    ]
    noise.write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines))
    noise.chmod(0o755)
    facts = probe(driver({}), python=str(noise))
    assert facts.value("gpu.nvml") == {"state": "ok", "devices": []}


def test_a_mask_that_hides_all(driver, verdict):
    facts = probe(driver({**TWO, "cuInit": 100}, CUDA_VISIBLE_DEVICES=""))
    result = verdict("gpu.present", facts, stack_device="gpu")
    assert (result.status, "none visible" in result.found) == (Status.FAIL, True)


@pytest.mark.parametrize(
    ("masks", "status"),
    [((None, None), Status.PASS), (("0", "1"), Status.PASS), (("1,0", "1,0"), Status.PASS),
     (("0", "0"), Status.FAIL), (("GPU-00000001", "1"), Status.FAIL), (("", ""), Status.FAIL)],
)  # fmt: skip
def test_two_ranks_on_two_gpus(driver, verdict, masks, status):
    ranks = {}
    for rank, mask in enumerate(masks):
        more = {} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}
        environ = driver(TWO, "nvml", OMPI_COMM_WORLD_LOCAL_RANK=str(rank), **more)
        host = {"host.name": Fact("node1", "here")}
        ranks[rank] = probe(environ) | probe_launch(environ=environ) | host
    result = verdict("gpu.one-per-rank", ranks=ranks, stack_device="gpu")
    assert result.status is status, result
    assert verdict("gpu.isolation", ranks=ranks, stack_device="gpu").status is Status.PASS


def test_files_that_may_be_opened(driver, tmp_path):
    (tmp_path / "dev").mkdir(mode=0o755)
    for name, mode in (("nvidia0", 0o666), ("nvidia1", 0o600), ("nvidiactl", 0o666)):
        (tmp_path / "dev" / name).touch()
        (tmp_path / "dev" / name).chmod(mode)
    (tmp_path / "dev/nvidia-caps").mkdir()
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    code = (
        "import json, sys; from pathlib import Path; from env.probes.gpu import probe_gpu; "
        "f = probe_gpu(Path(sys.argv[1])); print(json.dumps(f['gpu.files'].value))"
    )
    user = {"user": 65534} if os.geteuid() == 0 else {}
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True,
                          cwd=Path(__file__).parents[3], **user)  # fmt: skip
    files = json.loads(done.stdout)
    assert files == {"nvidia0": True, "nvidia1": not user, "nvidiactl": True}


def test_an_address_as_the_kernel_writes_it():
    assert kernel_pci("00000000:1B:00.0") == "0000:1b:00.0"
    assert kernel_pci("00010000:1B:00.0") == "10000:1b:00.0"
    assert kernel_pci("nonsense") == "nonsense"


@pytest.fixture
def proc(tmp_path):
    """A /proc of the host's own with this process in it; returns a writer of processes."""
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    (tmp_path / "proc/self/ns/pid").symlink_to("pid:[4026531836]")

    def write(pid, parent, name="python3", state="S"):
        folder = tmp_path / f"proc/{pid}"
        folder.mkdir()
        (folder / "status").write_text(f"Name:\t{name}\nState:\t{state} (x)\nUid:\t7\t7\t7\t7\n")
        (folder / "stat").write_text(f"{pid} (a) b (c) {state} {parent} 0")
        return tmp_path

    return write


def test_whose_processes_they_are(proc):
    root = proc(os.getpid(), 50)
    proc(50, 1, "mpirun")
    proc(51, 50)
    proc(52, 1, "evil\x1b[2J", state="Z")
    proc(53, os.getpid())
    pids = [51, 52, 53, 99]
    fact = probe_processes(root, pids=pids, environ={}).value
    assert fact["attributable"] is None
    assert fact["known"]["52"] == {"name": "evil?[2J", "state": "Z", "uid": 7, "ours": False}
    assert {pid: one["ours"] for pid, one in fact["known"].items()} == {
        "51": False, "52": False, "53": True,
    }  # fmt: skip
    # Under a launcher the other ranks are ours as well.
    fact = probe_processes(root, pids=pids, environ={"OMPI_COMM_WORLD_RANK": "0"}).value
    assert fact["known"]["51"]["ours"]
    assert not fact["known"]["52"]["ours"]


def test_processes_that_nobody_can_name(proc, tmp_path):
    root = proc(60, 1)
    (root / "proc/self/ns/pid").unlink()
    fact = probe_processes(root, pids=[60], environ={}).value
    assert "not known" in fact["attributable"]
    (root / "proc/self/ns/pid").symlink_to("pid:[4026532000]")
    fact = probe_processes(root, pids=[60], environ={}).value
    assert ("namespace of its own" in fact["attributable"], fact["known"]) == (True, {})


def test_a_chain_of_parents_that_bites_its_tail(proc):
    root = proc(70, 71)
    proc(71, 70)
    fact = probe_processes(root, pids=[70, 71], environ={}).value
    assert [one["ours"] for one in fact["known"].values()] == [False, False]


def test_which_gpus_a_process_holds(driver):
    devices = [
        {"uuid": "GPU-a", "processes": [{"pid": 41, "memory": 7}, {"pid": 42, "memory": 9}]},
        {"uuid": "GPU-b", "processes": [{"pid": 42, "memory": 5}]},
        {"uuid": "GPU-c", "errors": {"*": 15}},
    ]
    environ = driver({"driver": "1.1", "devices": devices})

    def ask(pid, environ=environ):
        argv = [sys.executable, "-P", str(ASK), "--holder", str(pid)]
        done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=True)
        return json.loads(done.stdout.splitlines()[-1])

    assert ask(42)["gpus"] == [{"uuid": "GPU-a", "memory": 9}, {"uuid": "GPU-b", "memory": 5}]
    assert ask(41) == {"gpus": [{"uuid": "GPU-a", "memory": 7}], "listed": 3}
    assert ask(43) == {"gpus": [], "listed": 3}
    assert ask(43, driver({}, libraries="none")) == {"gpus": None}


def test_a_rank_that_took_two_gpus_is_told_after_it_computed(driver, verdict):
    def rank(pid):
        devices = [
            {"uuid": "GPU-a", "processes": [{"pid": 41, "memory": 7 << 20}]},
            {"uuid": "GPU-b", "processes": [{"pid": 42, "memory": 9}, {"pid": 41, "memory": 0}]},
        ]
        argv = [sys.executable, "-P", str(ASK), "--holder", str(pid)]
        environ = driver({"driver": "1.1", "devices": devices})
        done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=True)
        told = Fact(json.loads(done.stdout.splitlines()[-1]), "NVML")
        return Facts({"rank.contexts": told, "host.name": Fact("node1", "x")})

    result = verdict("gpu.contexts", ranks={0: rank(41), 1: rank(42)}, stack_device="gpu")
    assert (result.status, result.ranks) == (Status.WARN, (0,))
    assert "GPU-a (7 MiB), GPU-b (0 MiB)" in result.found


def test_only_the_first_rank_of_a_host_asks_for_all(driver):
    scenario = {**TWO, "p2p": 0, "ancestor": 10}
    full = probe(driver(scenario, OMPI_COMM_WORLD_LOCAL_RANK="0")).value("gpu.nvml")
    brief = probe(driver(scenario, OMPI_COMM_WORLD_LOCAL_RANK="1")).value("gpu.nvml")
    assert ("peers" in full, "peers" in brief) == (True, False)
    assert "memory" in full["devices"][0]
    assert brief["devices"][1] == {
        "index": 1, "uuid": "GPU-00000001", "name": "NVIDIA Fake", "pci": "00000000:01:00.0",
        "compute_capability": "9.0", "nvlinks": [], "numa_node": None,
    }  # fmt: skip
    assert brief["driver"] == "550.54.15"


LINES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [b'{"ask": "0 name"}', b'{"ask": 7}', b'{"device": {"index": 0}}', b'{"device": 3}',
         b'{"device": {}}', b'{"nvml": {"state": "ok"}}', b'{"nvml": []}', b'{"cuda": null}',
         b'{"nvml": {}}', b'{"driver": "1"}', b"{}", b"[[]]", b"nul", b'{"devices": 1}',
         b'{"deaths": []}', b'{"cuda": {"state": "ok"}}', b'{"device": {"index": "x"}}']
    ),
)  # fmt: skip


@settings(
    max_examples=30,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(lines=st.lists(LINES, max_size=6), code=st.sampled_from([0, 1]))
def test_whatever_a_driver_makes_the_child_say(driver, tmp_path, lines, code):
    told = tmp_path / "told"
    told.write_bytes(b"\n".join(lines) + b"\n")
    child = tmp_path / "child"
    child.write_text(f"#!/bin/sh\ncat {told}\nexit {code}\n")
    child.chmod(0o755)
    facts = probe({**driver({}), "PATH": "/bin:/usr/bin"}, python=str(child))
    nvml, cuda = facts["gpu.nvml"], facts["gpu.cuda"]
    assert nvml.problem or isinstance(nvml.value, dict)
    assert cuda.problem or isinstance(cuda.value, dict)
    json.dumps([nvml.value, cuda.value])


def test_an_older_binding_knows_fewer_calls(driver, tmp_path):
    (tmp_path / "pynvml.py").write_text(
        "import importlib.util as u, sys\n"
        f"spec = u.spec_from_file_location('real', {pynvml.__file__!r})\n"
        "real = sys.modules['real'] = u.module_from_spec(spec)\n"
        "spec.loader.exec_module(real)\n"
        "globals().update({k: v for k, v in vars(real).items() if k not in {\n"
        "    'nvmlDeviceGetMinorNumber', 'nvmlMemory_v2', 'c_nvmlGpuFabricInfoV_t',\n"
        "    'nvmlDeviceGetP2PStatus', 'nvmlDeviceGetCurrentClocksEventReasons'}})\n"
    )
    devices = [{**device, "minor": 4, "clock_reasons": 1} for device in TWO["devices"]]
    environ = driver({**TWO, "devices": devices}, PYTHONPATH=str(tmp_path))
    seen = probe(environ).value("gpu.nvml")
    assert seen["state"] == "ok"
    assert "incomplete" not in seen
    assert [device["compute_capability"] for device in seen["devices"]] == ["9.0", "9.0"]
    assert not {"minor", "error", "problems"} & set(seen["devices"][0])
    assert seen["devices"][0]["memory"] == {"total": 80 << 30, "used": 0}
    assert seen["devices"][0]["clock_reasons"] == 1


def test_a_hanging_call_is_ended_where_alarms_are_ignored(driver):
    scenario = with_errors(0, nvmlDeviceGetName="hang")
    code = (
        "import signal; from env.probes.gpu import probe_gpu; "
        "signal.signal(signal.SIGALRM, signal.SIG_IGN); "
        "print(probe_gpu(call_limit_s=0.3)['gpu.nvml'].value['devices'][0]['problems'])"
    )
    environ = driver(scenario, PYTHONPATH=str(Path(__file__).parents[3]))
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True,
                          check=True, timeout=60)  # fmt: skip
    assert "SIGALRM" in done.stdout
