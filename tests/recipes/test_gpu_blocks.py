"""The blocks of GPU stacks: NCCL's wheel, NVIDIA's variables, MPI from sources, apt's sections."""

import re
import subprocess
from dataclasses import replace

import hpccm
import pytest
from hpccm.common import container_type

from env.lock import Lock, PythonPackage, load_lock, lock_path
from recipes.blocks.cuda import Gpu, Held, build_variables, link_lines
from recipes.blocks.horovod import Horovod
from recipes.blocks.mpi import Mpi
from recipes.blocks.sections import Sections
from recipes.layout import MPI_PREFIXES

DIGESTS = {name: letter * 64 for name, letter in (("pmix", "a"), ("ucx", "b"), ("openmpi", "c"))}
LOCK = Lock(
    stack="tiny",
    stack_sha256="0" * 64,
    components={
        "python": "3.13",
        "horovod": "9.8.7",
        "pmix": "1.1",
        "ucx": "2.2",
        "openmpi": "3.3",
    },
    base={"image": "example.org/base:1", "build_image": "", "sections": ("main",)},
    sources={"aaa-1.tar.gz": "9" * 64, "horovod-9.8.7.tar.gz": "ab" * 32},
    edits={"path": "env/edits/h.toml", "sha256": "1" * 64},
    flags={"HOROVOD_GPU_OPERATIONS": "NCCL"},
    system={"build": ("g++",), "run": ("python3",)},
    python=(PythonPackage("nvidia-nccl-cu12", "2", ("e" * 64,), ("run",)),),
    driver_minimum="525.60.13",
    gpus=(
        {"name": "Hopper", "compute_capability": "9.0", "code": "ptx", "driver": "555.42.02"},
        {"name": "Volta", "compute_capability": "7.0", "code": "binary", "driver": "525.60.13"},
    ),
    downloads={
        name: {"url": f"https://example.org/{name}-1.tar.gz", "sha256": digest}
        for name, digest in DIGESTS.items()
    },
)
CPU = replace(LOCK, gpus=(), driver_minimum="", python=())
NCCL = "/opt/chexnet/venv/lib/python3.13/site-packages/nvidia/nccl"


@pytest.fixture(params=["docker", "singularity"])
def format(request, monkeypatch):
    kinds = {"docker": container_type.DOCKER, "singularity": container_type.SINGULARITY}
    monkeypatch.setattr(hpccm.config, "g_ctype", kinds[request.param])
    monkeypatch.setattr(hpccm.config, "g_singularity_version", hpccm.config.Version("3.2"))
    monkeypatch.setattr(hpccm.config, "g_linux_distro", hpccm.common.linux_distro.UBUNTU)
    return request.param


def test_horovods_kernels_are_for_the_promised_gpus_in_order():
    assert build_variables(LOCK) == {
        "HOROVOD_BUILD_CUDA_CC_LIST": "70,90", "HOROVOD_NCCL_HOME": NCCL,
    }  # fmt: skip
    assert build_variables(CPU) == {}


def test_where_nccl_is_no_wheel_the_flags_say_where_it_is():
    packaged = replace(LOCK, python=())
    assert "HOROVOD_NCCL_HOME" not in build_variables(packaged)
    assert link_lines(packaged) == ([], [])


def test_the_linkers_link_is_there_only_while_horovod_is_compiled(format):
    text = str(Horovod(lock=LOCK))
    link = f"{NCCL}/lib/libnccl.so"
    order = [f"ln -s libnccl.so.2 {link}", "HOROVOD_GPU_OPERATIONS=NCCL", f"rm {link}"]
    places = [text.find(part) for part in order]
    assert -1 not in places
    assert places == sorted(places)
    assert "libnccl" not in str(Horovod(lock=CPU))


def test_horovods_archive_is_found_among_the_sources(format):
    text = str(Horovod(lock=LOCK))
    assert f"echo '{'ab' * 32}  horovod-9.8.7.tar.gz' | sha256sum -c -" in text
    assert "aaa-1" not in text


def test_the_second_stage_proves_nccl_where_there_are_gpus(format):
    assert "hvd.nccl_built()" in Horovod(lock=LOCK).runtime(_from="build")
    assert "nccl" not in Horovod(lock=CPU).runtime(_from="build")


def test_the_drivers_floor_is_quoted_for_every_reader(format):
    text = str(Gpu(lock=LOCK))
    assert 'NVIDIA_REQUIRE_CUDA="driver>=525.60.13"' in text
    for line in re.findall(r"export NVIDIA_.*", text):
        subprocess.run(["sh", "-ec", f'{line}; test -n "$(env | grep ^NVIDIA_)"'], check=True)


def test_each_source_of_mpi_is_held_to_its_hash_before_it_is_unpacked(format):
    text = str(Mpi(lock=LOCK))
    for name, digest in DIGESTS.items():
        archive = f"/var/tmp/{name}-1.tar.gz"
        order = [
            f"-O {archive} https://example.org/{name}-1.tar.gz",
            f"echo '{digest}  {archive}' | sha256sum -c -",
            f"wget -q -nc -P /var/tmp https://example.org/{name}-1.tar.gz",
            f"tar -x -f {archive}",
            f"--prefix=/usr/local/{name} ",
        ]
        places = [text.find(part) for part in order]
        assert -1 not in places, order[places.index(-1)]
        assert places == sorted(places)
    assert "--no-check-certificate" not in text


def test_mpi_is_built_on_that_pmix_and_ucx_and_all_three_are_copied(format):
    block = Mpi(lock=LOCK)
    options = next(line for line in str(block).splitlines() if "--with-pmix=" in line)
    for option in ("--with-pmix=/usr/local/pmix", "--with-ucx=/usr/local/ucx", "--with-slurm"):
        assert option in options
    runtime = block.runtime(_from="build")
    copied = re.findall(r"(/usr/local/\w+) \1", runtime)
    assert tuple(copied) == MPI_PREFIXES
    assert "PATH=/usr/local/openmpi/bin:$PATH" in runtime
    assert "/usr/local/openmpi/bin/mpi[cCf]*" in runtime
    for tool in ("make", "apt-get", "binutils"):
        assert tool not in runtime


def test_the_loader_is_told_of_every_library_of_mpi(tmp_path, format):
    runtime = Mpi(lock=LOCK).runtime(_from="build")
    command = re.search(r"printf .*? > \S+", runtime)[0].replace("/etc/ld.so.conf.d", str(tmp_path))
    subprocess.run(["sh", "-ec", command], check=True)
    told = (tmp_path / "mpi.conf").read_text().splitlines()
    assert told == [f"{prefix}/lib" for prefix in MPI_PREFIXES]


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("sources.list", "deb http://m/debian trixie main\n",
         "deb http://m/debian trixie main contrib non-free\n"),
        ("sources.list", "deb [signed-by=/k] http://m/debian trixie main contrib non-free\n", None),
        ("debian.sources", "Suites: trixie\nComponents: main\n",
         "Suites: trixie\nComponents: main contrib non-free\n"),
        ("sources.list", "# deb-src http://m/debian trixie main\n", None),
    ],
)  # fmt: skip
def test_sections_are_added_once_in_both_forms_of_apts_list(tmp_path, format, name, before, after):
    text = str(Sections(sections=("main", "contrib", "non-free")))
    command = text[text.index("find /etc/apt") :].replace("/etc/apt", str(tmp_path))
    (tmp_path / name).write_text(before)
    for _ in range(2):
        subprocess.run(["sh", "-ec", command], check=True)
    assert (tmp_path / name).read_text() == (after or before)


def test_held_packages_of_the_base_are_let_go_in_both_stages(format):
    block = Held()
    assert "apt-mark unhold" in str(block)
    assert block.runtime(_from="build") == str(block)


def test_the_committed_locks_carry_the_floor_and_the_gpus():
    lock = load_lock(lock_path("cuda12"))
    assert lock.driver_minimum == "525.60.13"
    assert {gpu["compute_capability"] for gpu in lock.gpus} >= {"7.0", "8.0", "9.0"}
    assert load_lock(lock_path("cpu")).driver_minimum == ""
    assert set(load_lock(lock_path("ngc12")).downloads) == set(DIGESTS)
