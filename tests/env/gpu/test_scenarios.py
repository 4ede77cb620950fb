"""The GPU entries of the failure catalogue on machines made up for them, and healthy machines.

A scenario names the machine, what is changed, and every verdict that is not a pass. A check
that it does not name must pass or have nothing to judge: no false alarm hides here.
"""

from pathlib import Path

import pytest

from env.checks.registry import known_checks, run_all
from env.result import Status

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.json"))
QUIET = (Status.PASS, Status.SKIP)
JUDGED = ("gpu.", "driver.", "network.gpudirect")


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_scenario_gets_its_verdicts(path, observe):
    scenario, evidence = observe(path)
    loud = {}
    for one in known_checks().values():
        if one.id.startswith(JUDGED) and (one.phase == "static" or evidence.ranks):
            loud |= {one.id: [r for r in run_all(one, evidence) if r.status not in QUIET]}
    found = {name: results for name, results in loud.items() if results}
    expected = scenario["expect"]
    assert set(found) == set(expected), [r for results in found.values() for r in results]
    for name, (status, text) in expected.items():
        assert any(r.status == status and text in r.found for r in found[name]), found[name]
        assert all(r.fix for r in found[name] if r.status is not Status.INFO)


def test_every_gpu_entry_of_the_catalogue_has_a_scenario():
    wanted = {f"PIN-{n:02}" for n in range(1, 18)} - {"PIN-02", "PIN-11"}
    wanted |= {f"VER-{n:02}" for n in range(1, 5)} | {f"CON-{n:02}" for n in range(1, 9)}
    wanted |= {"SLM-01", "SLM-03", "SLM-04"}
    assert wanted <= {path.stem[:6].upper() for path in SCENARIOS}
    covered = {entry for one in known_checks().values() for entry in one.covers}
    assert wanted <= covered
