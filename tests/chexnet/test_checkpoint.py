"""Checkpoints survive kills and damage, and are loaded strictly."""

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from chexnet.checkpoint import (
    Description,
    check_description,
    list_checkpoints,
    load_best,
    load_checkpoint,
    load_newest,
    restore,
    save_checkpoint,
)
from chexnet.errors import UserError

DESCRIPTION = Description(
    epoch=1,
    step=10,
    model="tiny",
    data_size=64,
    input_size=64,
    image_size=64,
    precision="float32",
    findings=("A", "B"),
    normalisation={"scale": 0.5},
    config_sha256="0" * 64,
    validation_auroc=0.5,
)


class Variable:
    """Stands in for a Keras variable."""

    def __init__(self, value, path="v"):
        self.value, self.path = np.asarray(value), path

    @property
    def shape(self):
        return self.value.shape

    @property
    def dtype(self):
        return str(self.value.dtype)

    def numpy(self):
        return self.value

    def assign(self, value):
        self.value = value


def save(folder, epoch, auroc=0.5, value=None):
    value = float(epoch) if value is None else value
    return save_checkpoint(
        folder,
        description=replace(DESCRIPTION, epoch=epoch, validation_auroc=auroc),
        model=[Variable(np.full((2, 3), value, np.float32))],
        optimizer=[Variable(np.int64(epoch)), Variable(np.full(3, value, np.float64))],
    )


def test_what_is_written_is_read(tmp_path):
    found = load_checkpoint(save(tmp_path, 3, 0.75))
    assert found.description == replace(DESCRIPTION, epoch=3, validation_auroc=0.75)
    (weights,) = found.model_values
    iteration, moment = found.optimizer_values
    assert (weights == 3).all()
    assert weights.dtype == np.float32
    assert (int(iteration), iteration.dtype) == (3, np.int64)
    assert moment.tolist() == [3.0, 3.0, 3.0]


def test_last_two_and_best_are_kept(tmp_path):
    for epoch, auroc in [(1, 0.6), (2, 0.9), (3, 0.7), (4, 0.8), (5, None)]:
        save(tmp_path, epoch, auroc)
    assert [path.name for path in list_checkpoints(tmp_path)] == [
        "epoch-0002.npz",
        "epoch-0004.npz",
        "epoch-0005.npz",
    ]
    assert load_best(tmp_path, say=print).description.epoch == 2
    assert load_newest(tmp_path, say=print).description.epoch == 5


def test_the_newest_is_the_best_where_no_auroc_is_defined(tmp_path):
    for epoch in range(1, 7):
        save(tmp_path, epoch, auroc=None)
    assert [path.name for path in list_checkpoints(tmp_path)] == [
        "epoch-0005.npz",
        "epoch-0006.npz",
    ]
    assert load_best(tmp_path, say=print).description.epoch == 6


def test_damaged_later_ones_give_way_to_what_was_trained_again(tmp_path):
    for epoch in (4, 5, 6):
        save(tmp_path, epoch, auroc=0.5)
    for name in ("epoch-0005.npz", "epoch-0006.npz"):
        (tmp_path / name).write_bytes(b"damaged")
    save(tmp_path, 5, auroc=0.5)
    assert load_newest(tmp_path, say=print).description.epoch == 5
    assert not (tmp_path / "epoch-0006.npz").exists()


def test_epochs_are_ordered_as_numbers(tmp_path):
    for epoch in (9999, 10000):
        save(tmp_path, epoch)
    assert load_newest(tmp_path, say=print).description.epoch == 10000


def test_undefined_auroc_is_never_better_than_a_number(tmp_path):
    save(tmp_path, 1, None)
    save(tmp_path, 2, 0.3)
    assert load_best(tmp_path, say=print).description.epoch == 2


def flip_bit(path):
    content = bytearray(path.read_bytes())
    # Inside the values of the weights: 2 x 3 float32 of the epoch's number.
    place = content.index(np.full(6, 2, np.float32).tobytes())
    content[place] ^= 1
    path.write_bytes(content)


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def empty(path):
    path.write_bytes(b"")


def be_something_else(path):
    path.write_bytes(b"<html>not found</html>")


@pytest.mark.parametrize("damage", [flip_bit, cut, empty, be_something_else])
def test_damaged_newest_is_passed_over_and_said(tmp_path, damage):
    save(tmp_path, 1)
    damage(save(tmp_path, 2))
    said = []
    assert load_newest(tmp_path, say=said.append).description.epoch == 1
    assert len(said) == 1
    assert "epoch-0002.npz" in said[0]


@pytest.mark.parametrize("damage", [flip_bit, cut])
def test_damaged_best_is_not_taken(tmp_path, damage):
    damage(save(tmp_path, 2, 0.9))
    save(tmp_path, 3, 0.3)
    said = []
    assert load_best(tmp_path, say=said.append).description.epoch == 3
    assert len(said) == 1
    assert "epoch-0002.npz" in said[0]


def test_changed_value_with_a_right_zip_is_found_by_the_hash(tmp_path):
    path = save(tmp_path, 1)
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    arrays["model/0000"] = arrays["model/0000"] + 1
    np.savez(path.open("wb"), **arrays)
    with pytest.raises(UserError, match="its hash differs"):
        load_checkpoint(path)


def test_all_damaged_is_an_error(tmp_path):
    cut(save(tmp_path, 1))
    with pytest.raises(UserError) as caught:
        load_newest(tmp_path, say=lambda text: None)
    assert caught.value.exit_code == 1


def test_none_at_all(tmp_path):
    assert load_newest(tmp_path, say=print) is None
    with pytest.raises(UserError, match="none in"):
        load_best(tmp_path, say=print)


WRITER = """
import sys, numpy as np
from pathlib import Path
sys.path.insert(0, {tests!r})
from dataclasses import replace
from chexnet.checkpoint import Description, save_checkpoint
class Variable:
    def __init__(self, value): self.value = value
    def numpy(self): return self.value
names = ("epoch", "step", "model", "data_size", "input_size", "image_size", "precision", "findings",
         "normalisation", "config_sha256", "validation_auroc")
base = Description(**dict.fromkeys(names), )
epoch = 0
print("ready", flush=True)
while True:
    epoch += 1
    values = np.full(200_000, epoch, np.float32)
    save_checkpoint(Path(sys.argv[1]), description=replace(base, epoch=epoch, findings=()),
                    model=[Variable(values)], optimizer=[])
    print(epoch, flush=True)
"""


@pytest.mark.parametrize("seed", range(5))
def test_kill_at_any_moment_leaves_the_last_reported_checkpoint(tmp_path, seed):
    root = str(Path(__file__).parents[2])
    with subprocess.Popen(
        [sys.executable, "-c", WRITER.format(tests=root), str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        assert writer.stdout.readline() == "ready\n"
        written = int(writer.stdout.readline())
        time.sleep(random.Random(seed).uniform(0.0, 0.3))
        os.kill(writer.pid, signal.SIGKILL)
        written = max([written, *(int(line) for line in writer.stdout.read().split())])
    found = load_newest(tmp_path, say=pytest.fail)
    assert found.description.epoch >= written
    assert (found.model_values[0] == found.description.epoch).all()


def test_leftovers_of_a_kill_are_removed(tmp_path):
    leftover = tmp_path / ".epoch-0009.npz.123.tmp"
    leftover.write_bytes(b"half")
    save(tmp_path, 1)
    assert not leftover.exists()


def test_unwritable_place_is_a_message_not_a_traceback(tmp_path):
    (tmp_path / "checkpoints").write_text("a file where the folder belongs")
    with pytest.raises(UserError, match="a checkpoint written to"):
        save(tmp_path / "checkpoints", 1)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([np.zeros(2)], "2 variables"),
        ([np.zeros(2), np.zeros((1, 3))], r"w of shape \(3,\)"),
        ([np.zeros(2), np.zeros(3, np.float32)], "float64"),
    ],
)
def test_restore_refuses_what_does_not_fit_and_changes_nothing(values, expected):
    variables = [Variable(np.ones(2), "v"), Variable(np.ones(3), "w")]
    with pytest.raises(UserError, match=expected):
        restore(values, variables=variables, where="here")
    assert variables[0].numpy().tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"model": "densenet121"}, "model tiny"),
        ({"findings": ("B", "A")}, "B at place 0, where A belongs"),
        ({"findings": ("A", "B", "C")}, "3 findings"),
        ({"normalisation": {"scale": 1.0}}, "normalisation"),
    ],
)
def test_other_network_order_or_normalisation_is_refused_by_name(change, expected):
    with pytest.raises(UserError, match=expected):
        check_description(
            replace(DESCRIPTION, **change),
            where="here",
            model="tiny",
            findings=("A", "B"),
            normalisation={"scale": 0.5},
        )
