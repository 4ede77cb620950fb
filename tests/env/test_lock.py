"""The lock: its bytes, its requirements texts, and the locks that are committed."""

from __future__ import annotations

import hashlib
import json
import re

import pytest
from packaging.requirements import Requirement

from env.errors import UserError
from env.lock import (
    GROUPS,
    SYSTEM_GROUPS,
    PythonPackage,
    SystemPackage,
    load_lock,
    lock_path,
    main,
    make_lock,
    render_lock,
    render_requirements,
    render_value,
)
from env.stack import PROJECT, load_stack, load_stacks

A, B = "a" * 64, "b" * 64
PYTHON = (
    PythonPackage("cmake", "3.31.10", (A,), ("build",)),
    PythonPackage("numpy", "2.4.6", (A, B), ("run", "develop")),
)
SYSTEM = (
    SystemPackage("g++", "4:12.2.0-3", "amd64", A, 1356, "debian/pool/g/g++_12.deb", ("build",)),
    SystemPackage("libc6", "2.36-9", "amd64", B, 2757, "debian/pool/g/libc6_2.deb", ("base",)),
    SystemPackage(
        "libmpi", "4.1-3+b1", "all", A, 9, "debian/pool/o/libmpi_4.deb", ("build", "run")
    ),
)
STACKS = sorted(load_stacks())


@pytest.fixture
def lock():
    gaps = {"base.digest": "no registry answered"}
    return make_lock(
        load_stack("cpu"), python=PYTHON, system_packages=SYSTEM, gaps=gaps,
        archive_date="2026-01-02T03:04:05Z",
    )  # fmt: skip


def test_written_and_read_again(tmp_path, lock):
    path = tmp_path / "lock.json"
    path.write_text(render_lock(lock))
    assert load_lock(path) == lock
    assert render_lock(load_lock(path)) == render_lock(lock)
    assert load_lock(path).sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("committed", "said"), [(True, "invoke lock --stack newest"), (False, "invoke lock --stack S")]
)
def test_a_stack_without_a_lock_is_named_with_the_command_that_makes_one(committed, said, tmp_path):
    path = lock_path("newest") if committed else tmp_path / "some.json"
    with pytest.raises(UserError) as refusal:
        load_lock(path)
    assert refusal.value.fix.endswith(said)


def test_a_package_of_the_distribution_is_a_line_in_the_lock(lock):
    lines = [line for line in render_lock(lock).splitlines() if '"libmpi"' in line]
    assert len(lines) == 1
    assert json.loads(lines[0].strip().rstrip(",")) == {
        "name": "libmpi", "version": "4.1-3+b1", "architecture": "all", "sha256": A,
        "size_bytes": 9, "path": "debian/pool/o/libmpi_4.deb", "groups": ["build", "run"],
    }  # fmt: skip


def test_packages_of_a_stage(lock):
    assert [p.name for p in lock.system_group("base")] == ["libc6"]
    assert [p.name for p in lock.system_group("build")] == ["g++", "libmpi"]
    assert [p.name for p in lock.system_group("run")] == ["libmpi"]
    assert SYSTEM[2].file_name == "libmpi_4.deb"


def test_a_lock_without_packages_of_a_distribution_is_read_again(tmp_path):
    lock = make_lock(load_stack("cpu"), python=PYTHON, gaps={"system_packages": "not Debian"})
    path = tmp_path / "lock.json"
    path.write_text(render_lock(lock))
    assert load_lock(path) == lock
    assert load_lock(path).gaps == {"system_packages": "not Debian"}


def test_a_lock_holds_the_hash_of_the_edit_rules(lock):
    rules = PROJECT / lock.edits["path"]
    assert lock.edits["sha256"] == hashlib.sha256(rules.read_bytes()).hexdigest()


def test_requirements_of_a_group(lock):
    assert render_requirements(lock, group="build") == f"cmake==3.31.10 --hash=sha256:{A}\n"
    assert render_requirements(lock, group="run") == (
        f"numpy==2.4.6 --hash=sha256:{A} --hash=sha256:{B}\n"
    )


def test_requirements_of_several_groups_name_a_package_once(lock):
    text = render_requirements(lock, group=("build", "run", "develop"))
    assert [line.split("==")[0] for line in text.splitlines()] == ["cmake", "numpy"]


def test_values_for_a_shell(lock):
    assert render_value(lock, key="stack") == "cpu\n"
    assert "HOROVOD_WITH_MPI=1" in render_value(lock, key="flags").splitlines()
    assert "openmpi-bin" in render_value(lock, key="system.run").splitlines()
    assert render_value(lock, key="components.python") == "3.11\n"
    assert render_value(lock, key="base.digest") == "\n"
    assert render_value(lock, key="base.sections") == "main\n"
    with pytest.raises(UserError, match=r"'systems'[\s\S]*sources"):
        render_value(lock, key="systems")
    with pytest.raises(UserError):
        render_value(lock, key="stack.name")


def test_locked_version(lock):
    assert lock.version("numpy") == "2.4.6"
    assert lock.version("torch") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "JSON"), ("[]", "schema_version 2"), ('{"schema_version": 1}', "schema_version 2"),
     ('{"schema_version": 2}', "a complete lock"), ("{", "JSON")],
)  # fmt: skip
def test_bad_lock_files(tmp_path, text, said):
    path = tmp_path / "lock.json"
    path.write_text(text)
    with pytest.raises(UserError, match=said) as caught:
        load_lock(path)
    assert str(path) in caught.value.found


@pytest.mark.parametrize("table", ["python", "system_packages"])
def test_a_lock_with_a_hole(tmp_path, lock, table):
    data = json.loads(render_lock(lock))
    del data[table][0]["sha256"]
    path = tmp_path / "lock.json"
    path.write_text(json.dumps(data))
    with pytest.raises(UserError, match="a complete lock"):
        load_lock(path)


@pytest.mark.parametrize(
    ("keys", "value", "named"),
    [
        (("python", 0, "groups"), [[]], "python[0].groups[0]"),
        (("python", 0, "name"), 3, "python[0].name"),
        (("python", 0, "sha256"), A, "python[0].sha256"),
        (("python", 1, "version"), None, "python[1].version"),
        (("system_packages", 0, "size_bytes"), "big", "system_packages[0].size_bytes"),
        (("system_packages", 0, "size_bytes"), True, "system_packages[0].size_bytes"),
        (("system_packages", 0, "path"), 1, "system_packages[0].path"),
        (("archive_date",), "x", "'x'"),
        (("archive_date",), 3, "archive_date"),
        (("components", "keras"), 3.1, "components.keras"),
        (("components",), [], "components"),
        (("base", "image"), None, "base.image"),
        (("base", "digest"), 5, "base.digest"),
        (("base", "sections"), "main", "base.sections"),
        (("system", "run"), "python3", "system.run"),
        (("downloads",), {"ucx": "x"}, "downloads.ucx"),
        (("gpus",), [3], "gpus[0]"),
        (("flags",), {"A": 1}, "flags.A"),
    ],
)
def test_a_lock_with_a_value_of_another_type_names_it(tmp_path, lock, keys, value, named):
    data = json.loads(render_lock(lock))
    table = data
    for key in keys[:-1]:
        table = table[key]
    table[keys[-1]] = value
    path = tmp_path / "lock.json"
    path.write_text(json.dumps(data))
    with pytest.raises(UserError, match="a complete lock") as caught:
        load_lock(path)
    assert str(path) in caught.value.found
    assert named in caught.value.found
    assert caught.value.exit_code == 2


def test_command_line(capsys):
    assert main(["requirements", "--stack", "cpu", "--group", "build"]) == 0
    names = {line.split("==")[0] for line in capsys.readouterr().out.splitlines()}
    assert {"cmake", "setuptools", "wheel"} <= names
    assert main(["get", "--stack", "nix", "sources"]) == 2
    assert "a lock file" in capsys.readouterr().err


@pytest.mark.parametrize("name", STACKS)
def test_committed_lock_belongs_to_the_present_catalogue(name):
    stack, lock = load_stack(name), load_lock(lock_path(name))
    assert lock.stack_sha256 == stack.sha256, f"make it anew: invoke lock --stack {name}"
    assert lock == make_lock(
        stack, python=lock.python, system_packages=lock.system_packages,
        archive_date=lock.archive_date, base_digest=lock.base["digest"],
        build_digest=lock.base.get("build_digest"), gaps=lock.gaps,
    )  # fmt: skip
    assert lock_path(name).read_text() == render_lock(lock)


@pytest.mark.parametrize("name", STACKS)
def test_committed_lock_holds_what_the_stack_chose_and_asks_for(name):
    stack, lock = load_stack(name), load_lock(lock_path(name))
    wheels = dict.fromkeys(("keras", "cmake", "setuptools")) | dict(stack.python.wheels)
    for component, wheel in wheels.items():
        assert lock.version((wheel or component).partition("[")[0]) == stack.components[component]
    for group in GROUPS:
        held = {package.name for package in lock.python if group in package.groups}
        asked = {Requirement(item).name.lower() for item in getattr(stack.python, group)}
        assert asked <= held


@pytest.mark.parametrize("name", STACKS)
def test_committed_lock_is_hashed_sorted_and_has_one_version_of_each(name):
    lock = load_lock(lock_path(name))
    names = [package.name for package in lock.python]
    assert names == sorted(set(names))
    for package in lock.python:
        assert package.sha256
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in package.sha256)
        assert package.groups
        assert set(package.groups) <= set(GROUPS)


@pytest.mark.parametrize("name", STACKS)
def test_committed_lock_holds_every_package_of_a_debian_exactly_or_says_why_not(name):
    lock = load_lock(lock_path(name))
    if lock.base["distribution"] != "debian":
        assert lock.system_packages == ()
        assert lock.gaps["system_packages"]
        return
    keys = [(package.name, package.version) for package in lock.system_packages]
    assert keys == sorted(set(keys))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", lock.archive_date)
    for package in lock.system_packages:
        assert re.fullmatch("[0-9a-f]{64}", package.sha256)
        assert package.size_bytes > 500
        assert package.architecture in {"amd64", "all"}
        assert re.match("debian(-security)?/pool/", package.path)
        assert package.groups
        assert package.groups == ("base",) or set(package.groups) <= {"build", "run"}
        assert set(package.groups) <= set(SYSTEM_GROUPS)
    for group in ("build", "run"):
        there = {p.name for p in lock.system_group(group) + lock.system_group("base")}
        assert set(lock.system[group]) <= there


@pytest.mark.parametrize("name", STACKS)
def test_what_is_not_exact_in_a_committed_lock_has_its_reason(name):
    lock = load_lock(lock_path(name))
    digests = {key for key in lock.base if key.endswith("digest")}
    assert digests == {"digest"} | ({"build_digest"} if lock.base["build_image"] else set())
    for key in digests:
        assert (lock.base[key] is None) == (f"base.{key}" in lock.gaps)
    assert all(lock.gaps.values())
