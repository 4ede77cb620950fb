"""Checkpoints are written beside the training, hold what was then, and tell of failure."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from chexnet.checkpoint import Description, list_checkpoints, load_checkpoint, load_newest
from chexnet.errors import UserError
from chexnet.training.position import Position, Tally
from chexnet.training.saving import CheckpointWriter, set_statistics

DESCRIPTION = Description(
    epoch=0, step=3, model="tiny", data_size=64, input_size=64, image_size=64,
    precision="float32", findings=("A",), normalisation={}, config_sha256="0" * 64,
    validation_auroc=None, ranks=2,
    position=Position(0, 3, 48, 48, window=Tally(3, 6, 4.5, 1.0, 0.5)),
    schedule_state={"best": 0.5},
)  # fmt: skip


class Variable:
    """Stands in for a Keras variable; numpy() shows its memory, as on CPUs."""

    def __init__(self, values):
        self.values = np.array(values, np.float32)

    @property
    def shape(self):
        return self.values.shape

    def numpy(self):
        return self.values

    def assign(self, values):
        self.values = np.array(values, np.float32)


@pytest.fixture
def trainer():
    weights, moving = Variable([1.0, 2.0]), Variable([[10.0], [20.0]])
    model = SimpleNamespace(variables=[weights, moving])
    optimizer = SimpleNamespace(variables=[Variable(7.0)])
    return SimpleNamespace(model=model, optimizer=optimizer, moving_statistics=[moving])


def test_what_was_when_it_was_saved_is_in_the_file(trainer, tmp_path):
    writer = CheckpointWriter(tmp_path, enabled=True)
    writer.save(trainer, description=DESCRIPTION)
    trainer.model.variables[0].values += 100
    trainer.optimizer.variables[0].values += 100
    writer.finish()
    found = load_newest(tmp_path, say=pytest.fail)
    assert found.path.name == "epoch-0000-films-00000048.npz"
    assert found.description == DESCRIPTION
    assert found.model_values[0].tolist() == [1.0, 2.0]
    assert found.optimizer_values[0].tolist() == 7.0
    assert found.rank_values is None


def test_within_an_epoch_each_rank_has_its_own_statistics_and_the_model_their_mean(
    trainer, tmp_path
):
    rows = np.array([[1.0, 2.0], [3.0, 8.0]], np.float32)
    writer = CheckpointWriter(tmp_path, enabled=True)
    writer.save(trainer, description=DESCRIPTION, rank_values=rows)
    writer.finish()
    found = load_checkpoint(tmp_path / DESCRIPTION.name)
    assert found.model_values[1].tolist() == [[2.0], [5.0]]
    assert found.rank_values.tolist() == rows.tolist()
    set_statistics(trainer, values=found.rank_values[1])
    assert trainer.moving_statistics[0].values.tolist() == [[3.0], [8.0]]


def test_what_cannot_be_written_is_told_at_the_next_look(trainer, tmp_path):
    (tmp_path / "checkpoints").write_text("a file where the folder belongs")
    writer = CheckpointWriter(tmp_path / "checkpoints", enabled=True)
    writer.check()
    writer.save(trainer, description=DESCRIPTION)
    with pytest.raises(UserError, match="a checkpoint written to") as caught:
        writer.finish()
    assert caught.value.exit_code == 1
    writer.check()  # told once


def test_other_ranks_write_nothing(trainer, tmp_path):
    writer = CheckpointWriter(tmp_path, enabled=False)
    writer.save(trainer, description=DESCRIPTION)
    writer.finish()
    assert list_checkpoints(tmp_path) == []


def test_every_nth_epoch_is_kept_and_the_newest_within_one(trainer, tmp_path):
    writer = CheckpointWriter(tmp_path, enabled=True, keep_every=3)
    for epoch in range(1, 9):
        whole = replace(DESCRIPTION, epoch=epoch, position=Position(epoch=epoch),
                        validation_auroc=0.9 if epoch == 2 else 0.5)  # fmt: skip
        writer.save(trainer, description=whole)
        for films in (16, 32):
            within = Position(epoch, films // 16, films, films)
            writer.save(trainer, description=replace(DESCRIPTION, epoch=epoch, position=within))
    writer.finish()
    assert [path.name for path in list_checkpoints(tmp_path)] == [
        "epoch-0002.npz",  # the best
        "epoch-0003.npz",
        "epoch-0006.npz",
        "epoch-0007.npz",
        "epoch-0008.npz",
        "epoch-0008-films-00000016.npz",
        "epoch-0008-films-00000032.npz",
    ]


def test_what_is_no_number_is_refused_and_the_older_file_stays(trainer, tmp_path):
    writer = CheckpointWriter(tmp_path, enabled=True)
    writer.save(trainer, description=DESCRIPTION)
    writer.finish()
    trainer.optimizer.variables[0].values = np.array(np.inf, np.float32)
    later = replace(DESCRIPTION, position=Position(0, 4, 64, 64))
    writer.save(trainer, description=later)
    with pytest.raises(UserError, match="optimizer/0000") as caught:
        writer.finish()
    assert caught.value.exit_code == 1
    assert later.name in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == [DESCRIPTION.name]
