"""Run on each of some ranks by test_distributed.py: compares ranks, writes what it found.

Usage: rank_program.py REPORT.json [gradients]

The second word looks further into gradients, and at nothing else.
"""

import hashlib
import json
import sys
from pathlib import Path

import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf

from chexnet import distributed
from chexnet.config import load_config
from chexnet.errors import UserError
from chexnet.model import build_model
from chexnet.training.exchange import make_exchange
from chexnet.training.step import Meter, Trainer

SIZE = 32
FILMS = 12  # of all ranks together
GROUPS = 3
SHAPES = ((1,), (3, 5), (64,), (7, 7, 3, 64), (300, 1001), (14,))
EXCHANGES = {
    "grouped": {"exchange": "grouped"},
    "groups": {"exchange": "grouped", "fusion_groups": GROUPS},
    "flat": {"exchange": "flat"},
    "each": {"exchange": "each"},
    "fp16": {"exchange": "grouped", "compression": "fp16"},
}


def make_config(**changes):
    values = {
        "model": "tiny",
        "crop_size": SIZE,
        "image_size": SIZE,
        "batch_size": FILMS // hvd.size(),
        "precision": "float32",
    }
    settings = [f"{key}={value}" for key, value in (values | changes).items()]
    return load_config(settings=settings)


def make_films(seed, *shape):
    random = np.random.default_rng(seed)
    images = random.integers(0, 256, (*shape, SIZE, SIZE, 1), dtype=np.uint8)
    return images, random.integers(0, 2, (*shape, 14)).astype(np.float32)


def build(config):
    return build_model(
        "tiny",
        input_size=SIZE,
        image_size=SIZE,
        batch_statistics=config.batch_statistics,
        precision=config.precision,
    )


def differentiate(model, images, labels):
    """Return the gradients of the mean loss as plain Keras gives them."""
    variables = [variable.value for variable in model.trainable_variables]
    with tf.GradientTape() as tape:
        logits = model(images, training=True)
        loss = tf.reduce_mean(
            tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(labels, logits.dtype), logits)
        )
    return tape.gradient(loss, variables)


def compare_gradients(precision, rank, batches=1):
    """Return the largest relative difference to one rank with the whole of each batch.

    The reference knows nothing of ranks: Keras' own batch normalisation, one tape.
    """
    images, labels = make_films(1, batches, FILMS)
    keras.utils.set_random_seed(5)
    reference = build(make_config(precision=precision))
    before = reference.get_weights()
    apart = [differentiate(reference, *films) for films in zip(images, labels, strict=True)]
    expected = [sum(parts) / batches for parts in zip(*apart, strict=True)]

    config = make_config(precision=precision, batch_statistics="global", accumulation_steps=batches)
    trainer = Trainer(build(config), config=config)
    trainer.model.set_weights(before)
    share = FILMS // hvd.size()
    mine = slice(rank * share, (rank + 1) * share)
    _, found = tf.function(trainer.gradients)(
        tf.constant(images[:, mine]), tf.constant(labels[:, mine])
    )
    moving = [
        float(np.abs(a.numpy() - b.numpy()).max())
        for a, b in zip(trainer.moving_statistics, reference.non_trainable_variables, strict=True)
    ]
    pairs = [(a.numpy(), b.numpy()) for a, b in zip(expected, found, strict=True)]
    scale = max(np.abs(a).max() for a, _ in pairs)
    return float(max(np.abs(a - b).max() for a, b in pairs) / scale), max(moving)


def compare_exchanges(rank):
    """Return for each way to exchange its relative error against numpy's sum, and a hash."""

    def of_rank(number):
        random = np.random.default_rng(number)
        return [random.normal(size=shape) for shape in SHAPES]

    exact = [sum(parts) for parts in zip(*(of_rank(r) for r in range(hvd.size())), strict=True)]
    mine = [tf.constant(part, tf.float32) for part in of_rank(rank)]
    report = {}
    for name, settings in EXCHANGES.items():
        summed = tf.function(make_exchange(make_config(**settings)))(mine)
        scale = max(np.abs(part).max() for part in exact)
        errors = [np.abs(a - b.numpy()).max() / scale for a, b in zip(exact, summed, strict=True)]
        digest = hashlib.sha256(b"".join(part.numpy().tobytes() for part in summed))
        report[name] = [float(max(errors)), digest.hexdigest()]
    return report


def train_apart(rank):
    """Return the spread between ranks before the broadcast, after it and after 20 steps."""
    keras.utils.set_random_seed(100 + rank)
    config = make_config(steps_per_call=3)
    trainer = Trainer(build(config), config=config)

    spreads = [spread(trainer.variables)]
    distributed.broadcast_state(trainer.variables)
    spreads.append(spread(trainer.variables))
    trainer.trace()
    films = (make_films(1000 * rank + step, config.batch_size) for step in range(20))
    batches = (tuple(tf.constant(part) for part in pair) for pair in films)
    for number in (3, 3, 3, 3, 3, 3, 2):
        trainer.timed_steps(batches, rates=[1e-3] * number, meters=[])
    weights = [*trainer.model.trainable_variables, *trainer.optimizer.variables]
    spreads.append(spread(weights))
    spreads.append(spread(trainer.moving_statistics))
    distributed.average_variables(trainer.moving_statistics)
    spreads.append(spread(trainer.variables))
    return spreads, trainer.num_traces, trainer.effective


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


def refuse_xla():
    config = make_config(xla="on", batch_statistics="global")
    try:
        Trainer(build(config), config=config)
    except UserError as error:
        return error.fix
    return None


def look_further(ranks):
    """Return what two ranks agree on apart from gradients."""
    meter = Meter()
    meter.add(tf.constant([1.0 + ranks.rank]), wait_s=0.25, seconds=0.5 + ranks.rank)
    measured = meter.measure(images_per_step=30)
    spreads, traces, effective = train_apart(ranks.rank)
    rows = np.full((2 * ranks.rank, 1), ranks.rank)
    return {
        "gradient_error_float32": compare_gradients("float32", ranks.rank, 2)[0],
        "spreads": spreads,
        "traces": traces,
        "effective": effective,
        "rows": distributed.gather_rows(rows, name="test").tolist(),
        "on_first": distributed.on_first(lambda: f"by {hvd.rank()}", name="test"),
        "measured": [measured.loss, measured.images_per_s, measured.input_wait_fraction],
        "refuses_xla": refuse_xla(),
        "errors": distributed.gather_objects(raise_on_first(), name="errors"),
    }


def main():
    # As a training with groups would: else Horovod fuses them again.
    ranks = distributed.start(load_config(settings=[f"fusion_groups={GROUPS}"]))
    distributed.select_device("cpu", ranks=ranks)
    report = {
        "ranks": ranks.size,
        "settings": {setting.variable: setting.value for setting in ranks.settings},
    }
    report |= {"exchanges": compare_exchanges(ranks.rank)}
    error, moving = compare_gradients("float64", ranks.rank)
    report |= {"gradient_error_float64": error, "moving_error_float64": moving}
    if "gradients" in sys.argv:
        report["accumulated_error"] = compare_gradients("float64", ranks.rank, 2)[0]
    else:
        report |= look_further(ranks)
    if ranks.is_first:
        Path(sys.argv[1]).write_text(json.dumps(report))


if __name__ == "__main__":
    main()
