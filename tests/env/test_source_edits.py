"""Source edits: each rule must match exactly as often as it says, or nothing is written."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from env.source_edits import Edit, EditError, apply_edits, load_edits, main
from env.stack import PROJECT, load_stacks

RULE = Edit(
    id="rename",
    file="a.cc",
    pattern="old(",
    replacement="new(",
    count=2,
    reason="it moved",
    upstream="https://example.org/1",
)
RULES_TOML = """
schema_version = 1
[[edits]]
id = "rename"
file = "a.cc"
pattern = "old("
replacement = "new("
count = 2
reason = "it moved"
upstream = "https://example.org/1"
"""


@pytest.fixture
def source(tmp_path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "a.cc").write_text("old(1); old(2);\nkept\n")
    (folder / "b.cc").write_text("#include <map>\nbody\n")
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_literal_rule(source):
    assert apply_edits([RULE], source=source) == (source / "a.cc",)
    assert (source / "a.cc").read_text() == "new(1); new(2);\nkept\n"


def test_regex_rule_with_group(source):
    rule = replace(RULE, file="b.cc", pattern=r"^(#include <map>\n)(?!#include <set>)",
                   replacement=r"\1#include <set>\n", count=1, regex=True)  # fmt: skip
    apply_edits([rule], source=source)
    assert (source / "b.cc").read_text() == "#include <map>\n#include <set>\nbody\n"


def test_backslashes_of_a_literal_rule_stay(source):
    rule = replace(RULE, pattern="kept", replacement=r"\1 \n", count=1)
    apply_edits([rule], source=source)
    assert r"\1 \n" in (source / "a.cc").read_text()


def test_later_rules_see_earlier_ones(source):
    second = replace(RULE, id="again", pattern="new(", replacement="newer(")
    apply_edits([RULE, second], source=source)
    assert (source / "a.cc").read_text() == "newer(1); newer(2);\nkept\n"


@pytest.mark.parametrize("count", [1, 3])
def test_wrong_count_names_file_rule_and_both_counts(source, count):
    before = contents(source)
    first = replace(RULE, id="fits", file="b.cc", pattern="body", replacement="soul", count=1)
    with pytest.raises(EditError) as caught:
        apply_edits([first, replace(RULE, count=count)], source=source)
    for word in (str(source / "a.cc"), "'rename'", f"expected {count} matches", "found 2"):
        assert word in str(caught.value)
    assert contents(source) == before  # the rule that did fit was not written either


def test_applied_twice_is_an_error_and_changes_nothing(source):
    apply_edits([RULE], source=source)
    once = contents(source)
    with pytest.raises(EditError, match=r"found 0[\s\S]*unpack the archive anew"):
        apply_edits([RULE], source=source)
    assert contents(source) == once


def test_rule_that_matches_its_own_outcome_is_refused(source):
    with pytest.raises(EditError, match="its own outcome"):
        apply_edits([replace(RULE, replacement="old(old(")], source=source)


def test_missing_file(source):
    with pytest.raises(EditError, match=r"none\.cc: rule 'rename': cannot be read"):
        apply_edits([replace(RULE, file="none.cc")], source=source)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("count = 2", "count = 0", "'count' must be at least 1"),
        ("count = 2", 'count = "2"', "'count' must be a int"),
        ('reason = "it moved"', "", "'reason' must be a str"),
        ("count = 2", "count = 2\ncolour = 1", "unknown key 'colour'"),
        ('file = "a.cc"', 'file = "../a.cc"', "within the source"),
        ('"old("', '"old("\nregex = true', "no regular expression"),
        ("schema_version = 1", "schema_version = 2", "schema_version = 1"),
        ("count = 2", "count = ", "not TOML"),
    ],
)
def test_bad_rule_files(tmp_path, old, new, said):
    path = tmp_path / "rules.toml"
    path.write_text(RULES_TOML.replace(old, new, 1))
    with pytest.raises(EditError, match=said):
        load_edits(path)


def test_two_rules_of_one_name(tmp_path):
    path = tmp_path / "rules.toml"
    path.write_text(RULES_TOML + RULES_TOML.split("schema_version = 1")[1])
    with pytest.raises(EditError, match="'rename' is there 2 times"):
        load_edits(path)


def test_exit_codes_and_messages(tmp_path, source, capsys):
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES_TOML)
    argv = ["--rules", str(rules), "--source", str(source)]
    assert main(argv) == 0
    assert "1 edits applied to 1 files" in capsys.readouterr().out
    assert main(argv) == 1
    assert "expected 2 matches, found 0" in capsys.readouterr().err


def test_runs_alone_without_the_project(tmp_path, source):
    """A build stage has this one file, no package around it."""
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES_TOML)
    script = tmp_path / "editor.py"
    script.write_bytes((PROJECT / "env" / "source_edits.py").read_bytes())
    done = subprocess.run(
        [sys.executable, "-I", str(script), "--rules", str(rules), "--source", str(source)]
    )
    assert done.returncode == 0
    assert "new(1)" in (source / "a.cc").read_text()


def test_every_stack_names_a_rule_file_with_reasons():
    for stack in load_stacks().values():
        edits = load_edits(PROJECT / stack.horovod.edits)
        assert all(edit.reason and edit.upstream.startswith("https://") for edit in edits)


def test_the_rules_do_what_the_build_needs(tmp_path):
    """On stand-ins that hold just the lines the rules are about."""
    lines = {
        "horovod/tensorflow/CMakeLists.txt": 'list(APPEND TF_SOURCES "${D}/mpi_ops.cc")\n'
        'list(APPEND TF_SOURCES "${D}/xla_mpi_ops.cc")\n',
        "horovod/common/common.h": "#include <functional>\n#include <memory>\n",
        "horovod/common/group_table.h": "#include <mutex>\n#include <queue>\n",
        "horovod/tensorflow/mpi_ops.cc": "GpuStreamHandle AsGpuStreamValue(Stream* stream);\n"
        "#endif // TENSORFLOW_VERSION >= 2011000000\n#endif // HAVE_GPU\n",
    }
    lines["third_party/flatbuffers/include/flatbuffers/stl_emulation.h"] = (
        "  pointer const data_;\n  const size_type count_;\n"
    )
    for name, text in lines.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    apply_edits(load_edits(PROJECT / "env/edits/horovod-0.28.1.toml"), source=tmp_path)
    texts = {name: (tmp_path / name).read_text() for name in lines}
    assert "xla_mpi_ops" not in texts["horovod/tensorflow/CMakeLists.txt"]
    assert "/mpi_ops.cc" in texts["horovod/tensorflow/CMakeLists.txt"]
    for header in ("common.h", "group_table.h"):
        assert {"#include <cstdint>", "#include <stdexcept>"} <= set(
            texts[f"horovod/common/{header}"].splitlines()
        )
    operations = texts["horovod/tensorflow/mpi_ops.cc"]
    assert "AsGpuStreamValue(Stream* stream);" not in operations
    assert "inline GpuStreamHandle AsGpuStreamValue(Stream* stream) {" in operations
    assert operations.endswith("#endif // HAVE_GPU\n")
    span = texts["third_party/flatbuffers/include/flatbuffers/stl_emulation.h"]
    assert "const size_type count_" not in span
    assert "  size_type count_;\n" in span
