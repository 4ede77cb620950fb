"""Heat maps of a network that has learnt planted findings lie where they were planted."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from chexnet.data.planted import draw_film
from chexnet.labels import FINDINGS
from chexnet.model import build_model
from chexnet.prediction.heatmaps import make_heatmaps
from chexnet.prediction.overlay import spread

SIZE = 64
NUM_TRAINED, NUM_SEEN = 3000, 300
STEPS, BATCH = 2500, 32


def draw(first, count):
    films = [draw_film(seed=5, index=first + number, size_px=SIZE) for number in range(count)]
    images = np.stack([film.image for film in films])[..., None]
    labels = np.array([[name in film.boxes for name in FINDINGS] for film in films], np.float32)
    return images, labels, [film.boxes for film in films]


@pytest.fixture(scope="module")
def learnt():
    """Return a tiny network that has seen 3000 planted films for a minute."""
    keras.utils.set_random_seed(1)
    images, labels, _ = draw(0, NUM_TRAINED)
    model = build_model("tiny", input_size=SIZE, image_size=SIZE, batch_norm_momentum=0.9)
    variables = [variable.value for variable in model.trainable_variables]
    optimizer = keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(films, wanted):
        with tf.GradientTape() as tape:
            logits = model(films, training=True)
            losses = tf.nn.sigmoid_cross_entropy_with_logits(wanted, logits)
            loss = tf.reduce_mean(losses)
        optimizer.apply(tape.gradient(loss, variables), model.trainable_variables)

    order = np.random.default_rng(0)
    for _ in range(STEPS):
        rows = order.choice(NUM_TRAINED, BATCH, replace=False)
        step(tf.constant(images[rows]), tf.constant(labels[rows]))
    return model


@pytest.mark.slow
@pytest.mark.parametrize("method", ["cam", "gradcam"])
def test_each_finding_s_map_has_its_mass_on_the_planted_place(learnt, method):
    images, _, boxes = draw(NUM_TRAINED, NUM_SEEN)
    maps = make_heatmaps(learnt, method=method)(images)
    inside = {name: [] for name in FINDINGS}
    chance = {name: [] for name in FINDINGS}
    for heats, placed in zip(maps, boxes, strict=True):
        for name, (left, top, width, height) in placed.items():
            heat = spread(heats[..., FINDINGS.index(name)], width=SIZE, height=SIZE)
            within = heat[top : top + height, left : left + width].sum()
            inside[name].append(within / max(heat.sum(), 1e-9))
            chance[name].append(width * height / SIZE**2)
    times = {name: np.mean(inside[name]) / np.mean(chance[name]) for name in FINDINGS}
    # A map that knows nothing has as much there as the place covers of the film: 1.
    assert min(times.values()) > 3, times
    assert np.mean([np.mean(shares) for shares in inside.values()]) > 0.25
