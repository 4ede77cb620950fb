"""The definition that this image was made from, which Apptainer keeps in it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from env.facts import Fact
from env.probes.reading import read_fact

_PLACE = ".singularity.d/Singularity"
_MAX_CHARACTERS = 2**18


def probe_recipe(
    root: Path = Path("/"), *, environ: Mapping[str, str] = os.environ
) -> dict[str, Fact]:
    """Return the fact ``recipe.text``, None where this is no image that holds its definition.

    Args:
        root: the folder in which the image's own files lie.
        environ: not looked at; every probe has one.
    """
    place = root / _PLACE
    if not place.exists():
        return {"recipe.text": Fact(None, str(place))}
    return {"recipe.text": read_fact(place, parse=lambda text: text[:_MAX_CHARACTERS])}
