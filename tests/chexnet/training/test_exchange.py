"""How gradients are parted into groups; what crosses is in test_distributed.py."""

import pytest

from chexnet.training.exchange import part_by_size


@pytest.mark.parametrize(
    ("sizes", "parts", "expected"),
    [
        ([1, 1, 1, 1], 2, [[0, 1], [2, 3]]),
        ([4, 1, 1, 1, 1], 2, [[0], [1, 2, 3, 4]]),
        ([1, 1, 1, 1, 4], 2, [[0, 1, 2, 3], [4]]),
        ([5, 7], 1, [[0, 1]]),
        ([1, 1], 5, [[0], [1]]),
        ([100, 1, 1], 3, [[0], [1, 2]]),
    ],
)
def test_runs_of_about_equal_size_in_order(sizes, parts, expected):
    assert part_by_size(sizes, parts=parts) == expected
