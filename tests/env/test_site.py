"""What a site expects of its nodes: writing it down, reading it, holding a node against it."""

import json

import pytest

from env.errors import UserError
from env.facts import Fact, Facts
from env.result import Status
from env.site import Site, load_site, look_up, record_site, render_site

GOOD = {
    "host.name": Fact("good1", "uname"),
    "host.machine": Fact("x86_64", "uname"),
    "host.os": Fact({"id": "debian", "version_id": "12"}, "/etc/os-release"),
    "host.memory_total": Fact(1000, "/proc/meminfo"),
    "host.shm": Fact({"total": 500, "free": 10}, "/dev/shm"),
    "host.open_files": Fact(4096, "ulimit"),
    "host.numa_nodes": Fact(None, "/sys", problem="not readable"),
}


def test_a_good_node_is_written_down_without_what_it_could_not_read():
    site = record_site(Facts(GOOD))
    assert site == Site(
        host="good1",
        equal={"host.machine": "x86_64", "host.os/id": "debian", "host.os/version_id": "12"},
        at_least={"host.memory_total": 980, "host.shm/total": 490, "host.open_files": 4096},
        thresholds={},
    )


def test_the_file_comes_back_as_it_was_written(tmp_path):
    path = tmp_path / "site.json"
    site = Site("good1", {"host.machine": "x86_64"}, {"host.open_files": 4096}, {"a_gb_s": 2.5})
    path.write_text(render_site(site))
    assert load_site(path) == site


def test_a_path_leads_into_a_value():
    facts = Facts({"a.b": Fact({"c": {"d": 3}}, "here")})
    assert look_up(facts, "a.b/c/d") == 3
    assert look_up(facts, "a.b/c/d/e") is None
    assert look_up(facts, "a.b") == {"c": {"d": 3}}


SITE = Site("good1", {"host.machine": "x86_64"}, {"host.memory_total": 980}, {})


@pytest.mark.parametrize(
    ("site", "change", "status", "words"),
    [
        (SITE, {}, Status.PASS, ""),
        (SITE, {"host.machine": Fact("arm", "uname")}, Status.FAIL, "host.machine is 'arm'"),
        (SITE, {"host.memory_total": Fact(979, "")}, Status.FAIL, "is 979, expected at least 980"),
        (SITE, {"host.memory_total": Fact(None, "")}, Status.FAIL, "is None"),
        (SITE, {"host.machine": Fact(None, "uname", problem="denied")}, Status.UNKNOWN, "denied"),
        (None, {}, Status.SKIP, "--site"),
    ],
)
def test_a_node_is_held_against_its_site(verdict, site, change, status, words):
    result = verdict("site.expectations", {**GOOD, **change}, site=site)
    assert result.status is status
    assert words in result.found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "JSON"),
        ("[]", "schema_version"),
        ('{"schema_version": 2}', "schema_version"),
        ('{"schema_version": 1, "equals": {}}', "'equals'"),
        ('{"schema_version": 1, "equal": []}', "'equal'"),
        ('{"schema_version": 1, "at_least": {"host.open_files": "many"}}', "'host.open_files'"),
        ('{"schema_version": 1, "thresholds": {"x": true}}', "'x'"),
    ],
)
def test_a_bad_file_is_named_with_its_key(tmp_path, text, words):
    path = tmp_path / "site.json"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        load_site(path)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)


def test_the_command_line_writes_and_reads_it(run_env, tmp_path):
    path = tmp_path / "site.json"
    assert run_env("--only", "host.root", "--record-site", path).returncode == 0
    written = json.loads(path.read_text())
    assert written["equal"]["host.machine"] == "x86_64"
    only = ("--only", "site.expectations", "--site", path)
    assert run_env(*only).returncode == 0
    written["equal"]["host.machine"] = "vax"
    path.write_text(json.dumps(written))
    done = run_env(*only)
    assert done.returncode == 1
    assert "'vax'" in done.stdout
