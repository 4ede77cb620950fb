"""What a run's record says of the weights that its network began from."""

import hashlib
import json
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from chexnet import train
from chexnet.config import load_config
from chexnet.errors import UserError
from chexnet.training.run_record import RunRecord

RECORD = RunRecord(
    status="running", command=("train",), started="2026-01-02T03:04:05+00:00", ranks=2,
    hosts=("a", "a"), device="cpu", data="/data", data_sha256="0" * 64, lock_sha256=None,
    git_revision=None, versions={}, horovod={},
)  # fmt: skip


def begin(folder, *, weights, resume=False):
    """Begin a run as rank 0 does, and return the record in its folder."""
    config = load_config(settings=["model=densenet121", f"weights={weights}"])
    job = SimpleNamespace(
        folder=folder, config=config, asked=config, checkpoints=folder / "checkpoints",
        ranks=SimpleNamespace(is_first=True), reporter=SimpleNamespace(say=print),
    )  # fmt: skip
    with ExitStack() as stack:
        train._begin(job, record=RECORD, resume=resume, stack=stack, kept={})
    return json.loads((folder / "record.json").read_text())


def test_a_file_of_weights_is_known_by_its_hash_though_it_changes_later(tmp_path):
    weights, run = tmp_path / "mine.weights.h5", tmp_path / "run"
    weights.write_bytes(b"some weights")
    expected = hashlib.sha256(b"some weights").hexdigest()
    assert begin(run, weights=weights)["weights_sha256"] == expected
    (run / "checkpoints").mkdir(exist_ok=True)
    (run / "checkpoints" / "epoch-0001.npz").touch()
    weights.unlink()  # the run has its own by now
    assert begin(run, weights=weights, resume=True)["weights_sha256"] == expected


def test_random_weights_have_no_file(tmp_path):
    assert begin(tmp_path / "run", weights="none")["weights_sha256"] is None


def test_weights_that_are_not_there_begin_no_run(tmp_path):
    with pytest.raises(UserError, match="path of a weights file"):
        begin(tmp_path / "run", weights=tmp_path / "none.h5")
    assert not (tmp_path / "run" / "record.json").exists()
