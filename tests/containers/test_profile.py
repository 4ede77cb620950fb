"""What `profile` starts; the line that runs a command is replaced by one that records it."""

import json
import shlex
from pathlib import Path

import pytest

from containers import profile as module
from containers.hosts import parse_hosts
from containers.job import Job
from containers.profile import Profile, profile
from env.errors import UserError


@pytest.fixture
def started(monkeypatch):
    """Record each line, with what the plan held while it ran; `codes` says what is returned."""
    lines, plans, codes = [], [], {"launch": 0, "check": 0}

    def run(argv, *, dry_run=False):
        lines.append(list(argv))
        plan = Path(argv[argv.index("--plan") + 1])
        plans.append(json.loads(plan.read_text()))
        return codes["launch"]

    def ask(program, **_):
        lines.append(list(program))
        return codes["check"], "cpu"

    monkeypatch.setattr(module, "run_command", run)
    monkeypatch.setattr(module, "ask_device", ask)
    return lines, plans, codes


def test_every_rank_runs_the_program_under_a_plan(started, tmp_path):
    lines, plans, _ = started
    asked = Profile(tmp_path, tmp_path / "out", Job(2, oversubscribe=True), steps=60,
                    settings=("model=tiny", "a=b c"))  # fmt: skip
    assert profile(asked) == 0
    check, launch = lines
    assert check[-1] == "--check"
    assert launch[0] == "mpirun"
    words = launch[launch.index("chexnet") + 1 :]
    assert words[:7] == [
        "profile", "--data", str(tmp_path), "--output", str(tmp_path / "out"), "--steps", "60",
    ]  # fmt: skip
    assert words[7:11] == ["--set", "model=tiny", "--set", "a=b c"]
    assert [rank["rank"] for rank in plans[0]["ranks"]] == [0, 1]
    assert not Path(launch[launch.index("--plan") + 1]).exists()  # cleared away


def test_a_configuration_that_does_not_fit_starts_no_rank(started, tmp_path):
    lines, _, codes = started
    codes["check"] = 2
    assert profile(Profile(tmp_path, tmp_path / "out")) == 2
    assert len(lines) == 1


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (1, 1), (2, 2), (137, 1)])
def test_the_exit_code_is_the_programs(started, tmp_path, code, expected):
    started[2]["launch"] = code
    assert profile(Profile(tmp_path, tmp_path / "out")) == expected


def test_missing_data_is_told_before_anything_is_started(started, tmp_path):
    with pytest.raises(UserError) as caught:
        profile(Profile(tmp_path / "nowhere", tmp_path / "out"))
    assert caught.value.exit_code == 2
    assert started[0] == []


def test_a_dry_run_prints_both_lines_and_leaves_nothing(tmp_path, capsys):
    asked = Profile(tmp_path / "data", tmp_path / "new" / "out", Job(2, oversubscribe=True))
    assert profile(asked, dry_run=True) == 0
    check, launch = (shlex.split(line) for line in capsys.readouterr().out.splitlines())
    assert check[-1] == "--check"
    assert launch[0] == "mpirun"
    assert list(tmp_path.iterdir()) == []


def test_the_plan_of_other_hosts_lies_where_they_see_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("os.getpid", lambda: 7)
    monkeypatch.setenv("OMPI_MCA_plm_rsh_agent", "ssh")
    job = Job(hosts=parse_hosts("a:1,b:1", resolve=False), launcher="mpirun", oversubscribe=True)
    asked = Profile(tmp_path / "data", tmp_path / "out", job)
    assert profile(asked, dry_run=True) == 0
    launch = shlex.split(capsys.readouterr().out.splitlines()[-1])
    assert launch[launch.index("--plan") + 1] == str(tmp_path / ".out-7-plan.json")
    assert list(tmp_path.iterdir()) == []
