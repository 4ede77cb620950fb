"""Whole runs of the program: on ranks, killed, resumed, with bad input."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest
from tensorflow.compat.v1.train import summary_iterator

import chexnet.run
from benchmarks.kills import ALL, ASKED, RANK, compare, find_ranks, is_forward, is_named, survive
from chexnet.checkpoint import load_newest
from chexnet.data.films import load_films
from chexnet.input.order import Order

SCHEMAS = {path.name: path for path in Path(chexnet.__file__).parent.rglob("*.schema.json")}
EPOCHS = 15  # long enough that none has ended before it is killed for the last time
SETTINGS = ["preset=demo", "model=tiny", "device=cpu", "batch_size=8", f"epochs={EPOCHS}",
            "checkpoint_steps=5"]  # fmt: skip
SMALL = [word for setting in SETTINGS for word in ("--set", setting)]


def read_json(path):
    return json.loads(path.read_text())


def read_metrics(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def finished(chexnet, fast_data, tmp_path_factory):
    """Return the folder of a run of two ranks that was left alone, and what it said."""
    folder = tmp_path_factory.mktemp("train") / "run"
    done = chexnet("train", "--data", fast_data, "--run", folder, *SMALL, ranks=2)
    assert done.code == 0, done.err
    return folder, done


@pytest.mark.mpi
def test_run_folder_holds_what_its_schemas_say(finished):
    folder, _ = finished
    for name in ("config", "record"):
        schema = read_json(SCHEMAS[f"{name}.schema.json"])
        jsonschema.validate(read_json(folder / f"{name}.json"), schema)
    schema = read_json(SCHEMAS["metrics.schema.json"])
    for line in read_metrics(folder):
        jsonschema.validate(line, schema)
    record = read_json(folder / "record.json")
    assert (record["status"], record["ranks"]) == ("finished", 2)
    assert record["results"]["epoch"] == EPOCHS
    assert record["effective"]["precision"] == "float32"
    steps = EPOCHS * record["effective"]["steps_per_epoch"]
    assert record["position"] == {"epoch": EPOCHS, "step": steps, "examples": 16 * steps}


@pytest.mark.mpi
def test_every_rank_takes_the_same_number_of_steps(finished, small_data):
    folder, _ = finished
    films = read_json(small_data / "dataset.json")["splits"]["train"]["num_examples"]
    epochs = [line for line in read_metrics(folder) if line["kind"] == "epoch"]
    per_epoch = films // (8 * 2)
    assert [line["step"] for line in epochs] == [n * per_epoch for n in range(1, EPOCHS + 1)]


@pytest.mark.mpi
def test_only_rank_0_speaks_and_in_plain_lines(finished):
    _, done = finished
    assert done.out.count("finished: ") == 1
    assert "\x1b" not in done.out
    assert "oneDNN" not in done.out + done.err


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
    assert "No result: " in chosen.out


@pytest.fixture
def killed(start, fast_data, tmp_path):
    """Return a function that ends a run of two ranks in these ways and lets it finish."""

    def end(*kinds, seed):
        run = tmp_path / "run"
        words = ["train", "--data", str(fast_data), "--run", str(run), *SMALL]
        kills = survive(
            words, run=run, start=lambda line: start(*line, ranks=2), kinds=kinds, seed=seed
        )
        return run, kills

    return end


@pytest.mark.mpi
def test_killed_at_any_moment_it_ends_as_the_run_left_alone(finished, killed):
    run, kills = killed(RANK, ALL, ASKED, RANK, ALL, seed=45)
    assert compare(run, alone=finished[0]) == []
    assert is_forward(kills)
    for kill in kills:
        if kill.kind == ASKED:
            assert kill.code == 75
            assert "stopped by SIGUSR1" in kill.error
        elif kill.kind == RANK:
            # The launcher ends the others; who died is in the record.
            assert kill.code not in (0, 75)
            assert is_named(kill), kill.error
    resumed = read_json(run / "record.json")["resumed_from"]
    assert {"epoch", "step", "examples", "ranks"} == set(resumed[-1])
    jsonschema.validate(read_json(run / "record.json"), read_json(SCHEMAS["record.schema.json"]))


@pytest.mark.mpi
@pytest.mark.slow
def test_killed_thirty_times_it_ends_as_the_run_left_alone(chexnet, start, fast_data, tmp_path):
    words = [*SMALL, "--set", "epochs=40"]
    alone, run = tmp_path / "alone", tmp_path / "run"
    done = chexnet("train", "--data", fast_data, "--run", alone, *words, ranks=2)
    assert done.code == 0, done.err
    kills = survive(
        ["train", "--data", str(fast_data), "--run", str(run), *words], run=run,
        start=lambda line: start(*line, ranks=2), kinds=[RANK, ALL] * 15, seed=2,
    )  # fmt: skip
    assert compare(run, alone=alone) == []
    assert is_forward(kills)
    for kill in kills:
        assert is_named(kill), kill.error
        if kill.kind == ALL:
            assert kill.code == -signal.SIGKILL
        else:
            assert kill.code not in (0, 75)


@pytest.mark.mpi
@pytest.mark.slow
def test_a_rank_that_is_slow_holds_nobody_up_for_good(start, fast_data, tmp_path):
    run = tmp_path / "run"
    with start("train", "--data", fast_data, "--run", run, *SMALL, ranks=2) as ranks:
        wait_until((run / "metrics.jsonl").exists, of=ranks)
        process = find_ranks(run)[1]
        os.kill(process, signal.SIGSTOP)
        time.sleep(5)
        os.kill(process, signal.SIGCONT)
        ranks.communicate(timeout=240)
    assert ranks.returncode == 0
    assert read_json(run / "record.json")["status"] == "finished"


# Notes each film that the pipeline of a rank takes, with its place in the order of the run. In the
# third epoch of two ranks it asks for a stop, which the ranks then look for after every step.
FILMS_NOTED = """
import json, os, signal, sys
from pathlib import Path
from chexnet.__main__ import main
from chexnet.input.order import Order
from chexnet.training import epochs
note = Path(sys.argv.pop(1)).open("a")
take = Order.take
def take_and_note(order, first, *, count):
    turns = take(order, first, count=count)
    note.write(json.dumps([first, turns.films.tolist()]) + "\\n")
    note.flush()
    return turns
Order.take = take_and_note
epochs.ASK_EVERY_S = 0
call = epochs.Steps._call
def call_and_ask(steps, batches):
    call(steps, batches)
    if steps._job.ranks.size == 2 and (steps.position.epoch, steps.position.epoch_step) == (2, 4):
        os.kill(os.getpid(), signal.SIGUSR1)
epochs.Steps._call = call_and_ask
sys.exit(main())
"""


def read_takes(path):
    """Return the film at each place of the order that a start has taken, also ahead of its steps.

    Two ranks have written the file, each its own lines.
    """
    takes = [json.loads(line) for line in path.read_text().splitlines()]
    return {first + n: film for first, films in takes for n, film in enumerate(films)}


@pytest.mark.mpi
@pytest.mark.slow
def test_on_other_ranks_every_film_still_comes_once(launch, fast_data, tmp_path):
    run = tmp_path / "run"
    words = ["train", "--data", fast_data, "--run", run]
    films = read_json(fast_data / "dataset.json")["splits"]["train"]["num_examples"]
    done = launch("-c", FILMS_NOTED, tmp_path / "two", *words, *SMALL, "--set", "epochs=3", ranks=2)
    assert done.code == 75, done.err
    stopped = read_json(run / "record.json")["position"]
    # Asked for after the fourth step, and seen after it or the next.
    assert stopped["epoch"] == 2
    assert stopped["step"] - 2 * (films // 16) in (4, 5)
    done = launch("-c", FILMS_NOTED, tmp_path / "one", *words, "--resume")
    assert done.code == 0, done.err
    assert "on 1 ranks what 2 began" in done.out
    last = read_json(run / "record.json")["position"]
    assert last["epoch"] == 3
    taken, later = read_takes(tmp_path / "two"), read_takes(tmp_path / "one")
    assert min(later) == stopped["examples"]
    order = [
        (taken if place < stopped["examples"] else later)[place]
        for place in range(last["examples"])
    ]
    # Two passes over all films, and of the third no film twice.
    for begin in (0, films):
        assert sorted(order[begin : begin + films]) == list(range(films))
    rest = order[2 * films :]
    assert 0 < len(rest) == len(set(rest))
    # The curves of two ranks stay as far as they count.
    (start,) = (
        event.step
        for event in summary_iterator(str(max((run / "tensorboard").iterdir())))
        if event.HasField("session_log")
    )
    assert start == stopped["step"] + 1
    # The rate of one rank at that step: a cosine over its 3 x 28 steps, but the first 14.
    assert films // 8 == 28
    lines = [line for line in read_metrics(run) if line["examples"] > stopped["examples"]]
    assert lines[-1]["step"] == 84
    for line in lines:
        done = (line["step"] - 1 - 14) / (84 - 14)
        assert line["lr"] == pytest.approx(5e-4 * 0.5 * (1 + math.cos(math.pi * done)))


@pytest.mark.mpi
def test_resume_of_a_finished_run_changes_nothing(finished, chexnet, fast_data):
    folder, _ = finished
    before, record = read_metrics(folder), read_json(folder / "record.json")
    done = chexnet("train", "--data", fast_data, "--run", folder, "--resume")
    assert done.code == 0, done.err
    assert "finished before" in done.out
    assert read_metrics(folder) == before
    assert read_json(folder / "record.json") == record


def wait_until(true, *, of, timeout_s=240):
    """Wait until something is true of a running program."""
    deadline = time.monotonic() + timeout_s
    while not true():
        assert of.poll() is None, of.communicate()[1]
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def count_lines(folder):
    path = folder / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


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


def test_loss_that_is_not_a_number_stops_the_run_and_names_the_films(chexnet, fast_data, tmp_path):
    folder = tmp_path / "run"
    words = ["--set", "learning_rate=1e38", "--set", "warmup_epochs=0"]
    done = chexnet("train", "--data", fast_data, "--run", folder, *SMALL, *words)
    assert done.code == 1
    assert "a loss that is a number" in done.err
    assert read_json(folder / "record.json")["status"] == "failed"
    bad = read_json(folder / "bad-batch.json")
    jsonschema.validate(bad, read_json(SCHEMAS["bad_batch.schema.json"]))
    # The first step makes the weights huge, the second has no loss: the films of both.
    assert [(batch["rank"], batch["step"]) for batch in bad["batches"]] == [(0, 2), (0, 1)]
    about = read_json(fast_data / "dataset.json")["splits"]["train"]
    names = load_films(fast_data / about["films"]["name"], num_films=about["num_examples"]).names
    order = Order(about["num_examples"], seed=0).take(0, count=16).films.tolist()
    assert bad["batches"][0]["films"] == [names[film] for film in order[8:]]
    assert bad["batches"][1]["films"] == [names[film] for film in order[:8]]
    assert bad["batches"][0]["films"][0] in done.err


def test_term_signal_keeps_everything_and_a_second_writer_is_refused(
    start, chexnet, small_data, tmp_path
):
    folder = tmp_path / "run"
    words = ["train", "--data", small_data, "--run", folder, *SMALL, "--set", "epochs=10000"]
    with start(*words) as one:
        wait_until(lambda: count_lines(folder) > 1, of=one)
        other = chexnet(*words, "--resume")
        one.send_signal(signal.SIGTERM)
        err = one.communicate(timeout=120)[1]
    assert other.code == 2
    assert f"process {one.pid} on " in other.err
    assert one.returncode == 75
    assert "stopped by SIGTERM" in err
    assert "--resume" in err
    record = read_json(folder / "record.json")
    assert record["status"] == "interrupted"
    newest = load_newest(folder / "checkpoints", say=pytest.fail).description
    done = newest.epoch * record["effective"]["steps_per_epoch"] + newest.position.epoch_step
    assert f"after step {done};" in err
    assert record["position"] == {
        "epoch": newest.epoch, "step": done, "examples": newest.position.examples,
    }  # fmt: skip
    assert record["position"]["examples"] == 8 * done


ASKED_WHILE_VALIDATING = """
import os, signal, sys
from chexnet import train
from chexnet.__main__ import main
validate = train._validate
def ask_and_validate(job, predict):
    if job.ranks.rank:
        os.kill(os.getpid(), signal.SIGUSR1)
    return validate(job, predict)
train._validate = ask_and_validate
sys.exit(main())
"""


@pytest.mark.mpi
def test_the_first_validation_is_stopped_on_all_ranks_and_repeated(launch, fast_data, tmp_path):
    run = tmp_path / "run"
    words = ["train", "--data", fast_data, "--run", run, *SMALL, "--set", "checkpoint_steps=0"]
    done = launch("-c", ASKED_WHILE_VALIDATING, *words, ranks=2)
    assert done.code == 75, done.err
    assert "in the validation of epoch 1; a checkpoint has it all" in done.err
    record = read_json(run / "record.json")
    assert record["status"] == "interrupted"
    newest = load_newest(run / "checkpoints", say=pytest.fail).description
    steps = record["effective"]["steps_per_epoch"]
    assert (newest.epoch, newest.position.epoch_step) == (0, steps)
    # No score of films that were not looked at.
    assert "epoch" not in [line["kind"] for line in read_metrics(run)]


ASKED_WHILE_TRACING = """
import os, signal, sys
import horovod.tensorflow as hvd
from chexnet.__main__ import main
from chexnet.training.step import Trainer
trace = Trainer.trace
def ask_and_trace(trainer):
    if hvd.rank():
        os.kill(os.getpid(), signal.SIGTERM)
    trace(trainer)
Trainer.trace = ask_and_trace
sys.exit(main())
"""


@pytest.mark.mpi
def test_a_stop_before_the_first_step_ends_all_ranks_at_once(launch, fast_data, tmp_path):
    run = tmp_path / "run"
    done = launch("-c", ASKED_WHILE_TRACING, "train", "--data", fast_data, "--run", run, *SMALL,
                  ranks=2)  # fmt: skip
    assert done.code == 75, done.err
    assert "before the first step of this start" in done.err
    record = read_json(run / "record.json")
    assert (record["status"], record["position"]["step"]) == ("interrupted", 0)
    assert not (run / "metrics.jsonl").exists()
    assert not (run / "checkpoints").exists()


LIMITED = """
import resource, sys
from chexnet import distributed
from chexnet.__main__ import main
start = distributed.start
def start_and_limit(*args, **names):
    ranks = start(*args, **names)  # MPI has files of its own
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
    return ranks
distributed.start = start_and_limit
sys.exit(main())
"""


def test_a_full_disk_ends_the_run_without_half_a_checkpoint(launch, fast_data, tmp_path):
    # A file may have 50 kB: less than a checkpoint, more than the record and the metrics.
    run = tmp_path / "run"
    words = ["train", "--data", fast_data, "--run", run, *SMALL, "--set", "checkpoint_steps=0"]
    done = launch("-c", LIMITED, *words)
    assert done.code == 1
    assert "a checkpoint written to" in done.err
    assert "Traceback" not in done.err
    assert list((run / "checkpoints").iterdir()) == []
    assert read_json(run / "record.json")["status"] == "failed"
    assert [line["kind"] for line in read_metrics(run)] == [*["steps"] * 4, "epoch"]


@pytest.mark.slow
def test_without_stdin_home_or_rights_it_trains(ordinary, environment, fast_data, tmp_path):
    # As a user without any right, from a folder that cannot be written, with no home.
    run = tmp_path / "shared" / "run"
    run.parent.mkdir()
    for folder in (run.parent, *run.parents[1:4]):
        folder.chmod(0o777)
    shutil.copytree(fast_data, run.parent / "data")
    program = [sys.executable, "-m", "chexnet", "train", "--data", run.parent / "data",
               "--run", run, *SMALL, "--set", "epochs=1"]  # fmt: skip
    done = subprocess.run(
        [*ordinary, "sh", "-c", 'exec "$@" <&-', "sh", *map(str, program)],
        capture_output=True, text=True, cwd="/proc",
        env=environment | {"HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert read_json(run / "record.json")["status"] == "finished"


@pytest.mark.parametrize("verb", ["train", "evaluate"])
def test_missing_data_or_run_is_a_message(chexnet, tmp_path, verb):
    words = ["--data", tmp_path / "none"] if verb == "train" else []
    done = chexnet(verb, "--run", tmp_path / "run", *words)
    assert done.code == 2
    assert "Traceback" not in done.err
    assert "fix:" in done.err
