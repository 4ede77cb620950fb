"""The page about training: it knows every key, value and file, and its links lead somewhere."""

import re

import pytest

from chexnet.config import CHOICES, KEYS, MODELS, list_presets
from chexnet.networks.preset import load_presets
from chexnet.pages.report import PAGE as REPORT
from chexnet.results.evaluation import evaluation_path
from chexnet.run import ALLOWED_BEFORE, FILES
from chexnet.training.events import EVENTS
from chexnet.training.horovod_settings import AUTOTUNE_LOG
from env.stack import PROJECT

DOCS = PROJECT / "docs"
PAGE = (DOCS / "training.md").read_text(encoding="utf-8")
# What stands in backticks, consoles left out.
TOLD = {
    word.rstrip("/")
    for word in re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL))
}


def rows(column):
    """Return what stands in backticks in one column of the page's tables."""
    cells = [line.split("|")[1:-1] for line in PAGE.splitlines() if line.startswith("| `")]
    return {word for row in cells for word in re.findall(r"`([^`]+)`", row[column])}


def test_every_key_has_a_row():
    assert set(KEYS) - rows(0) - {"preset"} == set()
    assert "| `preset` |" in PAGE


@pytest.mark.parametrize("key", CHOICES)
def test_every_value_of_a_key_is_told(key):
    assert set(CHOICES[key]) - TOLD == set()


def test_presets_and_networks_are_all_there():
    assert {one.name for one in load_presets()} == set(list_presets())
    assert set(list_presets()) <= rows(0)
    assert set(MODELS) <= rows(1)


def test_every_file_of_a_run_is_told():
    files = {*FILES, *ALLOWED_BEFORE, AUTOTUNE_LOG, EVENTS, REPORT} - {"records"}
    assert files - TOLD == set()


def test_the_files_of_an_evaluation_of_other_data_are_told():
    path = evaluation_path(PROJECT, split="<split>", other="<hash>")
    assert path.name in TOLD
    assert path.name.replace("evaluation", "predictions").replace(".json", ".csv") in TOLD


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)#]+)\)", PAGE)
    assert [link for link in links if not (DOCS / link).exists()] == []
    wanted = ("weights", "presets", "reliability", "horovod", "profile", "evaluation", "predict",
              "report", "tuning", "pipeline")  # fmt: skip
    assert {f"{name}.md" for name in wanted} <= set(links)
