"""The rules of the house, enforced: who imports whom, where versions stand, sizes."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
OURS = {"env", "recipes", "containers", "chexnet", "commands", "tasks", "benchmarks"}
# What each package may import of ours, and what it never may of others'.
MAY_IMPORT = {
    "env": {"env"},
    "recipes": {"env", "recipes"},
    "containers": {"env", "recipes", "containers"},
    "chexnet": {"chexnet"},
    "commands": {"benchmarks", "chexnet", "commands", "containers", "env", "recipes"},
}
NEVER = {
    "env": {"hpccm", "invoke"},
    "recipes": {"subprocess", "tensorflow", "horovod"},
    "containers": {"tensorflow", "horovod"},
    "chexnet": {"invoke", "hpccm"},
    "commands": {"subprocess", "tensorflow", "horovod"},
}
# In env these appear only inside functions, and only in these places.
LATE_IN_ENV = {
    "pynvml": "env/probes/",
    "tensorflow": "env/probes/",
    "horovod": "env/probes/",
    "keras": "env/probes/",
    "numpy": "env/probes/",
    "rich": "env/report",
}


def modules(*packages):
    return [path for name in packages for path in sorted((PROJECT / name).rglob("*.py"))]


def imports(tree):
    """Yield (top-level name, whether inside a function) of every import."""
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module]
        for name in names:
            yield name.partition(".")[0], id(node) in inside


def relative(path):
    return path.relative_to(PROJECT).as_posix()


@pytest.mark.parametrize("path", modules(*MAY_IMPORT), ids=relative)
def test_a_module_imports_only_what_its_package_may(path):
    package = relative(path).partition("/")[0]
    for name, _ in imports(ast.parse(path.read_text())):
        if name in OURS:
            assert name in MAY_IMPORT[package], f"{relative(path)} imports {name}"
        assert name not in NEVER[package], f"{relative(path)} imports {name}"


@pytest.mark.parametrize("path", modules("env"), ids=relative)
def test_env_needs_nothing_but_the_standard_library(path):
    for name, late in imports(ast.parse(path.read_text())):
        if name in LATE_IN_ENV:
            assert late, f"{relative(path)} imports {name} at the top"
            assert relative(path).startswith(LATE_IN_ENV[name])
        else:
            assert name == "env" or name in sys.stdlib_module_names, f"{relative(path)}: {name}"


def test_the_import_test_sees_a_breach():
    tree = ast.parse("import numpy\ndef f():\n    from rich.table import Table\n")
    assert list(imports(tree)) == [("numpy", False), ("rich", True)]


def test_listing_the_tasks_loads_neither_hpccm_nor_tensorflow():
    code = (
        "import sys; sys.path.insert(0, '.'); import tasks; "
        "print(sorted({'hpccm', 'tensorflow', 'horovod'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_chosen_versions_stand_in_the_catalogue_alone():
    from env.stack import load_stacks

    # Short ones such as "3.11" and "12" are words of their own; the exact ones are not.
    chosen = {
        version
        for stack in load_stacks().values()
        for version in stack.components.values()
        if version.count(".") == 2
    }
    assert "2.21.0" in chosen
    code = [*modules(*OURS - {"tasks"}), PROJECT / "tasks.py", PROJECT / "README.md"]
    code += sorted(PROJECT.rglob("env/**/*.sh")) + sorted((PROJECT / "docs").glob("*.md"))
    code.remove(PROJECT / "docs" / "stacks.md")  # made from the catalogue, and compared
    for path in code:
        text = path.read_text()
        written = sorted(version for version in chosen if version in text)
        assert not written, f"{relative(path)} repeats {written} of env/stacks.toml"


@pytest.mark.parametrize("path", modules(*MAY_IMPORT, "benchmarks"), ids=relative)
def test_a_module_says_what_it_is_and_stays_small(path):
    text = path.read_text()
    assert ast.get_docstring(ast.parse(text)), f"{relative(path)} has no docstring"
    assert text.count("\n") <= 400, f"{relative(path)} is too long: split it"


@pytest.mark.parametrize("path", modules(*MAY_IMPORT, "benchmarks"), ids=relative)
def test_functions_stay_small(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            lines = (
                node.end_lineno - node.lineno + 1 - len((ast.get_docstring(node) or "").split("\n"))
            )
            # Invoke reads a task's options from its signature: what they are takes its lines.
            lines -= len(node.args.args) if relative(path).startswith("commands/") else 0
            assert lines <= 40, f"{relative(path)}: {node.name} has {lines} lines"


def test_our_ignore_file_keeps_env():
    ignored = (PROJECT / ".gitignore").read_text().split()
    assert not {"env", "env/", "/env", "/env/"} & set(ignored)
    assert (PROJECT / "env" / "stacks.toml").is_file()
