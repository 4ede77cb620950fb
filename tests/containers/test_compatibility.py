"""Stacks held against the rules: table, JSON and exit codes; reasons; what goes together."""

import json
import subprocess
import sys

import pytest

from containers import compatibility
from env.errors import UserError
from env.rules import load_rules, versions_of_stack
from env.stack import PROJECT, load_stacks

NUM_RULES = len(load_rules())


@pytest.fixture
def only_stack(monkeypatch):
    """Put one stack of these versions in the place of the catalogue."""

    def put(**versions):
        monkeypatch.setattr(compatibility, "_versions", lambda: {"mine": versions})

    return put


def test_the_catalogue_breaks_no_rule_and_every_rule_has_a_row(capsys):
    assert compatibility.check_stacks(as_json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["exit_code"] == 0
    assert [stack["stack"] for stack in told["stacks"]] == list(load_stacks())
    for stack in told["stacks"]:
        assert len(stack["verdicts"]) == NUM_RULES
        assert {v["outcome"] for v in stack["verdicts"]} == {"HOLDS", "DOES_NOT_APPLY"}


def test_a_stack_that_breaks_a_rule_is_told_with_its_fix(only_stack, capsys):
    only_stack(tensorflow="2.16.2", keras="2.15.0", numpy="1.26.4")
    assert compatibility.check_stacks() == 1
    said = capsys.readouterr().out
    assert "BROKEN" in said
    assert "fix: install keras 3.0 or later" in said
    assert "pkg:pypi/tensorflow@2.16.2" in said


def test_a_version_that_is_not_known_is_not_a_pass(only_stack, capsys):
    only_stack(tensorflow="2.16.2", keras=None)
    assert compatibility.check_stacks() == 3
    assert "cannot tell" in capsys.readouterr().out


@pytest.mark.parametrize("name", load_stacks())
def test_a_stack_is_explained_with_versions_reasons_and_sources(name, capsys):
    assert compatibility.explain_stack(name) == 0
    said = capsys.readouterr().out
    versions = load_stacks()[name].components
    assert f"keras {versions['keras']}, tensorflow {versions['tensorflow']}" in said
    assert "source: https://" in said
    assert compatibility.explain_stack(name, as_json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["versions"]["openmpi"] == versions["openmpi"]


def test_an_unknown_stack_is_refused_with_the_known_ones():
    with pytest.raises(UserError, match="cpu, cpu13"):
        compatibility.explain_stack("cuda99")


def test_versions_that_go_together_are_told_and_stacks_that_differ(capsys):
    assert compatibility.solve_versions("tensorflow=2.18 driver=535") == 0
    said = capsys.readouterr().out
    assert "2.18.1" in said
    own = load_stacks()["cpu"].components["tensorflow"]
    assert f"stack cpu: has tensorflow {own}" in said


def test_versions_that_do_not_are_told_with_the_rules_that_conflict(capsys):
    assert compatibility.solve_versions("tensorflow=2.21 driver=470") == 1
    said = capsys.readouterr().out
    assert "tensorflow-2.20-cuda" in said
    assert "cuda-12-driver" in said
    # A stack for CPUs does not care about the driver, and says that nothing was judged.
    assert "stack cpu: fits; no rule ties driver to it" in said


def test_an_answer_can_be_read_by_a_program(capsys):
    assert compatibility.solve_versions("openmpi=3.1.3 horovod=0.28", as_json=True) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["conflict"] == ["openmpi-3.1.3-hangs"]
    assert told["newest"] is None
    assert set(told["stacks"]) == set(load_stacks())


def test_a_stack_that_a_wanted_version_breaks_is_named(only_stack, capsys):
    only_stack(tensorflow="2.21.0", cuda="12.9.79")
    compatibility.solve_versions("driver=470")
    assert "stack mine: breaks cuda-12-driver" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--check",), 0, ["tensorflow-2.21-keras"]),
        (("--solve", "tensorflow=2.15 keras=3"), 1, ["tensorflow-2.15-keras"]),
        (("--solve", "tensorfow=2.15"), 2, ["'tensorfow'", "tensorflow"]),
        (("--explain", "cuda99"), 2, ["'cuda99'", "cpu, cpu13"]),
    ],
)
def test_the_task_answers_with_the_exit_code(options, code, words):
    command = [sys.executable, "-m", "invoke", "--search-root", str(PROJECT), "stacks", *options]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    said = done.stdout + done.stderr
    assert done.returncode == code, said
    assert "Traceback" not in said
    assert all(word in said for word in words), said


def test_the_versions_of_a_stack_are_those_of_its_lock():
    from env.lock import load_lock, lock_path

    for name, stack in load_stacks().items():
        lock = load_lock(lock_path(name))
        versions = versions_of_stack(stack, lock=lock)
        assert versions["numpy"] == lock.version("numpy")
        assert versions["ml_dtypes"] == lock.version("ml-dtypes")
