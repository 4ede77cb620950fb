"""Where a run is, on any number of ranks."""

import json
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chexnet.training.position import Position, Tally, parse_position


def test_a_position_is_what_its_json_says():
    tally = Tally(3, 6, 4.25, 1.5, 0.25)
    position = Position(2, 7, 112, 912, window=tally, whole=Tally(4, 8, 5.5, 2.0, 0.5))
    assert parse_position(json.loads(json.dumps(asdict(position)))) == position
    with pytest.raises(TypeError):
        parse_position(asdict(position) | {"more": 1})


def test_films_are_counted_through_an_epoch():
    position = Position().advance(3, images_per_step=16).measured(Tally(3, 6, 3.0, 1.0, 0.1))
    assert (position.epoch_step, position.epoch_examples, position.examples) == (3, 48, 48)
    closed = position.close_window()
    assert closed.window == Tally()
    assert closed.whole == Tally(3, 6, 3.0, 1.0, 0.1)
    following = closed.close_epoch().advance(1, images_per_step=16)
    assert following.epoch == 1
    assert (following.epoch_examples, following.examples) == (16, 64)
    assert following.step(10) == 11
    assert following.whole == Tally()


# 300 films, batch 8: 37 steps on one rank, 18 on two, 12 on three.
@pytest.mark.parametrize(("ranks", "steps", "expected"), [(1, 37, 20), (2, 18, 10), (3, 12, 6)])
def test_another_number_of_ranks_goes_on_at_the_same_film(ranks, steps, expected):
    begun = Position(epoch=1, epoch_step=20, epoch_examples=160, examples=456)
    here = begun.fit(images_per_step=8 * ranks, steps_per_epoch=steps)
    assert here.epoch_step == expected
    assert (here.examples, here.epoch_examples) == (456, 160)


def test_an_epoch_never_has_more_steps_than_there_are():
    # 100 films: 12 steps of 8, and on three ranks 4 steps of 24, of which 12 x 8 are 4.
    done = Position(epoch_step=12, epoch_examples=96, examples=96)
    assert done.fit(images_per_step=24, steps_per_epoch=4).epoch_step == 4
    assert done.fit(images_per_step=8, steps_per_epoch=3).epoch_step == 3


@given(st.lists(st.floats(0.0078125, 64, width=32), min_size=2, max_size=200), st.data())
def test_the_mean_loss_does_not_depend_on_where_a_run_was_cut(losses, data):
    cut = data.draw(st.integers(1, len(losses) - 1))

    def tally(part):
        return Tally(len(part), len(part), float(np.sum(part, dtype=np.float64)), 1.0, 0.0)

    values = np.array(losses, np.float32)
    whole = tally(values).measure(images_per_batch=1)["loss"]
    parts = (tally(values[:cut]) + tally(values[cut:])).measure(images_per_batch=1)["loss"]
    assert parts == whole


def test_rates_are_of_all_ranks_together():
    # Two ranks, 5 steps each of batch 4, in 2 s of which 0.5 without films.
    measured = Tally(5, 10, 7.0, 2.0, 0.5).measure(images_per_batch=4)
    assert measured == {"loss": 0.7, "images_per_s": 20.0, "input_wait_fraction": 0.25}
