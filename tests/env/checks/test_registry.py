"""Every check passes, fails, cannot tell, and says what to do; the table must be complete."""

import json
import re
import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from env.checks import registry
from env.checks.evidence import Evidence
from env.checks.registry import Check, known_checks, run_all, run_check
from env.facts import Fact, Facts
from env.result import Finding, Status

# One file of states a group of checks; each with the healthy machine that it changes.
TABLES = [runpy.run_path(str(file)) for file in sorted(Path(__file__).parent.glob("states*.py"))]
STATES = {name: states for table in TABLES for name, states in table["STATES"].items()}
PASSES = {
    name: table["PASSES"].get(name, [table["evidence"]()])
    for table in TABLES
    for name in table["STATES"]
}
evidence = TABLES[0]["evidence"]
CHECKS = known_checks()
FAILING = [(name, *state) for name, (states, _) in STATES.items() for state in states]


def test_the_table_holds_every_check():
    assert set(STATES) == set(CHECKS)


@pytest.mark.parametrize("name", CHECKS)
def test_it_passes_on_a_healthy_machine(name):
    for good in PASSES[name]:
        result = run_check(CHECKS[name], good)
        assert result.status is Status.PASS, result
        assert result.expected
        assert result.found
        assert not result.fix


@pytest.mark.parametrize(("name", "status", "found", "bad"), FAILING)
def test_it_does_not_pass_on_a_bad_one(name, status, found, bad):
    result = run_check(CHECKS[name], bad)
    assert (result.status, result.phase) == (status, CHECKS[name].phase), result
    assert found in result.found
    assert result.expected
    assert bool(result.fix) == (status in (Status.FAIL, Status.WARN))


def test_every_check_has_a_bad_state():
    assert all(states for states, _ in STATES.values())


@pytest.mark.parametrize("name", CHECKS)
def test_it_says_when_it_cannot_tell(name):
    unable = STATES[name][1]
    if unable is None:
        assert name == "ranks.reported"  # silence is what it judges
        return
    result = run_check(CHECKS[name], unable)
    assert result.status is Status.UNKNOWN
    assert result.found.startswith("could not tell: ")
    assert result.fix


@pytest.mark.parametrize("name", CHECKS)
def test_a_machine_that_nobody_looked_at_never_passes(name):
    blank = Evidence(facts=Facts(), num_ranks=2, stack_device="gpu")
    assert run_check(CHECKS[name], blank).status is not Status.PASS


class _Watched(Facts):
    asked: set

    def __getitem__(self, key):
        self.asked.add(key)
        return super().__getitem__(key)


@pytest.mark.parametrize("name", CHECKS)
def test_it_reads_only_what_it_declares(name):
    asked = set()
    bad = [state for _, _, state in STATES[name][0]]
    for state in (*PASSES[name], *bad):
        watched = [_Watched(facts) for facts in (state.facts, *state.ranks.values())]
        for facts in watched:
            facts.asked = asked
        ranks = dict(zip(state.ranks, watched[1:], strict=True))
        run_check(CHECKS[name], replace(state, facts=watched[0], ranks=ranks))
    assert asked - {"host.name"} <= set(CHECKS[name].reads)
    assert asked, "it judged without looking"


@pytest.mark.parametrize("name", CHECKS)
def test_it_can_be_explained(name):
    check = CHECKS[name]
    assert re.fullmatch(r"[a-z]+(\.[a-z-]+)+", check.id)
    assert all(len(text) > 15 for text in (check.title, check.fix, check.verdicts))
    assert check.reads
    assert isinstance(check.covers, tuple)
    assert all(re.fullmatch(r"[A-Z]{3,4}-\d\d", known) for known in check.covers)
    assert re.search("FAIL|WARN|INFO", check.verdicts)


def test_every_check_has_a_test_that_starts_at_its_probe():
    tests = Path(__file__).parents[2]
    files = [path for path in tests.rglob("test_*.py") if path.parent != Path(__file__).parent]
    text = "".join(path.read_text() for path in files)
    # A verdict on probed facts, or the id's result of a real run.
    tried = set(re.findall(r"\"([a-z]+\.[a-z-]+)\"", text))
    for names in re.findall(r"\"--only\",\s*f?\"([^\"]+)\"", text):
        tried |= set(names.split(","))
    # Made-up machines with GPUs: each names the verdicts that its probed facts lead to.
    for scenario in tests.rglob("scenarios/*.json"):
        tried |= set(json.loads(scenario.read_text())["expect"])
    assert set(CHECKS) - tried == set()


def test_a_fault_in_a_check_is_named_with_its_place():
    def judge(evidence):
        return evidence.no_such_thing

    broken = Check("x.broken", "does nothing", "static", ("host.name",), "none", judge)
    result = run_check(broken, evidence())
    assert result.status is Status.UNKNOWN
    assert re.search(r"broke at test_registry.py:\d+: AttributeError", result.found)
    assert "--skip x.broken" in result.fix


def test_several_findings_are_several_results_and_the_worst_stands_for_them():
    def judge(evidence):
        for status in (Status.INFO, Status.FAIL, Status.WARN):
            yield Finding(status, "a", f"found {status}")

    one = Check("x.y", "title", "static", (), "do this", judge)
    results = run_all(one, Evidence(facts=Facts()))
    assert [(r.status, r.fix) for r in results] == [
        (Status.INFO, ""), (Status.FAIL, "do this"), (Status.WARN, "do this"),
    ]  # fmt: skip
    assert run_check(one, Evidence(facts=Facts())).found == "found FAIL"


def test_no_finding_is_a_pass():
    one = Check("x.y", "all is well", "static", (), "do this", lambda evidence: [])
    result = run_check(one, Evidence(facts=Facts()))
    assert (result.status, result.expected, result.fix) == (Status.PASS, "all is well", "")


def test_one_id_is_one_check():
    with pytest.raises(ValueError, match=r"python\.version"):
        registry.check("python.version", title="x", reads=(), fix="x")(lambda evidence: None)


def test_a_fix_of_the_finding_comes_before_that_of_the_check():
    judge = lambda evidence: Finding(Status.FAIL, "a", "b", fix="now this")  # noqa: E731
    one = Check("x.y", "title", "static", (), "always this", judge)
    assert run_check(one, Evidence(facts=Facts({"a.b": Fact(1, "x")}))).fix == "now this"


def test_a_rank_that_cannot_tell_does_not_hide_another_that_fails():
    def judge(evidence):
        values = evidence.of_ranks("a.b")
        if "bad" in values.values():
            return Finding(Status.FAIL, "good", "bad on some rank", fix="mend it")
        return Finding(Status.PASS, "good", "good")

    check = Check("a.b", "good everywhere", "launched", ("a.b",), "mend it", judge)
    good, bad = Facts({"a.b": Fact("good", "x")}), Facts({"a.b": Fact("bad", "x")})
    blind = Facts({"a.b": Fact(None, "x", problem="no permission")})

    def judged(*ranks):
        evidence = Evidence(Facts(), num_ranks=len(ranks), ranks=dict(enumerate(ranks)))
        return [(result.status, result.ranks) for result in run_all(check, evidence)]

    assert judged(good, bad, blind) == [(Status.FAIL, ()), (Status.UNKNOWN, (2,))]
    assert judged(good, good, blind) == [(Status.UNKNOWN, (2,))]
    assert judged(blind, blind) == [(Status.UNKNOWN, (0, 1))]
    assert judged(good, good) == [(Status.PASS, ())]
