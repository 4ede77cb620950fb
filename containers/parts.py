"""The parts of a verification, and those two that others have judged already.

Knows what a part and a difference are. Leaves the judgements that need the lock to
``containers.differences``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from containers.sign import Signature
from env.result import Result, Status


@dataclass(frozen=True)
class Difference:
    """One thing that is not as it should be.

    Attributes:
        part: the id of the part it belongs to.
        expected: what the lock, or what follows from it, says.
        found: what is in the image.
        where: the path, variable or label.
        fix: what to do.
    """

    part: str
    expected: str
    found: str
    where: str
    fix: str


@dataclass(frozen=True)
class Part:
    """One part of a verification.

    Attributes:
        id: its name, e.g. ``"image.system"``.
        title: what is held against what.
        status: PASS, FAIL, INFO, or UNKNOWN where it could not be told.
        compared: how many things were held against something.
        note: why it could not be told, or what else is worth knowing; may be empty.
        differences: what is not as it should be.
    """

    id: str
    title: str
    status: Status
    compared: int
    note: str = ""
    differences: tuple[Difference, ...] = ()


def checks_part(results: Iterable[Result]) -> Part:
    """Return what the checks of ``env`` say, as a part."""
    results = list(results)
    title = "the checks of validate-env that judge an image"
    bad = [one for one in results if one.status is Status.FAIL]
    untold = [one for one in results if one.status is Status.UNKNOWN]
    status = Status.FAIL if bad else Status.UNKNOWN if untold else Status.PASS
    note = "; ".join(f"{one.id}: {one.found}" for one in untold)
    differences = tuple(
        Difference("image.checks", f"{one.id}: {one.expected}", one.found, one.where, one.fix)
        for one in bad
    )
    return Part("image.checks", title, status, len(results), note, differences)


def signature_part(signature: Signature, *, required: bool) -> Part:
    """Return what the signature says, as a part of the verification."""
    part, title = "image.signature", "signature"
    if signature.state == "good":
        note = f"signed by {', '.join(signature.signers)}, and unchanged since"
        return Part(part, title, Status.PASS, 1, note)
    if signature.state == "unsigned" and not required:
        return Part(part, title, Status.INFO, 0, "nobody has signed it")
    if signature.state == "unknown":
        return Part(part, title, Status.UNKNOWN, 1, f"{signature.problem}; {signature.fix}")
    if signature.state == "none":
        status = Status.UNKNOWN if required else Status.INFO
        return Part(part, title, status, 0, signature.problem)
    found = signature.problem or "nobody has signed it"
    line = Difference(part, "a good signature", found, signature.where, signature.fix)
    return Part(part, title, Status.FAIL, 1, "", (line,))
