"""The known failures by id: what each is, and whether a check can see it.

Knows the shape of ``failures.toml``. Leaves which check detects which to the registry.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from env.errors import UserError

TABLE = Path(__file__).with_name("failures.toml")
_TRIED = {"R": "for real", "F": "by files of a made-up root", "N": "by a made-up driver"}


@dataclass(frozen=True)
class Failure:
    """One known failure.

    Attributes:
        id: its name, e.g. ``"VER-01"``.
        title: what goes wrong.
        verdict: how bad it is: one or several of FAIL, WARN and INFO.
        tried: how tests bring it about.
        note: where our verdict differs from the usual one, and why.
        unseen: why no check can see it; empty where one does.
    """

    id: str
    title: str
    verdict: str
    tried: str
    note: str = ""
    unseen: str = ""


def load_failures(path: Path = TABLE) -> dict[str, Failure]:
    """Return every known failure by its id, in the order of the file.

    Raises:
        UserError: the file is missing, or an entry of it is wrong; the entry is named.
    """
    fix = "the head of the file says what an entry holds"
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError("a table of failures", found=f"{path}: {error}", fix=fix) from error
    found = {}
    for name, entry in data.items():
        try:
            tried = _TRIED[entry.pop("tried")]
            failure = Failure(name, tried=tried, **entry)
        except (KeyError, TypeError, AttributeError) as error:
            text = f"{path}, {name}: {error}"
            raise UserError("a well-formed entry", found=text, fix=fix) from error
        if not re.fullmatch(r"(FAIL|WARN|INFO)(/(FAIL|WARN|INFO))*", failure.verdict):
            text = f"{path}, {name}: {failure.verdict!r}"
            raise UserError("a verdict of FAIL, WARN or INFO", found=text, fix=fix)
        found[name] = failure
    return found
