"""Compares two images: every path, the packages, the labels, the bills of materials.

Knows what counts as a difference: type, mode, owner, target and content, but not the time
of a file, which says when and not what. Leaves reading the images to ``containers.trees``,
``squashfs`` and ``layers``.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from containers.image import ARCHIVE, SANDBOX, SIF, image_kind
from containers.layers import read_archive
from containers.squashfs import read_sif
from containers.trees import SBOM, STATUS, Entry, Tree, read_folder
from env.atomic import write_text
from env.errors import EXIT_FAILED, EXIT_GOOD, UserError
from env.probes.dpkg import parse_status
from env.report import clean

SCHEMA_VERSION = 1
SCHEMA = Path(__file__).with_name("comparison.schema.json")
SHOWN = 40
"""Differing paths in the text; the JSON holds all."""
_READERS: dict[str, Callable[[Path], Tree]] = {
    SIF: read_sif, SANDBOX: read_folder, ARCHIVE: read_archive,
}  # fmt: skip
_DIST_INFO = re.compile(r"(?:.*/)?([^/]+)-([^/-]+)\.dist-info/METADATA")


@dataclass(frozen=True)
class Change:
    """One path that differs.

    Attributes:
        path: from the image's root, with a leading slash.
        change: ``"only in A"``, ``"only in B"``, or what differs, e.g. ``"content, mode"``.
        a: the entry in the first image, None where there is none.
        b: the entry in the second.
    """

    path: str
    change: str
    a: Entry | None
    b: Entry | None


@dataclass(frozen=True)
class Named:
    """One package, label or component whose value differs; None where an image lacks it."""

    name: str
    a: str | None
    b: str | None


@dataclass(frozen=True)
class Comparison:
    """How two images differ.

    Attributes:
        image_a: the first image, as named.
        image_b: the second.
        paths_a: how many paths the first has.
        paths_b: how many the second has.
        files: every path that differs.
        packages: distribution and Python packages, as ``deb:NAME`` and ``pypi:NAME``.
        labels: labels by name.
        components: components of the bills of materials, by reference.
    """

    image_a: str
    image_b: str
    paths_a: int
    paths_b: int
    files: tuple[Change, ...]
    packages: tuple[Named, ...]
    labels: tuple[Named, ...]
    components: tuple[Named, ...]

    @property
    def exit_code(self) -> int:
        """0 where nothing differs, else 1."""
        differ = self.files or self.packages or self.labels or self.components
        return EXIT_FAILED if differ else EXIT_GOOD


def compare_images(image_a: str, image_b: str) -> Comparison:
    """Return how two images differ; both are read at once.

    Args:
        image_a: a .sif file, a root folder or an archive.
        image_b: another, which may be of another kind.

    Raises:
        UserError: one is no such image, or it is damaged.
    """
    kinds = [image_kind(image) for image in (image_a, image_b)]
    for image, kind in zip((image_a, image_b), kinds, strict=True):
        if kind not in _READERS:
            fix = f"save it first: docker save --output IMAGE.tar {image}"
            expected = "a .sif file, a root folder or an archive"
            raise UserError(expected, found=f"no file {image}", fix=fix)
    print(f"reading {image_a} and {image_b} …", file=sys.stderr)
    # Threads suffice: decompressing is a process of its own, and hashing lets go of Python.
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(_READERS[kind], Path(image))
                for kind, image in zip(kinds, (image_a, image_b), strict=True)]  # fmt: skip
        a, b = (job.result() for job in jobs)
    return Comparison(
        image_a, image_b, len(a.entries), len(b.entries),
        files=tuple(_files(a.entries, b.entries)),
        packages=_named(_packages(a), _packages(b)),
        labels=_named(a.labels, b.labels),
        components=_named(_components(a), _components(b)),
    )  # fmt: skip


def print_comparison(comparison: Comparison, *, json: Path | None = None) -> int:
    """Print a comparison, write it where asked, and return the exit code.

    Raises:
        OSError: the file cannot be written.
    """
    if json is not None:
        write_text(json, render_json(comparison))
    sys.stdout.write(render_text(comparison))
    return comparison.exit_code


def render_json(comparison: Comparison) -> str:
    """Return a comparison as JSON text, in the form of ``comparison.schema.json``."""
    data = asdict(comparison) | {"exit_code": comparison.exit_code}
    # Names of files are bytes: those that are no UTF-8 leave as escapes, not as an error.
    return json.dumps({"schema_version": SCHEMA_VERSION} | data, indent=1) + "\n"


def render_text(comparison: Comparison) -> str:
    """Return a comparison for people: the sums first, then what differs."""
    one = comparison
    kinds = Counter(change.change for change in one.files)
    lines = [
        f"A: {one.image_a} ({one.paths_a} paths)",
        f"B: {one.image_b} ({one.paths_b} paths)",
        f"files: {len(one.files)} differ"
        + "".join(f"; {number} {kind}" for kind, number in sorted(kinds.items())),
    ]
    for change in one.files[:SHOWN]:
        told = "" if change.a is None or change.b is None else _values(change.a, change.b)
        lines.append(f"    {clean(change.path)}: {change.change}{told}")
    if len(one.files) > SHOWN:
        lines.append(f"    … and {len(one.files) - SHOWN} more: see --json FILE")
    for title in ("packages", "labels", "components"):
        differing = getattr(one, title)
        name = "bill of materials" if title == "components" else title
        lines.append(f"{name}: {len(differing)} differ")
        for item in differing[:SHOWN]:
            told = (
                _keys(item) if title == "components" else f"{item.a or 'none'} | {item.b or 'none'}"
            )
            lines.append(f"    {clean(item.name)}: {clean(told)}")
        if len(differing) > SHOWN:
            lines.append(f"    … and {len(differing) - SHOWN} more: see --json FILE")
    lines.append("the same" if one.exit_code == EXIT_GOOD else "they differ")
    return "\n".join(lines) + "\n"


def _files(a: Mapping[str, Entry], b: Mapping[str, Entry]) -> list[Change]:
    changes = []
    for path in sorted(a.keys() | b.keys()):
        one, other = a.get(path), b.get(path)
        # The layers of an archive need not hold the root folder itself.
        if one == other or (not path and None in (one, other)):
            continue
        if one is None or other is None:
            change = "only in B" if one is None else "only in A"
        else:
            change = ", ".join(_fields(one, other))
        changes.append(Change(f"/{path}", change, one, other))
    return changes


def _fields(one: Entry, other: Entry) -> list[str]:
    """Return the names of what differs; where the type does, the rest says nothing more."""
    differing = [name for name, value in asdict(one).items() if value != getattr(other, name)]
    if "type" in differing:
        return ["type"]
    return ["content" if name == "sha256" else name for name in differing]


def _values(one: Entry, other: Entry) -> str:
    """Return the differing values themselves, those short enough to read."""
    told = [
        f"{getattr(one, name)} | {getattr(other, name)}"
        for name in ("type", "mode", "owner", "target")
        if getattr(one, name) != getattr(other, name)
    ]
    return f" ({clean('; '.join(told))})" if told else ""


def _keys(item: Named) -> str:
    """Return which keys of a component differ: whole ones would fill the page."""
    if item.a is None or item.b is None:
        return "only in B" if item.a is None else "only in A"
    try:
        a, b = json.loads(item.a), json.loads(item.b)
        return ", ".join(sorted(key for key in a.keys() | b.keys() if a.get(key) != b.get(key)))
    except (ValueError, AttributeError):  # a bill that could not be read says so itself
        return f"{item.a} | {item.b}"


def _packages(tree: Tree) -> dict[str, str]:
    status = tree.kept.get(STATUS, b"").decode(errors="replace")
    found = {f"deb:{p['Package']}:{p['Architecture']}": p["Version"] for p in parse_status(status)}
    told = [match for match in map(_DIST_INFO.fullmatch, tree.entries) if match]
    return found | {f"pypi:{match[1]}": match[2] for match in told}


def _components(tree: Tree) -> dict[str, str]:
    """Return the components of a bill by reference, each as text that tells two apart."""
    try:
        bill = json.loads(tree.kept[SBOM])
        found = {one["bom-ref"]: _told(one) for one in bill["components"]}
        return found | {"metadata": _told(bill["metadata"])}
    except KeyError:
        return {}
    except (ValueError, TypeError) as error:
        return {"metadata": f"unreadable: {error}"}


def _told(component: Mapping[str, Any]) -> str:
    return json.dumps(component, sort_keys=True)


def _named(a: Mapping[str, str], b: Mapping[str, str]) -> tuple[Named, ...]:
    names = sorted(a.keys() | b.keys())
    return tuple(Named(n, a.get(n), b.get(n)) for n in names if a.get(n) != b.get(n))
