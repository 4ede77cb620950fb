"""What `train` starts, in which order, and when it refuses to go on.

The line that runs a command is replaced by one that records it and returns a code of
the test's choosing; the lines themselves are made by the code under test.
"""

import itertools
from pathlib import Path

import pytest

from containers import train as module
from containers.job import Job
from containers.train import Training, train


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
    monkeypatch.setattr(
        module, "ask_device", lambda argv, *, dry_run: (codes.get("check", 0), "cpu")
    )
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


@pytest.mark.parametrize(("code", "ours"), [(1, 1), (2, 2), (3, 1), (137, 1), (143, 1)])
def test_the_exit_code_of_training_is_one_of_ours(started, tmp_path, code, ours):
    _, codes = started
    codes["launch"] = code
    assert train(Training(tmp_path, tmp_path / "run", validate=False)) == ours
