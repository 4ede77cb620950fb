"""The task: several words after one option, and what it refuses."""

import subprocess
import sys

import pytest

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
def test_compare_takes_every_word_up_to_the_next_option(words, tmp_path):
    code, out, _ = invoke("report", *words)
    assert code == 0
    here = PROJECT.__class__.cwd()
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
