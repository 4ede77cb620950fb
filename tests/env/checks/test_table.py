"""The page of the checks is the registry's, and committed as generated."""

from env.checks.registry import known_checks
from env.checks.table import render_table
from env.stack import PROJECT


def test_the_committed_page_is_the_generated_one():
    assert (PROJECT / "docs" / "checks.md").read_text(encoding="utf-8") == render_table() + "\n"


def test_every_check_is_on_the_page_with_its_fix():
    page = render_table()
    for one in known_checks().values():
        assert page.count(f"### `{one.id}`:") == 1
        assert one.fix in page
