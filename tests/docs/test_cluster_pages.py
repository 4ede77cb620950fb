"""The pages about clusters: commands exist and run here where they can, links lead somewhere.

A command that needs a cluster, an image or NIH's films is held to its task's options alone.
"""

import json
import re
import shlex
import subprocess
import sys
from dataclasses import replace

import pytest

from containers.published import find_table, fit, load_tables
from containers.scaling import BANDWIDTH, LATENCY, model_terms
from env.checks.registry import known_checks
from env.stack import PROJECT, load_stacks
from tasks import namespace

DOCS = PROJECT / "docs"
PAGES = ["first-run.md", "hpc.md", "scaling.md", "troubleshooting.md", "tuning.md"]


def text_of(name):
    return (DOCS / name).read_text(encoding="utf-8")


def commands(name):
    """Return the words of every ``invoke`` command of a page's consoles, comments left out."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", text_of(name), re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ ") and "invoke " in line:
                words = shlex.split(line[2:], comments=True)
                found.append(words[words.index("invoke") + 1 :])
    return found


ALL = [(page, words) for page in PAGES for words in commands(page)]


@pytest.mark.parametrize(
    ("page", "words"), ALL, ids=[f"{page}: {' '.join(words)}" for page, words in ALL]
)
def test_every_command_is_a_task_with_these_options(page, words):
    if words == ["--list"]:
        return
    name, *rest = words
    assert name in namespace.task_names, f"{page}: {name}"
    known = {flag for one in namespace[name].get_arguments() for flag in flags(one)}
    for word in rest:
        if word.startswith("--"):
            assert word.split("=")[0] in known, f"{page}: invoke {name} has no {word}"


def flags(argument):
    return {"--" + name.strip("_").replace("_", "-") for name in argument.names}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_pages_and_pictures_that_are_there(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text_of(page)):
        if not target.startswith("http"):
            assert (DOCS / target).exists(), f"{page}: {target}"


def test_a_first_run_has_ten_steps_each_with_a_command():
    parts = re.split(r"^## (?=\d+\. )", text_of("first-run.md"), flags=re.MULTILINE)[1:]
    assert [int(part.split(".")[0]) for part in parts] == list(range(1, 11))
    assert all("```console\n$ " in part for part in parts)


# Those of the first run that need neither cluster, image nor films; what they must print.
RUN = [
    (["stacks", "--solve", "driver=570.86 compute_capability=8.0"], "stack cuda12: fits"),
    (["plan-scaling", "--step-ms", "100", "--batch", "64", "--gpus", "1,2,4,8,16"], "bound by"),
    (["plan-binding"], "rank"),
]


@pytest.mark.parametrize(("words", "said"), RUN, ids=[words[0] for words, _ in RUN])
def test_commands_of_the_first_run_that_can_run_here_print_what_the_page_says(words, said):
    assert words in commands("first-run.md")
    done = subprocess.run(
        [sys.executable, "-m", "invoke", "--search-root", str(PROJECT), *words],
        capture_output=True, text=True, cwd=PROJECT, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


def test_stacks_and_checks_that_the_pages_name_are_there():
    for page in PAGES:
        text = text_of(page)
        assert set(re.findall(r"--stack (\w+)", text)) <= set(load_stacks()), page
        prefixes = {name.partition(".")[0] for name in known_checks()}
        named = re.findall(r"`([a-z]+\.[a-z-]+)`", text)
        named = [one for one in named if one.partition(".")[0] in prefixes - {"python"}]
        assert {one for one in named if not one.endswith((".py", ".md"))} <= set(known_checks())


def test_keys_that_the_tuning_page_names_are_of_the_configuration():
    from chexnet.config import KEYS

    rows = re.findall(r"^\| (`[a-z_0-9=`, …-]+`)[^|]*\|", text_of("tuning.md"), re.MULTILINE)
    named = [key for row in rows for key in re.findall(r"`([a-z_]+)(?:=[^`]*)?`", row)]
    assert len(named) >= 10
    assert set(named) <= set(KEYS)


def test_the_scaling_page_repeats_the_record():
    record = json.loads((PROJECT / "benchmarks" / "results" / "scaling-model.json").read_text())
    text = text_of("scaling.md")
    for table in (name for name, one in load_tables().items() if one.rates):
        worst = [
            record["ratios"][f"largest error on unseen rows: {table}, {explanation}"]
            for explanation in ("exchange", "stragglers", "input")
        ]
        cells = " | ".join(f"{value:.0%}" for value in worst)
        assert f"| `{table}` | {cells} |" in text


def test_the_scaling_page_says_what_the_model_says_of_the_study():
    text = " ".join(text_of("scaling.md").split())
    dell = find_table("dell")
    lost = {n: 1000 * 64 * n / dell.rates[n] - dell.work.step_ms for n in (4, 16)}
    exchange = {}
    for n in lost:
        terms = model_terms(n, work=dell.work, cluster=dell.cluster)
        exchange[n] = terms[LATENCY] + terms[BANDWIDTH]
    assert (round(lost[16]), round(lost[4])) == (190, 89)
    assert "16 GPUs lose 190 ms a step, of which the exchange takes 5 at most" in text
    assert exchange[16] < 5
    assert "one node lose 89 ms, and the exchange 1.4" in text
    assert round(exchange[4], 1) == 1.4
    slow = replace(dell.cluster, intra_bandwidth_gb_s=dell.cluster.intra_bandwidth_gb_s / 10)
    terms = model_terms(4, work=dell.work, cluster=slow)
    assert round(terms[LATENCY] + terms[BANDWIDTH]) == 9
    assert "or 9 if the links inside it had a tenth" in text
    shares = {}
    for name in ("dell", "resnet50-v100-fp32"):
        work = fit(find_table(name), explanation="stragglers")[0]
        shares[name] = f"{work.jitter_ms / work.step_ms:.0%}"
    assert shares == {"dell": "29%", "resnet50-v100-fp32": "3%"}
    assert "29 % of a step" in text
    assert "it is 3 %" in text
