"""The rules: each keeps, breaks and cannot tell; bad files; the search over versions."""

import itertools
import json
import re
import tomllib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from env.checks.evidence import Evidence
from env.checks.registry import find_check, run_all
from env.conditions import SameAs, parse_range
from env.errors import UserError
from env.facts import Fact, Facts
from env.lock import PythonPackage, load_lock, lock_path
from env.result import Status
from env.rules import (
    BROKEN,
    CANNOT_TELL,
    COMPONENTS,
    DOES_NOT_APPLY,
    HOLDS,
    exit_code,
    judge_rules,
    judge_stack,
    load_rules,
    versions_of_stack,
)
from env.solver import parse_wanted, solve, tied_to
from env.stack import PROJECT, load_stack, load_stacks
from env.versions import parse_version

RULES = load_rules()
BY_ID = {rule.id: rule for rule in RULES}


def outcome(rule, versions):
    (verdict,) = judge_rules(versions, rules=[rule])
    return verdict.outcome


def outcomes(versions):
    return {verdict.rule.id: verdict.outcome for verdict in judge_rules(versions)}


def test_there_are_enough_rules_on_every_topic():
    assert len(RULES) >= 40
    assert {name for rule in RULES for name in rule.components} == set(COMPONENTS)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_has_been_seen_to_hold_to_break_and_not_to_tell(rule):
    assert outcome(rule, rule.passes) == HOLDS
    assert outcome(rule, rule.fails) == BROKEN
    assert outcome(rule, rule.fails | dict.fromkeys(rule.requires)) == CANNOT_TELL
    for component in rule.when:
        assert outcome(rule, {**rule.fails, component: None}) == CANNOT_TELL
    without = {name: text for name, text in rule.fails.items() if name not in rule.requires}
    assert outcome(rule, without) == DOES_NOT_APPLY
    assert set(rule.passes) == set(rule.fails) == set(rule.components)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_gives_a_reason_a_source_and_a_fix(rule):
    assert rule.reason.endswith(".")
    assert len(rule.fix) > 5
    assert not rule.fix.endswith(".")
    assert rule.sources


# What each wheel holds, as read out of it: the number of its fat binaries with a content.
WHEELS = {}
for one in json.loads((PROJECT / "benchmarks/results/kernels.json").read_text())["results"]:
    WHEELS.setdefault(one["name"].removeprefix("tensorflow "), []).append(one)
_QUOTED = re.compile(
    r"Of the (?P<all>\S+) sets of kernels in (?P<wheel>\S+)'s wheel (?P<have>\d+) hold machine "
    r"code for (?P<gpu>sm_\d+), and none for a later GPU: .* from PTX of version "
    r"(?P<rest>\d\.\d)\. The wheel's PTX goes up to (?P<top>\d\.\d), which "
    r"needs a driver of CUDA (?P<cuda>\d+\.\d) "
)
ON_PTX = [rule for rule in RULES if rule.id.endswith("-gpu-ptx")]


def languages(sets):
    return {float(text.split()[1]) for one in sets for text in one["ptx"]}


def wheels_of(rule):
    """Return what the record holds of the wheels that a rule is about."""
    known = {version: {**rule.fails, "tensorflow": version} for version in WHEELS}
    return {v: WHEELS[v] for v, versions in known.items() if outcome(rule, versions) == BROKEN}


@pytest.mark.parametrize("rule", ON_PTX, ids=lambda rule: rule.id)
def test_a_rule_on_ptx_says_what_the_wheels_hold(rule):
    said = _QUOTED.match(rule.reason)
    compiled = [one for one in WHEELS[said["wheel"]] if one["binary"]]
    have = [one for one in compiled if said["gpu"] in one["binary"]]
    assert said["all"].replace(",", "") == str(sum(one["value"] for one in compiled))
    assert said["have"] == str(sum(one["value"] for one in have))
    assert max(name for one in compiled for name in one["binary"]) == said["gpu"]
    assert languages(one for one in compiled if one not in have) == {float(said["rest"])}
    assert wheels_of(rule)
    for sets in wheels_of(rule).values():
        assert max(languages(sets)) == float(said["top"])
    # NVIDIA's table of PTX's releases: 7.0 came with CUDA 11.0, 7.8 with 11.8, 8.5 with 12.5.
    assert float(said["cuda"]) == pytest.approx(float(said["top"]) + 4)


def test_the_rules_on_ptx_are_about_every_wheel_from_2_8_on():
    judged = [version for rule in ON_PTX for version in wheels_of(rule)]
    assert sorted(judged) == sorted(WHEELS.keys() - {"2.7.4"})
    sources = {source for rule in RULES if "-gpu-" in rule.id for source in rule.sources}
    quoted = {s.rpartition("@")[2] for s in sources if s.startswith("pkg:pypi/tensorflow@")}
    assert quoted <= WHEELS.keys()


def test_blackwell_is_refused_where_kernels_have_ptx_for_one_generation_only():
    rule = BY_ID["tensorflow-2.16-gpu-blackwell"]
    held = {v: [one for one in sets if "sm_90a" in str(one["ptx"])] for v, sets in WHEELS.items()}
    assert wheels_of(rule).keys() == {version for version, sets in held.items() if sets}
    for sets in held.values():
        assert all(f"{one['value']:,} sets" in rule.reason for one in sets)


@pytest.mark.parametrize("name", ["tensorflow-2.15-gpu-oldest", "tensorflow-2.17-gpu-oldest"])
def test_the_oldest_gpu_of_a_wheel_is_the_first_with_machine_code(name):
    rule = BY_ID[name]
    for sets in wheels_of(rule).values():
        oldest = min(gpu for one in sets for gpu in one["binary"])
        assert f"machine code from {oldest} on" in rule.reason
        assert str(rule.requires["compute_capability"]) == f">={oldest[3]}.{oldest[4]}"
        targets = {text.split()[0].rstrip("a") for one in sets for text in one["ptx"]}
        assert all(target in rule.reason for target in targets)


# Version sets as people report them, and the rule that must answer. Judged by all rules.
REPORTED = [
    ({"cuda": "12.5.82", "driver": "470.57.02"}, {"cuda-12-driver"}),
    ({"cuda": "12.5.82", "driver": "535.104.05"}, set()),
    ({"cuda": "11.8", "driver": "450.80.02"}, set()),
    ({"cuda": "13.0", "driver": "575.51.03"}, {"cuda-13-driver"}),
    # An H100 runs from PTX: the driver of CUDA 12.2 is above the floor, and too old.
    (
        {"tensorflow": "2.21.0", "cuda": "12.9", "driver": "535.104.05",
         "compute_capability": "9.0"},
        {"tensorflow-2.19-gpu-ptx", "tensorflow-2.16-gpu-start"},
    ),
    # What counts is the language its PTX is written in, as the entries of the wheels' fat
    # binaries tell: 8.1 (CUDA 12.1) in 2.16, 8.3 (12.3) in 2.17 and 2.18, 8.5 (12.5) from 2.19 on.
    (
        {"tensorflow": "2.16.1", "cuda": "12.3.101", "driver": "535.183.01",
         "compute_capability": "9.0"},
        {"tensorflow-2.16-gpu-start"},
    ),
    (
        {"tensorflow": "2.17.0", "cuda": "12.3.101", "driver": "535.183.01",
         "compute_capability": "9.0"},
        {"tensorflow-2.17-gpu-ptx", "tensorflow-2.16-gpu-start"},
    ),
    (
        {"tensorflow": "2.18.1", "cuda": "12.5.82", "driver": "550.54.14",
         "compute_capability": "9.0"},
        {"tensorflow-2.16-gpu-start"},
    ),
    (
        {"tensorflow": "2.19.0", "cuda": "12.5.82", "driver": "550.54.14",
         "compute_capability": "9.0"},
        {"tensorflow-2.19-gpu-ptx", "tensorflow-2.16-gpu-start"},
    ),
    # As reported of RTX 50xx: 2.20's additions and multiplications fail there, 2.21's do not.
    (
        {"tensorflow": "2.20.0", "cuda": "12.9", "driver": "580.65.06",
         "compute_capability": "12.0"},
        {"tensorflow-2.16-gpu-blackwell", "tensorflow-2.16-gpu-start"},
    ),
    (
        {"tensorflow": "2.21.0", "cuda": "12.9", "driver": "580.65.06",
         "compute_capability": "12.0"},
        {"tensorflow-2.16-gpu-start"},
    ),
    # An A100 runs from PTX with the last TensorFlow of CUDA 11, a V100 does not.
    (
        {"tensorflow": "2.14.1", "cuda": "11.8.89", "driver": "470.57.02",
         "compute_capability": "8.0"},
        {"tensorflow-2.12-gpu-ptx", "tensorflow-2.8-gpu-start"},
    ),
    (
        {"tensorflow": "2.14.1", "cuda": "11.8.89", "driver": "450.80.02",
         "compute_capability": "7.0"},
        set(),
    ),
    ({"compute_capability": "7.0", "driver": "595.45.04"}, {"driver-590-gpu"}),
    # Forward compatibility lifts R470 to CUDA 12.5, and not R525, whose branch has ended.
    ({"cuda": "12.5.82", "driver": "555.42.06", "kernel_driver": "470.57.02"}, set()),
    ({"cuda": "12.5.82", "driver": "555.42.06", "kernel_driver": "525.60.13"},
     {"cuda-compat-12.5-driver"}),
    # Nor is it for a driver that is later than the package; CUDA 11 runs on it as on any other.
    ({"cuda": "12.5.82", "driver": "555.42.06", "kernel_driver": "570.86.10"},
     {"cuda-compat-12.5-driver"}),
    ({"cuda": "12.9.79", "driver": "575.51.03", "kernel_driver": "550.54.14"}, set()),
    ({"cuda": "12.9.79", "driver": "575.51.03", "kernel_driver": "580.65.06"},
     {"cuda-compat-12.9-driver"}),
    ({"cuda": "11.8.89", "driver": "555.42.06", "kernel_driver": "470.57.02"}, set()),
    ({"openmpi": "4.1.6-7ubuntu2", "slurm_pmix": "5"}, {"openmpi-4-slurm-pmix-5"}),
    (
        {"tensorflow": "2.21.0", "cuda": "12.9", "driver": "535.104.05",
         "compute_capability": "8.0"},
        set(),
    ),
    # The article's V100 with the newest cuDNN, and with the one held for it.
    ({"cudnn": "9.28", "compute_capability": "7.0"}, {"cudnn-9.11-gpu"}),
    ({"cudnn": "9.10.2.21", "compute_capability": "7.0"}, set()),
    ({"tensorflow": "2.16.2", "keras": "2.15.0"}, {"tensorflow-2.16-keras"}),
    ({"tensorflow": "2.15.1", "numpy": "2.0.0"}, {"tensorflow-2.14-numpy"}),
    # What pip installs with each: 2.15.1 moved on within its minor release.
    ({"tensorflow": "2.15.0", "ml_dtypes": "0.2.0"}, set()),
    ({"tensorflow": "2.15.1", "ml_dtypes": "0.2.0"}, {"tensorflow-2.15.1-ml-dtypes"}),
    ({"tensorflow": "2.15.0", "ml_dtypes": "0.3.2"}, {"tensorflow-2.14-ml-dtypes"}),
    ({"nccl": "2.27.7", "nccl_cuda": "13", "cuda": "12.9"}, {"nccl-cuda"}),
    ({"openmpi": "4.1.4-3+b1", "pmix": "4.2.2-1+deb12u1"}, set()),
    ({"openmpi": "4.1.4", "pmix": "5.0.1"}, {"openmpi-4.1-pmix"}),
    (
        {"horovod": "0.28.1", "tensorflow": "2.21.0", "gcc": "14", "horovod_edits": "0"},
        {"horovod-tensorflow-2.20-sources", "horovod-gcc-13-sources"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("versions", "broken"), REPORTED)
def test_reported_sets_of_versions_break_the_rule_they_should(versions, broken):
    assert {name for name, said in outcomes(versions).items() if said == BROKEN} == broken


@pytest.mark.parametrize(("kernel", "broken"), [("525.60.13", True), ("535.104.05", False)])
def test_a_package_of_forward_compatibility_is_judged_where_it_is_found(kernel, broken):
    """The libcuda that comes first is of the package; NVML tells the driver of the host."""
    library = {"name": "libcuda.so.1", "path": "/usr/local/cuda/compat/libcuda.so.1",
               "kind": "compat", "release": "555.42.06"}  # fmt: skip
    device = {"index": 0, "name": "made up", "compute_capability": "8.0"}
    told = {
        "gpu.nvml": {"state": "ok", "driver": kernel, "devices": [device]}, "gpu.visible": None,
        "driver.libraries": [library], "packages.installed": {}, "versions.cuda": "12.5",
        "versions.cudnn": None, "versions.nccl": None, "versions.nccl_cuda": None,
    }  # fmt: skip
    facts = Facts({name: Fact(value, "made up") for name, value in told.items()})
    results = run_all(find_check("rules.gpu"), Evidence(facts=facts, stack_device="gpu"))
    said = [one.expected for one in results if one.status is Status.FAIL]
    assert [text.partition(":")[0] for text in said] == ["cuda-compat-12.5-driver"] * broken


def test_every_failure_that_a_rule_names_is_a_known_one():
    known = tomllib.loads((PROJECT / "env/failures.toml").read_text(encoding="utf-8"))
    named = {s for rule in RULES for s in rule.sources if not s.startswith(("https://", "pkg:"))}
    assert named
    assert named <= set(known)


@pytest.mark.parametrize("name", load_stacks())
def test_no_stack_of_the_catalogue_breaks_a_rule_or_leaves_one_open(name):
    stack = load_stack(name)
    verdicts = judge_stack(stack, lock=load_lock(lock_path(name)))
    assert exit_code(verdicts) == 0, [v.rule.id for v in verdicts if v.outcome == BROKEN]
    holds = {verdict.rule.id for verdict in verdicts if verdict.outcome == HOLDS}
    of_tensorflow = {one.rpartition("-")[2] for one in holds if one.startswith("tensorflow-2.")}
    assert {"python", "keras", "numpy", "protobuf", "glibc"} <= of_tensorflow
    assert {"horovod-built-for-tensorflow", "horovod-gcc-abi", "openmpi-3.1.3-hangs"} <= holds
    if stack.device == "gpu":
        assert {"cuda", "cudnn", "ptx"} <= of_tensorflow
        # Of which TensorFlow on the wheel's oldest GPU is known; cuda11's is before that.
        known = parse_version(stack.components["tensorflow"]) >= parse_version("2.17")
        assert ("oldest" in of_tensorflow) == known
        assert {"nccl-cuda", "horovod-cuda-toolkit", "horovod-nccl", "driver-590-gpu"} <= holds


def test_a_stack_of_gpus_tells_its_cuda_by_the_wheels_of_its_lock():
    lock = load_lock(lock_path("cpu"))
    wheels = [
        ("nvidia-cuda-runtime-cu12", "12.9.79"), ("nvidia-cudnn-cu12", "9.10.2.21"),
        ("nvidia-nccl-cu12", "2.32.3"), ("nvidia-ml-py", "13.615.71"),
    ]  # fmt: skip
    packages = tuple(PythonPackage(name, version, ("0",), ("run",)) for name, version in wheels)
    lock = replace(lock, python=(*lock.python, *packages))
    found = versions_of_stack(load_stack("cpu"), lock=lock)
    told = {name: found.get(name) for name in ("cuda", "cudnn", "nccl", "nccl_cuda", "driver")}
    assert told == {
        "cuda": "12.9.79", "cudnn": "9.10.2.21", "nccl": "2.32.3", "nccl_cuda": "12",
        "driver": None,
    }  # fmt: skip
    assert "driver" not in found


def test_exit_codes_put_a_broken_rule_before_one_that_cannot_tell():
    broken = judge_rules({"cuda": "12.5", "driver": "470.57.02"})
    open_ = judge_rules({"cuda": "12.5", "driver": None})
    assert exit_code(broken) == exit_code((*open_, *broken)) == 1
    assert exit_code(open_) == 3
    assert exit_code(judge_rules({"cuda": "12.5", "driver": "535.104.05"})) == 0


def test_a_rule_that_only_warns_stops_nothing():
    slow = {"tensorflow": "2.21.0", "cuda": "12.9", "compute_capability": "9.0"}
    warned = [v for v in judge_rules(slow) if v.outcome == BROKEN]
    assert [v.rule.id for v in warned] == ["tensorflow-2.16-gpu-start"]
    assert exit_code(warned) == 0
    wanted = {"tensorflow": "2.21", "compute_capability": "9.0"}
    assert solve(wanted).newest["compute_capability"] == "9.0"


known_versions = st.builds("{}.{}.{}".format, *itertools.repeat(st.integers(0, 99), 3))
some_versions = st.one_of(st.none(), known_versions)


@given(data=st.data(), rule=st.sampled_from(RULES), version=some_versions)
def test_a_component_that_a_rule_does_not_name_never_changes_its_verdict(data, rule, version):
    versions = data.draw(
        st.fixed_dictionaries(dict.fromkeys(sorted(rule.components), some_versions))
    )
    stranger = data.draw(st.sampled_from(sorted(set(COMPONENTS) - rule.components)))
    assert outcome(rule, versions) == outcome(rule, {**versions, stranger: version})


@given(data=st.data(), rule=st.sampled_from(RULES))
def test_learning_a_version_never_turns_held_into_broken(data, rule):
    known = data.draw(st.fixed_dictionaries(dict.fromkeys(sorted(rule.components), known_versions)))
    hidden = data.draw(st.sampled_from(sorted(rule.components)))
    before, after = outcome(rule, {**known, hidden: None}), outcome(rule, known)
    allowed = {HOLDS: {HOLDS, DOES_NOT_APPLY}, DOES_NOT_APPLY: {DOES_NOT_APPLY}}
    assert after in allowed.get(before, {HOLDS, BROKEN, DOES_NOT_APPLY})


@pytest.mark.parametrize(
    ("text", "version", "holds"),
    [
        (">=2.16,<2.22", "2.16.0", True), (">=2.16,<2.22", "2.22.0", False),
        (">=2.16,<2.22", "2.9", False), ("==12.5", "12.5.82", True), ("==12.5", "12.50", False),
        ("!=3.1.3", "3.1.3", False), ("!=3.1.3", "3.1.30", True), (">3", "3.0", False),
        (">3", "3.0.1", True), ("<=0.28.1", "0.28.1", True), ("<14", "13.2", True),
        (">=555.42.02", "535.104.05", False), ("<4.2.3", "4.2.2-1+deb12u1", True),
        (">=2.16", "2.16.0rc1", False),
    ],
)  # fmt: skip
def test_ranges(text, version, holds):
    assert parse_range(text).holds(version, {}) is holds


def test_the_same_numbers_as_another():
    major = SameAs("cuda", 1)
    assert major.holds("12", {"cuda": "12.9.79"}) is True
    assert major.holds("13.0", {"cuda": "12.9.79"}) is False
    assert major.holds("13.0", {"cuda": None}) is None
    assert SameAs("tensorflow", 3).holds("2.21", {"tensorflow": "2.21.0"}) is True


@pytest.mark.parametrize("text", ["", "2.16", ">= ,<3", "=>2", ">=2.16 <3", ">=new"])
def test_a_range_that_is_none_is_refused(text):
    with pytest.raises(UserError):
        parse_range(text)


def test_an_unknown_component_is_refused_with_the_known_ones():
    with pytest.raises(UserError, match="compute_capability"):
        judge_rules({"tensorflow2": "2.21.0"})


GOOD = """
schema_version = 1

[[rules]]
id = "a-rule"
when = { tensorflow = ">=2.16" }
requires = { keras = ">=3" }
reason = "It is so."
sources = ["VER-01"]
fix = "install keras 3"
passes = { tensorflow = "2.16.2", keras = "3.0.5" }
fails = { tensorflow = "2.16.2", keras = "2.15.0" }
"""
BAD = [
    ("schema_version = 1", "schema_version = 2", "schema_version"),
    ('id = "a-rule"', "", "'id'"),
    ('fix = "install keras 3"', 'fix = " "', "'fix'"),
    ('["VER-01"]', "[]", "'sources'"),
    ('["VER-01"]', '["a friend"]', "'sources'"),
    ('reason = "It is so."', 'because = "It is so."', "'because'"),
    ('fix = "install keras 3"', 'fix = "install keras 3"\nseverity = "INFO"', "'severity'"),
    ('requires = { keras = ">=3" }', "requires = { }", "'requires'"),
    ('keras = ">=3"', 'kears = ">=3"', "'requires.kears'"),
    ('keras = ">=3"', 'keras = "3 or later"', "'requires.keras'"),
    ('keras = ">=3"', "keras = 3", "'requires.keras'"),
    ('keras = ">=3"', 'keras = { same_as = "kears", numbers = 1 }', "'requires.keras'"),
    ('keras = ">=3"', 'keras = { same_as = "tensorflow", numbers = 9 }', "'requires.keras'"),
    ('keras = "3.0.5"', 'keras = "new"', "'passes.keras'"),
    ('keras = "2.15.0"', "keras = 2.15", "'fails.keras'"),
]


def test_the_file_that_the_bad_ones_are_made_of_is_good(tmp_path):
    path = tmp_path / "rules.toml"
    path.write_text(GOOD)
    (rule,) = load_rules(path)
    assert rule.id == "a-rule"
    assert rule.components == {"tensorflow", "keras"}


@pytest.mark.parametrize(("old", "new", "key"), BAD)
def test_a_bad_rule_is_refused_by_file_rule_and_key(tmp_path, old, new, key):
    assert old in GOOD
    path = tmp_path / "rules.toml"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(UserError) as error:
        load_rules(path)
    assert error.value.exit_code == 2
    said = str(error.value)
    assert str(path) in said
    assert key in said
    assert "schema_version" in key or "a-rule" in said or "rule 1" in said


@pytest.mark.parametrize(
    "text", ["rules = [", "schema_version = 1\nrules = 3\n", "schema_version = 1\nrule = []\n"]
)
def test_a_file_of_another_shape_is_refused(tmp_path, text):
    path = tmp_path / "rules.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=str(path)):
        load_rules(path)


def test_a_missing_file_and_a_name_used_twice_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"none\.toml"):
        load_rules(tmp_path / "none.toml")
    path = tmp_path / "rules.toml"
    path.write_text(GOOD + GOOD.replace("schema_version = 1", ""))
    with pytest.raises(UserError, match="a-rule"):
        load_rules(path)


def test_the_search_finds_versions_that_break_no_rule():
    solution = solve(parse_wanted("tensorflow=2.18 driver=535"))
    assert not solution.conflict
    assert exit_code(judge_rules(solution.newest)) == 0
    assert solution.newest["tensorflow"].startswith("2.18")
    assert solution.newest["driver"].startswith("535")
    # numpy 2.1 is too new for this TensorFlow, and the driver too old for an H100.
    assert solution.choices["numpy"] == ("2.0.2", "1.26.4")
    assert "9.0" not in solution.choices["compute_capability"]
    assert "8.0" in solution.choices["compute_capability"]


def test_every_choice_is_part_of_a_set_that_breaks_no_rule():
    solution = solve(parse_wanted("openmpi=5.0"))
    near = tied_to({"openmpi"}, rules=RULES)
    assert {"pmix", "prrte", "hwloc"} < near <= set(COMPONENTS)
    for component in near & solution.choices.keys():
        versions = solution.choices[component]
        for version in {versions[0], versions[-1]}:
            again = solve({"openmpi": "5.0", component: version})
            assert again.newest, version
            assert exit_code(judge_rules(again.newest)) == 0


@pytest.mark.parametrize(
    ("wanted", "conflict"),
    [
        ("tensorflow=2.21 driver=470", {"tensorflow-2.20-cuda", "cuda-12-driver"}),
        ("cudnn=9.28 compute_capability=7.0", {"cudnn-9.11-gpu"}),
        ("tensorflow=2.15 keras=3", {"tensorflow-2.15-keras"}),
    ],
)
def test_the_smallest_conflict_is_named(wanted, conflict):
    solution = solve(parse_wanted(wanted))
    assert solution.newest is None
    assert not solution.choices
    assert {rule.id for rule in solution.conflict} == conflict


def test_a_conflict_of_many_rules_is_found_and_none_of_them_is_idle():
    # Every TensorFlow is in the way: those of this CUDA ask for another cuDNN.
    wanted = {"cuda_toolkit": "10.2", "cudnn": "8.9"}
    conflict = solve(wanted).conflict
    examples = [example for rule in RULES for example in (rule.passes, rule.fails)]
    assert len(conflict) > 5
    assert solve(wanted, rules=conflict, others=examples).newest is None
    for rule in conflict:
        others = [other for other in conflict if other is not rule]
        assert solve(wanted, rules=others, others=examples).newest, rule.id


def test_the_search_agrees_with_trying_every_set():
    rules = [BY_ID[name] for name in ("pmix-6-prrte", "openmpi-5-pmix", "openmpi-5-prrte")]
    solution = solve({"openmpi": "5.0"}, rules=rules)
    named = {
        "openmpi": {"5.0.7"},
        "pmix": {"5.0.7", "6.0.0", "3.2.3", "4.2"},
        "prrte": {"3.0.8", "2.0.2", "4.0.0"},
    }
    fitting = [
        dict(zip(named, versions, strict=True))
        for versions in itertools.product(*named.values())
        if exit_code(judge_rules(dict(zip(named, versions, strict=True)), rules=rules)) == 0
    ]
    assert {name: set(texts) for name, texts in solution.choices.items()} == {
        name: {versions[name] for versions in fitting} for name in named
    }


@pytest.mark.parametrize(
    "wanted",
    ["tensorflow=2.18.0", "tensorflow=2.13", "tensorflow=2.10", "tensorflow=2.22",
     "horovod_tensorflow=2.18.0"],
)  # fmt: skip
def test_a_version_that_nobody_names_is_in_no_conflict_for_that(wanted):
    question = parse_wanted(wanted)
    solution = solve(question)
    assert not solution.conflict
    assert solution.unnamed == tuple(question)
    assert solution.newest["tensorflow"] == solution.newest["horovod_tensorflow"]
    assert question.items() <= solution.newest.items()
    assert exit_code(judge_rules(solution.newest)) == 0


def test_a_version_that_nobody_names_still_meets_the_rules_about_its_range():
    solution = solve(parse_wanted("tensorflow=2.18.0 driver=470"))
    assert {"tensorflow-2.18-cuda", "cuda-12-driver"} >= {r.id for r in solution.conflict}
    assert solution.newest is None
    assert solution.unnamed == ("tensorflow",)
    assert solve(parse_wanted("tensorflow=2.18 driver=535")).unnamed == ()


def test_a_rule_two_steps_from_the_question_is_kept_too():
    # CUDA 12 is asked of by TensorFlow, its compiler by nobody but CUDA: gcc 15 came later.
    solution = solve(parse_wanted("tensorflow=2.18 driver=535"))
    assert solution.newest["cuda_toolkit"].startswith("12.")
    assert "15" not in solution.choices["gcc"]
    conflict = solve(parse_wanted("tensorflow=2.18 driver=535 gcc=15")).conflict
    assert any(rule.id.startswith("nvcc-") for rule in conflict)


def test_a_component_asked_for_twice_is_refused():
    with pytest.raises(UserError, match="tensorflow"):
        parse_wanted("tensorflow=2.18 driver=535 tensorflow=2.19")


@pytest.mark.parametrize(
    "text",
    ["", "tensorflow", "tensorflow=", "tensorfow=2.18", "cuda=new", "compute_capability=90",
     "compute_capability=sm_90"],
)  # fmt: skip
def test_a_question_that_is_none_is_refused(text):
    with pytest.raises(UserError):
        parse_wanted(text)


def test_nvidias_package_of_nccl_says_for_which_cuda_it_is():
    stack = load_stack("ngc12")
    found = versions_of_stack(stack, lock=load_lock(lock_path("ngc12")))
    assert (found["nccl"], found["nccl_cuda"]) == ("2.27.7-1+cuda12.9", "12.9")
