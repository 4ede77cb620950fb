"""Whole runs of the program: on ranks, killed, resumed, with bad input."""

import json
import os
import shutil
import signal
import time
from pathlib import Path

import jsonschema
import pytest

import chexnet.run

SCHEMAS = Path(chexnet.run.__file__).parent
SETTINGS = ["preset=demo", "model=tiny", "device=cpu", "batch_size=8", "epochs=3"]
SMALL = [word for setting in SETTINGS for word in ("--set", setting)]


def read_json(path):
    return json.loads(path.read_text())


def read_metrics(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def finished(chexnet, small_data, tmp_path_factory):
    """Return the folder of a run of two ranks that was left alone, and what it said."""
    folder = tmp_path_factory.mktemp("train") / "run"
    done = chexnet("train", "--data", small_data, "--run", folder, *SMALL, ranks=2)
    assert done.code == 0, done.err
    return folder, done


@pytest.mark.mpi
def test_run_folder_holds_what_its_schemas_say(finished):
    folder, _ = finished
    for name in ("config", "record"):
        schema = read_json(SCHEMAS / f"{name}.schema.json")
        jsonschema.validate(read_json(folder / f"{name}.json"), schema)
    schema = read_json(SCHEMAS / "metrics.schema.json")
    for line in read_metrics(folder):
        jsonschema.validate(line, schema)
    record = read_json(folder / "record.json")
    assert (record["status"], record["ranks"]) == ("finished", 2)
    assert record["results"]["epoch"] == 3


@pytest.mark.mpi
def test_every_rank_takes_the_same_number_of_steps(finished, small_data):
    folder, _ = finished
    films = read_json(small_data / "dataset.json")["splits"]["train"]["num_examples"]
    epochs = [line for line in read_metrics(folder) if line["kind"] == "epoch"]
    per_epoch = films // (8 * 2)
    assert [line["step"] for line in epochs] == [per_epoch, 2 * per_epoch, 3 * per_epoch]


@pytest.mark.mpi
def test_only_rank_0_speaks_and_in_plain_lines(finished):
    _, done = finished
    assert done.out.count("finished: ") == 1
    assert "\x1b" not in done.out
    assert "oneDNN" not in done.out + done.err


@pytest.mark.mpi
def test_evaluation_is_the_same_on_1_2_and_3_ranks(finished, chexnet, small_data):
    folder, _ = finished
    found = []
    for ranks in (0, 2, 3):
        done = chexnet("evaluate", "--run", folder, ranks=ranks)
        assert done.code == 0, done.err
        found.append(read_json(folder / "evaluation.json"))
    jsonschema.validate(found[0], read_json(SCHEMAS / "evaluation.schema.json"))
    assert [one["ranks"] for one in found] == [1, 2, 3]
    assert found[0]["split"] == "test"
    positives = read_json(small_data / "dataset.json")["splits"]["test"]["positives"]
    for one in found:
        counts = {row["finding"]: row["num_positives"] for row in one["findings"]}
        assert counts == positives
        assert one["mean_auroc"] == pytest.approx(found[0]["mean_auroc"], abs=1e-9)


@pytest.mark.mpi
def test_data_that_was_prepared_again_is_not_scored_unasked(
    finished, chexnet, small_data, tmp_path
):
    run, data = tmp_path / "run", tmp_path / "data"
    shutil.copytree(finished[0], run)
    shutil.copytree(small_data, data)
    description = read_json(data / "dataset.json")
    (data / "dataset.json").write_text(json.dumps(description | {"split": "patient"}))
    record = read_json(run / "record.json")
    (run / "record.json").write_text(json.dumps(record | {"data": str(data)}))
    done = chexnet("evaluate", "--run", run)
    assert done.code == 2
    assert "prepared again" in done.err
    chosen = chexnet("evaluate", "--run", run, "--data", data)
    assert chosen.code == 0
    assert "patients may overlap" in chosen.out


@pytest.mark.mpi
def test_killed_run_resumes_to_the_losses_of_the_run_left_alone(
    finished, chexnet, start, small_data, tmp_path
):
    folder = tmp_path / "run"
    with start("train", "--data", small_data, "--run", folder, *SMALL, ranks=2) as ranks:
        wait_until((folder / "checkpoints" / "epoch-0001.npz").exists, timeout_s=240)
        os.killpg(ranks.pid, signal.SIGKILL)
    wait_until(lambda: not find_processes(folder), timeout_s=60)
    done = chexnet("train", "--data", small_data, "--run", folder, "--resume", ranks=2)
    assert done.code == 0, done.err
    assert "continuing after epoch" in done.out
    assert read_json(folder / "record.json")["resumed_from"][0] >= 1

    def losses(run):
        return [(line["step"], line["kind"], line["loss"]) for line in read_metrics(run)]

    assert losses(folder) == losses(finished[0])


@pytest.mark.mpi
def test_resume_of_a_finished_run_changes_nothing(finished, chexnet, small_data):
    folder, _ = finished
    before, record = read_metrics(folder), read_json(folder / "record.json")
    done = chexnet("train", "--data", small_data, "--run", folder, "--resume")
    assert done.code == 0, done.err
    assert "finished before" in done.out
    assert read_metrics(folder) == before
    assert read_json(folder / "record.json") == record


def wait_until(true, *, timeout_s):
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def find_processes(folder):
    """Return the processes whose command line names the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(folder).encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


@pytest.mark.mpi
def test_damaged_record_file_of_one_rank_ends_all_and_is_named(chexnet, small_data, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(small_data, data)
    path = data / read_json(data / "dataset.json")["splits"]["train"]["shards"][1]["name"]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    done = chexnet("train", "--data", data, "--run", tmp_path / "run", *SMALL, ranks=2)
    assert done.code == 1
    assert path.name in done.err
    assert "Traceback" not in done.err
    record = read_json(tmp_path / "run" / "record.json")
    assert record["status"] == "failed"
    assert path.name in record["error"]


def test_loss_that_is_not_a_number_stops_the_run(chexnet, small_data, tmp_path):
    folder = tmp_path / "run"
    words = ["--set", "learning_rate=1e38", "--set", "warmup_epochs=0"]
    done = chexnet("train", "--data", small_data, "--run", folder, *SMALL, *words)
    assert done.code == 1
    assert "a loss that is a number" in done.err
    assert read_json(folder / "record.json")["status"] == "failed"
    assert not list((folder / "checkpoints").glob("*.npz"))


def test_term_signal_stops_cleanly_and_the_record_says_so(start, small_data, tmp_path):
    folder = tmp_path / "run"
    words = [*SMALL, "--set", "epochs=10000"]
    with start("train", "--data", small_data, "--run", folder, *words) as one:
        wait_until((folder / "checkpoints" / "epoch-0001.npz").exists, timeout_s=240)
        one.send_signal(signal.SIGTERM)
        err = one.communicate(timeout=120)[1]
    assert one.returncode == 1
    assert "stopped by SIGTERM" in err
    assert "--resume" in err
    assert read_json(folder / "record.json")["status"] == "interrupted"


@pytest.mark.parametrize("verb", ["train", "evaluate"])
def test_missing_data_or_run_is_a_message(chexnet, tmp_path, verb):
    words = ["--data", tmp_path / "none"] if verb == "train" else []
    done = chexnet(verb, "--run", tmp_path / "run", *words)
    assert done.code == 2
    assert "Traceback" not in done.err
    assert "fix:" in done.err
