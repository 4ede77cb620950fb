"""The search over versions against trying every set, for rules drawn at random."""

import itertools

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from env.rules import BROKEN, FAIL, judge_rules, load_rules
from env.solver import binding_rules, solve

RULES = [rule for rule in load_rules() if rule.severity == FAIL]
NAMES = sorted({name for rule in RULES for name in rule.components})
_MOST_SETS = 2000


@st.composite
def questions(draw):
    """Return a version of a component, and some rules that speak about it."""
    name = draw(st.sampled_from(NAMES))
    about = [index for index, rule in enumerate(RULES) if name in rule.components]
    drawn = draw(st.lists(st.sampled_from(about), min_size=1, max_size=5, unique=True))
    rules = binding_rules([name], rules=[RULES[index] for index in drawn])
    assume(rules)
    version = draw(st.sampled_from([example[name] for example in examples(rules)]))
    return {name: version}, rules


def examples(rules):
    return [example for rule in rules for example in (rule.passes, rule.fails)]


def breaks(versions, rules):
    return any(said.outcome == BROKEN for said in judge_rules(versions, rules=rules))


def fitting(wanted, rules):
    """Return every set of the rules' own examples that breaks none of them."""
    names = sorted({name for rule in rules for name in rule.components})
    domains = [
        [wanted[name]]
        if name in wanted
        else sorted({e[name] for e in examples(rules) if name in e})
        for name in names
    ]
    size = 1
    for tried in domains:
        size *= len(tried)
    assume(size <= _MOST_SETS)
    sets = (dict(zip(names, one, strict=True)) for one in itertools.product(*domains))
    return [versions for versions in sets if not breaks(versions, rules)]


@settings(max_examples=60, deadline=None)
@given(questions())
def test_no_set_is_missed_and_none_that_is_named_breaks_a_rule(question):
    wanted, rules = question
    found, solution = fitting(wanted, rules), solve(wanted, rules=rules)
    for versions in found:
        assert all(version in solution.choices[name] for name, version in versions.items())
    if solution.newest is None:
        assert not found
        for left_out in solution.conflict:
            rest = [rule for rule in solution.conflict if rule is not left_out]
            assert solve(wanted, rules=rest, others=examples(rules)).newest, left_out.id
        return
    assert not breaks(solution.newest, rules)
    for name, versions in solution.choices.items():
        for version in versions:
            pinned = solve({**wanted, name: version}, rules=rules).newest
            assert pinned, (name, version)
            assert not breaks(pinned, rules)


def test_what_is_newest_comes_first():
    newest = solve({"cuda": "12"}).newest
    assert newest["tensorflow"] == max(
        (e["tensorflow"] for r in RULES for e in (r.passes, r.fails) if "tensorflow" in e),
        key=lambda text: [int(part) for part in text.split(".")],
    )
