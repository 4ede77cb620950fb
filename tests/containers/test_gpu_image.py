"""The GPU image in earnest, on a machine without a GPU: what is in it, and that it trains on CPUs.

Minutes long, and longer still where it has to be built: an image that is there already is
named by CHEXNET_CUDA12_IMAGE.
"""

import json
import os
import subprocess
import sys

import pytest

from benchmarks.gpu_image import (
    LIBRARIES,
    Kernels,
    fetch_cuobjdump,
    find_compilers,
    find_packages,
    inside,
    list_kernels,
    tell,
)
from containers.runtime import exec_command
from env.lock import load_lock, lock_path
from env.stack import PROJECT, load_stack

STACK = load_stack("cuda12")
LOCK = load_lock(lock_path("cuda12"))
COMPONENTS = STACK.components
SITE = f"/opt/chexnet/venv/lib/python{COMPONENTS['python']}/site-packages"
SMALL = ["--set", "preset=demo", "--set", "model=tiny", "--set", "epochs=1"]


@pytest.mark.parametrize(
    ("binary", "ptx", "capability", "served"),
    [
        ((70, 80), (), "7.0", "binary"),
        ((70, 80), (), "7.5", "binary"),
        ((70, 80), (), "8.9", "binary"),
        ((75,), (), "7.0", ""),  # machine code of a later GPU of the same generation
        ((70, 80), (), "9.0", ""),
        ((70, 80), (90,), "9.0", "ptx"),
        ((70, 80), (90,), "6.0", ""),
        ((), (60,), "12.0", "ptx"),
    ],
)
def test_which_gpu_is_served_by_which_kernels(binary, ptx, capability, served):
    assert Kernels(binary, ptx).serve(capability) == served


def run(command, code=0):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd="/", capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def told(gpu_sif):
    return tell(gpu_sif)


@pytest.mark.slow
def test_tensorflow_and_horovod_are_the_locked_ones_and_built_for_gpus(told):
    assert told["tensorflow"] == COMPONENTS["tensorflow"]
    assert told["horovod"] == COMPONENTS["horovod"]
    assert told["mpi_built"]
    assert told["nccl_built"]
    assert told["cuda_built"]


@pytest.mark.slow
def test_the_nccl_that_horovod_loads_is_the_locked_one(told):
    assert told["nccl_loaded"] == [f"{SITE}/nvidia/nccl/lib/libnccl.so.2"]
    major, minor, patch = map(int, COMPONENTS["nccl"].split("."))
    code = major * 10000 + minor * 100 + patch  # NCCL_VERSION in nccl.h
    assert told["nccl"] == code
    assert told["nccl_built"] == code
    assert LOCK.version("nvidia-nccl-cu12") == COMPONENTS["nccl"]


@pytest.mark.slow
def test_tensorflows_own_words_agree_with_the_lock(told):
    info = told["build_info"]
    assert info["is_cuda_build"]
    built = [int(part) for part in info["cuda_version"].split(".")[:2]]
    locked = [int(part) for part in COMPONENTS["cuda"].split(".")[:2]]
    assert built[0] == locked[0]
    assert built <= locked
    assert info["cudnn_version"] == COMPONENTS["cudnn"].partition(".")[0]
    # CUDA's run-time says 12090 for 12.9, cuDNN 91002 for 9.10.2.
    assert told["cudart"] == locked[0] * 1000 + locked[1] * 10
    major, minor, patch, _ = map(int, COMPONENTS["cudnn"].split("."))
    assert told["cudnn"] == major * 10000 + minor * 100 + patch


@pytest.mark.slow
def test_no_compiler_and_no_toolkit_is_left(gpu_sif):
    assert find_compilers(gpu_sif) == []
    # The same search finds what is there.
    assert "/usr/bin/python3" in find_compilers(gpu_sif, names=("gcc", "python3"))
    packages = find_packages(gpu_sif)
    assert "libopenmpi40" in packages
    assert not [name for name in packages if name.startswith(("nvidia", "libcuda", "libcudart"))]
    assert not [name for name in packages if name.endswith("-dev")]
    nccl = inside(gpu_sif, ["ls", f"{SITE}/nvidia/nccl/lib"]).split()
    assert "libnccl.so.2" in nccl
    assert "libnccl.so" not in nccl  # the linker's, which was there while Horovod was compiled


@pytest.mark.slow
def test_mpi_has_ucx_pmix_and_slurm(gpu_sif):
    said = inside(gpu_sif, ["ompi_info", "--parsable", "--all"])
    assert "mca:pml:ucx:version" in said
    (built,) = (line for line in said.splitlines() if line.startswith("config:cli:"))
    for option in ("--with-ucx", "--with-pmix=external", "--with-slurm"):
        assert option in built


@pytest.mark.slow
def test_every_promised_gpu_has_kernels_in_every_library(gpu_sif, tmp_path):
    kernels = list_kernels(gpu_sif, LIBRARIES, tool=fetch_cuobjdump(tmp_path / "tools"))
    assert {"libcudnn_ops.so.9", "libnccl.so.2", "libtensorflow_cc.so.2"} <= kernels.keys()
    for name, found in kernels.items():
        if not found.binary and not found.ptx:
            assert name.startswith("libcudnn"), f"{name} has no kernels"  # those that only decide
            continue
        for gpu in STACK.gpus:
            served = found.serve(gpu.compute_capability)
            assert served, f"{name} has nothing for {gpu.name}"
            if not name.startswith("libtensorflow"):
                assert served == "binary", f"{name}: {gpu.name}"
            elif gpu.code == "ptx":  # few of its kernels have machine code, the rest is PTX
                assert Kernels((), found.ptx).serve(gpu.compute_capability) == "ptx"


@pytest.mark.slow
def test_the_runtime_is_told_of_the_drivers_floor(gpu_sif):
    said = inside(gpu_sif, ["env"]).splitlines()
    assert f"NVIDIA_REQUIRE_CUDA=driver>={STACK.driver_minimum}" in said
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in said
    labels = json.loads(run(["apptainer", "inspect", "--json", "--labels", str(gpu_sif)]))
    labels = labels["data"]["attributes"]["labels"]
    assert labels["chexnet.driver.minimum"] == STACK.driver_minimum
    assert labels["chexnet.lock.sha256"] == LOCK.sha256


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("films")
    invoke = [sys.executable, "-m", "invoke", "--search-root", str(PROJECT)]
    films = str(folder / "nih")
    run([*invoke, "make-sample-data", "--output", films, "--images", "90", "--size", "32"])
    run(
        [
            *invoke,
            "prepare-data",
            "--source",
            films,
            "--output",
            str(folder / "data"),
            "--size",
            "32",
        ]
    )
    return folder / "data"


@pytest.mark.slow
@pytest.mark.parametrize(("device", "code"), [("cpu", 0), ("auto", 1)])
def test_it_trains_on_cpu_ranks_where_that_is_meant_and_a_missing_gpu_fails(
    gpu_sif, data, tmp_path, device, code
):
    folder = tmp_path / "run"
    command = ["invoke", "train", "--data", str(data), "--run", str(folder), "--ranks", "2", *SMALL]
    command += ["--set", f"device={device}"]
    said = run(exec_command(gpu_sif, command, binds=[(data, None), (tmp_path, None)]), code=code)
    if code:
        assert "gpu.present" in said
        assert not (folder / "record.json").exists()
        return
    record = json.loads((folder / "record.json").read_text())
    assert record["status"] == "finished"
    environment = json.loads((folder / "environment.json").read_text())
    assert environment["stack"] == "cuda12"
