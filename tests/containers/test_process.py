"""Running long commands: the log, progress on a terminal and off one, failures."""

import io
import os
import signal
import subprocess

import pytest

from containers import process
from containers.process import Step, last_lines, run_step
from env.errors import UserError


class Terminal(io.StringIO):
    def isatty(self):
        return True

    def fileno(self):
        raise OSError("not a real one")


def sh(script, **kwargs):
    return Step("try it", ("sh", "-c", script), **kwargs)


def test_everything_printed_is_in_the_log_after_the_line_itself(tmp_path):
    log = tmp_path / "log"
    run_step(sh("echo out; echo err >&2"), log=log, stream=io.StringIO())
    assert log.read_text() == "$ sh -c 'echo out; echo err >&2'\nout\nerr\n"


def test_the_folder_is_the_commands(tmp_path):
    log = tmp_path / "log"
    run_step(sh("pwd", cwd=tmp_path), log=log, stream=io.StringIO())
    assert log.read_text().endswith(f"{tmp_path}\n")


def test_a_product_is_moved_only_once_it_is_whole(tmp_path):
    made, final = tmp_path / "made", tmp_path / "final"
    with pytest.raises(UserError):
        run_step(sh(f"echo half > {made}; exit 1", product=(made, final)), log=tmp_path / "log",
                 stream=io.StringIO())  # fmt: skip
    assert not final.exists()
    run_step(sh(f"echo whole > {made}", product=(made, final)), log=tmp_path / "log",
             stream=io.StringIO())  # fmt: skip
    assert final.read_text() == "whole\n"
    assert not made.exists()


def test_a_failure_shows_the_end_of_its_own_output(tmp_path):
    log, stream = tmp_path / "log", io.StringIO()
    run_step(sh("echo earlier step"), log=log, stream=stream)
    with pytest.raises(UserError) as caught:
        run_step(sh("seq 1 100; exit 3"), log=log, stream=stream)
    assert caught.value.exit_code == 1
    assert "exit code 3" in caught.value.found
    assert caught.value.found.splitlines()[1:] == [f"    {n}" for n in range(81, 101)]
    assert str(log) in caught.value.fix
    assert "FAILED" in stream.getvalue()


def test_an_absent_program_is_named(tmp_path):
    with pytest.raises(UserError, match="'no-such-program'"):
        run_step(Step("x", ("no-such-program",)), log=tmp_path / "log", stream=io.StringIO())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_while_the_program_is_being_started_ends_it_too(tmp_path, monkeypatch, number):
    children = []

    class Interrupted(subprocess.Popen):
        def __init__(self, *words, **options):
            super().__init__(*words, **options)
            children.append(self)
            signal.raise_signal(number)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as left, process.stoppable():
        run_step(sh("exec sleep 60"), log=tmp_path / "log", stream=io.StringIO())
    assert left.value.code == 128 + number
    assert [child.returncode for child in children] == [-signal.SIGTERM]
    assert signal.getsignal(number) == before


def test_plain_lines_where_there_is_no_terminal(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "_PLAIN_EVERY_S", 0.01)
    stream = io.StringIO()
    run_step(sh("echo compiling; sleep 0.6"), log=tmp_path / "log", stream=stream)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "try it …"
    assert lines[1].endswith("compiling")
    assert lines[-1].startswith("try it: done in ")
    assert "\r" not in stream.getvalue()


def test_one_line_that_changes_on_a_terminal(tmp_path):
    stream = Terminal()
    run_step(sh("echo compiling; sleep 0.6"), log=tmp_path / "log", stream=stream)
    text = stream.getvalue()
    assert text.count("\n") == 1
    assert "\r\x1b[2K| try it  0 s  compiling" in text


def test_a_step_reads_as_a_shell_would_take_it(tmp_path):
    step = Step("x", ("a b", "c"), cwd=tmp_path / "d e", product=(tmp_path / "m", tmp_path / "f"))
    assert str(step) == f"cd '{tmp_path}/d e' && 'a b' c && mv -T {tmp_path}/m {tmp_path}/f"


def test_last_lines_survive_bytes_that_are_no_text(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"a\n\xff\xfe\nb\n" + os.urandom(100_000) + b"\nend\n")
    assert last_lines(log, count=1) == "    end"


def test_of_two_builds_of_the_same_folder_the_first_to_finish_stays(tmp_path):
    made, final = tmp_path / "made", tmp_path / "final"
    for folder, text in ((made, "second"), (final, "first")):
        folder.mkdir()
        (folder / "file").write_text(text)
    process.settle(made, final)
    assert (final / "file").read_text() == "first"
    assert not made.exists()
