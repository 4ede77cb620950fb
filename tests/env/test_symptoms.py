"""Troubleshooting by symptom: committed as made, complete, and no command or link in vain."""

import re

import pytest

from env.checks.registry import known_checks
from env.errors import UserError
from env.failures import load_failures
from env.stack import PROJECT
from env.symptoms import count_symptoms, load_symptoms, render_symptoms
from tasks import namespace

PAGE = PROJECT / "docs" / "troubleshooting.md"
SYMPTOMS = load_symptoms()


def test_the_page_is_committed_as_made():
    assert PAGE.read_text(encoding="utf-8") == render_symptoms() + "\n"


def test_every_known_failure_stands_under_a_symptom():
    assert not [name for name, count in count_symptoms(SYMPTOMS).items() if not count]


def test_every_failure_has_a_row_with_its_title_a_command_and_a_cure():
    text = PAGE.read_text(encoding="utf-8")
    for failure in load_failures().values():
        (row, *_) = [line for line in text.splitlines() if f"({failure.id}) |" in line]
        meaning, look, fix = row.strip("| ").split(" | ")
        assert meaning == f"{failure.title} ({failure.id})"
        assert look.startswith("`invoke validate-env") or failure.unseen
        assert len(fix) > 10


def test_a_failure_that_a_rule_is_about_has_the_cure_of_that_rule():
    text = PAGE.read_text(encoding="utf-8")
    (row, *_) = [line for line in text.splitlines() if "(VER-10) |" in line]
    assert "install TensorFlow first, then compile Horovod" in row
    (row, *_) = [line for line in text.splitlines() if "(VER-01) |" in line]
    assert "driver" in row.split(" | ")[2]


def test_every_command_names_a_task_and_checks_that_are_there():
    text = PAGE.read_text(encoding="utf-8")
    tasks = re.findall(r"\binvoke ([a-z-]+)", text)
    assert set(tasks) <= set(namespace.task_names)
    assert len(tasks) > 100
    named = [one for ids in re.findall(r"--only ([a-z0-9.,-]+)", text) for one in ids.split(",")]
    named += [one for one in re.findall(r"--explain ([a-z.-]+)", text) if one]
    assert set(named) <= set(known_checks())


def test_checks_of_ranks_are_asked_with_ranks():
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        for command in re.findall(r"`invoke validate-env([^`]*) --only ([a-z0-9.,-]+)`", line):
            phases = {known_checks()[name].phase for name in command[1].split(",")}
            assert ("--ranks 2" in command[0]) == ("launched" in phases), line


def test_every_page_and_every_heading_that_is_linked_is_there():
    text = PAGE.read_text(encoding="utf-8")
    headings = {
        re.sub(r"[^\w -]", "", line[3:].lower()).replace(" ", "-")
        for line in text.splitlines()
        if line.startswith("## ")
    }
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if target.startswith("#"):
            assert target[1:] in headings
        else:
            assert (PAGE.parent / target).exists(), target
    for page in re.findall(r"\bdocs/[a-z-]+\.md", text):
        assert (PROJECT / page).exists(), page


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "symptom"),
        ("[[symptom]]\ntitle = 'a'\n", "sees"),
        ("[[symptom]]\ntitle = 'a'\nsees = []\nfailures = ['VER-99']\n", "VER-99"),
        ("[[symptom]]\ntitle = 'a'\nsees = []\ncases = [{meaning = 'x'}]\n", "look"),
    ],
)
def test_a_wrong_entry_is_named(tmp_path, text, word):
    path = tmp_path / "symptoms.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=word):
        load_symptoms(path)
