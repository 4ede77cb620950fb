"""What two runs differ in, from files written here by hand."""

import json
from pathlib import Path

import jsonschema
import pytest

import chexnet.__main__ as program
import chexnet.results.compare
from chexnet.config import load_config, render_config
from chexnet.errors import UserError
from chexnet.results.compare import compare_runs
from chexnet.results.compare_text import comparison_as_json, tell_losses, tell_verdict

SCHEMA = json.loads(
    Path(chexnet.results.compare.__file__).with_name("compare.schema.json").read_text()
)
RECORD = {
    "status": "finished", "started": "2020-01-01T00:00:00+00:00", "device": "cpu",
    "ranks": 2, "hosts": ["a", "a"], "data": "/data", "data_sha256": "d" * 64,
    "lock_sha256": None, "git_revision": "abc", "versions": {"python": "3.1", "keras": "3.0"},
    "horovod": {"nccl_built": False}, "effective": {"precision": "float32"},
    "startup_s": {"import": 4.0, "trace": 1.5}, "throughput": {"images_per_s": 200.0},
    "results": {"loss": 0.25, "validation_auroc": 0.75},
}  # fmt: skip


def write_run(folder, *, settings=(), record=(), statuses=("PASS",), losses=(0.5, 0.4), auroc=0.8):
    folder.mkdir()
    (folder / "config.json").write_text(render_config(load_config(settings=settings)))
    (folder / "record.json").write_text(json.dumps(RECORD | dict(record)))
    results = [{"id": f"host.c{n}", "status": status} for n, status in enumerate(statuses)]
    (folder / "environment.json").write_text(json.dumps({"stack": "cpu", "results": results}))
    lines = [{"kind": "steps", "step": 5 * n, "loss": loss} for n, loss in enumerate(losses, 1)]
    lines.append({"kind": "epoch", "step": 10, "loss": 0.45, "input_wait_fraction": 0.02})
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    scores = {"split": "test", "mean_auroc": auroc, "findings": [{"finding": "Mass", "auroc": 0.7}]}
    (folder / "evaluation.json").write_text(json.dumps(scores))
    return folder


@pytest.fixture
def one(tmp_path):
    return write_run(tmp_path / "one")


def causes(comparison):
    return [(cause.part, cause.name, cause.values) for cause in comparison.causes]


def test_the_same_run_twice_differs_in_nothing(tmp_path, one):
    found = compare_runs(one, write_run(tmp_path / "other"))
    assert found.causes == ()
    assert tell_verdict(found) == (
        "nothing differs of what went in (configuration, data, software, machine, environment)"
    )
    assert (
        tell_losses(found.losses) == "losses: the same to the last digit in all 2 windows of steps"
    )
    assert all(outcome.values[0] == outcome.values[1] for outcome in found.outcomes)


def test_one_key_is_nothing_but_that_key(tmp_path, one):
    found = compare_runs(one, write_run(tmp_path / "other", settings=["seed=7"]))
    assert causes(found) == [("configuration", "seed", (0, 7))]
    assert tell_verdict(found) == "nothing differs but seed"


# Each planted difference, and where it must be found.
PLANTED = [
    ({"data_sha256": "e" * 64}, ("data", "data_sha256", ("d" * 64, "e" * 64))),
    ({"weights_sha256": "a" * 64}, ("data", "weights_sha256", (None, "a" * 64))),
    ({"lock_sha256": "f" * 64}, ("software", "lock_sha256", (None, "f" * 64))),
    (
        {"versions": {"python": "3.1", "keras": "3.9"}},
        ("software", "versions.keras", ("3.0", "3.9")),
    ),
    ({"horovod": {"nccl_built": True}}, ("software", "horovod.nccl_built", (False, True))),
    ({"hosts": ["a", "b"]}, ("machine", "hosts", (["a", "a"], ["a", "b"]))),
    (
        {"effective": {"precision": "mixed_float16"}},
        ("software", "effective.precision", ("float32", "mixed_float16")),
    ),
]


@pytest.mark.parametrize(("record", "expected"), PLANTED, ids=[row[1][1] for row in PLANTED])
def test_what_the_record_says_otherwise_is_found(tmp_path, one, record, expected):
    assert causes(compare_runs(one, write_run(tmp_path / "other", record=record))) == [expected]


def test_what_follows_from_the_ranks_is_not_told_again(tmp_path):
    effective = {"exchange": "none", "steps_per_epoch": 8, "peak_learning_rate": 1e-3}
    one = write_run(tmp_path / "one", record={"ranks": 1, "effective": effective})
    effective = {"exchange": "grouped", "steps_per_epoch": 4, "peak_learning_rate": 2e-3}
    other = write_run(tmp_path / "other", record={"ranks": 2, "effective": effective})
    assert causes(compare_runs(one, other)) == [("machine", "ranks", (1, 2))]


def test_where_the_log_of_autotune_lies_is_no_difference(tmp_path):
    def write(name, *, cycle):
        held = [
            {"variable": "HOROVOD_AUTOTUNE_LOG", "value": f"/runs/{name}/autotune.csv",
             "origin": "autotune"},
            {"variable": "HOROVOD_CYCLE_TIME", "value": cycle, "origin": "cycle_time_ms"},
        ]  # fmt: skip
        return write_run(tmp_path / name, record={"effective": {"horovod": held}})

    one = write("one", cycle="1")
    assert causes(compare_runs(one, write("other", cycle="1"))) == []
    (found,) = causes(compare_runs(one, write("third", cycle="2")))
    assert found[:2] == ("software", "effective.horovod")
    assert [len(value) for value in found[2]] == [1, 1]


def test_hashes_are_shown_by_their_beginning(tmp_path, one, capsys):
    other = write_run(tmp_path / "other", record={"git_revision": "0123456789" * 4 + "-dirty"})
    program.main(["compare", str(one), str(other)])
    assert "012345678901-dirty" in capsys.readouterr().out


def test_a_check_with_another_verdict_is_found(tmp_path, one):
    other = write_run(tmp_path / "other", statuses=("WARN",))
    assert causes(compare_runs(one, other)) == [("environment", "host.c0", ("PASS", "WARN"))]


def test_many_differences_are_counted_by_part(tmp_path, one):
    settings = ["seed=7", "epochs=3", "batch_size=8"]
    other = write_run(tmp_path / "other", settings=settings, record={"ranks": 4})
    verdict = tell_verdict(compare_runs(one, other))
    assert verdict == "4 things differ: 3 in configuration, 1 in machine"


def test_losses_that_part_are_told_with_the_step(tmp_path, one):
    found = compare_runs(one, write_run(tmp_path / "other", losses=(0.5, 0.375, 0.3)))
    losses = found.losses
    assert (losses.shared, losses.equal, losses.first) == (2, 1, 10)
    assert losses.largest == pytest.approx(0.025)
    assert "from step 10 on (1 of 2 windows), by at most 0.025" in tell_losses(losses)


def test_losses_that_are_no_numbers(tmp_path):
    nan = float("nan")
    one = write_run(tmp_path / "one", losses=(0.5, nan, 0.25))
    other = write_run(tmp_path / "other", losses=(0.5, nan, nan))
    losses = compare_runs(one, other).losses
    assert (losses.equal, losses.first, losses.largest) == (2, 15, 0.0)


def test_outcomes_are_told_of_both(tmp_path, one):
    other = write_run(tmp_path / "other", record={"throughput": {"images_per_s": 300.0}}, auroc=0.9)
    found = {one.name: one.values for one in compare_runs(one, other).outcomes}
    assert found["throughput.images_per_s"] == (200.0, 300.0)
    assert found["test mean AUROC"] == (0.8, 0.9)
    assert found["test AUROC Mass"] == (0.7, 0.7)
    assert found["startup_s"] == (5.5, 5.5)
    assert found["input_wait_fraction"] == (0.02, 0.02)


@pytest.mark.parametrize("name", chexnet.results.compare.FILES)
@pytest.mark.parametrize("text", [None, "{ cut short"])
def test_a_file_that_is_missing_or_damaged_is_named(tmp_path, one, name, text):
    other = write_run(tmp_path / "other")
    if text is None:
        (other / name).unlink()
    elif name != "metrics.jsonl":  # of which a last line may always be cut short
        (other / name).write_text(text)
    found = compare_runs(one, other)
    assert found.causes == ()
    if text is None or name != "metrics.jsonl":
        assert found.missing[1][0].startswith(name)
        assert f"for want of files: {name}" in tell_verdict(found)


def test_runs_of_which_nothing_can_be_compared_do_not_pass_for_alike(tmp_path, one):
    other = tmp_path / "other"
    other.mkdir()
    (other / "metrics.jsonl").write_text("")
    assert "nothing that went into the runs can be compared" in tell_verdict(
        compare_runs(one, other)
    )


def test_json_fits_its_schema(tmp_path, one, capsys):
    other = write_run(tmp_path / "other", record={"results": {"loss": float("nan")}})
    assert program.main(["compare", str(one), str(other), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    jsonschema.validate(printed, SCHEMA)
    assert printed == comparison_as_json(compare_runs(one, other))
    loss = next(row for row in printed["outcomes"] if row["name"] == "results.loss")
    assert loss["values"] == [0.25, "nan"]  # JSON knows no NaN


def test_text_shows_the_gap(tmp_path, one, capsys):
    other = write_run(tmp_path / "other", record={"throughput": {"images_per_s": 300.0}})
    assert program.main(["compare", str(one), str(other)]) == 0
    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if line.startswith("throughput.images_per_s"))
    assert row.split() == ["throughput.images_per_s", "200", "300", "+100", "(+50.0%)"]


def test_what_is_no_run_is_refused(tmp_path, one):
    for folder in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(UserError) as caught:
            compare_runs(one, folder)
        assert caught.value.exit_code == 2
