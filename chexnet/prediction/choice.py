"""Which findings of a film are shown: all, some by name, or the most probable.

Knows the words of ``--findings``. Leaves showing them to others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from chexnet.errors import UserError, unknown_name
from chexnet.labels import FINDINGS

DEFAULT = "top 3"


@dataclass(frozen=True)
class Choice:
    """Findings, by name or by probability.

    Attributes:
        indices: places in `FINDINGS`; None where the most probable are meant.
        most: how many of the most probable.
    """

    indices: tuple[int, ...] | None
    most: int = 0

    def pick(self, probabilities: np.ndarray) -> list[int]:
        """Return places in `FINDINGS` for one film's probabilities, float [14]."""
        if self.indices is not None:
            return list(self.indices)
        return np.argsort(-probabilities, kind="stable")[: self.most].tolist()


def parse_choice(text: str) -> Choice:
    """Return what ``all``, ``top 3`` or ``Mass,Nodule`` means.

    Raises:
        UserError: an unknown finding, or a number out of 1 .. 14.
    """
    words = text.strip()
    if words.lower() == "all":
        return Choice(tuple(range(len(FINDINGS))))
    top = re.fullmatch(r"top[ :=]?(\d+)", words, re.IGNORECASE)
    if top:
        most = int(top[1])
        if not 1 <= most <= len(FINDINGS):
            raise UserError(
                f"top 1 to top {len(FINDINGS)}", found=f"--findings {text!r}",
                fix="--findings all shows every one",
            )  # fmt: skip
        return Choice(None, most)
    known = {name.lower(): index for index, name in enumerate(FINDINGS)}
    chosen = []
    for name in words.split(","):
        index = known.get(name.strip().lower().replace(" ", "_"))
        if index is None:
            raise unknown_name("finding", name.strip(), known=(*FINDINGS, "all", "top N"))
        chosen.append(index)
    return Choice(tuple(dict.fromkeys(chosen)))
