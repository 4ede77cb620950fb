"""Python before the program: hooks, hiding modules, packages that do not suit each other.

Leaves locked versions and foreign copies of whole packages to ``env.checks.versions``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from env.checks.evidence import Evidence
from env.checks.registry import check
from env.conditions import parse_range
from env.errors import UserError
from env.names import normal_name
from env.result import Finding, Status

# Simple requirements only: name and comparisons, no extra and no marker but none at all.
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*\(?((?:[<>=!]=?\s*[\w.*+!-]+\s*,?\s*)+)\)?\s*$")


@check(
    "python.requirements",
    title="the packages suit what TensorFlow, Keras and Horovod say they need",
    covers=("VER-21",),
    reads=("python.requires", "packages.installed"),
    fix="install the environment anew from the lock (env/bootstrap.sh), or use the image; never "
    "add packages to either by pip install",
    required=False,
)
def check_requirements(evidence: Evidence) -> Iterator[Finding]:
    """FAIL if an installed package is outside the range that one which needs it declares."""
    installed = evidence.facts.value("packages.installed")
    for owner, requirements in sorted(evidence.facts.value("python.requires").items()):
        for requirement in requirements:
            match = _REQUIREMENT.fullmatch(requirement.strip())
            found = installed.get(normal_name(match[1])) if match else None
            if found and _outside(found["version"], match[2]):
                text = f"{match[1]} {found['version']} in {found['location']}"
                yield Finding(Status.FAIL, f"{requirement} for {owner}", text,
                              where=found["location"])  # fmt: skip


def _outside(version: str, limits: str) -> bool:
    """Whether a version is outside a range; what cannot be compared is not."""
    if "*" in limits:
        return False
    try:
        return not parse_range(limits.strip().strip(",")).holds(version, {})
    except UserError:
        return False


@check(
    "python.hooks",
    title="nobody's code runs before the program does",
    covers=("CON-11",),
    reads=("python.hooks",),
    fix="unset PYTHONPATH, export PYTHONNOUSERSITE=1, or delete the file",
    required=False,
)
def check_hooks(evidence: Evidence) -> Iterator[Finding]:
    """WARN if a sitecustomize, usercustomize or .pth file of a user's runs in every Python."""
    for hook in evidence.facts.value("python.hooks"):
        yield Finding(Status.WARN, "no hooks but the installation's own",
                      f"{hook['kind']}: {hook['path']}", where=hook["path"])  # fmt: skip


@check(
    "python.hiding",
    title="no module hides one of Python's or of the packages",
    covers=("CON-11",),
    reads=("python.hiding",),
    fix="rename the file, take its folder out of PYTHONPATH, or start from another folder",
    required=False,
)
def check_hiding(evidence: Evidence) -> Finding:
    """FAIL if a module outside comes before Python's own, or a package's, of its name."""
    rows = evidence.facts.value("python.hiding")
    expected = "other names than Python's and the packages'"
    if not rows:
        return Finding(Status.PASS, expected, "nothing is hidden")
    rows = sorted(rows, key=lambda row: row["hides"] != "Python's own")
    found = "; ".join(f"{row['path']} hides {row['hides']} {row['module']}" for row in rows[:10])
    found += f"; and {len(rows) - 10} more" if len(rows) > 10 else ""
    return Finding(Status.FAIL, expected, found, where=rows[0]["path"])
