"""The Japanese README: the same commands as the English one, and links that lead somewhere."""

import re

from env.stack import PROJECT
from tasks import namespace

ENGLISH = (PROJECT / "README.md").read_text(encoding="utf-8")
JAPANESE = (PROJECT / "README.ja.md").read_text(encoding="utf-8")


def commands(text):
    """Return the commands of the consoles, comments left out."""
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    return [re.split(r"\s+#", line[2:])[0].strip() for line in lines]


def test_every_command_is_in_the_english_readme():
    found = commands(JAPANESE)
    assert len(found) >= 8
    assert not [line for line in found if line not in commands(ENGLISH)]


def test_the_two_commands_come_first_in_both():
    assert commands(JAPANESE)[:2] == commands(ENGLISH)[:2]


def test_every_task_it_names_is_there():
    named = set(re.findall(r"\binvoke ([a-z][a-z-]+)", JAPANESE))
    assert len(named) > 10
    assert named <= set(namespace.task_names)


def test_links_lead_to_files_that_are_there():
    for target in re.findall(r"\]\(([^)]+)\)", JAPANESE):
        assert target.startswith("https://") or (PROJECT / target).exists(), target


def test_it_is_japanese():
    kana = re.findall(r"[\u3040-\u30ff]", JAPANESE)
    assert len(kana) > 1000
    assert "README.md" in JAPANESE  # the way to the English one
