"""The committed definitions hold before those who read them: hadolint and Apptainer itself."""

import re
import subprocess
from pathlib import Path

import pytest

from env.stack import PROJECT
from recipes.layout import MPI_PREFIXES, VENV
from recipes.render import FILE_NAMES, IMAGE_STACKS

DOCKERFILES, DEFINITIONS = (
    [PROJECT / "containers" / stack / FILE_NAMES[format] for stack in IMAGE_STACKS]
    for format in ("docker", "singularity")
)
# Copies from the build context that cost time and prove nothing more.
FROM_CONTEXT = re.compile(r"^    (chexnet|containers|env|recipes) \S+\n", re.MULTILINE)


def name(path):
    return path.parent.name


def hadolint(path):
    command = ["hadolint", "--no-color", "--config", str(PROJECT / ".hadolint.yaml"), str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("path", DOCKERFILES, ids=name)
def test_hadolint_finds_nothing(path):
    done = hadolint(path)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("FROM debian", "DL3006"),  # no tag
        ("FROM debian:12\nRUN cd /\nRUN sudo true", "DL3004"),
        ("FROM debian:12\nADD a.txt /a.txt", "DL3020"),
        ("FROM debian:12\nRUN echo $(", "SC1"),  # not even shell
    ],
)
def test_hadolint_would_find_something(tmp_path, line, rule):
    path = tmp_path / "Dockerfile"
    path.write_text(line + "\n")
    done = hadolint(path)
    assert done.returncode == 1
    assert rule in done.stdout


def test_every_rule_that_is_left_out_has_a_reason_and_is_needed(tmp_path):
    lines = (PROJECT / ".hadolint.yaml").read_text().split("ignored:\n")[1].splitlines()
    for line in lines:
        assert re.fullmatch(r"  - (DL|SC)\d{4}  # .{20,}", line), line
    bare = tmp_path / "none.yaml"
    bare.write_text("ignored: []\n")
    command = ["hadolint", "--no-color", "--config", str(bare), *map(str, DOCKERFILES)]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    assert {line.split()[1] for line in lines} == set(re.findall(r"\b(?:DL|SC)\d{4}\b", found))


@pytest.fixture(scope="module")
def hollow(tmp_path_factory):
    """Return a root folder whose shell does nothing and says that it went well."""
    root = tmp_path_factory.mktemp("hollow")
    for folder in ("bin", "dev", "etc", "proc", "root", "sys", "tmp", "var/tmp", "mnt"):
        (root / folder).mkdir(parents=True)
    for path in (VENV, *MPI_PREFIXES):
        (root / path[1:]).mkdir(parents=True)
    source = root / "sh.c"
    source.write_text("int main(void) { return 0; }\n")
    subprocess.run(["gcc", "-static", "-o", str(root / "bin/sh"), str(source)], check=True)
    return root


def build(definition, *, base, folder):
    """Let Apptainer build a definition on another base; return what it said."""
    text, bases = re.subn(
        r"^BootStrap: docker\nFrom: \S+$", f"BootStrap: localimage\nFrom: {base}", definition,
        flags=re.MULTILINE,
    )  # fmt: skip
    assert bases == 2
    path = folder / "test.def"
    path.write_text(FROM_CONTEXT.sub("", text))
    command = ["apptainer", "build", "--fakeroot", "--sandbox", str(folder / "made"), str(path)]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("path", DEFINITIONS, ids=name)
def test_apptainer_builds_every_section_of_a_definition(path, hollow, tmp_path):
    text = path.read_text(encoding="utf-8")
    done = build(text, base=hollow, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    made = tmp_path / "made"
    lock = f"containers/{path.parent.name}/stack.lock.json"
    assert (made / "opt/chexnet/stack.lock.json").read_bytes() == (PROJECT / lock).read_bytes()
    environment = "".join(p.read_text() for p in (made / ".singularity.d/env").glob("90-*"))
    assert "export PYTHONNOUSERSITE=1" in environment
    assert ('NVIDIA_REQUIRE_CUDA="driver>=' in environment) == (path.parent.name != "cpu")
    assert "python -m env" in (made / ".singularity.d/test").read_text()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("%environment", "%enviroment"),  # no such section
        ("%files from build", "%files from nowhere"),  # no such stage
        ("    tasks.py ", "    no-tasks.py "),  # no such file
    ],
)
def test_apptainer_would_refuse_a_broken_definition(old, new, hollow, tmp_path):
    text = DEFINITIONS[0].read_text(encoding="utf-8")
    assert old in text
    done = build(text.replace(old, new, 1), base=hollow, folder=tmp_path)
    assert done.returncode != 0
    assert not (Path(tmp_path) / "made").exists()
