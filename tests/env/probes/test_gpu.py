"""GPUs through the real pynvml and our probe, over a driver library compiled here."""

import os
import subprocess
from pathlib import Path

import pytest

from env.facts import Fact, Facts
from env.probes.gpu import probe_gpu
from env.probes.launch import probe_launch
from env.result import Status


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """A folder with the fake libnvidia-ml.so.1; returns an environment for a scenario."""
    folder = tmp_path_factory.mktemp("driver")
    source = Path(__file__).with_name("fake_nvml.c")
    target = folder / "libnvidia-ml.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", target, source], check=True)
    return lambda scenario, **more: {
        **os.environ, "LD_LIBRARY_PATH": str(folder), "FAKE_NVML": scenario, **more,
    }  # fmt: skip


def probe(environ, root=Path("/no/such/root")):
    return Facts(probe_gpu(root, environ=environ))


def test_two_gpus_are_described(driver):
    facts = probe(driver("count=2"))
    seen = facts.value("gpu.nvml")
    assert (seen["state"], seen["driver"], len(seen["devices"])) == ("ok", "550.54.15", 2)
    assert seen["devices"][1] == {
        "index": 1, "uuid": "GPU-00000001-fake", "name": "NVIDIA Fake 80GB",
        "pci": "00000000:02:00.0", "memory_bytes": 80 * 2**30,
    }  # fmt: skip


def test_gpus_where_they_are_wanted(driver, verdict):
    result = verdict("gpu.present", probe(driver("count=2")), stack_device="gpu")
    assert (result.status, result.found) == (
        Status.PASS, "2 GPUs: NVIDIA Fake 80GB, driver 550.54.15",
    )  # fmt: skip
    assert verdict("gpu.present", probe(driver("count=2"))).status is Status.INFO


def test_no_driver_is_no_error(driver, verdict):
    # pynvml raises the same error where the library cannot be found at all.
    facts = probe(driver("init=12"))
    assert facts.value("gpu.nvml") == {"state": "absent"}
    assert verdict("gpu.present", facts).status is Status.PASS
    assert verdict("gpu.present", facts, stack_device="gpu").status is Status.FAIL


def test_a_driver_that_refuses(driver, verdict):
    facts = probe(driver("init=18"))
    assert facts.value("gpu.nvml")["state"] == "error"
    result = verdict("gpu.present", facts, stack_device="gpu")
    assert result.status is Status.FAIL
    assert "version mismatch. (NVML error 18)" in result.found
    assert "reload" in result.fix


def test_a_driver_that_crashes(driver, verdict):
    result = verdict("gpu.present", probe(driver("crash")), stack_device="gpu")
    assert (result.status, "SIGSEGV" in result.found) == (Status.UNKNOWN, True)


def test_a_lost_gpu_does_not_hide_the_other(driver, verdict):
    facts = probe(driver("count=2 lost=1"))
    good, lost = facts.value("gpu.nvml")["devices"]
    assert good["uuid"] == "GPU-00000000-fake"
    assert "lost" in lost["error"].lower()
    result = verdict("gpu.present", facts, stack_device="gpu")
    assert (result.status, result.found.split(":")[0]) == (Status.FAIL, "GPU 1")


def test_a_container_without_its_gpus(driver, verdict, tmp_path):
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").touch()
    (tmp_path / "dev/nvidiactl").touch()
    facts = probe(driver("init=12"), root=tmp_path)
    assert facts.value("gpu.device_files") == ["nvidia0"]
    result = verdict("gpu.present", facts, stack_device="gpu")
    assert (result.status, "/dev has nvidia0" in result.found) == (Status.FAIL, True)


def test_a_mask_that_hides_all(driver, verdict):
    facts = probe(driver("count=2", CUDA_VISIBLE_DEVICES=""))
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
        environ = driver("count=2", OMPI_COMM_WORLD_LOCAL_RANK=str(rank), **more)
        host = {"host.name": Fact("node1", "here")}
        ranks[rank] = probe(environ) | probe_launch(environ=environ) | host
    result = verdict("gpu.one-per-rank", ranks=ranks, stack_device="gpu")
    assert result.status is status, result
