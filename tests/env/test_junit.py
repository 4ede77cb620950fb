"""The report as JUnit XML: counts, texts, and words that XML cannot hold."""

from xml.etree import ElementTree

from env.junit import render_junit
from env.report import Report
from env.result import Result, Status


def render(*results):
    report = Report("cpu", "2026-01-02T03:04:05Z", ("node1", "node2"), results, 1)
    return ElementTree.fromstring(render_junit(report))


def result(name, status, found="this"):
    return Result(name, status, "launched", "that", found, "/there", "mend it", ("node2",), (1, 3))


def test_each_status_becomes_the_word_that_dashboards_know():
    root = render(*(result(f"a.{status.lower()}", status) for status in Status))
    suite = root.find("testsuite")
    numbers = {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert numbers == {"tests": "6", "failures": "1", "errors": "1", "skipped": "1"}
    said = {case.get("name"): [child.tag for child in case] for case in suite}
    assert said == {
        "a.fail": ["failure"], "a.unknown": ["error"], "a.skip": ["skipped"],
        "a.warn": ["system-out"], "a.info": ["system-out"], "a.pass": ["system-out"],
    }  # fmt: skip


def test_a_failure_says_where_and_what_to_do():
    failure = render(result("a.b", Status.FAIL)).find("testsuite/testcase/failure")
    assert failure.get("message") == "this"
    assert failure.text.splitlines() == [
        "expected: that", "found: this", "where: /there", "fix: mend it", "hosts: node2",
        "ranks: 1, 3",
    ]  # fmt: skip


def test_words_of_a_hostile_machine_are_data():
    found = 'a</failure><x attr="1">\x1b[31m\x00\ud800 ]]> & é'
    failure = render(result("a.b", Status.FAIL, found)).find("testsuite/testcase/failure")
    assert list(failure) == []
    assert failure.get("message") == 'a</failure><x attr="1">\\x1b[31m\\x00\\xd800 ]]> & é'
