"""The picture of a binding plan: which CPUs and which GPU each rank has."""

import math
import xml.etree.ElementTree as ET

import pytest

from benchmarks.report_run import make_plan
from chexnet.pages.report_binding import draw_binding, find_runs


def texts(svg):
    return [one.text for one in ET.fromstring(svg).iter("text")]


def test_each_host_has_a_row_for_each_of_its_ranks():
    one, other = draw_binding(make_plan(hosts=2, ranks=4, cores=12))
    assert (one.title, other.title) == ("gpu-a: 4 ranks", "gpu-b: 4 ranks")
    assert texts(other.svg) == [
        "rank 4", "GPU 0, 12 CPUs", "rank 5", "GPU 1, 12 CPUs", "rank 6", "GPU 2, 12 CPUs",
        "rank 7", "GPU 3, 12 CPUs", "CPU 0", "CPU 47",
    ]  # fmt: skip


def test_bars_lie_where_the_cores_are():
    plan = make_plan(hosts=1, ranks=2, cores=2)
    plan["ranks"][1]["cores"] = [2, 3, 7]
    bars = [
        (float(one.get("x")), float(one.get("width")))
        for one in ET.fromstring(draw_binding(plan)[0].svg).iter("rect")
    ]
    (first, _), (second, two), (third, one) = bars
    # Eight CPUs share the width: a bar begins at its first CPU, and a pixel lies between bars.
    cell = (second - first) / 2
    assert third - first == pytest.approx(7 * cell, abs=0.2)
    assert (two, one) == pytest.approx((2 * cell - 1, cell - 1), abs=0.2)


def test_ranks_that_are_not_bound_say_so():
    plan = make_plan(hosts=1, ranks=1)
    plan["ranks"][0] |= {"cores": [], "gpu": None}
    (figure,) = draw_binding(plan)
    assert figure.title == "gpu-a: one rank"
    assert "not bound" in texts(figure.svg)


def of_cores(*cores):
    return {"ranks": [{"host": "a", "rank": 0, "threads": 1, "gpu": None, "cores": list(cores)}]}


@pytest.mark.parametrize(
    "plan",
    [{}, {"ranks": 3}, {"ranks": [{}]}, {"ranks": [{"host": "a"}]}, of_cores(math.inf),
     of_cores(math.nan), of_cores(-1)],
)  # fmt: skip
def test_what_is_no_plan_has_no_picture(plan):
    assert draw_binding(plan) == []


def test_many_hosts_are_cut_short():
    plan = make_plan(hosts=1, ranks=1)
    plan["ranks"] = [plan["ranks"][0] | {"host": f"h{n}", "rank": n} for n in range(20)]
    figures = draw_binding(plan)
    assert len(figures) == 8
    assert figures[-1].caption == "12 more hosts are in plan.json"


def test_stretches_of_cores():
    assert find_runs([0, 1, 2, 8, 9, 5]) == [(0, 2), (5, 5), (8, 9)]
    assert find_runs([]) == []
