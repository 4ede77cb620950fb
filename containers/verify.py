"""Verifies an image: what is really inside, held against the lock it should be built from.

Knows the order: enter the image, observe with our own program (not the image's), judge,
tell. Leaves observing to ``env.probes.inventory``, judging to ``containers.differences``
and signatures to ``containers.sign``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from containers.context import tracked_files
from containers.differences import REVISION_LABEL, Judge, named_libraries
from containers.image import image_kind, opened, outer_labels, run_inside
from containers.parts import Part, signature_part
from containers.sign import Signature, read_signature
from env.checks.evidence import Evidence
from env.checks.registry import find_check, run_all
from env.errors import EXIT_CANNOT_TELL, EXIT_FAILED, EXIT_GOOD, UserError
from env.facts import Fact, Facts
from env.lock import load_lock, lock_path
from env.probes.inventory import MARK
from env.report import clean
from env.result import Status
from env.stack import PROJECT as ROOT
from recipes.blocks.project import IMAGE_CHECKS
from recipes.layout import HOME, LOCK, PROJECT_PARTS, SBOM, VENV

SCHEMA_VERSION = 1
SCHEMA = Path(__file__).with_name("verification.schema.json")
SHOWN = 20
"""Differences of one part in the text; the JSON holds all."""
OUTSIDE = Path("/mnt")
"""Where the image sees this project while it is looked into; every Debian has the folder."""


@dataclass(frozen=True)
class Verification:
    """What a verification found.

    Attributes:
        image: as the user named it.
        kind: see ``containers.image``.
        stack: the stack's name.
        lock: the lock it was held against, a path.
        lock_sha256: that lock's hash.
        signature: who signed the image, if anybody.
        parts: what was compared, each with its differences.
        libraries: the loaded libraries worth naming: path and owner.
    """

    image: str
    kind: str
    stack: str
    lock: str
    lock_sha256: str
    signature: Signature
    parts: tuple[Part, ...]
    libraries: tuple[Mapping[str, str | None], ...]

    @property
    def exit_code(self) -> int:
        """1 where anything differs, else 3 where something could not be told, else 0."""
        statuses = {part.status for part in self.parts}
        if Status.FAIL in statuses:
            return EXIT_FAILED
        return EXIT_CANNOT_TELL if Status.UNKNOWN in statuses else EXIT_GOOD


def verify_image(
    image: str,
    *,
    lock: Path | None = None,
    signed: bool = False,
    key: Path | None = None,
    root: Path = ROOT,
) -> Verification:
    """Compare what is inside an image with a lock.

    Args:
        image: a .sif file, a root folder, an archive, or a name in an engine's store.
        lock: the lock to hold it against; by default the committed one of the image's stack.
        signed: an image that nobody has signed is a difference too.
        key: the signer's public key as a PEM file, instead of the keyring.
        root: the project's folder.

    Raises:
        UserError: it is no image of ours (no lock inside), or the lock is missing or bad.
    """
    kind = image_kind(image)
    judged = load_lock(lock) if lock else None
    signature = read_signature(image, kind=kind, key=key)
    with opened(image) as inside:
        path = lock or lock_path(_stack_inside(inside, image))
        print(f"looking into {image} …", file=sys.stderr)
        facts = observe(inside, root=root)
    labels = outer_labels(image)
    if labels is not None:
        facts |= {"inventory.labels": Fact(labels, f"{image}: its configuration")}
    judged = judged or load_lock(path)
    evidence = Evidence(facts, lock=judged, device="cpu")
    results = [one for name in IMAGE_CHECKS for one in run_all(find_check(name), evidence)]
    revision = (facts["inventory.labels"].value or {}).get(REVISION_LABEL, "")
    files = tracked_files(root, revision=revision, parts=PROJECT_PARTS)
    parts = Judge(facts, lock=judged).parts(revision_files=files, results=results)
    parts.append(signature_part(signature, required=signed))
    return Verification(
        image, kind, judged.stack, str(path), judged.sha256, signature, tuple(parts),
        tuple(named_libraries(facts)),
    )  # fmt: skip


def observe(inside: str, *, root: Path = ROOT) -> Facts:
    """Run our own observer with the image's Python and return its facts.

    Raises:
        UserError: it cannot be entered or has no Python of ours.
    """
    program = [f"{VENV}/bin/python", "-P", f"{OUTSIDE}/env/probes/inventory.py", HOME]
    told = run_inside(inside, [*program, *IMAGE_CHECKS], binds=[(root, OUTSIDE)])
    lines = [line for line in told.splitlines() if line.startswith(MARK)]
    if not lines:
        raise UserError("an image of this project", found=f"{inside} told nothing",
                        fix="see what it prints: singularity exec IMAGE true")  # fmt: skip
    data = json.loads(lines[-1][len(MARK) :])
    return Facts({key: Fact(**fact) for key, fact in data["facts"].items()})


def print_verification(verification: Verification, *, as_json: bool) -> int:
    """Print a verification and return the exit code."""
    render = render_json if as_json else render_text
    sys.stdout.write(render(verification))
    return verification.exit_code


def print_sbom(image: str) -> None:
    """Print the bill of materials that an image carries.

    Raises:
        UserError: it is no image, or has no bill.
    """
    with opened(image) as inside:
        sys.stdout.write(run_inside(inside, ["cat", SBOM]))


def render_json(verification: Verification) -> str:
    """Return a verification as JSON text, in the form of ``verification.schema.json``."""
    data = asdict(verification)
    differences = [asdict(one) for part in verification.parts for one in part.differences]
    for part in data["parts"]:
        del part["differences"]
    data |= {"differences": differences, "exit_code": verification.exit_code}
    return json.dumps({"schema_version": SCHEMA_VERSION} | data, indent=1) + "\n"


def render_text(verification: Verification) -> str:
    """Return a verification for people: a line each part, a line each difference."""
    lines = []
    for part in sorted(verification.parts, key=lambda one: one.status.severity):
        note = f"; {clean(part.note)}" if part.note else ""
        lines.append(f"{part.status:<8}{part.title} ({part.compared} compared{note})")
        for one in part.differences[:SHOWN]:
            lines.append(
                f"        expected: {clean(one.expected)} | found: {clean(one.found)}"
                f" | where: {clean(one.where)} | fix: {clean(one.fix)}"
            )
        if len(part.differences) > SHOWN:
            lines.append(f"        … and {len(part.differences) - SHOWN} more: see --json")
    for library in verification.libraries:
        lines.append(f"        {clean(library['path'])}: {clean(library['owner'] or 'of nobody')}")
    number = sum(len(part.differences) for part in verification.parts)
    untold = sum(part.status is Status.UNKNOWN for part in verification.parts)
    outcome = "no difference" if number == 0 else f"{number} difference{'s' * (number > 1)}"
    if untold:
        outcome += f", and {untold} part{'s' * (untold > 1)} that could not be told"
    where = f"{verification.image} (stack {verification.stack}) against {verification.lock}"
    lines.append(f"{clean(where)}: {outcome}")
    return "\n".join(lines) + "\n"


def _stack_inside(inside: str, image: str) -> str:
    """Return the name of the stack that an image says it is of, before the long look.

    Raises:
        UserError: it carries no lock, or one of a stack that is not known here.
    """
    fix = "name an image of this project (invoke build-image), or give --lock FILE"
    expected = "an image of this project, with its lock inside"
    try:
        stack = str(json.loads(run_inside(inside, ["cat", LOCK]))["stack"])
    except UserError as error:
        raise UserError(expected, found=f"{image}: {error.found}", fix=fix) from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(expected, found=f"{LOCK} in {image}: {error!r}", fix=fix) from error
    if not lock_path(stack).exists():
        raise UserError("an image of a stack that is known here", found=f"stack {stack!r}",
                        fix="give --lock FILE, or use the release it was built with")  # fmt: skip
    return stack
