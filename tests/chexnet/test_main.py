"""The command line without TensorFlow: help and wrong use, each with its exit code."""

import subprocess
import sys
from pathlib import Path

import pytest

import chexnet.__main__ as program
from chexnet.errors import UserError
from chexnet.quiet import quiet_import
from chexnet.results import result_verbs
from chexnet.training import train_verbs
from chexnet.training.run_record import RunRecord, load_record, write_record


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    for name in (*program.RANK_VARIABLES, *program.SIZE_VARIABLES):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("verb", ["train", "evaluate", "make-sample-data", "prepare-data"])
def test_every_verb_has_help(verb, capsys):
    with pytest.raises(SystemExit) as caught:
        program.main([verb, "--help"])
    assert caught.value.code == 0
    assert "--" in capsys.readouterr().out


def test_help_of_train_lists_presets_and_keys(capsys):
    with pytest.raises(SystemExit):
        program.main(["train", "--help"])
    out = capsys.readouterr().out
    assert "demo, lab" in out
    assert "batch_norm_momentum" in out


def test_help_does_not_load_tensorflow():
    code = (
        "import sys; from chexnet.__main__ import make_parser; make_parser(); "
        "sys.exit('tensorflow' in sys.modules or 'horovod' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["train", "--data", "d", "--run", "r", "--set", "colour=red"], "'colour'"),
        (["train", "--data", "d", "--run", "r", "--set", "preset=worst"], "demo, lab"),
        (["train", "--data", "d", "--run", "r", "--config", "/none.toml"], "/none.toml"),
        (["evaluate", "--run", "/nowhere"], "/nowhere"),
    ],
)
def test_wrong_use_is_a_message_and_exit_2(words, expected, capsys):
    assert program.main(words) == 2
    err = capsys.readouterr().err
    assert expected in err
    assert "Traceback" not in err


def test_no_verb_is_wrong_use(capsys):
    with pytest.raises(SystemExit) as caught:
        program.main([])
    assert caught.value.code == 2
    assert "VERB" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "expected"),
    [
        (UserError("a", found="b", fix="c", exit_code=3), 3, "fix:      c"),
        (KeyboardInterrupt(), 1, "ctrl-C"),
        (RuntimeError("a fault of ours"), 1, "Traceback"),
    ],
)
def test_exit_codes(monkeypatch, capsys, error, code, expected):
    def fail(arguments):
        raise error

    monkeypatch.setattr(result_verbs, "_evaluate", fail)
    assert program.main(["evaluate", "--run", "r"]) == code
    assert expected in capsys.readouterr().err


def test_a_path_that_leads_nowhere_is_a_message_and_no_traceback(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setenv("CHEXNET_WEIGHTS", str(tmp_path / "file"))
    for words, named in (
        (["presets", "--markdown", str(tmp_path / "none" / "p.md")], str(tmp_path / "none")),
        (["presets", "--markdown", str(tmp_path / "file" / "p.md")], str(tmp_path / "file")),
        (["presets", "--markdown", str(tmp_path)], str(tmp_path)),
        (["fetch-weights", "--model", "resnet50"], str(tmp_path / "file")),
    ):
        assert program.main(words) == 1
        err = capsys.readouterr().err
        assert f"found:    {named}" in err
        assert "fix:" in err
        assert "Traceback" not in err


def test_a_disk_that_is_full_is_told_without_the_name_of_a_file(monkeypatch, capsys):
    def fill(arguments):
        with Path("/dev/full").open("w") as file:
            file.write("x")

    monkeypatch.setattr(result_verbs, "_evaluate", fill)
    assert program.main(["evaluate", "--run", "r"]) == 1
    assert "found:    a file: No space left on device" in capsys.readouterr().err


def test_what_an_import_writes_is_held_back_unless_it_fails(capfd):
    import os

    with quiet_import():
        os.write(2, b"a note of TensorFlow")
    assert "note" not in capfd.readouterr().err

    def broken():
        with quiet_import():
            os.write(2, b"the reason")
            raise ImportError

    with pytest.raises(ImportError):
        broken()
    assert "the reason" in capfd.readouterr().err


@pytest.mark.parametrize(
    "line", ["print(text)", "from rich.console import Console; Console().print(text)"]
)
def test_a_reader_that_has_gone_ends_it_without_a_word(line):
    code = (
        "import sys; import chexnet.__main__ as p; from chexnet.results import result_verbs\n"
        "def show(arguments):\n"
        f" for text in ['a line'] * 20_000: {line}\n"
        "result_verbs._evaluate = show\n"
        "sys.exit(p.main(['evaluate', '--run', 'r']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        child.stdout.readline()
        child.stdout.close()
        assert child.stderr.read() == b""
    assert child.returncode == 141


@pytest.mark.parametrize(
    ("verb", "code", "status"),
    [("train", 1, "failed"), ("train", 2, "running"), ("evaluate", 1, "running")],
)
def test_only_a_training_that_failed_is_recorded_as_failed(
    monkeypatch, tmp_path, verb, code, status
):
    def fail(arguments):
        raise UserError("a", found="b", fix="c", exit_code=code)

    def end(code):
        raise SystemExit(code)

    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    monkeypatch.setattr(program, "end_now", end)
    monkeypatch.setattr(program.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(result_verbs, "_evaluate", fail)
    monkeypatch.setattr(train_verbs, "_train", fail)
    record = RunRecord(
        status="running", command=("train",), started="2026-01-02T03:04:05+00:00", ranks=2,
        hosts=("a", "a"), device="cpu", data="/data", data_sha256="0" * 64, lock_sha256=None,
        git_revision=None, versions={}, horovod={},
    )  # fmt: skip
    write_record(tmp_path, record=record)
    data = ["--data", "d"] if verb == "train" else []
    with pytest.raises(SystemExit) as caught:
        program.main([verb, *data, "--run", str(tmp_path)])
    assert caught.value.code == code
    assert load_record(tmp_path).status == status
