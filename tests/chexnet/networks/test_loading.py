"""Which checkpoints a run's network may come from, whoever asks for it."""

import pytest

from chexnet.config import load_config, render_config
from chexnet.errors import UserError
from chexnet.networks.loading import load_run
from chexnet.predict import Options, predict
from chexnet.prediction.export import export_run

USES = {
    "a network": lambda run, name, _: load_run(run, checkpoint=name),
    "predictions": lambda run, name, _: predict(run, inputs=[], options=Options(checkpoint=name)),
    "an export": lambda run, name, out: export_run(run, output=out, checkpoint=name),
}


@pytest.mark.parametrize("use", USES)
def test_a_checkpoint_of_another_run_is_refused(known_run, tmp_path, use):
    settings = ["preset=demo", "model=tiny", "crop_size=32", "device=cpu", "seed=5"]
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").write_text(render_config(load_config(None, settings=settings)))
    [other] = (known_run / "checkpoints").glob("epoch-*.npz")
    with pytest.raises(UserError, match="one of another run") as raised:
        USES[use](run, str(other), tmp_path / "out")
    assert raised.value.exit_code == 2
    assert not (tmp_path / "out").exists()
