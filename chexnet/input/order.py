"""The order in which films are trained on, and the random numbers of each film's turn.

Knows one endless stream: the films of epoch 0 in a random order, then those of epoch 1 in
another, and so on. A step of all ranks together takes the next films of that stream, so

- every film comes once an epoch, whatever the number of ranks and the batch size: what
  does not fill a last batch opens the first one of the next epoch;
- the position of a run is one number, and resuming needs no reading;
- the same films meet the same step, and the same crop and flip, on any number of ranks.

Leaves reading the films to `mapped` and `stream`. Numpy only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np


@dataclass(frozen=True)
class Turns:
    """The next films of a rank.

    Attributes:
        films: int64 [B], numbers of films, 0 .. num_films - 1.
        tops: int64 [B], first row of the crop, px.
        lefts: int64 [B], first column of the crop, px.
        flips: bool [B], whether the film is mirrored left to right.
    """

    films: np.ndarray
    tops: np.ndarray
    lefts: np.ndarray
    flips: np.ndarray


@dataclass(frozen=True)
class Order:
    """A stream of films.

    Attributes:
        num_films: films in an epoch, at least 1.
        seed: the same seed gives the same stream.
        margin_px: how far a crop may start from the edge, 0 or more.
        flip: mirror each film with probability 0.5.
    """

    num_films: int
    seed: int
    margin_px: int = 0
    flip: bool = True

    def take(self, first: int, *, count: int) -> Turns:
        """Return the turns ``first .. first + count - 1`` of the stream.

        Args:
            first: position in the stream, 0 or more.
            count: how many turns.
        """
        turns = np.arange(first, first + count, dtype=np.int64)
        epochs, places = np.divmod(turns, self.num_films)
        films = np.empty(count, np.int64)
        for epoch in range(int(epochs[0]), int(epochs[-1]) + 1):
            mine = epochs == epoch
            films[mine] = _permutation(self.num_films, self.seed, epoch)[places[mine]]
        bits = _scramble(turns.astype(np.uint64), seed=self.seed)
        choices = np.uint64(self.margin_px + 1)
        return Turns(
            films=films,
            tops=((bits >> np.uint64(1)) & np.uint64(0x7FFFFFFF)).astype(np.int64)
            % np.int64(choices),
            lefts=(bits >> np.uint64(32)).astype(np.int64) % np.int64(choices),
            flips=(bits & np.uint64(1)).astype(bool) & self.flip,
        )


@lru_cache(maxsize=2)
def _permutation(num_films: int, seed: int, epoch: int) -> np.ndarray:
    """Return the order of one epoch; every order is equally likely."""
    return np.random.default_rng([seed, epoch]).permutation(num_films)


def _scramble(numbers: np.ndarray, *, seed: int) -> np.ndarray:
    """Return 64 random bits for each number: uint64 [N] -> uint64 [N].

    The output function of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom
    number generators", OOPSLA 2014), whose n-th state is the seed plus n times a constant.
    """
    z = _start(seed) + (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@lru_cache(maxsize=8)
def _start(seed: int) -> np.uint64:
    return np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
