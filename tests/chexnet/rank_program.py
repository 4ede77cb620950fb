"""Run on each of two ranks by test_distributed.py: compares ranks, writes what it found.

Usage: rank_program.py REPORT.json
"""

import json
import sys
from pathlib import Path

import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf

from chexnet import distributed
from chexnet.errors import UserError
from chexnet.model import build_model
from chexnet.step import Meter, Trainer

SIZE = 32
HALF = 6


def make_films(seed, count):
    random = np.random.default_rng(seed)
    images = random.integers(0, 256, (count, SIZE, SIZE, 1), dtype=np.uint8)
    return images, random.integers(0, 2, (count, 14)).astype(np.float32)


def build(precision, statistics):
    return build_model(
        "tiny",
        input_size=SIZE,
        image_size=SIZE,
        batch_statistics=statistics,
        precision=precision,
    )


def compare_gradients(precision, rank):
    """Return the largest relative difference to one rank with the whole batch.

    The reference knows nothing of ranks: Keras' own batch normalisation, one tape.
    """
    images, labels = make_films(seed=1, count=2 * HALF)
    keras.utils.set_random_seed(5)
    reference = build(precision, "local")
    before = reference.get_weights()
    variables = [variable.value for variable in reference.trainable_variables]
    with tf.GradientTape() as tape:
        logits = reference(images, training=True)
        loss = tf.reduce_mean(
            tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(labels, logits.dtype), logits)
        )
    expected = tape.gradient(loss, variables)

    trainer = Trainer(build(precision, "global"), batch_size=HALF, input_size=SIZE)
    trainer.model.set_weights(before)
    mine = slice(rank * HALF, (rank + 1) * HALF)
    _, found = tf.function(trainer.gradients)(tf.constant(images[mine]), tf.constant(labels[mine]))
    moving = [
        float(np.abs(a.numpy() - b.numpy()).max())
        for a, b in zip(trainer.moving_statistics, reference.non_trainable_variables, strict=True)
    ]
    pairs = [(a.numpy(), b.numpy()) for a, b in zip(expected, found, strict=True)]
    scale = max(np.abs(a).max() for a, _ in pairs)
    return float(max(np.abs(a - b).max() for a, b in pairs) / scale), max(moving)


def train_apart(rank):
    """Return the spread between ranks before the broadcast, after it and after 20 steps."""
    keras.utils.set_random_seed(100 + rank)
    trainer = Trainer(build("float32", "local"), batch_size=HALF, input_size=SIZE)

    spreads = [spread(trainer.variables)]
    distributed.broadcast_state(trainer.variables)
    spreads.append(spread(trainer.variables))
    trainer.trace()
    for step in range(20):
        images, labels = make_films(seed=1000 * rank + step, count=HALF)
        trainer.step(tf.constant(images), tf.constant(labels), rate=1e-3)
    weights = [*trainer.model.trainable_variables, *trainer.optimizer.variables]
    spreads.append(spread(weights))
    spreads.append(spread(trainer.moving_statistics))
    distributed.average_variables(trainer.moving_statistics)
    spreads.append(spread(trainer.variables))
    return spreads, trainer._step.experimental_get_tracing_count()


def spread(variables):
    """Return the largest difference between two ranks' values."""
    flat = np.concatenate([v.numpy().astype(np.float64).ravel() for v in variables])
    all_values = hvd.allgather(tf.constant(flat[None])).numpy()
    return float(np.abs(all_values[0] - all_values[1]).max())


def raise_on_first():
    try:
        distributed.on_first(fail, name="fail")
    except UserError as error:
        return [str(error), error.exit_code]
    return None


def fail():
    raise UserError("a thing", found="another", fix="change it", exit_code=3)


def main():
    ranks = distributed.start()
    distributed.select_device("cpu", ranks=ranks)
    meter = Meter()
    meter.add(tf.constant(1.0 + ranks.rank), wait_s=0.25, seconds=0.5 + ranks.rank)
    measured = meter.measure(images_per_step=30)
    error64, moving64 = compare_gradients("float64", ranks.rank)
    error32, _ = compare_gradients("float32", ranks.rank)
    spreads, traces = train_apart(ranks.rank)
    report = {
        "ranks": ranks.size,
        "gradient_error_float64": error64,
        "moving_error_float64": moving64,
        "gradient_error_float32": error32,
        "spreads": spreads,
        "traces": traces,
        "rows": distributed.gather_rows(
            np.full((2 * ranks.rank, 1), ranks.rank), name="test"
        ).tolist(),
        "on_first": distributed.on_first(lambda: f"by {hvd.rank()}", name="test"),
        "measured": [measured.loss, measured.images_per_s, measured.input_wait_fraction],
    }
    errors = distributed.gather_objects(raise_on_first(), name="errors")
    if ranks.is_first:
        Path(sys.argv[1]).write_text(json.dumps(report | {"errors": errors}))


if __name__ == "__main__":
    main()
