"""What --hosts takes, and the plain words for what it does not."""

import pytest

from containers.hosts import HostSlots, parse_hosts, total_ranks
from env.errors import UserError


def test_hosts_keep_their_order_and_their_numbers():
    hosts = parse_hosts("b:2, a:1,10.0.0.7:3", resolve=False)
    assert hosts == (HostSlots("b", 2), HostSlots("a", 1), HostSlots("10.0.0.7", 3))
    assert parse_hosts("localhost:2") == (HostSlots("localhost", 2),)
    assert parse_hosts(" ") == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a", "a number of ranks for a"), ("a:", "a number of ranks for a"),
        ("a:two", "'a:two'"), ("a:-1", "'a:-1'"), ("a:0", "at least 1 rank on a"),
        ("a:1,a:2", "a:3"), ("a:1,,b:1", "the name of a host"), (":3", "the name of a host"),
        ("a b:1", "'a b'"), ("-x:1", "'-x'"), ("a;rm:1", "'a;rm'"), ("a:²", "a number of ranks"),
    ],
)  # fmt: skip
def test_mistakes_are_named(text, words):
    with pytest.raises(UserError) as error:
        parse_hosts(text, resolve=False)
    assert words in str(error.value)
    assert error.value.exit_code == 2


def test_a_name_that_leads_nowhere():
    with pytest.raises(UserError, match=r"a host called 'no-such-host\.invalid'"):
        parse_hosts("localhost:1,no-such-host.invalid:1")


def slurm(tmp_path, names, **variables):
    stub = tmp_path / "scontrol"
    stub.write_text(f"#!/bin/sh\necho '{names}' | tr ' ' '\\n'\n")
    stub.chmod(0o755)
    return {"SLURM_JOB_NODELIST": "n[1-4]", **variables}


def test_the_hosts_of_a_slurm_job(tmp_path, monkeypatch):
    environ = slurm(tmp_path, "n1 n2 n3 n4", SLURM_TASKS_PER_NODE="2(x3),1")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    hosts = parse_hosts("slurm", environ=environ)
    assert hosts == tuple(HostSlots(f"n{n}", 2 if n < 4 else 1) for n in range(1, 5))


@pytest.mark.parametrize(
    ("ranks", "hosts"),
    [(1, {"n1": 1}), (3, {"n1": 2, "n2": 1}), (7, {"n1": 2, "n2": 2, "n3": 2, "n4": 1})],
)
def test_the_first_ranks_of_a_slurm_job(tmp_path, monkeypatch, ranks, hosts):
    environ = slurm(tmp_path, "n1 n2 n3 n4", SLURM_TASKS_PER_NODE="2(x3),1")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = parse_hosts(f"slurm:{ranks}", environ=environ)
    assert {host.name: host.ranks for host in found} == hosts


@pytest.mark.parametrize("text", ["slurm:0", "slurm:8"])
def test_more_ranks_than_a_slurm_job_has(tmp_path, monkeypatch, text):
    environ = slurm(tmp_path, "n1 n2 n3 n4", SLURM_TASKS_PER_NODE="2(x3),1")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(UserError, match="1 to 7 of the job's ranks"):
        parse_hosts(text, environ=environ)


@pytest.mark.parametrize("tasks", ["2(x3)", "lots", "2(x3),,1"])
def test_a_slurm_that_does_not_add_up(tmp_path, monkeypatch, tasks):
    environ = slurm(tmp_path, "n1 n2 n3 n4", SLURM_TASKS_PER_NODE=tasks)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(UserError, match="tasks"):
        parse_hosts("slurm", environ=environ)


def test_slurm_outside_slurm():
    with pytest.raises(UserError, match="inside sbatch or salloc"):
        parse_hosts("slurm", environ={})


def test_ranks_and_hosts_have_to_agree():
    hosts = (HostSlots("a", 2), HostSlots("b", 1))
    assert (total_ranks(hosts, ranks=None), total_ranks(hosts, ranks=3)) == (3, 3)
    assert (total_ranks((), ranks=None), total_ranks((), ranks=5)) == (1, 5)
    for ranks in (4, 0):
        with pytest.raises(UserError, match="--ranks 3"):
            total_ranks(hosts, ranks=ranks)
