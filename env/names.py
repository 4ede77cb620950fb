"""Names of Python packages, compared as PyPI compares them. Nothing else."""

from __future__ import annotations

import re


def normal_name(name: str) -> str:
    """Return a package name in its normal form: ``Ruamel.Yaml_x`` is ``ruamel-yaml-x``."""
    return re.sub(r"[-_.]+", "-", name).lower()
