"""The words of --findings."""

import numpy as np
import pytest

from chexnet.errors import UserError
from chexnet.prediction.choice import parse_choice

ROW = np.array([0.1, 0.9, 0.3, 0.9] + [0.0] * 10)


@pytest.mark.parametrize(
    ("text", "picked"),
    [
        ("all", list(range(14))),
        ("top 3", [1, 3, 2]),  # of equal ones the first in label order
        ("TOP1", [1]),
        ("top=2", [1, 3]),
        ("Hernia", [13]),
        ("mass, Pleural Thickening,Mass", [4, 12]),
    ],
)
def test_findings_are_chosen(text, picked):
    assert parse_choice(text).pick(ROW) == picked


@pytest.mark.parametrize(
    ("text", "words"), [("top 0", "top 1 to top 14"), ("top 15", "top 14"), ("Masss", "Mass, Nod")]
)
def test_what_is_not_known_is_refused(text, words):
    with pytest.raises(UserError, match=words):
        parse_choice(text)
