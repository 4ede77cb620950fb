"""The compiled steps on one rank: several in a call, accumulation, precisions, XLA."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from chexnet.config import load_config
from chexnet.model import build_model
from chexnet.records import Split, Table
from chexnet.training.step import Trainer

SIZE, BATCH = 16, 4


@pytest.fixture(autouse=True)
def _policy(joined):
    yield
    keras.config.set_dtype_policy("float32")


def make(films=None, **changes):
    values = {
        "model": "tiny",
        "crop_size": SIZE,
        "image_size": SIZE,
        "batch_size": BATCH,
        "precision": "float32",
    }
    config = load_config(settings=[f"{k}={v}" for k, v in (values | changes).items()])
    keras.utils.set_random_seed(1)
    model = build_model(
        "tiny", input_size=SIZE, image_size=config.image_size, precision=config.precision,
        batch_statistics=config.batch_statistics,
    )  # fmt: skip
    return Trainer(model, config=config, films=films)


def make_batches(seed=0):
    random = np.random.default_rng(seed)
    while True:
        images = random.integers(0, 256, (BATCH, SIZE, SIZE, 1), dtype=np.uint8)
        labels = random.integers(0, 2, (BATCH, 14)).astype(np.float32)
        yield tf.constant(images), tf.constant(labels)


def take(trainer, *numbers):
    """Return the losses of calls of so many steps."""
    batches, losses = make_batches(), []
    for number in numbers:
        steps = trainer.timed_steps(batches, rates=[1e-3] * number, meters=[])
        assert steps.shape == (number,)
        losses += steps.numpy().tolist()
    return losses


@pytest.fixture(scope="module")
def plain(joined):
    return take(make(), *[1] * 7)


def test_calls_of_any_number_of_steps_are_one_trace_and_the_same_training(plain):
    trainer = make(steps_per_call=3)
    trainer.trace()
    assert take(trainer, 3, 1, 3) == plain
    assert trainer.num_traces == 1


def test_rate_of_each_step_is_its_own():
    trainer = make(steps_per_call=2)
    before = trainer.model.get_weights()
    trainer.timed_steps(make_batches(), rates=[0.0, 0.0], meters=[])
    trained = len(trainer.model.trainable_variables)
    same = [
        (variable.numpy() == old).all()
        for variable, old in zip(trainer.model.weights, before, strict=True)
    ]
    assert sum(same) >= trained  # moving statistics alone moved
    trainer.timed_steps(make_batches(), rates=[0.0, 1e-3], meters=[])
    assert float(trainer.optimizer.variables[1].numpy()) == pytest.approx(1e-3)
    assert trainer.model.trainable_variables[0].numpy() != pytest.approx(before[0], abs=1e-5)


def test_accumulation_takes_the_mean_over_its_batches():
    trainer = make(precision="float64", accumulation_steps=3)
    batches = make_batches()
    films = [next(batches) for _ in range(3)]
    images, labels = (tf.stack(part) for part in zip(*films, strict=True))
    _, found = tf.function(trainer.gradients)(images, labels)

    alone = make(precision="float64")
    single = tf.function(alone.gradients)
    parts = [single(x[None], y[None])[1] for x, y in films]
    expected = [sum(part) / 3 for part in zip(*parts, strict=True)]
    for one, other in zip(expected, found, strict=True):
        assert other.numpy() == pytest.approx(one.numpy(), rel=1e-10, abs=1e-12)


# A float16 has 11 bits, a bfloat16 8.
@pytest.mark.parametrize(
    ("precision", "error"), [("mixed_float16", 3e-3), ("mixed_bfloat16", 3e-2)]
)
def test_mixed_precision_follows_float32_and_leaves_overflow_out(plain, precision, error):
    trainer = make(precision=precision, steps_per_call=2)
    assert take(trainer, 2, 2, 2, 1) == pytest.approx(plain, rel=error)
    assert {v.dtype for v in trainer.model.trainable_variables} == {"float32"}
    if precision == "mixed_bfloat16":
        assert trainer.optimizer.scaling == {}
        assert trainer.effective["loss_scaling"] == "none"
        return
    assert trainer.effective["loss_scaling"] == "dynamic"
    assert trainer.optimizer.scaling == {"loss_scale": 2.0**15, "skipped_steps": 0}
    trainer.optimizer.variables[-3].assign(2.0**126)
    before = trainer.model.trainable_variables[0].numpy()
    assert np.isfinite(take(trainer, 1)).all()
    assert (trainer.model.trainable_variables[0].numpy() == before).all()
    assert trainer.optimizer.scaling == {"loss_scale": 2.0**125, "skipped_steps": 1}


def test_xla_trains_alike_also_where_films_are_resized():
    # What resizes them has no XLA kernel.
    usual = take(make(image_size=8), 1, 1)
    trainer = make(image_size=8, xla="on", steps_per_call=2)
    assert take(trainer, 2) == pytest.approx(usual, rel=1e-4)
    assert trainer.effective["xla"] == "on"
    assert trainer.num_traces == 1


def test_statistics_of_all_ranks_are_float32_in_mixed_precision():
    trainer = make(precision="mixed_float16", batch_statistics="global")
    layer = trainer.model.get_layer("tiny_backbone").get_layer("bn0")
    # Squares of 300 overflow float16, whose largest number is 65,504.
    films = tf.constant(np.tile([[[[300.0, -300.0] * 4]]], (2, 1, 1, 1)), tf.float16)
    normalised = layer(films, training=True)
    assert normalised.dtype == tf.float16
    assert np.isfinite(normalised.numpy()).all()
    assert layer.moving_mean.numpy()[:2] == pytest.approx([3, -3], rel=1e-3)  # 0.01 of the way


def test_weighted_loss_takes_the_counts_of_the_training_films(plain):
    from chexnet.labels import FINDINGS

    films = Split(10, dict.fromkeys(FINDINGS, 5), Table("", "", 0), ())
    halved = take(make(films, loss="weighted_bce"), 1)
    # At five of ten both weights are a half.
    assert halved[0] == pytest.approx(plain[0] / 2, rel=1e-6)
