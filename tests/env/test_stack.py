"""The catalogue: what it refuses, how stacks extend each other, what a hash depends on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from env.errors import UserError
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
