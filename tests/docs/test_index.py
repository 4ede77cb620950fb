"""Nothing is hidden: pages are in the index, records and programs in the table of benchmarks."""

import re

from env.stack import PROJECT


def linked(page):
    """Return the files that a page links to, as paths from its folder."""
    return set(re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", (PROJECT / page).read_text("utf-8")))


def test_every_page_is_in_the_index_and_the_index_in_the_readmes():
    pages = {path.name for path in (PROJECT / "docs").glob("*.md")} - {"index.md"}
    assert pages <= linked("docs/index.md")
    assert "docs/index.md" in linked("README.md") & linked("README.ja.md")


def test_every_record_and_every_program_that_makes_one_is_in_the_table():
    records = (PROJECT / "benchmarks" / "results").glob("*.json")
    assert {f"results/{path.name}" for path in records} <= linked("benchmarks/README.md")
    text = (PROJECT / "benchmarks" / "README.md").read_text("utf-8")
    for path in (PROJECT / "benchmarks").glob("*.py"):
        if "write_record(" in path.read_text("utf-8") and "--output" in path.read_text("utf-8"):
            named = (f"benchmarks.{path.stem} ", f"invoke bench-{path.stem} ")
            assert any(name in text for name in named), path.name
