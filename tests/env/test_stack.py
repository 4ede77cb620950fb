"""The catalogue: what it refuses, how stacks extend each other, what a hash depends on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from env.errors import UserError
from env.lock import load_lock, lock_path
from env.stack import CATALOGUE, load_stack, load_stacks

TEXT = CATALOGUE.read_text(encoding="utf-8")


def catalogue(tmp_path: Path, old: str = "", new: str = "") -> Path:
    """The real catalogue with one text replaced, which must be there."""
    assert old in TEXT
    path = tmp_path / "stacks.toml"
    path.write_text(TEXT.replace(old, new, 1), encoding="utf-8")
    return path


def test_the_two_cpu_stacks_stand_on_debian_12_and_13():
    cpu, cpu13 = load_stack("cpu"), load_stack("cpu13")
    assert (cpu.base.release, cpu.components["python"]) == ("12", "3.11")
    assert (cpu13.base.release, cpu13.components["python"]) == ("13", "3.13")
    assert cpu.components["tensorflow"] == cpu13.components["tensorflow"] == "2.21.0"


def test_an_extending_stack_keeps_what_it_does_not_say():
    cpu, cpu13 = load_stack("cpu"), load_stack("cpu13")
    assert cpu13.horovod == cpu.horovod
    assert cpu13.system.build == cpu.system.build
    assert cpu13.system.run != cpu.system.run
    assert cpu13.base.distribution == cpu.base.distribution


def test_tables_within_tables_are_laid_over_key_by_key_too():
    cpu, cuda = load_stack("cpu"), load_stack("cuda12")
    assert cuda.horovod.flags.items() > cpu.horovod.flags.items()
    assert cuda.horovod.sha256 == cpu.horovod.sha256
    assert cuda.python.wheels["tensorflow"] == "tensorflow[and-cuda]"
    assert cuda.python.run == cpu.python.run


def test_the_gpu_stack_trains_with_the_versions_of_the_cpu_stack():
    cpu, cuda = load_stack("cpu13"), load_stack("cuda12")
    shared = ("python", "openmpi", "ucx", "pmix", "glibc", "tensorflow", "keras", "horovod")
    assert {name: cuda.components[name] for name in shared} == {
        name: cpu.components[name] for name in shared
    }
    assert cuda.components["cudnn"].startswith("9.10.")


def test_the_generations_from_v100_to_h200_are_promised_with_their_drivers():
    promised = {gpu.compute_capability: gpu for gpu in load_stack("cuda12").gpus}
    assert {"7.0", "8.0", "9.0"} <= promised.keys()
    # Machine code serves with any driver of CUDA 12, PTX of CUDA 12.5 only from 12.5 on.
    drivers = {gpu.code: gpu.driver for gpu in promised.values()}
    assert drivers == {"binary": "525.60.13", "ptx": "555.42.02"}
    assert load_stack("cpu").gpus == ()
    assert load_stack("cpu").driver_minimum == ""


# By component, the package of the distribution that brings it.
PACKAGES = {
    "python": r"python3", "openmpi": r"libopenmpi\d+", "ucx": r"libucx\d+",
    "pmix": r"libpmix\d+(t64)?", "glibc": r"libc6", "gcc": r"g\+\+-\d+",
    "cuda_toolkit": r"nvidia-cuda-toolkit",
}  # fmt: skip


@pytest.mark.parametrize("name", [n for n, s in load_stacks().items() if not s.downloads])
def test_what_the_distribution_decides_is_what_its_archive_offered(name):
    stack, lock = load_stack(name), load_lock(lock_path(name))
    for component in PACKAGES.keys() & stack.components.keys():
        found = [
            package.version
            for package in lock.system_packages
            if re.fullmatch(PACKAGES[component], package.name)
        ]
        assert found, f"{component}: no package of stack {name}"
        for version in found:
            numbers = re.sub(r"^\d+:", "", version)  # less the epoch
            assert re.match(rf"{re.escape(stack.components[component])}\b", numbers), component


def test_a_source_that_is_a_package_of_the_component_names_the_version_chosen():
    for stack in load_stacks().values():
        for component, wheel in (
            stack.python.wheels | {"keras": "keras", "horovod": "horovod"}
        ).items():
            name = wheel.partition("[")[0]
            expected = f"pkg:pypi/{name}@{stack.components[component]}"
            assert expected in stack.sources[component], f"{stack.name}: sources.{component}"


def test_an_empty_text_takes_away_what_the_other_stack_says():
    wheels = load_stack("ngc12").python.wheels
    assert wheels == {"tensorflow": "tensorflow"}
    assert "nccl" in load_stack("cuda12").python.wheels


def test_unknown_stack_lists_the_known_ones():
    with pytest.raises(UserError, match=r"'gpu9'[\s\S]*cpu, cpu13") as caught:
        load_stack("gpu9")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('status = "supported"', 'status = "great"', "one of supported, candidate"),
        ('device = "cpu"', 'device = "tpu"', "one of cpu, gpu"),
        ('openmpi = "4.1.4"', "openmpi = 4.1", "components.openmpi"),
        ('keras = "3.15.1"', 'keras = "latest"', "components.keras"),
        ('keras = "3.15.1"', "", "components.keras"),
        ('keras = "3.15.1"', 'keras = "3.15.1"\nkears = "1"', "components.kears"),
        ('distribution = "debian"', "", "base.distribution"),
        ('distribution = "debian"', 'distribution = "debian"\ncolour = "red"', "base.colour"),
        ('extends = "cpu"', 'extends = "nowhere"', "extends"),
        ('extends = "cpu"', 'extends = "cpu13"', "extends"),
        ('HOROVOD_WITH_MPI = "1"', "HOROVOD_WITH_MPI = 1", "horovod.flags"),
        ('keras = "3.15.1"', 'keras = "3..15"', "components.keras"),
        ('keras = "3.15.1"', 'keras = "3.x"', "components.keras"),
        (
            'sha256 = "92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"',
            "",
            "horovod.sha256",
        ),
        ('sha256 = "92a43f5a', 'sha256 = "zz', "horovod.sha256"),
        ('sha256 = "92a43f5a', 'sha257 = "92a43f5a', "horovod.sha257"),
        ("wheels = { tensorflow =", "wheels = { tensorfow =", "python.wheels.tensorfow"),
        ('keras = ["pkg:', 'keras = ["see pkg:', "sources.keras"),
        ('keras = ["pkg:pypi/keras@3.15.1"]', "", "sources.keras"),
        ('keras = ["pkg:', 'theano = ["pkg:a"]\nkeras = ["pkg:', "sources.theano"),
        ('device = "cpu"', 'device = "cpu"\ndriver_minimum = "525.60.13"', "driver_minimum"),
        ('driver_minimum = "525.60.13"', "", "driver_minimum"),
        ('driver_minimum = "525.60.13"', 'driver_minimum = "525.60.13"\ncolour = 1', "colour"),
        ('cudnn = "9.10.2.21"', "", "components.cudnn"),
        ('code = "binary"', 'code = "source"', "gpus.Volta (V100).code"),
        ('code = "binary"', "", "gpus.Volta (V100).code"),
        ("[stacks.ngc12.downloads.ucx]", "[stacks.ngc12.downloads.unix]", "downloads.unix"),
        ('url = "https:', 'url = "http:', "downloads.pmix.url"),
        ('url = "https:', 'uri = "https:', "downloads.pmix.uri"),
        ('sha256 = "b9e6', 'sha256 = "b9', "downloads.pmix.sha256"),
        ('code = "binary"', 'code = "binary"\nmemory = "32"', "gpus.Volta (V100).memory"),
        ('compute_capability = "7.0"', "compute_capability = 7.0", "compute_capability"),
        ('compute_capability = "7.0"', 'compute_capability = "70"', "compute_capability"),
        ('"numactl"', '"numactl; true"', "system.run"),
        ('"numactl"', '"numactl="', "system.run"),
        ('"g++"', '"G++"', "system.build"),
        ('openmpi = "4.1.4"', 'openmpi = "٤.1.4"', "components.openmpi"),
        ('driver = "555.42.02"', 'driver = "new"', "gpus.Hopper (H100, H200).driver"),
        ('device = "cpu"', 'device = "cpu"\ndownloads = 3', "'downloads'"),
        ('device = "cpu"', 'device = "cpu"\ndownloads = "x"', "'downloads'"),
        ('device = "cpu"', 'device = "cpu"\ndownloads = [1]', "'downloads'"),
        ('run = ["keras", ', 'run = ["keras>>", ', "python.run"),
        ('run = ["keras", ', 'run = ["keras>=3", ', "python.run"),
        ('run = ["keras", "numpy"', 'run = ["keras", "numpy==1..2"', "python.run"),
        ('run = ["keras", "numpy"', 'run = ["keras", ""', "python.run"),
        ('tensorflow = "tensorflow-cpu"', 'tensorflow = "??"', "python.wheels.tensorflow"),
        ('tensorflow = "tensorflow-cpu"', 'tensorflow = "a==1"', "python.wheels.tensorflow"),
        ('glibc = "2.36"', 'glibc = "2"', "components.glibc"),
        ('glibc = "2.36"', 'glibc = "2.36rc1"', "components.glibc"),
        ('archive = "horovod-', 'archive = "horovd-', "horovod.archive"),
        ('archive = "horovod-0.28.1.tar.gz"', 'archive = "horovod-0.28.1.zip"', "horovod.archive"),
        ("[stacks.cpu13]", "[stacks.cpu]", "Cannot declare ('stacks', 'cpu') twice"),
        ("schema_version = 1", "schema_version = 1\nstacks = 3\n[other]", "TOML"),
        ("schema_version = 1", "schema_version = 7", "schema_version"),
        ("schema_version = 1", "schema_version = 1\nextra = 2", "extra"),
        ("schema_version = 1", "schema_version = ", "TOML"),
    ],
)
def test_a_bad_catalogue_names_the_file_and_the_key(tmp_path, old, new, said):
    path = catalogue(tmp_path, old, new)
    with pytest.raises(UserError, match=re.escape(said)) as caught:
        load_stacks(path)
    assert str(path) in caught.value.found
    assert caught.value.exit_code == 2
    of_the_file = said in {"TOML", "schema_version", "extra"}
    assert of_the_file or re.search(r"stack '\w+'|'stacks', '\w+'", caught.value.found)


def test_missing_catalogue(tmp_path):
    with pytest.raises(UserError, match="No such file"):
        load_stacks(tmp_path / "none.toml")


def test_the_hash_changes_with_anything_said_about_the_stack(tmp_path):
    before = load_stack("cpu").sha256
    assert re.fullmatch("[0-9a-f]{64}", before)
    for old, new in [
        ('tensorflow = "2.21.0"', 'tensorflow = "2.21.1"'),
        ('"numactl"', '"numactl-tools"'),
        ('HOROVOD_WITH_GLOO = "1"', 'HOROVOD_WITH_GLOO = "0"'),
        ('summary = "CPU training on Debian 12', 'summary = "Training on Debian 12'),
    ]:
        assert load_stack("cpu", path=catalogue(tmp_path, old, new)).sha256 != before


def test_the_hash_of_a_stack_does_not_depend_on_another(tmp_path):
    other = catalogue(tmp_path, 'openmpi = "5.0.7"', 'openmpi = "5.0.8"')
    assert load_stack("cpu", path=other).sha256 == load_stack("cpu").sha256
    assert load_stack("cpu13", path=other).sha256 != load_stack("cpu13").sha256
