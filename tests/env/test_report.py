"""The report: its schema, its order, and texts that come from a hostile machine."""

import io
import json

import jsonschema
import pytest

from env.report import SCHEMA, Report, clean, print_text, render_json, render_text
from env.result import Result, Status, exit_code

SCHEMA_JSON = json.loads(SCHEMA.read_text())


def result(name, status, *, found="this", fix="do that", ranks=()):
    fix = fix if status in (Status.FAIL, Status.WARN, Status.UNKNOWN) else ""
    return Result(name, status, "static", "good", found, "/there", fix, ("node1",), ranks)


def report(*results, code=0):
    return Report("cpu", "2026-01-02T03:04:05Z", ("node1",), results, code)


def plain(*results, **options):
    text = io.StringIO()
    print_text(report(*results), stream=text, **options)
    return text.getvalue()


def test_every_status_fits_the_schema():
    full = report(*(result(f"a.{s.lower()}", s, ranks=(0, 1)) for s in Status), code=1)
    jsonschema.validate(json.loads(render_json(full)), SCHEMA_JSON)


def test_a_real_report_fits_the_schema(healthy):
    jsonschema.validate(healthy[2], SCHEMA_JSON)


@pytest.mark.parametrize(
    ("field", "value"),
    [("status", "OK"), ("fix", ""), ("phase", "late"), ("ranks", [-1]), ("id", "X")],
)
def test_the_schema_refuses(field, value):
    data = json.loads(render_json(report(result("a.b", Status.FAIL), code=1)))
    data["results"][0][field] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, SCHEMA_JSON)


def test_the_worst_comes_first_and_passes_share_a_line():
    text = plain(
        result("a.pass", Status.PASS), result("b.info", Status.INFO), result("c.fail", Status.FAIL),
        result("d.warn", Status.WARN), result("e.pass", Status.PASS),
        result("f.unknown", Status.UNKNOWN),
    )  # fmt: skip
    heads = [line.split()[:2] for line in text.splitlines() if line[:1] != " "]
    assert heads[:4] == [
        ["FAIL", "c.fail"],
        ["UNKNOWN", "f.unknown"],
        ["WARN", "d.warn"],
        ["INFO", "b.info"],
    ]
    assert "PASS    a.pass, e.pass\n" in text
    assert text.endswith(
        "6 checks of node1 (stack cpu): 1 FAIL, 1 UNKNOWN, 1 WARN, 1 INFO, 2 PASS\n"
    )


def test_a_result_says_what_where_and_what_to_do():
    text = plain(result("a.b", Status.FAIL, ranks=(0, 3)))
    assert text.splitlines()[:4] == [
        "FAIL    a.b  (ranks 0, 3)",
        "        expected: good",
        "        found:    this  [/there]",
        "        fix:      do that",
    ]


def test_only_what_is_bad():
    assert plain(result("a.pass", Status.PASS), result("b.info", Status.INFO), only_bad=True) == ""
    text = plain(result("a.pass", Status.PASS), result("b.warn", Status.WARN), only_bad=True)
    assert "a.pass" not in text
    assert "b.warn" in text


def test_without_rich_the_words_are_the_same(monkeypatch):
    results = [
        result("a.fail", Status.FAIL, found="[bold]x[/bold] /a/path.so"),
        result("b.c", Status.PASS),
    ]
    with_rich = plain(*results)
    monkeypatch.setitem(__import__("sys").modules, "rich.console", None)
    assert plain(*results) == with_rich
    assert "[bold]x[/bold]" in with_rich


def test_control_characters_are_shown_not_obeyed():
    assert clean("a\x1b[31mred\x07\nnext\u202e") == r"a\x1b[31mred\x07 | next\x202e"
    lines = render_text(report(result("a.b", Status.FAIL, found="x\x1b[2J\ry")))
    assert all(line.isprintable() for _, line in lines)


def test_endless_texts_are_cut():
    assert len(clean("x" * 10_000)) < 700


@pytest.mark.parametrize(
    ("statuses", "code"),
    [((), 0), ((Status.WARN, Status.INFO, Status.SKIP, Status.PASS), 0), ((Status.UNKNOWN,), 3),
     ((Status.UNKNOWN, Status.FAIL), 1), ((Status.FAIL,), 1)],
)  # fmt: skip
def test_exit_codes(statuses, code):
    results = [result("a.b", status) for status in statuses]
    assert exit_code(results, required=["a.b"]) == code


def test_a_check_that_is_not_required_may_be_unable_to_tell():
    assert exit_code([result("a.b", Status.UNKNOWN)], required=[]) == 0


def test_what_was_left_out_shares_a_line_with_its_reasons():
    left = [result(name, Status.SKIP, found="left out with --skip") for name in ("a.b", "c.d")]
    lines = [line for line in plain(*left).splitlines() if line.startswith("SKIP")]
    assert lines == ["SKIP    a.b, c.d (left out with --skip)"]


def test_failing_hosts_are_those_named_or_the_only_one():
    fail = Result("a.b", Status.FAIL, "static", "x", "y", "", "z", ("node2",), ())
    nobody = Result("c.d", Status.FAIL, "static", "x", "y", "", "z", (), ())
    warned = Result("e.f", Status.WARN, "static", "x", "y", "", "z", ("node9",), ())
    both = ("node1", "node2")
    assert Report("cpu", "", both, (fail, nobody, warned), 1).failed_hosts == ("node2",)
    assert Report("cpu", "", ("node1",), (nobody,), 1).failed_hosts == ("node1",)
    assert Report("cpu", "", ("node1",), (warned,), 0).failed_hosts == ()
