"""Batches of `fast` films, made ahead of the training step by threads of their own.

Knows how batches are filled in the background and handed to TensorFlow without another
copy. Leaves the order to `order` and the films' bytes to `mapped`.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from math import prod
from typing import TypeVar

import numpy as np
import tensorflow as tf

ALIGNMENT = 64  # bytes; TensorFlow takes other memory only with a copy

T = TypeVar("T")


def make_ahead(make: Callable[[int], T], *, first: int, threads: int, ahead: int) -> Iterator[T]:
    """Yield ``make(first)``, ``make(first + 1)`` …, computed ahead by threads, in order.

    Args:
        make: may run in several threads at once; StopIteration's place is an IndexError:
            the first number for which it raises one ends the stream.
        first: the first number.
        threads: how many.
        ahead: how many results may wait to be taken; this bounds the memory.
    """
    numbers = count(first)
    with ThreadPoolExecutor(threads, thread_name_prefix="films") as pool:
        waiting: deque[Future[T]] = deque()
        try:
            while True:
                while len(waiting) < ahead:
                    waiting.append(pool.submit(make, next(numbers)))
                try:
                    result = waiting.popleft().result()
                except IndexError:
                    return
                yield result
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


class Buffers:
    """Memory for batches, used again once TensorFlow has let go of it.

    Args:
        shape: of a batch, uint8.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape
        self._free: deque[np.ndarray] = deque()

    def take(self) -> np.ndarray:
        """Return uint8 memory of the shape, aligned; what is in it is left over."""
        try:
            return self._free.pop()
        except IndexError:
            size = prod(self._shape)
            memory = np.empty(size + ALIGNMENT, np.uint8)
            start = -memory.ctypes.data % ALIGNMENT
            return memory[start : start + size].reshape(self._shape)

    def hand_over(self, buffer: np.ndarray, *, shape: tuple[int, ...]) -> tf.Tensor:
        """Return a buffer's bytes as a tensor of another shape, without a copy.

        The buffer comes back by itself when the tensor is gone.
        """
        view = buffer.reshape(shape)
        weakref.finalize(view, self._free.append, buffer)
        return tf.experimental.dlpack.from_dlpack(view.__dlpack__())
