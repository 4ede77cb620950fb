"""The sections of a Debian archive that the first stage's packages come from.

Knows how a root folder's apt is told of more than ``main``, in either form of its list.
Leaves which sections to the lock.
"""

from __future__ import annotations

from collections.abc import Sequence

from hpccm.building_blocks.base import bb_base
from hpccm.primitives import comment, shell

_DEFAULT = "main"


class Sections(bb_base):
    """Further sections of the archive, such as ``non-free``.

    Only for the first stage: what an image runs with is in ``main``.

    Args:
        sections: all of them, ``main`` too.
    """

    def __init__(self, *, sections: Sequence[str]) -> None:
        super().__init__()
        listed = " ".join(sections)
        self += comment(f"Sections of the archive: {listed}", reformat=False)
        self += shell(commands=[
            # deb822 says "Components: main", the older form ends its lines in "main".
            "find /etc/apt \\( -name '*.list' -o -name '*.sources' \\) -exec sed -i -E"
            f" 's/^(deb .*|Components:) {_DEFAULT}$/\\1 {listed}/' {{}} +",
        ])  # fmt: skip
