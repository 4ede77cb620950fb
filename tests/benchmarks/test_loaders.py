"""The comparison with other loaders: what is run, what is made of it, and the whole, slowly."""

import json
import sys
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import benchmarks
from benchmarks import inputs, loaders
from benchmarks.peers import common, environment, floor
from chexnet.synthetic import make_sample_data

SCHEMA = json.loads((Path(benchmarks.__file__).parent / "record.schema.json").read_text())
FAST, NEW, FLOOR = "bytes: fast", "png: new", "bytes: floor"


def test_peers_run_in_their_own_python_and_ours_in_this_one():
    def words(program):
        case = next(case for case in loaders.CASES if case.program == program)
        return loaders.render_command(
            case, folder=Path("in"), python=Path("peers/python"), batch_size=8, seconds=0.5
        )

    tail = ["--folder", "in", "--size", "256", "--crop", "224", "--batch-size", "8"]
    tail += ["--seconds", "0.5"]
    assert words("dali") == ["peers/python", "-m", "benchmarks.peers.dali_loader", "png", *tail]
    for program, module in (("ours", "our_loader"), ("floor", "floor")):
        assert words(program)[:3] == [sys.executable, "-m", f"benchmarks.peers.{module}"]


def test_every_input_is_read_by_every_peer_that_is_asked_for():
    asked = {(case.input, case.program) for case in loaders.plan_cases(["dali", "torch"])}
    for peer in ("dali", "torch"):
        assert {input for input, program in asked if program == peer} == {"png", "jpeg", "bytes"}
    assert "grain" not in {program for _, program in asked}
    assert {("png", "ours"), ("jpeg", "ours"), ("bytes", "ours"), ("bytes", "floor")} <= asked


def test_names_of_cases_are_their_own():
    assert len({case.label for case in loaders.CASES}) == len(loaders.CASES)


def found_of(cases, rates):
    """Every case at 10 images/s, but for those named; three rounds, ten times as fast each."""
    return {
        case.label: [
            {"images": rates.get(case.label, 10) * 10**nth, "seconds": 1.0, "peak_mb": 50.4 + nth,
             "worker_peak_mb": 7.0}
            for nth in range(3)
        ]
        for case in cases
    }  # fmt: skip


RATES = {FAST: 1800, NEW: 10, FLOOR: 20000, "bytes: dali, numpy files": 1500,
         "bytes: fast, crop and flip in the step": 450}  # fmt: skip


def test_results_are_medians_with_their_range_and_memory():
    results = {
        one["name"]: one
        for one in loaders.describe_rates(loaders.CASES, found=found_of(loaders.CASES, RATES))
    }
    fast = results[FAST]
    assert (fast["value"], fast["slowest"], fast["fastest"]) == (18000, 1800, 180000)
    assert (fast["input"], fast["loader"], fast["peak_mb"], fast["rounds"]) == (
        "bytes", "fast", 52, 3)  # fmt: skip


def test_goals_compare_with_the_best_peer_in_each_round():
    ratios = loaders.compare_rates(loaders.CASES, found=found_of(loaders.CASES, RATES))
    assert ratios["fast / new from PNG"] == 180
    assert ratios["fast / best peer from bytes"] == 1.2
    assert ratios["fast / bytes: torch, mapped array"] == 180
    assert ratios["fast, crop and flip in the step / fast"] == 0.25
    goals = {one["name"]: one["met"] for one in loaders.describe_goals(ratios)}
    assert goals == {
        "goal: fast / new from PNG": True,
        "goal: fast / best peer from bytes": False,
        "goal: fast / floor": False,  # 0.09 of 0.10
    }


def test_without_peers_their_goal_is_not_judged():
    cases = loaders.plan_cases([])
    ratios = loaders.compare_rates(cases, found=found_of(cases, RATES))
    assert {one["name"] for one in loaders.describe_goals(ratios)} == {
        "goal: fast / new from PNG", "goal: fast / floor"}  # fmt: skip


def test_preparation_is_paid_back_by_what_an_epoch_saves():
    made = {"images": 100, "seconds": {"fast": 9.0, "jpeg": 4.0}, "bytes": {"fast": 6553600}}
    # 100 films take 5 s from PNG, 0.5 s from bytes and 10 s from JPEG.
    results = loaders.describe_inputs(made, rates={NEW: 20.0, FAST: 200.0, "jpeg: new": 10.0})
    values = {one["name"]: one["value"] for one in results}
    assert values == {
        "bytes on disk: fast": 65536,
        "preparation: fast": 9.0,
        "preparation: fast, paid back against new from PNG": 2.0,
        "preparation: jpeg": 4.0,
    }


def test_whole_epochs_are_drawn_after_one_that_does_not_count():
    drawn = iter(range(10**9))
    found = common.measure_epochs(drawn, batch_size=4, epoch=10, seconds=0)
    assert found["images"] == 0
    assert next(drawn) == 3  # 12 images before the clock
    drawn = iter(range(10**9))
    found = common.measure_epochs(drawn, batch_size=4, epoch=10, seconds=1e-9)
    assert (found["images"], next(drawn)) == (12, 6)


def test_crops_lie_anywhere_and_half_are_mirrored():
    film = np.arange(36, dtype=np.uint8).reshape(6, 6)
    rng = np.random.default_rng(0)
    kinds = set()
    out = np.zeros((4, 4), np.uint8)
    for _ in range(400):
        part = common.crop_and_flip(film, rng, crop=4, out=out)
        assert part is out
        flipped = part[0, 0] > part[0, 1]
        upright = part[:, ::-1] if flipped else part
        top, left = divmod(int(upright[0, 0]), 6)
        assert np.array_equal(upright, film[top : top + 4, left : left + 4])
        kinds.add((top, left, bool(flipped)))
    assert len(kinds) == 18


def test_memory_of_a_child_is_counted_apart(tmp_path):
    assert common.peak_mb()[0] > 10
    assert common._peak("self") == pytest.approx(common.peak_mb()[0], rel=0.5)


def test_an_environment_belongs_to_its_requirements(tmp_path):
    one, other = (
        environment.environment_folder(text, cache=tmp_path) for text in ("a==1\n", "a==2\n")
    )
    assert one != other
    assert one.parent == tmp_path
    assert one.name.startswith("peers-")


def test_every_requirement_is_exact_and_has_a_hash():
    text = environment.REQUIREMENTS.read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    names = {line.partition("==")[0] for line in lines}
    assert set(loaders.PEERS.values()) <= names
    for line in lines:
        assert "==" in line.split()[0]
        assert "--hash=sha256:" in line


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Inputs of a few small films."""
    folder = tmp_path_factory.mktemp("inputs")
    source = make_sample_data(folder / "nih", num_images=40, size_px=64, workers=1)
    return folder / "in", inputs.ensure_inputs(folder / "in", source=source, images=0, size=32)


def test_every_form_holds_the_same_films(made):
    folder, described = made
    films = np.load(folder / "array.npy")
    names = (folder / "names.txt").read_text().split()
    assert described["images"] == len(films) == len(names) == len(set(names))
    assert (described["shipped_px"], described["made_up"]) == (64, False)
    assert described["bytes"]["fast"] > films.nbytes == len(films) * 32**2
    job = common.Job(folder, batch_size=4, size=32, crop=28, workers=1)
    for png, jpeg, npy, film in zip(
        job.paths("png"), job.paths("jpeg"), job.paths("npy"), films, strict=True
    ):
        assert np.array_equal(np.load(npy), film)
        # Pillow reduces first; the mean of four pixels is rounded once or twice.
        assert np.abs(common.load_image(png, size=32).astype(int) - film).max() <= 1
        assert np.abs(common.load_image(jpeg, size=32).astype(int) - film).mean() < 8
    for peer_records in ("png-records", "jpeg-records"):
        assert len(list((folder / peer_records).iterdir())) == len(
            [p for p in (folder / "fast").iterdir() if p.name.startswith("train-0")]
        )


def test_inputs_are_made_once(made):
    folder, described = made
    assert inputs.ensure_inputs(folder, source=None, images=0, size=32) == described


def test_the_floor_copies_the_middle(made):
    class Ready:
        def wait(self):
            pass

    job = common.Job(made[0], batch_size=4, size=32, crop=28, workers=1)
    assert floor.copy_blocks(job, 0.01, Ready()) > 0


@pytest.mark.slow
def test_a_record_of_a_real_run_with_every_peer(tmp_path, monkeypatch, capsys):
    source = make_sample_data(tmp_path / "nih", num_images=64, size_px=512)
    output = tmp_path / "r.json"
    argv = ["x", "--data", str(tmp_path / "in"), "--source", str(source), "--output", str(output)]
    monkeypatch.setattr(sys, "argv", [*argv, "--rounds", "1", "--seconds", "0.5"])
    loaders.main()
    data = json.loads(output.read_text())
    jsonschema.validate(data, SCHEMA)
    rates = {one["name"]: one["value"] for one in data["results"]}
    assert {case.label for case in loaders.CASES} <= set(rates)
    assert all(value > 0 for value in rates.values())
    assert {"nvidia-dali-cuda120", "torch", "grain"} <= set(data["versions"])
    assert "goal: fast / floor" in capsys.readouterr().out
