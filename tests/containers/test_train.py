"""What `train` starts, in which order, and when it refuses to go on.

The line that runs a command is replaced by one that records it and returns a code of
the test's choosing; the lines themselves are made by the code under test.
"""

import itertools
import time
from pathlib import Path

import pytest

from containers import train as module
from containers.hosts import HostSlots
from containers.job import Job
from containers.launch import Site, plan_ranks
from containers.launchers import Launch
from containers.train import Training, ask_device, train
from env.binding import render_plan
from env.errors import UserError


@pytest.fixture
def started(monkeypatch):
    """Record every command line; `codes` says what each kind returns."""
    lines, codes = [], {}

    def run(argv, *, dry_run=False, ask_ranks=None):
        kind = "launch" if argv[0] == "mpirun" else "static"
        if "--records" in argv:
            kind = "verdict"
        lines.append((kind, list(argv)))
        return codes.get(kind, 0)

    def start(argv, *, folder, timeout_s):
        lines.append(("ranks", list(argv)))
        return {}

    monkeypatch.setattr(module, "run_command", run)
    monkeypatch.setattr("containers.preflight.run_command", run)
    monkeypatch.setattr("containers.preflight.start_ranks", start)
    monkeypatch.setattr(module, "ask_device", lambda program, **_: (codes.get("check", 0), "cpu"))
    return lines, codes


def kinds(lines):
    return [kind for kind, _ in lines]


def test_validation_comes_first_with_the_launcher_line_of_the_training(started, tmp_path):
    lines, _ = started
    job = Job(2, oversubscribe=True)
    assert train(Training(tmp_path, tmp_path / "run", job)) == 0
    assert kinds(lines) == ["static", "ranks", "verdict", "launch"]
    ranks, launch = lines[1][1], lines[3][1]
    # But for the name of the rank before what it prints.
    ranks = [token for token in ranks if token not in ("--tag-output", "--output", "tag")]
    assert ranks[: ranks.index("-m")] == launch[: launch.index("-m")]
    report = lines[2][1][lines[2][1].index("--json") + 1]
    assert launch[launch.index("--environment") + 1] == report


@pytest.mark.parametrize("code", [1, 3])
@pytest.mark.parametrize("phase", ["static", "verdict"])
def test_a_failed_or_undecided_check_stops_before_training(started, tmp_path, phase, code):
    lines, codes = started
    codes[phase] = code
    assert train(Training(tmp_path, tmp_path / "run")) == code
    assert "launch" not in kinds(lines)


def test_a_validator_that_dies_is_no_pass(started, tmp_path):
    lines, codes = started
    codes["verdict"] = 139
    assert train(Training(tmp_path, tmp_path / "run")) == 1
    assert "launch" not in kinds(lines)


def test_a_configuration_that_does_not_fit_launches_nothing(started, tmp_path):
    lines, codes = started
    codes["check"] = 2
    assert train(Training(tmp_path, tmp_path / "run")) == 2
    assert lines == []


def test_no_validate_means_it(started, tmp_path):
    lines, _ = started
    assert train(Training(tmp_path, tmp_path / "run", validate=False)) == 0
    assert kinds(lines) == ["launch"]
    assert "--environment" not in lines[0][1]


def test_what_the_user_set_reaches_every_rank_as_tokens(started, tmp_path, monkeypatch):
    lines, _ = started
    monkeypatch.chdir(tmp_path)
    training = Training(
        Path(), Path("a b"), config=Path("c.toml"), settings=("weights=x; rm -rf $HOME",),
        resume=True, validate=False,
    )  # fmt: skip
    train(training)
    line = lines[0][1]
    assert line[line.index("--run") + 1] == str(tmp_path / "a b")
    assert line[line.index("--config") + 1] == str(tmp_path / "c.toml")
    assert line[line.index("--set") + 1] == "weights=x; rm -rf $HOME"
    assert "--resume" in line


def test_an_image_sees_the_folders_of_weights(started, tmp_path, monkeypatch):
    lines, _ = started
    monkeypatch.chdir(tmp_path)
    for name in ("data", "mine", "cache"):
        (tmp_path / name).mkdir()
    (tmp_path / "mine" / "w.h5").touch()
    (tmp_path / "image.sif").touch()
    monkeypatch.setenv("CHEXNET_WEIGHTS", str(tmp_path / "cache"))
    image = tmp_path / "image.sif"
    train(Training(Path("data"), tmp_path / "runs" / "one", image=image, validate=False,
                   settings=("weights=mine/w.h5", "epochs=1")))  # fmt: skip
    line = lines[-1][1]
    bound = [value for option, value in itertools.pairwise(line) if option == "--bind"]
    for name in ("mine", "cache"):
        assert f"{tmp_path / name}:{tmp_path / name}" in bound
    # The image has a current folder of its own.
    assert f"weights={tmp_path}/mine/w.h5" in line


def test_weights_of_a_configuration_file_are_seen_and_found_too(started, tmp_path, monkeypatch):
    lines, _ = started
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CHEXNET_WEIGHTS", raising=False)
    for name in ("data", "mine", "other"):
        (tmp_path / name).mkdir()
    for name in ("image.sif", "mine/w.h5", "other/w.h5"):
        (tmp_path / name).touch()
    toml, text = tmp_path / "c.toml", tmp_path / "c.json"
    toml.write_text('weights = "mine/w.h5"\n')
    text.write_text('{"weights": "mine/w.h5"}')
    image = tmp_path / "image.sif"
    # What is set stands above the file.
    for config, settings, place in ((toml, (), "mine"), (text, (), "mine"),
                                    (toml, ("weights=other/w.h5",), "other")):  # fmt: skip
        train(Training(Path("data"), tmp_path / "runs/one", image=image, validate=False,
                       config=config, settings=settings))  # fmt: skip
        line = lines[-1][1]
        bound = [value for option, value in itertools.pairwise(line) if option == "--bind"]
        assert f"{tmp_path / place}:{tmp_path / place}" in bound
        assert [word for word in line if word.startswith("weights=")] == [
            f"weights={tmp_path / place}/w.h5"
        ]


ANSWER = ["python", "-c", 'print("{\\"device\\": \\"cpu\\"}")']


@pytest.mark.parametrize(("data", "device"), [("", "cpu"), ("missing", "auto")])
def test_a_dry_run_knows_the_device_where_there_is_data(tmp_path, capsys, data, device):
    assert ask_device(ANSWER, site=Site(), data=tmp_path / data, dry_run=True) == (0, device)
    assert "device" in capsys.readouterr().out


def test_a_look_at_the_configuration_that_hangs_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CHECK_S", 1.0)
    note = tmp_path / "pids"
    hang = ["sh", "-c", f"sleep 60 & echo $$ $! > {note}; wait"]
    with pytest.raises(UserError, match="within 1 s"):
        ask_device(hang, site=Site(), data=tmp_path, dry_run=False)
    for pid in note.read_text().split():
        deadline = time.monotonic() + 30
        while Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():
            assert time.monotonic() < deadline
            time.sleep(0.05)
    with pytest.raises(UserError, match="no-such-program"):
        ask_device(["no-such-program"], site=Site(), data=tmp_path, dry_run=False)


# Refused, since another training has the folder; and nothing to do in a run that has finished.
@pytest.mark.parametrize("code", [2, 0])
def test_a_start_on_other_hosts_that_trains_nothing_leaves_the_run_as_it_was(
    tmp_path, monkeypatch, code
):
    run, seen = tmp_path / "run", {}
    run.mkdir()
    old = {"plan.json": "of the run", "environment.json": "of the run", "record.json": "{}"}
    for name, text in old.items():
        (run / name).write_text(text)
    launch = Launch(plan_ranks(2, oversubscribe=True, device="cpu"),
                    hosts=(HostSlots("a", 1), HostSlots("b", 1)))  # fmt: skip

    def validate(preflight, **_):
        preflight.report_file.write_text("of the start")
        return 0

    def look(argv, **_):
        for option in ("--plan", "--environment"):
            path = Path(argv[argv.index(option) + 1])
            seen[option] = path.read_text()
            assert path.parent == tmp_path  # which they see
        return code

    monkeypatch.setattr(module, "ask_device", lambda program, **_: (0, "cpu"))
    monkeypatch.setattr(module, "prepare_launch", lambda job, **_: (launch, 0))
    monkeypatch.setattr(module, "run_preflight", validate)
    monkeypatch.setattr(module, "run_command", look)
    assert train(Training(tmp_path, run)) == code
    assert seen == {"--plan": render_plan(launch.plan), "--environment": "of the start"}
    assert {path.name: path.read_text() for path in run.iterdir()} == old
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize(("code", "ours"), [(1, 1), (2, 2), (3, 1), (137, 1), (143, 1)])
def test_the_exit_code_of_training_is_one_of_ours(started, tmp_path, code, ours):
    _, codes = started
    codes["launch"] = code
    assert train(Training(tmp_path, tmp_path / "run", validate=False)) == ours
