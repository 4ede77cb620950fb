"""The scaling series: its arithmetic, its command lines, and a real series of 1 and 2 ranks."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

import benchmarks
from benchmarks import scaling, scaling_rank
from benchmarks.figures import draw_series, group_cases, spread
from benchmarks.scaling import Series, cut_launch, parse_inputs, parse_ranks
from chexnet.prepare import prepare_data
from chexnet.synthetic import make_sample_data
from containers.hosts import HostSlots
from containers.launchers import Launch
from env.binding import BindingPlan, RankBinding
from env.errors import UserError
from env.stack import PROJECT

SCHEMA = json.loads((Path(benchmarks.__file__).parent / "record.schema.json").read_text())
SERIES = Series((1, 2), batch_size=8)


def found_of(ranks, **rates):
    rounds = [
        {"pipeline": name, "input": kind, "images_per_s": rate, "steps": 5,
         "input_wait_fraction": 0.25}
        for (name, kind), all_rates in ((key.split("_"), value) for key, value in rates.items())
        for rate in all_rates
    ]  # fmt: skip
    return {"device": "cpu", "ranks": ranks, "rounds": rounds, "cores_per_rank": 1}


FOUND = {
    1: found_of(1, old_cached=[90, 100, 130], fast_real=[100]),
    2: found_of(2, old_cached=[100, 110, 105], fast_real=[190]),
}


def test_a_result_is_the_median_with_its_spread():
    results = {one["name"]: one for one in scaling.describe_series(FOUND, series=SERIES)}
    assert list(results) == [
        "old, cached, 1 rank", "fast, real, 1 rank",
        "old, cached, 2 ranks", "fast, real, 2 ranks",
    ]  # fmt: skip
    one = results["old, cached, 1 rank"]
    assert (one["value"], one["slowest"], one["fastest"], one["rounds"]) == (100, 90, 130, 3)
    assert (one["batch"], one["cores_per_rank"], one["device"]) == (8, 1, "cpu")


def test_efficiency_is_against_the_fewest_ranks_of_the_same_case():
    results = scaling.describe_series(FOUND, series=SERIES)
    assert scaling.compare_series(results) == {
        "scaling efficiency: old, cached, 2 ranks": 0.525,  # 105 of 200
        "scaling efficiency: fast, real, 2 ranks": 0.95,
    }


def test_the_picture_has_the_spread_of_the_record():
    results = scaling.describe_series(FOUND, series=SERIES)
    rows = group_cases(results)["old", "cached"]
    assert spread(rows, [1, 1]) == [[10, 5], [30, 5]]
    assert spread(rows, [100, 200]) == [[0.1, 0.025], [0.3, 0.025]]


def test_the_ideal_of_the_picture_is_a_straight_line_over_the_others():
    rates, shares = draw_series(scaling.describe_series(FOUND, series=SERIES)).axes
    assert (rates.get_xscale(), rates.get_yscale()) == ("log", "log")
    ideal = max(rates.lines, key=lambda line: line.get_zorder())
    assert ideal.get_linestyle() == "--"
    # Both cases of FOUND do 100 images/s on one rank.
    assert (list(ideal.get_xdata()), list(ideal.get_ydata())) == ([1, 2], [100, 200])
    assert rates.get_legend() is None  # which would lie over the lines
    labels = [text.get_text() for text in shares.get_legend().get_texts()]
    assert labels == ["ideal", "old, cached", "fast, real"]
    assert "1 core a rank" in rates.get_title()


def test_what_is_printed_says_that_the_cores_are_the_limit():
    results = scaling.describe_series(FOUND, series=SERIES)
    said = scaling.render_results(results, ratios=scaling.compare_series(results))
    assert "efficiency 52%" in said or "efficiency 53%" in said
    assert "1 core a rank; the cores are the limit" in said
    assert all("cores are the limit" in one["note"] for one in results)
    gpu = {1: {**FOUND[1], "device": "gpu"}}
    assert not any(one["note"] for one in scaling.describe_series(gpu, series=SERIES))


@pytest.mark.parametrize(("text", "ranks"), [("1,2,4", (1, 2, 4)), ("4, 1,4", (1, 4))])
def test_numbers_of_ranks(text, ranks):
    assert parse_ranks(text) == ranks


@pytest.mark.parametrize("text", ["", "0", "1,,2", "a", "-1", "1.5"])
def test_what_is_no_number_of_ranks(text):
    with pytest.raises(UserError, match="numbers of ranks"):
        parse_ranks(text)


def test_kinds_of_input():
    assert parse_inputs("real,synthetic,real") == ("real", "synthetic")
    with pytest.raises(UserError, match="cached, real, synthetic"):
        parse_inputs("cold")


def test_cases_are_what_the_data_allows():
    assert scaling_rank.plan_cases(["fast"], inputs=["synthetic", "cached"]) == [
        ("synthetic", "synthetic"), ("fast", "cached")]  # fmt: skip
    found = scaling_rank.plan_cases(["encoded"], inputs=["real"])
    assert [case for case in found if case[0] != "dali"] == [("old", "real"), ("new", "real")]


@pytest.mark.parametrize(
    ("kind", "films", "steps"),
    # 10 films a step: 100 films are 10 steps, two of which warm up.
    [("cached", 100, 50), ("real", 100, 8), ("real", 1000, 50), ("real", 5, 1)],
)
def test_real_input_ends_before_films_come_twice(kind, films, steps):
    assert scaling_rank.count_steps(50, films=films, per_step=10, kind=kind) == steps


def test_fewer_ranks_keep_the_cores_they_had_among_many():
    ranks = [RankBinding(n, n % 2, "ab"[n // 2], (2 * n, 2 * n + 1), None, 2) for n in range(4)]
    hosts = (HostSlots("a", 2), HostSlots("b", 2))
    launch = Launch(BindingPlan(tuple(ranks), 2), hosts=hosts)
    cut = cut_launch(launch, 3)
    assert cut.plan.ranks == launch.plan.ranks[:3]
    assert cut.plan.cores_per_rank == 2
    assert cut.hosts == (HostSlots("a", 2), HostSlots("b", 1))


def test_a_dry_run_prints_a_line_for_each_number_of_ranks(tmp_path, capsys):
    series = replace(SERIES, ranks=(1, 2), data=(tmp_path / "a b",))
    scaling.run_benchmark(series, output=tmp_path / "o" / "r.json", dry_run=True)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" -np ")[1][0] for line in lines] == ["1", "2"]
    assert all("benchmarks.scaling_rank" in line and f"'{tmp_path}/a b'" in line for line in lines)
    assert not list(tmp_path.iterdir())


def test_the_recorded_command_measures_the_same_again():
    hosts = (HostSlots("a", 1), HostSlots("b", 1))
    series = Series((1, 2), ("real",), (Path("/d e"), Path("/f")), hosts, "tiny", 4, 0, "cpu", 3, 2)
    files = {"--output": Path("o.json"), "--picture": None, "--stand-in": Path("s.json")}
    command = scaling.command_of(series, files=files)
    assert command[:2] == ["invoke", "bench-scaling"]
    given = list(zip(command[2::2], command[3::2], strict=True))
    assert sorted(given) == [
        ("--batch-size", "4"), ("--crop", "0"), ("--data", "/d e"), ("--data", "/f"),
        ("--device", "cpu"), ("--hosts", "a:1,b:1"), ("--input", "real"), ("--model", "tiny"),
        ("--output", "o.json"), ("--ranks", "1,2"), ("--repeats", "2"), ("--stand-in", "s.json"),
        ("--steps", "3"),
    ]  # fmt: skip


STOPPED = """
import sys
from pathlib import Path
from benchmarks import scaling
wait = f"echo $$ > {sys.argv[1]}/pid; mv {sys.argv[1]}/pid {sys.argv[1]}/started; exec sleep 300"
scaling.make_data = lambda folder: scaling._run(["sh", "-c", wait])
scaling.run_benchmark(scaling.Series((1,)), output=Path(sys.argv[1]) / "r.json")
"""


def test_one_that_is_stopped_leaves_no_process_and_no_folder(tmp_path):
    started, temporary = tmp_path / "started", tmp_path / "tmp"
    temporary.mkdir()
    child = subprocess.Popen([sys.executable, "-c", STOPPED, tmp_path], cwd=PROJECT,
                             env={**os.environ, "TMPDIR": str(temporary)})  # fmt: skip
    try:
        while not started.exists():
            assert child.poll() is None
            time.sleep(0.05)
        child.terminate()
        assert child.wait() == 128 + signal.SIGTERM
    finally:
        child.kill()
    assert list(temporary.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)


def test_a_missing_record_of_the_stand_in_is_told_before_anything_runs(tmp_path):
    with pytest.raises(UserError, match=r"none\.json"):
        scaling.run_benchmark(SERIES, output=tmp_path / "r.json", stand_in=tmp_path / "none.json")


@pytest.mark.slow
@pytest.mark.mpi
def test_a_real_series_of_one_and_two_ranks(tmp_path, capsys):
    sample = make_sample_data(tmp_path / "s", num_images=60, size_px=32, workers=1)
    for form in ("encoded", "fast"):
        prepare_data(sample, output=tmp_path / form, size_px=32, workers=1, format=form)
    output, picture = tmp_path / "out" / "r.json", tmp_path / "out" / "p.png"
    beside = tmp_path / "stand-in.json"
    rows = [{"pipeline": "old", "ranks": n, "value": 5.0, "slowest": 4, "fastest": 6,
             "cores_per_rank": 1} for n in (1, 2, 4)]  # fmt: skip
    beside.write_text(json.dumps({"results": rows}))
    series = Series((1, 2), data=(tmp_path / "encoded", tmp_path / "fast"), batch_size=2, crop=0,
                    steps=3, repeats=2, device="cpu")  # fmt: skip
    scaling.run_benchmark(series, output=output, picture=picture, stand_in=beside)
    data = json.loads(output.read_text())
    jsonschema.validate(data, SCHEMA)
    names = [one["name"] for one in data["results"]]
    assert len(names) == len(set(names)) == 2 * (1 + 3 * 2)
    for one in data["results"]:
        assert 0 < one["slowest"] <= one["value"] <= one["fastest"]
        assert (one["rounds"], one["cores_per_rank"]) == (2, 1)
        assert 0 <= one["input_wait_fraction"] <= 1
    assert set(data["ratios"]) == {
        f"scaling efficiency: {name}" for name in names if name.endswith("2 ranks")
    }
    assert picture.read_bytes()[:4] == b"\x89PNG"
    assert "images/s" in capsys.readouterr().out
