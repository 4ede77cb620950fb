"""Stacks held against the rules: table, JSON and exit codes; reasons; what goes together."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from containers import compatibility
from containers import lock as locks
from containers.build import build_image
from containers.compatibility import require_compatible
from env.errors import UserError
from env.lock import load_lock, lock_path
from env.rules import COMPONENTS, load_rules, versions_of_stack
from env.stack import PROJECT, load_stack, load_stacks
from env.versions import parse_version

RULES = load_rules()
CPU = load_stack("cpu")


def stack_of(**versions):
    """Return a stack of these versions alone, and its lock."""
    edits = CPU.horovod.edits if versions.get("horovod_edits", "0") != "0" else ""
    horovod = replace(CPU.horovod, edits=edits)
    stack = replace(CPU, name="mine", components=versions, horovod=horovod)
    return stack, replace(load_lock(lock_path("cpu")), python=(), system_packages=())


def changed(**versions):
    """Return the stack cpu with some versions of its own changed, and its lock."""
    stack = replace(CPU, components={**CPU.components, **versions})
    return stack, replace(load_lock(lock_path("cpu")), stack_sha256=stack.sha256)


@pytest.fixture
def only_stack(monkeypatch):
    """Put one stack of these versions in the place of the catalogue."""

    def put(**versions):
        monkeypatch.setattr(compatibility, "_locked", lambda: {"mine": stack_of(**versions)})

    return put


def test_the_catalogue_breaks_no_rule_and_every_rule_has_a_row(capsys):
    assert compatibility.check_stacks(as_json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["exit_code"] == 0
    assert [stack["stack"] for stack in told["stacks"]] == list(load_stacks())
    for stack in told["stacks"]:
        assert len(stack["verdicts"]) == len(RULES)
        outcomes = {v["outcome"] for v in stack["verdicts"] if v["severity"] == "FAIL"}
        assert outcomes == {"HOLDS", "DOES_NOT_APPLY"}


def test_a_stack_that_breaks_a_rule_is_told_with_its_fix(only_stack, capsys):
    only_stack(tensorflow="2.16.2", keras="2.15.0", numpy="1.26.4")
    assert compatibility.check_stacks() == 1
    said = capsys.readouterr().out
    assert "BROKEN" in said
    assert "fix: install keras 3.0 or later" in said
    assert "pkg:pypi/tensorflow@2.16.2" in said


def test_a_version_that_is_not_known_is_not_a_pass(monkeypatch, capsys):
    known = {"tensorflow": "2.16.2", "keras": None}
    monkeypatch.setattr("env.rules.versions_of_stack", lambda stack, *, lock: known)
    assert compatibility.check_stacks() == 3
    assert "cannot tell" in capsys.readouterr().out


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_stack_made_wrong_for_a_rule_is_refused_with_its_fix(rule):
    stack, lock = stack_of(**rule.fails)
    if rule.severity == "WARN":
        require_compatible(stack, lock=lock)
        return
    with pytest.raises(UserError) as refusal:
        require_compatible(stack, lock=lock)
    assert refusal.value.exit_code == 1
    assert rule.id in refusal.value.expected
    assert rule.fix in refusal.value.fix


def test_a_stack_that_is_not_locked_yet_is_judged_by_the_catalogue(monkeypatch, capsys):
    stack, _ = changed(keras="2.15.0")
    stack = replace(stack, name="new")
    monkeypatch.setattr(compatibility, "load_stacks", lambda: {"new": stack})
    assert compatibility.check_stacks() == 1
    said = capsys.readouterr().out
    assert "invoke lock --stack new" in said
    assert "fix: install keras 3.12 or later" in said


def test_a_stack_is_judged_on_every_gpu_that_it_promises():
    stack = load_stack("cuda12")
    lock = load_lock(lock_path("cuda12"))
    require_compatible(stack, lock=lock)
    (hopper,) = [gpu for gpu in stack.gpus if gpu.compute_capability == "9.0"]
    too_old = replace(stack, gpus=(*stack.gpus[:2], replace(hopper, driver="535.104.05")))
    with pytest.raises(UserError) as refusal:
        require_compatible(too_old, lock=lock)
    assert "tensorflow-2.19-gpu-ptx" in refusal.value.expected
    newest = tuple(
        replace(p, version="9.28.0") if p.name == "nvidia-cudnn-cu12" else p for p in lock.python
    )
    with pytest.raises(UserError, match=r"cudnn-9\.11-gpu"):
        require_compatible(stack, lock=replace(lock, python=newest))


@pytest.mark.parametrize("name", [n for n, s in load_stacks().items() if s.gpus])
def test_what_a_stack_says_of_its_gpus_agrees_with_the_rules(name):
    stack = load_stack(name)
    versions = versions_of_stack(stack, lock=load_lock(lock_path(name)))
    for gpu in stack.gpus:
        machine = {"compute_capability": gpu.compute_capability, "driver": gpu.driver}
        warned = compatibility._warnings(versions | machine)
        starts_slowly = any(rule.id.endswith("-gpu-start") for rule in warned)
        assert starts_slowly == (gpu.code == "ptx"), gpu


def test_no_image_is_built_of_a_stack_that_breaks_a_rule(monkeypatch, tmp_path):
    stack, lock = changed(keras="2.15.0")
    monkeypatch.setattr("containers.blueprint.load_lock", lambda path: lock)
    with pytest.raises(UserError, match=r"tensorflow-2\.21-keras") as refusal:
        build_image(stack, format="singularity", output=tmp_path / "x.sif", dry_run=True)
    assert refusal.value.exit_code == 1
    assert refusal.value.fix == "install keras 3.12 or later"


def test_no_lock_is_asked_for_of_a_stack_whose_own_versions_break_a_rule(monkeypatch, tmp_path):
    stack, _ = changed(gcc="4.8")
    monkeypatch.setattr(locks, "load_stack", lambda name: stack)
    monkeypatch.setattr(locks, "resolve_lock", lambda stack: pytest.fail("it asked"))
    with pytest.raises(UserError, match="horovod-gcc-abi") as refusal:
        locks.write_lock("cpu", output=tmp_path / "lock.json")
    assert refusal.value.exit_code == 1


def test_no_lock_is_written_of_packages_that_break_a_rule(monkeypatch, tmp_path):
    lock = load_lock(lock_path("cpu"))
    older = tuple(replace(p, version="1.25") if p.name == "numpy" else p for p in lock.python)
    monkeypatch.setattr(locks, "resolve_lock", lambda stack: replace(lock, python=older))
    with pytest.raises(UserError, match=r"tensorflow-2\.20-numpy") as refusal:
        locks.write_lock("cpu", output=tmp_path / "lock.json")
    assert "install 'numpy>=1.26'" in refusal.value.fix
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", load_stacks())
def test_a_stack_is_explained_with_versions_reasons_and_sources(name, capsys):
    assert compatibility.explain_stack(name) == 0
    said = capsys.readouterr().out
    versions = load_stacks()[name].components
    assert f"keras {versions['keras']}, tensorflow {versions['tensorflow']}" in said
    assert "source: https://" in said
    assert compatibility.explain_stack(name, as_json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert parse_version(told["versions"]["openmpi"]).has_prefix(versions["openmpi"])


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


def test_a_stack_that_lacks_what_is_wanted_is_no_answer_and_breaks_no_rule_of_it(capsys):
    compatibility.solve_versions("cuda=12 cudnn=9.11 compute_capability=7.0")
    said = capsys.readouterr().out
    assert "stack cpu: names no cuda; names no cudnn\n" in said
    compatibility.solve_versions("cuda=13", as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["stacks"]["cpu"] == ["names no cuda"]
    (other,) = told["stacks"]["cuda12"]
    assert other.startswith("has cuda 12.")


def test_what_no_rule_ties_to_a_stack_is_told_to_programs_too(capsys):
    compatibility.solve_versions("driver=535", as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["stacks"]["cpu"] == []
    assert told["not_judged"]["cpu"] == ["driver"]
    assert told["not_judged"]["cuda12"] == []


def test_a_version_that_no_rule_names_is_told_as_such(capsys):
    assert compatibility.solve_versions("tensorflow=2.22") == 0
    said = capsys.readouterr().out
    assert "No rule and no stack names tensorflow 2.22" in said
    assert compatibility.solve_versions("tensorflow=2.22", as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["unnamed"] == ["tensorflow"]
    compatibility.solve_versions("tensorflow=2.18")
    assert "No rule and no stack" not in capsys.readouterr().out


def test_the_table_shows_what_is_tied_to_the_question_and_counts_the_rest(capsys):
    assert compatibility.solve_versions("pmix=5", as_json=True) == 0
    newest = json.loads(capsys.readouterr().out)["newest"]
    near = {n for rule in RULES if rule.severity == "FAIL" and "pmix" in rule.components
            for n in rule.components}  # fmt: skip
    assert compatibility.solve_versions("pmix=5") == 0
    said = capsys.readouterr().out
    shown = {line.split()[1] for line in said.splitlines() if line.startswith("│")}
    assert shown == near
    assert f"{len(newest) - len(near)} more components" in said


def test_a_driver_by_its_branch_stands_for_all_of_it(capsys):
    assert compatibility.solve_versions("driver=450 compute_capability=7.0", as_json=True) == 0
    stacks = json.loads(capsys.readouterr().out)["stacks"]
    assert stacks["cuda11"] == []
    assert stacks["cuda12"] == ["breaks cuda-12-driver"]
    assert compatibility.solve_versions("driver=535 compute_capability=9.0", as_json=True) == 0
    stacks = json.loads(capsys.readouterr().out)["stacks"]
    assert stacks["cuda12"] == ["breaks tensorflow-2.19-gpu-ptx"]


def test_of_a_host_below_a_compatibility_package_is_spoken_where_it_was_asked_for(capsys):
    assert compatibility.solve_versions("driver=535") == 0
    assert "kernel_driver" not in capsys.readouterr().out
    # NVIDIA's table: the package of CUDA 12.5 is for R535, and not for R570, which is later.
    assert compatibility.solve_versions("driver=555 kernel_driver=535") == 0
    assert "kernel_driver" in capsys.readouterr().out
    assert compatibility.solve_versions("driver=555 kernel_driver=570", as_json=True) == 1
    assert json.loads(capsys.readouterr().out)["conflict"] == ["cuda-compat-12.5-driver"]


def test_horovod_without_edits_is_no_stack_of_ours(capsys):
    compatibility.solve_versions("horovod_edits=0 tensorflow=2.21", as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["conflict"] == ["horovod-tensorflow-2.12", "horovod-tensorflow-2.20-sources"]
    assert told["stacks"]["cpu"] == ["has horovod_edits 0.28.1"]


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
        (("--solve", ""), 2, ["COMPONENT=VERSION", "nothing"]),  # as of a variable that is not set
        (("--explain", ""), 2, ["cpu, cpu13"]),
        (("--explain", "cuda99"), 2, ["'cuda99'", "cpu, cpu13"]),
        (("--check", "--solve", "tensorflow=2.18"), 2, ["--check", "--solve"]),
        (("--explain", "cpu", "--markdown"), 2, ["--explain", "--markdown"]),
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
    for name, stack in load_stacks().items():
        lock = load_lock(lock_path(name))
        versions = versions_of_stack(stack, lock=lock)
        assert versions["numpy"] == lock.version("numpy")
        assert versions["ml_dtypes"] == lock.version("ml-dtypes")
        assert set(versions) <= set(COMPONENTS)
        system = {package.name: package.version for package in lock.system_packages}
        if "libc6" in system:
            assert versions["glibc"] == system["libc6"]
            assert versions["hwloc"] == system["libhwloc15"]
            assert versions["openmpi"] in system.values()
            assert versions["openmpi"].startswith(stack.components["openmpi"])


def test_a_warning_is_told_with_the_answer(capsys):
    assert compatibility.solve_versions("tensorflow=2.21 cuda=12 compute_capability=9.0") == 0
    said = capsys.readouterr().out
    assert "tensorflow-2.16-gpu-start" in said
    assert "CUDA_CACHE_PATH" in said
    assert compatibility.explain_stack("cuda12") == 0
    said = capsys.readouterr().out
    assert "GPU 7.0, Volta (V100): machine code, driver 525.60.13 or later" in said
    assert "warns: tensorflow-2.16-gpu-start" in said
