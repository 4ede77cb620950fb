"""The lock: its bytes, its requirements texts, and the locks that are committed."""

from __future__ import annotations

import hashlib
import json
import re

import pytest

from env.errors import UserError
from env.lock import (
    GROUPS,
    PythonPackage,
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
STACKS = sorted(load_stacks())


@pytest.fixture
def lock():
    return make_lock(load_stack("cpu"), python=PYTHON)


def test_written_and_read_again(tmp_path, lock):
    path = tmp_path / "lock.json"
    path.write_text(render_lock(lock))
    assert load_lock(path) == lock
    assert render_lock(load_lock(path)) == render_lock(lock)
    assert load_lock(path).sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


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
    with pytest.raises(UserError, match=r"'systems'[\s\S]*sources"):
        render_value(lock, key="systems")
    with pytest.raises(UserError):
        render_value(lock, key="stack.name")


def test_locked_version(lock):
    assert lock.version("numpy") == "2.4.6"
    assert lock.version("torch") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "JSON"), ("[]", "schema_version 1"), ('{"schema_version": 2}', "schema_version 1"),
     ('{"schema_version": 1}', "a complete lock"), ("{", "JSON")],
)  # fmt: skip
def test_bad_lock_files(tmp_path, text, said):
    path = tmp_path / "lock.json"
    path.write_text(text)
    with pytest.raises(UserError, match=said) as caught:
        load_lock(path)
    assert str(path) in caught.value.found


def test_a_lock_with_a_hole(tmp_path, lock):
    data = json.loads(render_lock(lock))
    del data["python"][0]["sha256"]
    path = tmp_path / "lock.json"
    path.write_text(json.dumps(data))
    with pytest.raises(UserError, match="a complete lock"):
        load_lock(path)


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
    assert lock == make_lock(stack, python=lock.python)
    assert lock_path(name).read_text() == render_lock(lock)


@pytest.mark.parametrize("name", STACKS)
def test_committed_lock_holds_what_the_stack_chose_and_asks_for(name):
    stack, lock = load_stack(name), load_lock(lock_path(name))
    for component in ("keras", "cmake", "setuptools"):
        assert lock.version(component) == stack.components[component]
    assert lock.version(stack.python.tensorflow) == stack.components["tensorflow"]
    for group in GROUPS:
        held = {package.name for package in lock.python if group in package.groups}
        assert {item.lower() for item in getattr(stack.python, group)} <= held


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
