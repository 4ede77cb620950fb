"""What plan-binding shows: the table, the picture, the JSON, and how Open MPI is told."""

import json
import runpy
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from containers.binding import Request, describe_launch, show_plan
from containers.launchers import Launcher
from containers.picture import render_picture
from env.binding import HostShare, load_plan, plan_job
from env.errors import UserError
from env.lstopo import parse_lstopo
from env.topology import Core, Gpu, HostTopology

FOLDER = Path(__file__).parents[1] / "env" / "topologies"
RENDER = runpy.run_path(str(FOLDER / "render.py"))
SVG = "{http://www.w3.org/2000/svg}"


def machine(name):
    return parse_lstopo(RENDER["xml_of"](RENDER["MACHINES"][name]), host=name)


def test_the_table_names_every_rank_s_share_in_full(capsys):
    show_plan(Request(2, topology=FOLDER / "c4140.xml"))
    out = capsys.readouterr().out
    assert "c4140: 2 sockets, 2 memory nodes, 40 cores, 4 GPUs" in out
    assert "0 (0000:1a:00.0)" in out
    # A long list goes on in the next line rather than being cut.
    assert all(f"{cpu}" in out for cpu in range(0, 40, 2))
    assert "…  " not in out
    assert "-np 2 --map-by slot:PE=10 --bind-to core COMMAND" in out


def test_one_rank_a_gpu_is_what_it_plans_when_nobody_says(capsys, tmp_path):
    show_plan(Request(topology=FOLDER / "dgx-a100.xml", json=tmp_path / "plan.json"))
    assert len(load_plan(tmp_path / "plan.json").ranks) == 8
    assert "rank 7=dgx-a100 slot=88-95" in capsys.readouterr().out


def test_json_alone_is_what_a_program_reads(capsys):
    show_plan(Request(1, topology=FOLDER / "laptop.xml", json=Path("-")))
    plan = json.loads(capsys.readouterr().out)
    assert plan["ranks"][0]["cores"] == list(range(8))
    assert plan["ranks"][0]["gpu_pci"] == "0000:01:00.0"


def test_this_machine_has_a_plan(capsys):
    show_plan(Request(1))
    assert "-np 1 --map-by slot:PE=" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("request_", "found"),
    [
        (Request(device="tpu"), "tpu"),
        (Request(9, topology=FOLDER / "dgx1.xml"), "9 ranks"),
        (Request(topology=FOLDER / "nowhere.xml"), "nowhere"),
        (Request(topology=FOLDER / "machines.toml"), "no XML"),
        (Request(1, topology=FOLDER / "laptop.xml", svg=Path("no/such/plan.svg")), "no/such"),
    ],
)
def test_mistakes_are_told_with_their_cure(request_, found):
    with pytest.raises(UserError, match=found) as caught:
        show_plan(request_)
    assert caught.value.fix


def test_gpus_that_are_asked_for_must_be_there(tmp_path):
    path = tmp_path / "plain.xml"
    path.write_text(RENDER["xml_of"](RENDER["MACHINES"]["plain"]))
    with pytest.raises(UserError, match="GPUs on plain"):
        show_plan(Request(topology=path, device="gpu"))


@pytest.mark.parametrize(
    ("allowed", "ranks", "series", "told"),
    [
        (range(4), 2, 4, "-np 2 --map-by slot:PE=1 --bind-to core COMMAND"),
        ((2, 3), 1, 4, "-np 1 --rankfile rankfile COMMAND\n\nrankfile:\nrank 0=h slot=1"),
        ((1, 3), 2, 5, "-np 2 --map-by rankfile:FILE=rankfile:HWTCPUS COMMAND\n\nrankfile:\n"
                       "rank 0=h slot=1\nrank 1=h slot=3"),
    ],
)  # fmt: skip
def test_how_open_mpi_is_told(allowed, ranks, series, told):
    cores = (Core((0, 1), 0, 0), Core((2, 3), 0, 0))
    topology = HostTopology("h", cores, tuple(allowed), (0, 1, 2, 3))
    plan = plan_job([HostShare(topology, ranks)])
    assert describe_launch(plan, launcher=Launcher(series=series)).endswith(told)


def picture(name, ranks):
    topology = machine(name)
    plan = plan_job([HostShare(topology, ranks)])
    return plan, topology, ElementTree.fromstring(render_picture(plan, topology))


@pytest.mark.parametrize("name", RENDER["MACHINES"])
def test_the_picture_has_every_core_once_and_every_gpu(name):
    plan, topology, root = picture(name, 1)
    titles = [element.text for element in root.iter(f"{SVG}title")]
    assert sum(title.startswith("CPU ") for title in titles) == len(topology.cores)
    mine = [title for title in titles if title.startswith("CPU ") and title.endswith(": rank 0")]
    assert len(mine) == plan.cores_per_rank
    barred = sum(title.endswith("not this job's") for title in titles)
    assert barred == len(topology.cores) - len(topology.usable)
    texts = " ".join(element.text or "" for element in root.iter(f"{SVG}text"))
    assert all(gpu.pci in texts for gpu in topology.gpus)
    assert f"socket {topology.cores[-1].socket}" in texts


def test_a_rank_has_one_colour_in_cores_gpu_and_legend():
    _, _, root = picture("epyc-nps4", 4)
    fills = {}
    for group in root.iter(f"{SVG}g"):
        title, rect = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        if title is not None and rect is not None:
            text = " ".join(element.text for element in group.iter() if element.text)
            if "rank 2" in text:
                fills.setdefault(rect.get("fill"), []).append(title.text)
    (titles,) = fills.values()
    assert len(titles) == 16 + 1 + 1  # its cores, its GPU, its line in the legend


def test_it_follows_the_readers_theme():
    _, _, root = picture("laptop", 1)
    assert "prefers-color-scheme: dark" in root.find(f"{SVG}style").text


def test_the_picture_of_the_documentation_is_the_one_that_is_drawn():
    plan, topology, _ = picture("dgx-a100", 8)
    committed = Path(__file__).parents[2] / "docs" / "binding-dgx-a100.svg"
    assert committed.read_text() == render_picture(plan, topology)


def test_names_from_outside_are_text_in_the_picture():
    gpu = Gpu("0<script>", 0, model='"&<x>')
    topology = HostTopology('h"<b>', (Core((0,), 0, 0), Core((1,), 1, 1)), (0, 1), (0, 1), (gpu,))
    root = ElementTree.fromstring(render_picture(plan_job([HostShare(topology, 1)]), topology))
    assert {element.tag for element in root.iter()} <= {
        f"{SVG}{tag}" for tag in ("svg", "style", "rect", "g", "title", "text")
    }
