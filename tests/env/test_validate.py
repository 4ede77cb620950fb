"""Choosing checks and locks, and judging: one fault never hides the rest."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from env.binding import BindingPlan, RankBinding
from env.checks.evidence import Evidence
from env.checks.registry import LAUNCHED, STATIC, find_check, known_checks
from env.errors import UserError
from env.facts import Fact, Facts
from env.lock import render_lock
from env.result import Finding, Status
from env.validate import (
    collect_static,
    count_ranks,
    device_of,
    find_lock,
    host_stack,
    judge,
    select_checks,
)

FACTS = Facts({"host.name": Fact("node1", "x"), "host.uid": Fact(1000, "x")})


def ids(checks):
    return [check.id for check in checks]


def test_a_healthy_machine_raises_no_alarm(healthy):
    done, _, report = healthy
    bad = [r for r in report["results"] if r["status"] in ("FAIL", "WARN", "UNKNOWN")]
    assert (done.returncode, report["exit_code"], bad) == (0, 0, []), done.stderr
    phases = [one for one in known_checks().values() if one.phase == STATIC]
    assert len(report["results"]) == len(phases) >= 20
    assert done.stderr == ""


def test_static_checks_alone_without_records():
    assert {one.phase for one in select_checks()[0]} == {STATIC}
    assert {one.phase for one in select_checks(launched=True)[0]} == {STATIC, LAUNCHED}


def test_only_and_skip():
    run, skipped = select_checks(only=["host.root", "cpu.quota"], skip=["cpu.quota"])
    assert (ids(run), ids(skipped)) == (["host.root"], ["cpu.quota"])


@pytest.mark.parametrize("options", [{"only": ["no.such"]}, {"skip": ["no.such"]}])
def test_an_unknown_id_lists_the_known(options):
    with pytest.raises(UserError, match=r"'no\.such'") as error:
        select_checks(**options)
    assert all(name in str(error.value) for name in known_checks())


def test_a_check_of_ranks_needs_records():
    with pytest.raises(UserError, match=r"mpi\.size"):
        select_checks(only=["mpi.size"])


def test_only_what_is_needed_is_observed():
    facts = collect_static([find_check("mpi.version")])
    assert {key.split(".")[0] for key in facts} == {"mpi", "host"}


def test_a_broken_check_does_not_hide_the_others():
    def broken(evidence):
        raise ZeroDivisionError("oh")

    first = replace(find_check("cpu.quota"), judge=broken, required=True)
    report = judge(Evidence(FACTS), checks=[first, find_check("host.root")])
    assert [(r.id, r.status) for r in report.results] == [
        ("cpu.quota", Status.UNKNOWN), ("host.root", Status.PASS),
    ]  # fmt: skip
    assert report.exit_code == 3


def cause(hosts=(), status=Status.FAIL):
    finding = Finding(status, "a whole MPI", "a broken one", hosts=hosts)
    return replace(find_check("mpi.installation"), judge=lambda evidence: finding)


def blind(name, hosts=()):
    finding = Finding(Status.UNKNOWN, "x", "could not tell: mpi.banner: exit code 1", hosts=hosts)
    return replace(find_check(name), judge=lambda evidence: finding)


def test_what_follows_from_a_failure_is_skipped_wherever_it_stands():
    report = judge(Evidence(FACTS), checks=[blind("mpi.version"), cause(), blind("mpi.library")])
    told = [(result.id, result.status, result.fix) for result in report.results]
    assert [told[0], told[2]] == [
        ("mpi.version", Status.SKIP, ""), ("mpi.library", Status.SKIP, ""),
    ]  # fmt: skip
    assert report.results[0].found == "could not tell, since mpi.installation failed"
    assert report.exit_code == 1


@pytest.mark.parametrize(
    ("failed", "other"),
    [
        (cause(), blind("python.version")),  # reads nothing of it
        (cause(status=Status.WARN), blind("mpi.version")),
        (cause(hosts=("a",)), blind("mpi.version", hosts=("a", "b"))),
    ],
)
def test_what_has_another_reason_stays_unknown(failed, other):
    report = judge(Evidence(FACTS), checks=[failed, other])
    assert report.results[1].status is Status.UNKNOWN
    assert report.results[1].fix


def test_a_failure_that_is_silenced_explains_nothing():
    silenced = {"mpi.installation": "known"}
    report = judge(Evidence(FACTS), checks=[cause(), blind("mpi.version")], silenced=silenced)
    assert [r.status for r in report.results] == [Status.INFO, Status.UNKNOWN]
    assert report.exit_code == 3


def test_fail_fast_stops_at_the_first_fail():
    checks = [find_check(name) for name in ("host.root", "mpi.launcher", "cpu.quota")]
    facts = FACTS | {"mpi.mpirun": Fact(None, "PATH")}
    report = judge(Evidence(facts), checks=checks, fail_fast=True)
    assert [r.id for r in report.results] == ["host.root", "mpi.launcher"]
    assert report.exit_code == 1


def test_what_was_left_out_is_in_the_report():
    report = judge(Evidence(FACTS), checks=[], skipped=[find_check("mpi.launcher")])
    (result,) = report.results
    assert (result.status, report.exit_code) == (Status.SKIP, 0)


def test_the_report_names_time_stack_and_hosts(lock):
    ranks = {0: Facts({"host.name": Fact("node2", "x")}), 1: Facts()}
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    report = judge(Evidence(FACTS, ranks=ranks, lock=lock), checks=[], now=now)
    assert (report.started, report.hosts) == ("2026-01-02T03:04:05Z", ("node1", "node2"))
    assert report.stack == lock.stack


@pytest.mark.parametrize("reports", ["both", "neither"])
def test_hosts_are_told_by_the_names_of_the_plan(reports):
    """Nodes call themselves by their whole names, which Slurm does not know."""
    plan = BindingPlan(tuple(RankBinding(n, 0, f"node{n + 1}", (), None, 1) for n in (0, 1)), 0)
    own = [Facts({"host.name": Fact(f"node{n}.cluster.local", "x")}) for n in (1, 2)]
    ranks = dict(enumerate(own)) if reports == "both" else {}
    failed = Finding(Status.FAIL, "x", "bad", hosts=("node1.cluster.local", "node2"))
    check = replace(find_check("ranks.alike"), judge=lambda evidence: failed)
    report = judge(Evidence(own[0], 2, ranks, plan=plan), checks=[check])
    assert report.failed_hosts == ("node1", "node2")
    assert report.results[0].hosts == ("node1", "node2")
    assert report.hosts == (("node1", "node2") if ranks else ("node1",))


def test_machines_of_one_name_are_told_apart_by_the_plan():
    plan = BindingPlan(tuple(RankBinding(n, 0, "ab"[n], (), None, 1) for n in (0, 1)), 0)
    facts = Facts({"host.name": Fact("image", "x")})
    ranks = {n: facts | {"host.boot_id": Fact(f"b{n}", "x")} for n in (0, 1)}
    report = judge(Evidence(ranks[0], 2, ranks, plan=plan), checks=[find_check("ranks.alike")])
    assert report.failed_hosts == ("a", "b")


def write_lock(path, lock, **changes):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render_lock(replace(lock, **changes)))
    return path


def test_the_lock_given_comes_before_the_variable_before_the_image(tmp_path, lock):
    given = write_lock(tmp_path / "given.json", lock, stack="cpu13")
    named = write_lock(tmp_path / "named.json", lock)
    image = write_lock(tmp_path / "opt/chexnet/stack.lock.json", lock)
    environ = {"CHEXNET_LOCK": str(named)}

    def find(**options):
        return find_lock(
            **{"lock": None, "stack": None, "environ": {}, "root": tmp_path, **options}
        )[0]

    assert find(lock=given, environ=environ) == given
    assert find(environ=environ) == named
    assert find() == image
    assert find(root=tmp_path / "bare") is None


def test_a_lock_of_another_stack_is_refused(tmp_path, lock):
    path = write_lock(tmp_path / "x.json", lock, stack="cpu13")
    with pytest.raises(UserError, match="a lock of stack cpu"):
        find_lock(lock=path, stack="cpu")
    with pytest.raises(UserError, match="use one of: cpu, cpu13"):
        find_lock(lock=path, stack="nope")


def test_the_stack_of_a_host(tmp_path):
    (tmp_path / "etc").mkdir()
    systems = {'ID=debian\nVERSION_ID="13"\n': "cpu13", "ID=debian\nVERSION_ID=12\n": "cpu"}
    for text, stack in {**systems, "ID=arch\n": None}.items():
        (tmp_path / "etc/os-release").write_text(text)
        assert host_stack(tmp_path) == stack


def test_the_device_follows_the_stack(lock):
    assert device_of(replace(lock, stack="cpu")) == "cpu"
    assert device_of(replace(lock, stack="of another release")) is None
    assert device_of(None) is None


def test_the_ranks_say_how_many_they_are():
    assert count_ranks({}) == 1
    assert count_ranks({0: Facts({"launch.size": Fact(4, "x")}), 1: Facts()}) == 4
    assert count_ranks({0: Facts(), 7: Facts()}) == 2
