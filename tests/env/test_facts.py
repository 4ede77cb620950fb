"""Facts keep their origin and their problem, through JSON and back."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from env.cpulist import parse_cpu_list, render_cpu_list
from env.errors import UserError
from env.facts import (
    CannotTellError,
    Fact,
    Facts,
    load_facts,
    render_facts,
    write_facts,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=6,
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.text(), st.builds(Fact, JSON, st.text(), st.none() | st.text())))
def test_any_facts_come_back(tmp_path_factory, facts):
    path = tmp_path_factory.mktemp("facts") / "f.json"
    write_facts(path, facts)
    assert dict(load_facts(path)) == facts


def test_absent_unread_and_unasked_are_three_things():
    facts = Facts(
        {"a.absent": Fact(None, "PATH"), "a.unread": Fact(None, "/f", problem="no permission")}
    )
    assert facts.value("a.absent") is None
    with pytest.raises(CannotTellError, match=r"a\.unread: no permission \(/f\)"):
        facts.value("a.unread")
    with pytest.raises(CannotTellError, match="was not observed"):
        facts.value("a.unasked")


def test_later_facts_win():
    assert (Facts({"a": Fact(1, "x")}) | {"a": Fact(2, "y")}).value("a") == 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"schema_version": 9, "facts": {}}',
        '{"schema_version": 1, "facts": {"a": 1}}',
    ],
)
def test_a_bad_file_is_named(tmp_path, text):
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(UserError, match=r"bad\.json") as error:
        load_facts(tmp_path / "bad.json")
    assert error.value.exit_code == 2


def test_a_value_is_written_with_its_origin():
    text = json.loads(render_facts({"a": Fact([1], "/proc/x")}))
    fact = {"value": [1], "origin": "/proc/x", "problem": None}
    assert text == {"schema_version": 1, "facts": {"a": fact}}


@pytest.mark.parametrize(
    ("cpus", "text"), [((0, 1, 2, 8), "0-2,8"), ((3,), "3"), ((), "none"), ((5, 4), "4-5")]
)
def test_cpu_lists_are_short(cpus, text):
    assert render_cpu_list(cpus) == text


@settings(deadline=None)
@given(st.sets(st.integers(0, 300), min_size=1))
def test_cpu_lists_come_back(cpus):
    assert set(parse_cpu_list(render_cpu_list(cpus))) == cpus
