"""How many of the known failures are detected: each by a check that tests have seen to fail."""

import json
import re
from pathlib import Path

import pytest

from env.checks.registry import known_checks
from env.checks.table import detected_by, render_table
from env.errors import UserError
from env.failures import load_failures
from env.stack import PROJECT

FAILURES = load_failures()
FOUND = detected_by()


def tried_checks():
    """Return the files that try each check from its probe on: tests, and scenarios of GPUs."""
    tried = {}
    for path in sorted((PROJECT / "tests").rglob("test_*.py")):
        for name in re.findall(r"\"([a-z]+\.[a-z-]+)\"", path.read_text(encoding="utf-8")):
            tried.setdefault(name, set()).add(path.relative_to(PROJECT).as_posix())
    for path in sorted((PROJECT / "tests").rglob("scenarios/*.json")):
        for name in json.loads(path.read_text(encoding="utf-8")).get("expect", {}):
            tried.setdefault(name, set()).add(path.relative_to(PROJECT).as_posix())
    return tried


def test_the_known_failures_are_110_each_with_a_title_of_its_own():
    assert len(FAILURES) == 110
    assert len({failure.title for failure in FAILURES.values()}) == 110
    families = {name.partition("-")[0] for name in FAILURES}
    assert families == {"VER", "PIN", "BIND", "CON", "MPI", "NET", "SLM", "RES", "REP"}


@pytest.mark.parametrize("name", FAILURES)
def test_each_is_detected_or_has_a_reason_why_not(name):
    assert bool(FOUND[name]) != bool(FAILURES[name].unseen), FOUND[name]


def test_checks_name_known_failures_only():
    assert set(FOUND) == set(FAILURES)


def test_each_check_that_detects_one_is_tried_from_its_probe_on():
    tried = tried_checks()
    for name, checks in FOUND.items():
        assert any(check in tried for check in checks), f"{name}: no test tries {checks}"


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_that_stops_a_launch_is_covered_by_a_check_that_can(name):
    if not FAILURES[name].verdict.startswith("FAIL") or not FOUND[name]:
        return
    verdicts = " ".join(known_checks()[check].verdicts for check in FOUND[name])
    assert "FAIL" in verdicts or FAILURES[name].note, f"{name}: {FOUND[name]} never FAIL"


def test_how_many_are_detected(capsys):
    detected = [name for name in FAILURES if FOUND[name]]
    tried = tried_checks()
    with capsys.disabled():
        print(f"\n{len(detected)} of {len(FAILURES)} known failures are detected, by "
              f"{len({c for checks in FOUND.values() for c in checks})} checks")  # fmt: skip
    lines = [f"{name} {' '.join(FOUND[name])} <- {sum(len(tried.get(c, ())) for c in FOUND[name])}"
             for name in FAILURES]  # fmt: skip
    print("\n".join(lines))
    assert len(detected) >= 108
    record = json.loads((PROJECT / "benchmarks/results/coverage.json").read_text())
    assert {"name": "detected", "value": len(detected), "unit": "failures"} in record["results"]


def test_the_page_says_the_same():
    page = render_table()
    for name, failure in FAILURES.items():
        assert f"| {name} | {failure.title} | {failure.verdict} |" in page
    detected = sum(bool(checks) for checks in FOUND.values())
    assert f"{detected} of 110 are detected" in page


@pytest.mark.parametrize(
    ("text", "found"),
    [("[X-01", "Expected|end of file"),
     ('[X-01]\ntitle = "a"\nverdict = "FAIL"\n', "X-01: 'tried'"),
     ('[X-01]\ntitle = "a"\nverdict = "BAD"\ntried = "R"\n', "X-01: 'BAD'"),
     ('[X-01]\ntitle = "a"\nverdict = "FAIL"\ntried = "R"\ncolour = 1\n', "colour")],
)  # fmt: skip
def test_a_bad_entry_is_named(tmp_path, text, found):
    file = Path(tmp_path / "failures.toml")
    file.write_text(text)
    with pytest.raises(UserError, match=found) as error:
        load_failures(file)
    assert str(file) in str(error.value)
