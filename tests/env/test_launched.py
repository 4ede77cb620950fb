"""What a launcher gives the ranks alone is judged as they have it, and told once."""

import resource

import pytest

from env.checks.evidence import Evidence
from env.checks.registry import find_check
from env.facts import Fact, Facts
from env.launched import plan_look, run_everywhere
from env.probes.rank import observe_rank
from env.result import Status
from env.validate import PROBES, collect_static

NO_LOCK = Fact(None, "no lock")
ENVIRON = {"PATH": "/usr/bin:/bin", "HOME": "/"}


@pytest.fixture
def soft_limit():
    """Set this process's limit of open files, as a wrapper of a rank does; undo it."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield lambda number: resource.setrlimit(resource.RLIMIT_NOFILE, (number, before[1]))
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def rank_of(number, *checks, **variables):
    """Return what a rank sees, and prints: on this host, where the static phase has looked."""
    own = {"OMPI_COMM_WORLD_RANK": str(number), "OMPI_COMM_WORLD_LOCAL_RANK": str(number)}
    environ = {**ENVIRON, **own, **variables}
    look = plan_look([find_check(name) for name in checks], probes=PROBES, of_host=False,
                     environ=environ)  # fmt: skip
    facts = Facts()
    for part in observe_rank(look, lock_sha256=NO_LOCK):
        facts |= part
    return facts


def here(*checks, **variables):
    return collect_static([find_check(name) for name in checks], environ=ENVIRON | variables)


def judged(name, facts, *ranks):
    evidence = Evidence(facts, num_ranks=len(ranks), ranks=dict(enumerate(ranks)))
    return run_everywhere(find_check(name), evidence)


def test_a_limit_that_the_ranks_alone_have(soft_limit):
    soft_limit(20000)
    facts, good = here("limits.files"), rank_of(0, "limits.files")
    soft_limit(256)
    bad = [rank_of(number, "limits.files") for number in (1, 2)]
    results = judged("limits.files", facts, good, *bad)
    assert [(r.status, r.found, r.ranks) for r in results] == [
        (Status.PASS, "20000", ()), (Status.FAIL, "256", (1, 2)),
    ]  # fmt: skip
    assert results[1].hosts == (facts.value("host.name"),)
    assert results[1].fix


def test_what_the_host_has_already_is_told_once(soft_limit):
    soft_limit(256)
    facts, ranks = here("limits.files"), [rank_of(n, "limits.files") for n in (0, 1)]
    assert [(r.status, r.ranks) for r in judged("limits.files", facts, *ranks)] == [
        (Status.FAIL, ())
    ]


def test_settings_and_folders_that_the_ranks_alone_have():
    names = ("settings.harmful", "storage.temporary")
    facts = here(*names, TMPDIR="/tmp")
    bad = rank_of(0, *names, NCCL_P2P_DISABLE="1", TMPDIR="/nonexistent")
    (passed, harmful) = judged("settings.harmful", facts, bad)
    assert (passed.status, harmful.status, harmful.ranks) == (Status.PASS, Status.WARN, (0,))
    assert harmful.found.startswith("NCCL_P2P_DISABLE")
    folders = judged("storage.temporary", facts, bad)
    assert {(r.status, r.ranks) for r in folders[1:]} == {(Status.FAIL, (0,))}
    assert "/nonexistent" in folders[1].found


def test_ranks_like_their_host_say_nothing_new():
    names = ("settings.harmful", "storage.temporary", "limits.files", "limits.process")
    facts, ranks = here(*names, TMPDIR="/tmp"), [rank_of(n, *names, TMPDIR="/tmp") for n in (0, 1)]
    assert "settings.assigned" in ranks[0]
    assert "settings.assigned" not in ranks[1]  # the first of a host looks for all
    for name in names:
        assert len(judged(name, facts, *ranks)) == 1, name


def test_numbers_that_change_between_two_looks_are_one_result():
    place = {"use": "the home", "variable": "HOME", "path": "/h", "problem": None, "total": 2**30,
             "inodes_free": None, "type": "ext4", "options": "", "remote": False,
             "writable": "yes"}  # fmt: skip
    facts = {n: Facts({"storage.places": Fact([place | {"free": n * 2**20}], "x"),
                       "host.boot_id": Fact("b", "x"), "host.name": Fact("n", "x")})
             for n in (0, 1)}  # fmt: skip
    results = judged("storage.home", facts[0], facts[1])
    assert [(r.status, r.ranks) for r in results] == [(Status.WARN, ())]


def test_a_rank_of_another_host_is_not_judged_by_what_this_one_has():
    names = ("settings.harmful", "settings.values")
    facts = here(*names)
    there = rank_of(0, *names, NCCL_P2P_DISABLE="1", HOROVOD_FUSION_THRESHOLD="64MB")
    there |= {"host.boot_id": Fact("b2", "x"), "host.name": Fact("node2", "x")}
    assert len(judged("settings.harmful", facts, there)) == 1  # needs Open MPI's release there
    assert judged("settings.values", facts, there)[1].hosts == ("node2",)


def test_a_host_that_a_rank_looked_at_is_judged_once(soft_limit):
    soft_limit(256)
    there = rank_of(0, "limits.files") | {
        "host.boot_id": Fact("b2", "x"), "host.name": Fact("node2", "x"),
        "rank.of_host": Fact(True, "x"),
    }  # fmt: skip
    soft_limit(20000)
    facts, second = here("limits.files"), there | {"rank.of_host": Fact(False, "x")}
    results = judged("limits.files", facts, there, second)
    assert [(r.status, r.hosts, r.ranks) for r in results][1:] == [(Status.FAIL, ("node2",), ())]
    # ... which does not hide a rank of this host in the same state.
    mine = {"rank.of_host": Fact(False, "x"), "host.boot_id": facts["host.boot_id"]}
    results = judged("limits.files", facts, there, there | mine)
    assert [r.ranks for r in results][1:] == [(), (1,)]
