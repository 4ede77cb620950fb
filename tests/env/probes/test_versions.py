"""What libraries, launchers and Slurm tell of their versions: made-up ones, and the real ones.

Starts at the probe and ends at the verdict of the rules.
"""

import os
import subprocess

import pytest

from env.facts import Fact, Facts
from env.probes.mpi import probe_mpi
from env.probes.packages import probe_packages
from env.probes.versions import probe_versions
from env.result import Status

# A library of each kind that answers with the number it was compiled with.
SOURCES = {
    "libcudart.so.12": "int cudaRuntimeGetVersion(int *v) { *v = NUMBER; return 0; }",
    "libcudnn.so.9": "unsigned long cudnnGetVersion(void) { return NUMBER; }",
    "libnccl.so.2": "int ncclGetVersion(int *v) { *v = NUMBER; return 0; }"
    ' const char banner[] = "NCCL version 2.27.7+cuda12.9";',
    "libpmix.so.2": 'const char *PMIx_Get_version(void) { return "OpenPMIx " NUMBER " (PMIx)"; }',
    "libhwloc.so.15": "unsigned hwloc_get_api_version(void) { return NUMBER; }",
}
GPU = {"gpu.nvml": Fact({"state": "ok", "driver": "570.86.10", "devices": []}, "NVML")}


@pytest.fixture
def library(tmp_path):
    """Compile a library that tells a version; returns an environment in which it comes first."""
    folder = tmp_path / "libraries"
    folder.mkdir()

    def make(soname, number):
        source = tmp_path / "library.c"
        source.write_text(SOURCES[soname])
        command = ["gcc", "-shared", "-fPIC", f"-DNUMBER={number}", "-o", folder / soname, source]
        subprocess.run(command, check=True)
        return {**os.environ, "LD_LIBRARY_PATH": str(folder)}

    return make


@pytest.fixture
def built_for(tmp_path):
    """A TensorFlow that says for which CUDA it was built; returns the variables to find it."""

    def make(cuda, cudnn="9"):
        info = tmp_path / "site/tensorflow/python/platform/build_info.py"
        info.parent.mkdir(parents=True, exist_ok=True)
        info.write_text(
            "build_info = collections.OrderedDict([('cpu_compiler', 'clang'), "
            f"('cuda_version', '{cuda}'), ('cudnn_version', '{cudnn}'), ('is_cuda_build', True)])"
        )
        return {"PYTHONPATH": str(tmp_path / "site")}

    return make


def stub(folder, name, text):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:/usr/bin:/bin"}


def probe(environ, **options):
    return Facts(probe_versions(environ=environ, **options))


def test_this_machine(healthy, verdict):
    facts = healthy[1]
    for name in ("rules.packages", "rules.mpi"):
        result = verdict(name, facts)
        assert result.status is Status.PASS, result
    libc = subprocess.run(["ldd", "--version"], capture_output=True, text=True, check=True).stdout
    assert facts.value("versions.glibc") == libc.splitlines()[0].split()[-1]
    owner = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "libpmix2*"],
                           capture_output=True, text=True).stdout  # fmt: skip
    if owner:
        assert owner.startswith(facts.value("versions.pmix").split("rc")[0])


@pytest.mark.parametrize(
    ("soname", "number", "name", "version"),
    [
        ("libcudart.so.12", "12090", "cuda", "12.9"),
        ("libcudnn.so.9", "91002", "cudnn", "9.10.2"),
        ("libcudnn.so.9", "8907", "cudnn", "8.9.7"),
        ("libnccl.so.2", "22707", "nccl", "2.27.7"),
        ("libnccl.so.2", "2708", "nccl", "2.7.8"),
        ("libpmix.so.2", '"5.0.7"', "pmix", "5.0.7"),
        ("libhwloc.so.15", "0x00020c00", "hwloc", "2.12"),
    ],
)
def test_a_library_tells_its_version(library, built_for, soname, number, name, version):
    environ = library(soname, number) | built_for("12.5.1")
    fact = probe(environ)[f"versions.{name}"]
    assert (fact.value, fact.problem) == (version, None)
    assert fact.origin == f"{environ['LD_LIBRARY_PATH']}/{soname}"


def test_the_cuda_of_nccl_stands_in_its_text(library, built_for):
    facts = probe(library("libnccl.so.2", "22707") | built_for("12.5.1"))
    assert facts.value("versions.nccl_cuda") == "12.9"


def test_a_wheel_comes_before_the_machine_and_the_variable_before_both(
    library, built_for, tmp_path
):
    folder = tmp_path / "site/nvidia/nccl/lib"
    folder.mkdir(parents=True)
    environ = library("libnccl.so.2", "22707") | built_for("12.5.1")
    (tmp_path / "libraries/libnccl.so.2").rename(folder / "libnccl.so.2")
    # The launcher's own folders are no place to look for NCCL.
    beside = stub(tmp_path / "mpi/bin", "mpirun", "echo 'mpirun (Open MPI) 5.0.7'") | environ
    beside["PATH"] = f"{tmp_path}/mpi/bin:/usr/bin:/bin"
    (tmp_path / "mpi/lib").mkdir()
    library("libnccl.so.2", "21605")
    (tmp_path / "libraries/libnccl.so.2").rename(tmp_path / "mpi/lib/libnccl.so.2")
    facts = probe(beside)
    assert (facts.value("versions.nccl"), facts["versions.nccl"].origin) == (
        "2.27.7", str(folder / "libnccl.so.2"),
    )  # fmt: skip
    library("libnccl.so.2", "21605")
    assert probe(beside).value("versions.nccl") == "2.16.5"


def test_another_cuda_on_the_machine_is_not_of_a_tensorflow_for_cpus(library, verdict):
    facts = probe(library("libcudart.so.12", "12090"))
    assert facts.value("versions.cuda") is None
    assert probe(library("libcudart.so.12", "12090")).value("versions.nccl") is None


def test_a_library_that_kills_hides_no_other(library, built_for, tmp_path):
    environ = library("libcudart.so.12", "12090") | built_for("12.5.1")
    source = tmp_path / "deadly.c"
    source.write_text("__attribute__((constructor)) void f(void) { __builtin_trap(); }")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "libraries/libcudnn.so.9", source],
                   check=True)  # fmt: skip
    facts = probe(environ)
    assert facts.value("versions.cuda") == "12.9"
    assert "died by" in facts["versions.cudnn"].problem
    assert "died by" in facts["versions.nccl"].problem


def test_a_file_that_is_no_library_cannot_tell(library, built_for, tmp_path, verdict):
    environ = library("libcudart.so.12", "12090") | built_for("12.5.1")
    (tmp_path / "libraries/libcudnn.so.9").write_text("no library" * 99)
    facts = Facts(GPU) | probe(environ) | probe_packages(environ=environ)
    assert "invalid ELF header" in facts["versions.cudnn"].problem
    result = verdict("rules.gpu", facts, stack_device="gpu")
    assert result.status is Status.UNKNOWN
    assert "cudnn" in result.found


def test_an_interface_that_several_releases_share_cannot_tell(library):
    assert (
        "several releases"
        in probe(library("libhwloc.so.15", "0x00020700"))["versions.hwloc"].problem
    )


@pytest.mark.parametrize(
    ("driver", "status", "fix"),
    [
        ("570.86.10", Status.PASS, ""),
        (
            "470.57.02",
            Status.FAIL,
            "install driver 525.60.13 or later on the host, or use an image with CUDA 11",
        ),
    ],
)
def test_the_driver_must_reach_the_floor_of_what_is_loaded(
    library, built_for, verdict, driver, status, fix
):
    environ = library("libcudart.so.12", "12090") | built_for("12.5.1")
    nvml = {"state": "ok", "driver": driver, "devices": []}
    facts = {**probe(environ), **probe_packages(), "gpu.nvml": Fact(nvml, "NVML")}
    result = verdict("rules.gpu", facts, stack_device="gpu")
    assert (result.status, result.fix) == (status, fix)
    assert verdict("rules.gpu", facts, stack_device="cpu").status is Status.SKIP


def test_open_mpi_5_over_an_old_pmix(library, tmp_path, verdict):
    environ = stub(tmp_path / "bin", "mpirun", "echo 'mpirun (Open MPI) 5.0.7'")
    environ |= {"LD_LIBRARY_PATH": library("libpmix.so.2", '"3.2.3"')["LD_LIBRARY_PATH"]}
    facts = {**probe(environ), **probe_mpi(environ=environ)}
    result = verdict("rules.mpi", facts)
    assert (result.status, result.fix) == (Status.FAIL, "use PMIx 4.2 or later")
    assert "MPI-01" in result.where


def test_open_mpi_4_with_a_pmix_of_its_own_does_not_load_the_other(tmp_path, library):
    prefix = tmp_path / "ompi"
    plugins = prefix / "lib/openmpi"
    plugins.mkdir(parents=True)
    environ = stub(prefix / "bin", "mpirun", "echo 'mpirun (Open MPI) 4.1.5'")
    environ["LD_LIBRARY_PATH"] = library("libpmix.so.2", '"5.0.7"')["LD_LIBRARY_PATH"]
    (plugins / "mca_pmix_ext3x.so").touch()
    assert probe(environ).value("versions.pmix") == "5.0.7"
    (plugins / "mca_pmix_ext3x.so").rename(plugins / "mca_pmix_pmix3x.so")
    assert probe(environ).value("versions.pmix") is None


def test_slurm_and_the_pmix_of_its_plugins(tmp_path, verdict):
    text = 'case $1 in --version) echo "slurm-wlm 20.02.5";; *) echo "plugins: none pmix pmix_v3 pmix_v4" >&2;; esac'  # noqa: E501
    facts = probe(stub(tmp_path / "bin", "srun", text))
    assert facts.value("versions.slurm") == "20.02.5"
    assert facts.value("versions.slurm_pmix") == "4"
    facts |= probe_mpi(environ={"PATH": "/usr/bin:/bin"})
    assert "slurm-20.02-pmix" in verdict("rules.mpi", facts).expected


def test_a_slurm_that_was_never_set_up_is_none(tmp_path):
    text = "echo 'srun: fatal: Could not establish a configuration source' >&2; exit 1"
    facts = probe(stub(tmp_path / "bin", "srun", text))
    assert facts.value("versions.slurm") is None


@pytest.mark.parametrize("text", ["sleep 60", "exit 3", "kill -SEGV $$"])
def test_a_slurm_that_does_not_answer_cannot_tell(tmp_path, text):
    facts = probe(stub(tmp_path / "bin", "srun", text), timeout_s=1)
    assert facts["versions.slurm"].problem


def test_the_launchers_run_time(tmp_path):
    facts = probe(stub(tmp_path / "bin", "prterun", "echo 'prterun (PRRTE) 3.0.8'"))
    assert facts.value("versions.prrte") == "3.0.8"
