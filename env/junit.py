"""The report as JUnit XML, which build servers and test dashboards read.

Knows that format's words: a FAIL is a failure, an UNKNOWN an error, a SKIP skipped; all
else passed, with its text kept. Leaves the report itself to ``env.report``.
"""

from __future__ import annotations

from xml.etree import ElementTree

from env.report import Report, clean
from env.result import Result, Status

_TAGS = {Status.FAIL: "failure", Status.UNKNOWN: "error", Status.SKIP: "skipped"}


def render_junit(report: Report) -> str:
    """Return the report as JUnit XML text: one suite, one case for each result."""
    statuses = [result.status for result in report.results]
    counts = {
        "tests": len(statuses),
        "failures": statuses.count(Status.FAIL),
        "errors": statuses.count(Status.UNKNOWN),
        "skipped": statuses.count(Status.SKIP),
    }
    name = f"validate-env {clean(', '.join(report.hosts))}".strip()
    attributes = {key: str(number) for key, number in counts.items()}
    suite = ElementTree.Element(
        "testsuite", {"name": name, "timestamp": report.started.removesuffix("Z"), **attributes}
    )
    for result in report.results:
        suite.append(_case(result))
    suites = ElementTree.Element("testsuites", {"name": "validate-env", **attributes})
    suites.append(suite)
    ElementTree.indent(suites, space=" ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + (
        ElementTree.tostring(suites, encoding="unicode") + "\n"
    )


def _case(result: Result) -> ElementTree.Element:
    """Return one result; every text on one line without what XML cannot hold."""
    case = ElementTree.Element(
        "testcase", {"classname": f"env.{result.phase}", "name": result.id, "time": "0"}
    )
    parts = (
        ("expected", result.expected),
        ("found", result.found),
        ("where", result.where),
        ("fix", result.fix),
        ("hosts", ", ".join(result.hosts)),
        ("ranks", ", ".join(map(str, result.ranks))),
    )
    text = "\n".join(f"{name}: {clean(value)}" for name, value in parts if value)
    tag = _TAGS.get(result.status)
    if tag is None:
        ElementTree.SubElement(case, "system-out").text = f"{result.status}\n{text}"
        return case
    said = ElementTree.SubElement(case, tag, {"message": clean(result.found)})
    if result.status is not Status.SKIP:
        said.set("type", str(result.status))
        said.text = text
    return case
