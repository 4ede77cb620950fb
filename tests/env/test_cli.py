"""The command line: help that teaches, exit codes, and plain words for mistakes."""

import ast
import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from env.checks.registry import known_checks
from env.cli import main
from env.facts import Fact, load_facts, write_facts
from env.records import record_path

PACKAGE = Path(__file__).resolve().parents[2] / "env"
MAIN = PACKAGE / "__main__.py"


def run(capsys, *argv):
    code = main([str(word) for word in argv])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_help_teaches(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    text = capsys.readouterr().out
    assert end.value.code == 0
    for words in ("examples:", "exit codes:", "--explain", "rank --records"):
        assert words in text


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--only", "no.such"], "python.version"),
        (["--skip", "host.root,no.such"], "python.version"),
        (["--only", "mpi.size"], "--records"),
        (["--explain", "no.such"], "python.version"),
        (["--lock", "/no/lock.json"], "/no/lock.json"),
        (["--plan", "/no/plan.json"], "/no/plan.json"),
        (["--records", "/no/records"], "/no/records"),
        (["--facts", "/no/facts.json", "--only", "host.root"], "/no/facts.json"),
        (["--stack", "nope"], "cpu, cpu13"),
    ],
)
def test_mistakes_are_answered_in_words(capsys, argv, words):
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "")
    assert err.startswith("expected: ")
    assert words in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "argv", [["--ranks", "0"], ["--ranks", "x"], ["--device", "tpu"], ["--what"]]
)
def test_wrong_options_exit_with_2(argv, capsys):
    with pytest.raises(SystemExit) as end:
        main(argv)
    assert end.value.code == 2


def test_a_bad_record_is_a_rank_that_did_not_report(capsys, tmp_path):
    record_path(tmp_path, rank=0).write_text('{"schema_version": 1, "fac')
    code, out, _ = run(capsys, "--records", tmp_path, "--only", "ranks.reported")
    assert (code, "rank-00000.json" in out) == (1, True)


def test_list_and_explain_name_every_check(capsys):
    listed = run(capsys, "--list")[1]
    for name, check in known_checks().items():
        assert name in listed
        code, text, _ = run(capsys, "--explain", name)
        assert code == 0
        assert check.fix in text
        assert all(key in text for key in check.reads)


def test_json_to_standard_output_alone(capsys):
    code, out, _ = run(capsys, "validate", "--only", "host.root", "--json", "-")
    report = json.loads(out)
    assert (code, report["exit_code"]) == (0, 0)
    assert [result["id"] for result in report["results"]] == ["host.root"]


def test_json_to_a_file_and_text_as_well(capsys, tmp_path):
    target = tmp_path / "new/report.json"
    _, out, _ = run(capsys, "--only", "host.root", "--json", target)
    assert "1 check of" in out
    assert json.loads(target.read_text())["schema_version"] == 1
    assert [path.name for path in target.parent.iterdir()] == ["report.json"]


def test_a_report_that_cannot_be_written(capsys, tmp_path):
    (tmp_path / "file").touch()
    code, _, err = run(capsys, "--only", "host.root", "--json", tmp_path / "file/report.json")
    assert (code, "report.json" in err) == (2, True)


@pytest.mark.parametrize(
    "argv",
    [["--only", "host.root"], ["--only", "host.root", "--json", "-"], ["--list"],
     ["rank", "--only", "host.root"]],
)  # fmt: skip
def test_an_output_that_takes_nothing(run_env, argv):
    full = run_env(*argv, prefix=("sh", "-c", 'exec "$@" > /dev/full', "sh"))
    assert (full.returncode, "Traceback" in full.stderr) == (2, False), full.stderr
    assert "found:    No space left on device" in full.stderr
    if argv[0] != "rank":  # a rank's output is all that there is of it
        for way in ('exec "$@" >&-', '"$@" | true; exit "${PIPESTATUS[0]}"'):
            done = run_env(*argv, prefix=("bash", "-c", way, "bash"))
            assert (done.returncode, done.stderr) == (0, ""), way


def test_kept_facts_are_judged_instead_of_the_machine(capsys, tmp_path):
    facts = tmp_path / "facts.json"
    run(capsys, "--only", "host.root", "--save-facts", facts)
    kept = load_facts(facts)
    write_facts(facts, kept | {"host.uid": Fact(0, "made up"), "host.name": Fact("elsewhere", "x")})
    _, out, _ = run(capsys, "--only", "host.root", "--facts", facts)
    assert "INFO    host.root" in out
    assert "1 check of elsewhere" in out


def test_unable_to_tell_is_3_and_a_failure_is_1(capsys, tmp_path):
    facts = tmp_path / "facts.json"
    write_facts(facts, {})
    assert run(capsys, "--only", "mpi.launcher", "--facts", facts)[0] == 3
    assert run(capsys, "--only", "cpu.quota", "--facts", facts)[0] == 0  # not a required one
    write_facts(facts, {"mpi.mpirun": Fact(None, "PATH")})
    assert run(capsys, "--only", "mpi.launcher,cpu.quota", "--facts", facts)[0] == 1


def test_quiet_when_all_is_good(capsys, tmp_path):
    facts = tmp_path / "facts.json"
    write_facts(facts, {"host.uid": Fact(0, "x")})
    options = ("--only", "host.root", "--facts", facts, "--quiet-pass")
    assert run(capsys, *options) == (0, "", "")


def test_missing_ranks_are_a_failure(capsys, tmp_path):
    facts = tmp_path / "facts.json"
    write_facts(facts, {})
    options = ("--only", "ranks.reported", "--records", tmp_path, "--facts", facts)
    code, out, _ = run(capsys, *options, "--ranks", "2")
    assert code == 1
    assert "ranks 0, 1 on an unknown host did not report" in out


def test_ranks_that_cannot_write(capsys, tmp_path):
    (tmp_path / "file").touch()
    code, _, err = run(capsys, "rank", "--records", tmp_path / "file/records")
    assert (code, f"{tmp_path}/file/records/rank-00000.json" in err) == (2, True)


def test_an_old_python_is_refused_in_words(monkeypatch, capsys):
    monkeypatch.setattr(sys, "version_info", (3, 9, 18, "final", 0))
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(MAIN), run_name="__main__")
    err = capsys.readouterr().err
    assert end.value.code == 2
    assert "Python 3.11 or later" in err
    assert "Python 3.9" in err


@pytest.mark.parametrize("path", [MAIN, PACKAGE / "__init__.py"])
def test_an_old_python_can_parse_what_it_meets_first(path):
    tree = ast.parse(path.read_text(), feature_version=(3, 4))
    first = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom | ast.If)]
    assert [ast.unparse(node) for node in first[:1]] in (["import sys"], [])


def test_env_starts_with_nothing_but_the_standard_library(real_environ):
    # -S hides site-packages: no rich, no pynvml, no numpy.
    argv = [sys.executable, "-S", "-m", "env", "--only", "host.root,mpi.launcher"]
    done = subprocess.run(argv, env=real_environ, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 checks of" in done.stdout
