"""The pages that are made of catalogue and rules: committed as made, and right."""

import pytest

from containers import pages
from env.rules import load_rules
from env.stack import load_stacks

CHOICE = pages.render_choice()


def rows():
    """Return the table as {driver: {capability: names}}, the drivers in the table's order."""
    lines = [line.strip("| \n").split(" | ") for line in CHOICE.splitlines() if line[:1] == "|"]
    heads = [cell.rpartition(", ")[2] for cell in lines[0]]
    return {line[0]: dict(zip(heads[1:], line[1:], strict=True)) for line in lines[2:]}


def answer(driver, capability):
    """Return the cell of the last line whose driver is not later than this one."""
    key = [int(part) for part in driver.split(".")]
    lines = [d for d in rows() if [int(part) for part in d.split(".")] <= key]
    return rows()[lines[-1]][capability] if lines else "–"


def test_the_page_of_the_stacks_is_committed_as_made():
    assert pages.STACKS_PAGE.read_text(encoding="utf-8") == pages.render_stacks_page()


def test_the_table_about_choosing_is_committed_as_made():
    text = pages.CHOICE_PAGE.read_text(encoding="utf-8")
    assert f"{pages.BEGIN}\n\n{CHOICE}\n{pages.END}" in text


def test_the_page_sends_nobody_to_a_stack_that_cannot_train():
    text = pages.CHOICE_PAGE.read_text(encoding="utf-8")
    (row,) = [line for line in text.splitlines() if line.startswith("| a GPU and a driver")]
    cell = answer("470.57.02", "7.0")
    assert cell.split(", ")[0] == "*cuda11*"  # first in its cell, and waits for Keras 2
    assert "the first name not in italics" in row
    assert "adr/0002-cuda11.md" in row


# Known by hand: CUDA 12 begins at R525, PTX of 12.5 at 555, V100 ends with R580.
@pytest.mark.parametrize(
    ("driver", "capability", "fits"),
    [
        ("470.57.02", "7.0", False), ("525.60.13", "7.0", True), ("580.65.06", "7.0", True),
        ("590.44.01", "7.0", False), ("525.60.13", "8.0", True), ("535.104.05", "9.0", False),
        ("570.86.10", "9.0", True),
    ],
)  # fmt: skip
def test_the_answer_for_the_default_of_gpu_clusters(driver, capability, fits):
    assert ("cuda12" in answer(driver, capability)) is fits


def test_a_slow_start_is_marked():
    assert f"cuda12{pages.SLOW}" in answer("570.86.10", "9.0")
    assert f"cuda12{pages.SLOW}" not in answer("570.86.10", "8.0")


def test_every_promise_of_a_stack_is_in_the_table_without_a_doubt():
    for stack in load_stacks().values():
        for gpu in stack.gpus:
            names = answer(gpu.driver, gpu.compute_capability).replace("*", "").split(", ")
            assert {stack.name, stack.name + pages.SLOW} & set(names), (stack.name, gpu)


def test_every_stack_and_every_rule_is_on_the_page_with_its_sources():
    page = pages.render_stacks_page()
    for name, stack in load_stacks().items():
        assert f"\n## {name}\n" in page
        assert all(source in page for sources in stack.sources.values() for source in sources)
    for rule in load_rules():
        assert page.count(f"\n### {rule.id}") >= 1
        assert rule.fix in page
        assert all(source in page for source in rule.sources)


def test_the_hand_written_part_stays(tmp_path, monkeypatch):
    page = tmp_path / "choose.md"
    page.write_text(f"before\n{pages.BEGIN}\nold\n{pages.END}\nafter\n")
    monkeypatch.setattr(pages, "CHOICE_PAGE", page)
    monkeypatch.setattr(pages, "STACKS_PAGE", tmp_path / "stacks.md")
    assert pages.write_pages() == [tmp_path / "stacks.md", page]
    assert page.read_text() == f"before\n{pages.BEGIN}\n\n{CHOICE}\n{pages.END}\nafter\n"
