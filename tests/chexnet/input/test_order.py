"""The endless order: every film once an epoch on any number of ranks, and even odds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chexnet.input.order import Order


def stream(order, count, *, ranks=1, batch=1):
    """The films of some steps of all ranks together, in the order of the stream."""
    taken = [
        order.take((step * ranks + rank) * batch, count=batch).films
        for step in range(count // (ranks * batch))
        for rank in range(ranks)
    ]
    return np.concatenate(taken).tolist()


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("batch", [1, 4])
def test_every_film_once_an_epoch_whatever_the_ranks(ranks, batch):
    num_films, epochs = 53, 3
    films = stream(Order(num_films, seed=1), 53 * 28 * 5, ranks=ranks, batch=batch)
    for epoch in range(epochs):
        part = films[epoch * num_films : (epoch + 1) * num_films]
        assert sorted(part) == list(range(num_films))
    # The same films meet the same step on any number of ranks.
    assert films[: epochs * num_films] == stream(Order(num_films, seed=1), epochs * num_films)


@given(
    first=st.integers(0, 500), count=st.integers(1, 200), num_films=st.integers(1, 90),
    margin=st.integers(0, 40), seed=st.integers(0, 2**31 - 1),
)  # fmt: skip
def test_a_turn_does_not_depend_on_where_the_reading_begins(first, count, num_films, margin, seed):
    order = Order(num_films, seed=seed, margin_px=margin)
    whole, part = order.take(0, count=first + count), order.take(first, count=count)
    for name in ("films", "tops", "lefts", "flips"):
        assert np.array_equal(getattr(whole, name)[first:], getattr(part, name))
    assert 0 <= part.tops.min() <= part.tops.max() <= margin
    assert 0 <= part.lefts.min() <= part.lefts.max() <= margin
    assert 0 <= part.films.min() <= part.films.max() < num_films


def test_epochs_and_seeds_have_orders_of_their_own():
    films = stream(Order(1000, seed=0), 2000)
    other = stream(Order(1000, seed=1), 1000)
    for one, two in ((films[:1000], films[1000:]), (films[:1000], other)):
        # Equal places of two random orders: Poisson with mean 1; 10 or more has odds of 1e-7.
        assert np.sum(np.array(one) == two) < 10
        # Neighbours stay neighbours as rarely: mean 2 of the 999 pairs either way round.
        places = np.empty(1000, int)
        places[two] = np.arange(1000)
        assert np.sum(np.abs(np.diff(places[one])) == 1) < 15


def test_crops_and_flips_are_even_and_independent():
    margin, count = 3, 64_000
    turns = Order(100, seed=5, margin_px=margin).take(0, count=count)
    cells = turns.flips * 16 + turns.tops * 4 + turns.lefts
    counts = np.bincount(cells, minlength=32)
    # Chi-square with 31 degrees of freedom: above 75 has odds of 2e-5.
    assert ((counts - count / 32) ** 2 / (count / 32)).sum() < 75
    # And from one turn to the next.
    pairs = np.bincount(cells[:-1] * 32 + cells[1:], minlength=1024)
    mean = (count - 1) / 1024
    # 1,023 degrees of freedom: mean 1,023, deviation 45; six of them above.
    assert ((pairs - mean) ** 2 / mean).sum() < 1023 + 6 * 45


def test_no_flips_where_none_are_wanted():
    assert not Order(10, seed=0, flip=False).take(0, count=100).flips.any()
