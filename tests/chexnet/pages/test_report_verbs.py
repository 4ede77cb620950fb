"""The task: several words after one option, and what it refuses."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.report_run import make_run, write
from chexnet.pages.report_data import load_folder
from chexnet.pages.report_origin import list_commands
from env.stack import PROJECT


def invoke(*words):
    line = [sys.executable, "-m", "invoke", "--search-root", str(PROJECT), *words]
    done = subprocess.run(line, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("--compare", "a", "b", "c", "--output", "page.html", "--dry-run"),
        ("--dry-run", "--output", "page.html", "--compare", "a", "b", "c"),
        ("--compare", "a", "--output=page.html", "--compare", "b", "c", "--dry-run"),
    ],
)
def test_compare_takes_every_word_up_to_the_next_option(words):
    code, out, _ = invoke("report", *words)
    assert code == 0
    here = Path.cwd()
    wanted = ["--compare", f"{here}/a", f"{here}/b", f"{here}/c", "--output", f"{here}/page.html"]
    assert out.split()[-6:] == wanted


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("report",), "--run"),
        (("report", "--run", "a", "--compare", "b", "c"), "--run and --compare"),
        (("report", "--run", "nowhere"), "nothing at nowhere"),
    ],
)
def test_wrong_use_of_the_task_exits_2(words, said):
    code, _, err = invoke(*words)
    assert code == 2
    assert said in err
    assert "Traceback" not in err


def test_the_commands_that_a_report_gives_are_accepted(tmp_path):
    run = make_run(tmp_path / "run")
    record = json.loads((run / "record.json").read_text())
    write(run / "record.json", record | {"hosts": ["vm", "vm"], "ranks": 2, "lock_sha256": None})
    lines = [shlex.split(line) for _, line in list_commands(load_folder(run))]
    tried = [words for words in lines if words[1] in ("train", "evaluate", "report")]
    assert [words[1] for words in tried] == ["train", "evaluate", "report"]
    for words in tried:
        code, _, err = invoke(*words[1:], "--dry-run")
        assert code == 0, err
