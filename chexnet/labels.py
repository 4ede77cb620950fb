"""The 14 findings of ChestX-ray14: their names, their order, their vectors.

Knows the order in which every label vector, head and table of this package
lists the findings, and how the NIH table spells a film's findings. Leaves
reading files to `nih` and `records`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chexnet.errors import UserError

FINDINGS: tuple[str, ...] = (
    "Atelectasis",
    "Cardiomegaly",
    "Effusion",
    "Infiltration",
    "Mass",
    "Nodule",
    "Pneumonia",
    "Pneumothorax",
    "Consolidation",
    "Edema",
    "Emphysema",
    "Fibrosis",
    "Pleural_Thickening",
    "Hernia",
)
NO_FINDING = "No Finding"

_INDEX = {name: index for index, name in enumerate(FINDINGS)}


def parse_findings(text: str, *, where: str) -> tuple[str, ...]:
    """Return the findings that a cell such as ``Cardiomegaly|Effusion`` names.

    Args:
        text: the cell of the NIH table; ``No Finding`` stands for none.
        where: file and line, for the message.

    Returns:
        The findings in the order of `FINDINGS`, each once.

    Raises:
        UserError: a name is unknown, the cell is empty, or ``No Finding`` stands
            beside a finding.
    """
    names = [part.strip() for part in text.split("|")]
    if names == [NO_FINDING]:
        return ()
    unknown = [name for name in names if name not in _INDEX]
    if unknown:
        beside = NO_FINDING in unknown
        found = f"{NO_FINDING!r} beside a finding" if beside else f"{unknown[0]!r}"
        raise UserError(
            f"findings that the label table knows in {where}",
            found=f"{found} in {text!r}",
            fix=f"correct that line; the known names are {NO_FINDING} or {', '.join(FINDINGS)}",
        )
    return tuple(sorted(set(names), key=_INDEX.__getitem__))


def format_findings(findings: Iterable[str]) -> str:
    """Return findings as the NIH table spells them, e.g. ``Cardiomegaly|Effusion``."""
    return "|".join(findings) or NO_FINDING


def encode_findings(findings: Iterable[str]) -> list[int]:
    """Return the label vector of a film: 14 integers, 0 or 1, in the order of `FINDINGS`.

    Args:
        findings: names out of `FINDINGS`; none at all gives zeros only.
    """
    vector = [0] * len(FINDINGS)
    for name in findings:
        vector[_INDEX[name]] = 1
    return vector


def decode_findings(vector: Sequence[int | float]) -> tuple[str, ...]:
    """Return the findings of a label vector of 14 numbers, where 1 means present."""
    return tuple(name for name, value in zip(FINDINGS, vector, strict=True) if value)
