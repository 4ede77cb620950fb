"""How a child ends is an observation: exit codes, signals, time limits."""

import os
import signal
import sys

import pytest

from env.probes.child import run_child, without_launcher


def run(code, *, timeout_s=20):
    return run_child([sys.executable, "-c", code], environ=os.environ, timeout_s=timeout_s)


def test_a_good_end():
    done = run("print('hello')")
    assert (done.exit_code, done.signal, done.problem, done.stdout) == (0, None, None, "hello\n")


def test_an_exit_code_and_the_last_words():
    done = run("import sys; print('one\\ntwo\\n', file=sys.stderr); sys.exit(3)")
    assert (done.exit_code, done.end) == (3, "exit code 3: two")


@pytest.mark.parametrize("name", ["SIGILL", "SIGSEGV", "SIGKILL"])
def test_a_signal(name):
    done = run(f"import os, signal; os.kill(os.getpid(), signal.{name})")
    assert (done.exit_code, done.signal, done.end) == (None, name, f"died by {name}")


def test_a_signal_as_a_shell_reports_it():
    done = run_child(["sh", "-c", "exit 132"], environ={}, timeout_s=5)
    assert (done.exit_code, done.signal) == (None, "SIGILL")


def test_a_time_limit_keeps_what_was_said():
    argv = ["sh", "-c", "echo so far; exec sleep 60"]
    done = run_child(argv, environ=os.environ, timeout_s=3)
    assert (done.problem, done.stdout) == ("no answer within 3 s", "so far\n")


def test_a_grandchild_that_holds_the_pipe_does_not_hold_us(runs):
    argv = ["sh", "-c", "sleep 60 & echo $!; wait"]
    done = run_child(argv, environ=os.environ, timeout_s=3)
    assert done.problem == "no answer within 3 s"
    assert runs(done.stdout)  # it was not waited for
    os.kill(int(done.stdout), signal.SIGKILL)


def test_a_program_that_is_not_there():
    done = run_child(["/no/such/program"], environ={}, timeout_s=5)
    assert "did not start" in done.problem


def test_a_launcher_is_taken_out_of_the_environment():
    environ = {"PATH": "p", "OMPI_COMM_WORLD_SIZE": "4", "PMIX_RANK": "1", "SLURM_PROCID": "0"}
    environ |= {"HOROVOD_RANK": "1", "HOROVOD_CYCLE_TIME": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1"}
    assert set(without_launcher(environ)) == {
        "PATH",
        "HOROVOD_CYCLE_TIME",
        "OMPI_ALLOW_RUN_AS_ROOT",
    }
