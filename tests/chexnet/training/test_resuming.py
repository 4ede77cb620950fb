"""A run goes on in another precision: Adam's state is kept, the loss scale comes and goes."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from chexnet.checkpoint import load_newest
from chexnet.training.position import Position
from chexnet.training.resuming import _tell

# The precision that ``auto`` means is chosen here: there is no GPU. Each start but the last is
# asked to stop, and does after its first step.
PROGRAM = """
import shutil
import sys
from dataclasses import replace
from pathlib import Path
import chexnet.train as program
from chexnet.config import load_config
from chexnet.signals import Interrupted, StopSignal
data, run, *order = sys.argv[1:]
settle, run_epochs = program.settle_config, program.Training.run
config = load_config(settings=["preset=demo", "model=tiny", "device=cpu", "batch_size=32",
                               "epochs=1"])
for number, precision in enumerate(order, 1):
    program.settle_config = lambda config, device: replace(
        settle(config, device=device), precision=precision
    )
    stop = StopSignal()
    def ask_and_run(training, position):
        stop.received = None if number == len(order) else "SIGUSR1"
        run_epochs(training, position)
    program.Training.run = ask_and_run
    print("START")
    try:
        program.train(Path(data), folder=Path(run), config=config, resume=True, stop=stop)
    except Interrupted:
        pass
    shutil.copytree(f"{run}/checkpoints", f"{run}.{number}")
"""
ORDER = ("mixed_float16", "float32", "mixed_float16")


@pytest.fixture(scope="module")
def states(launch, fast_data, tmp_path_factory):
    """Return what each of three starts said and left: its newest checkpoint; and the run."""
    run = tmp_path_factory.mktemp("precision") / "run"
    done = launch("-c", PROGRAM, fast_data, run, *ORDER)
    assert done.code == 0, done.err
    said = done.out.split("START\n")[1:]
    kept = [load_newest(run.with_suffix(f".{number}"), say=pytest.fail) for number in (1, 2, 3)]
    return list(zip(said, kept, strict=True)), run


def test_the_loss_scale_comes_and_goes_and_adam_stays(states):
    (first, second, third), run = states
    assert "in float32 what was begun in mixed_float16, without a loss scale" in second[0]
    assert (
        "in mixed_float16 what was begun in float32, with a loss scale from the start" in third[0]
    )
    numbers = [len(checkpoint.optimizer_values) for _, checkpoint in (first, second, third)]
    assert [number - numbers[1] for number in numbers] == [3, 0, 3]
    # Adam counts its steps over the whole run (the first of its variables).
    steps = [int(checkpoint.optimizer_values[0]) for _, checkpoint in (first, second)]
    assert steps == [1, 2]
    assert third[1].optimizer_values[-3] == np.float32(2**15)
    assert json.loads((run / "record.json").read_text())["status"] == "finished"
    assert json.loads((run / "config.json").read_text())["precision"] == "auto"


@pytest.mark.parametrize(
    ("pipeline", "films"),
    [
        ("fast", "every film still comes once"),
        ("dali", "every film still comes once"),
        ("new", "some come twice or not at all"),
        ("old", "some come twice or not at all"),
    ],
)
def test_on_other_ranks_it_is_said_what_comes_of_the_films(pipeline, films):
    said = []
    job = SimpleNamespace(
        config=SimpleNamespace(pipeline=pipeline), ranks=SimpleNamespace(size=2), steps=18,
        images_per_step=16, schedule=SimpleNamespace(peak=1e-3),
        reporter=SimpleNamespace(say=said.append),
    )  # fmt: skip
    position = Position(epoch=1, epoch_step=20, epoch_examples=160, examples=456)
    found = SimpleNamespace(epoch=1, ranks=1, position=position)
    _tell(job, SimpleNamespace(description=found, path=Path("c.npz")))
    # 160 films of the epoch are ten steps of 16.
    assert "on 2 ranks what 1 began: 18 steps an epoch, here step 28" in said[1]
    assert films in said[1]
