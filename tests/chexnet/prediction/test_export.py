"""The exported network: alone, in a process without this program, as good as the checkpoint."""

import json
import shutil
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import chexnet.prediction.export
from chexnet.__main__ import main
from chexnet.errors import UserError
from chexnet.labels import FINDINGS
from chexnet.networks.loading import load_run
from chexnet.prediction.export import export_run
from chexnet.results.calibration import Calibration, write_calibration

SCHEMA = Path(chexnet.prediction.export.__file__).with_name("model_card.schema.json")
# Runs where neither this program nor Horovod can be imported.
ALONE = """
import json, sys
import numpy as np
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("chexnet", "horovod"):
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
import tensorflow as tf
loaded = tf.saved_model.load(sys.argv[1])
films = np.load(sys.argv[2])
served = loaded.signatures["serving_default"](films=tf.constant(films))
named = loaded.signatures["by_finding"](films=tf.constant(films))
np.savez(
    sys.argv[3], probabilities=served["probabilities"],
    findings=served["findings"].numpy().tolist(),
    **{name: value.numpy() for name, value in named.items()},
)
print(sorted({"chexnet", "horovod"} & set(sys.modules)))
"""


@pytest.fixture(scope="module")
def calibrated(known_run, tmp_path_factory):
    """Return a run with a calibration, slope 0.5 and intercept 1."""
    run = Path(shutil.copytree(known_run, tmp_path_factory.mktemp("export") / "run"))
    [checkpoint] = (run / "checkpoints").glob("*.npz")
    calibration = Calibration("platt", (0.5,) * 14, (1.0,) * 14)
    write_calibration(calibration, checkpoint=checkpoint)
    return run


@pytest.fixture(scope="module")
def exported(calibrated, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported") / "saved"
    return folder, export_run(calibrated, output=folder)


def test_it_gives_the_checkpoint_s_probabilities_in_a_process_of_its_own(
    exported, calibrated, launch, tmp_path
):
    folder, _ = exported
    films = np.random.default_rng(3).integers(0, 256, (5, 32, 32, 1), np.uint8)
    np.save(tmp_path / "films.npy", films)
    done = launch("-c", ALONE, folder, tmp_path / "films.npy", tmp_path / "found.npz")
    assert done.code == 0, done.err
    assert done.out.strip() == "[]"
    found = np.load(tmp_path / "found.npz")
    logits = load_run(calibrated).model(films, training=False).numpy()
    expected = 1 / (1 + np.exp(-(0.5 * logits + 1.0)))
    np.testing.assert_allclose(found["probabilities"], expected, atol=1e-6)
    assert [name.decode() for name in found["findings"]] == list(FINDINGS)
    for index, name in enumerate(FINDINGS):
        np.testing.assert_allclose(found[name], expected[:, index], atol=1e-6)


def test_the_card_says_what_it_is(exported, calibrated):
    folder, card = exported
    written = json.loads((folder / "model_card.json").read_text())
    assert written == card
    jsonschema.validate(written, json.loads(SCHEMA.read_text()))
    assert written["note"] == "Not for clinical use"
    assert written["input"]["shape"] == [None, 32, 32, 1]
    assert "40 x 40 px" in written["input"]["preparation"]
    assert "exact mean of its area, edge pixels by their share" in written["input"]["preparation"]
    assert written["calibration"]["method"] == "platt"
    assert written["check"]["largest_difference"] < 1e-5


def test_calibration_can_be_left_out(calibrated, tmp_path, capsys):
    code = main(
        ["export", "--run", str(calibrated), "--output", str(tmp_path / "o"), "--no-calibration"]
    )
    assert code == 0
    said = capsys.readouterr().out
    assert "not calibrated" in said
    assert "Not for clinical use." in said
    card = json.loads((tmp_path / "o" / "model_card.json").read_text())
    assert card["calibration"]["method"] == "none"
    # Once more: refused, and with --force replaced.
    with pytest.raises(UserError, match="a new or empty folder"):
        export_run(calibrated, output=tmp_path / "o")
    assert (
        export_run(calibrated, output=tmp_path / "o", force=True)["calibration"]["method"]
        == "platt"
    )


def test_outputs_that_differ_are_not_written(calibrated, tmp_path, monkeypatch):
    def twisted(self, films):
        served = right(self, films)
        return served | {"probabilities": 1 - served["probabilities"]}

    right = chexnet.prediction.export.ExportedNetwork._serve
    monkeypatch.setattr(chexnet.prediction.export.ExportedNetwork, "_serve", twisted)
    with pytest.raises(UserError, match="a difference of") as raised:
        export_run(calibrated, output=tmp_path / "o")
    assert raised.value.exit_code == 1
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_a_checkpoint_is_an_error(known_run, tmp_path):
    (tmp_path / "config.json").write_bytes((known_run / "config.json").read_bytes())
    with pytest.raises(UserError, match="checkpoint"):
        export_run(tmp_path, output=tmp_path / "o")
