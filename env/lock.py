"""The lock: a Stack made exact, with a hash for everything it names.

Knows the lock's file format and how pip is told about it. Leaves resolving (which
asks a package index) to ``containers.lock``. A lock travels inside the image, so
that a machine can be held against what the image promises. Shell scripts read it with

    python3 -m env.lock requirements --stack cpu --group run
    python3 -m env.lock get --stack cpu system.run
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from types import UnionType
from typing import Any

from env.errors import UserError, unknown_name
from env.stack import PROJECT, Stack

SCHEMA_VERSION = 2
GROUPS = ("build", "run", "develop")
SYSTEM_GROUPS = ("base", "build", "run")
"""What a distribution's package is there for: the base holds it, or it is installed on it."""


@dataclass(frozen=True)
class PythonPackage:
    """One wheel set: ``sha256`` holds every accepted file's hash, ``groups`` who needs it."""

    name: str
    version: str
    sha256: tuple[str, ...]
    groups: tuple[str, ...]


@dataclass(frozen=True)
class SystemPackage:
    """One package of the distribution, direct or not.

    Attributes:
        name: as the archive has it, e.g. ``"libc6"``.
        version: exactly, with epoch and revision.
        architecture: e.g. ``"amd64"`` or ``"all"``.
        sha256: the file's hash (64 hex digits).
        size_bytes: the file's size.
        path: where a mirror has the file, e.g. ``"debian/pool/main/g/glibc/libc6_….deb"``.
        groups: some of ``SYSTEM_GROUPS``; what is in the base is in no other.
    """

    name: str
    version: str
    architecture: str
    sha256: str
    size_bytes: int
    path: str
    groups: tuple[str, ...]

    @property
    def file_name(self) -> str:
        """The file's own name."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class Lock:
    """A Stack made exact.

    Attributes:
        stack: the stack's name.
        stack_sha256: the hash of the stack this was resolved from.
        components: version by component, as in the Stack.
        base: distribution, release, codename, image, sections of the archive; the image's
            ``digest`` in its registry, or None; ``build_digest`` likewise, where the first
            stage stands on another image.
        sources: sha256 by file name, for what is compiled.
        edits: path and sha256 of the edit rules applied to the sources.
        flags: variables set while Horovod is compiled.
        system: distribution packages asked for, to build and to run with: names.
        python: every Python package, direct or not.
        archive_date: when the distribution's archive was as locked (ISO 8601, UTC), or "".
        system_packages: every package of base, build and run stage, sorted by name.
        gaps: what is not exact in this lock, by field, each with its reason.
        driver_minimum: the oldest NVIDIA driver, ``""`` without GPUs; as in the Stack.
        gpus: the generations of GPUs it promises to serve, as in the Stack.
        downloads: url and sha256 by component, for what is compiled besides Horovod.
    """

    stack: str
    stack_sha256: str
    components: Mapping[str, str]
    base: Mapping[str, Any]
    sources: Mapping[str, str]
    edits: Mapping[str, str]
    flags: Mapping[str, str]
    system: Mapping[str, tuple[str, ...]]
    python: tuple[PythonPackage, ...]
    archive_date: str = ""
    system_packages: tuple[SystemPackage, ...] = ()
    gaps: Mapping[str, str] = field(default_factory=dict)
    driver_minimum: str = ""
    gpus: tuple[Mapping[str, str], ...] = ()
    downloads: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def version(self, package: str) -> str | None:
        """Return the locked version of a Python package, None where it is not locked."""
        return next((p.version for p in self.python if p.name == package), None)

    def system_group(self, group: str) -> tuple[SystemPackage, ...]:
        """Return the distribution's packages of a group, none where they are not locked."""
        return tuple(p for p in self.system_packages if group in p.groups)

    @property
    def epoch(self) -> int:
        """When the archive was as locked, in seconds since 1970; 1980 where it is not told.

        Builds date by it what they make, so that two of them are the same.
        """
        told = self.archive_date or "1980-01-01T00:00:00Z"
        return int(datetime.fromisoformat(told).timestamp())

    @property
    def sha256(self) -> str:
        """The hash of the lock's own text (64 hex digits)."""
        return hashlib.sha256(render_lock(self).encode()).hexdigest()


def lock_path(stack: str) -> Path:
    """Return where the committed lock of a stack lies."""
    return PROJECT / "containers" / stack / "stack.lock.json"


def make_lock(
    stack: Stack,
    *,
    python: tuple[PythonPackage, ...],
    system_packages: tuple[SystemPackage, ...] = (),
    archive_date: str = "",
    base_digest: str | None = None,
    build_digest: str | None = None,
    gaps: Mapping[str, str] | None = None,
) -> Lock:
    """Return the lock of a stack, given what was resolved for it; see ``Lock``."""
    edits = PROJECT / stack.horovod.edits
    base = asdict(stack.base) | {"digest": base_digest}
    if stack.base.build_image:  # elsewhere both stages stand on the one image
        base["build_digest"] = build_digest
    return Lock(
        stack=stack.name,
        stack_sha256=stack.sha256,
        components=stack.components,
        base=base,
        sources={stack.horovod.archive: stack.horovod.sha256},
        edits={
            "path": stack.horovod.edits,
            "sha256": hashlib.sha256(edits.read_bytes()).hexdigest(),
        },
        flags=stack.horovod.flags,
        system=asdict(stack.system),
        python=python,
        archive_date=archive_date,
        system_packages=system_packages,
        gaps=dict(gaps or {}),
        driver_minimum=stack.driver_minimum,
        gpus=tuple(asdict(gpu) for gpu in stack.gpus),
        downloads={name: asdict(download) for name, download in stack.downloads.items()},
    )


def render_lock(lock: Lock) -> str:
    """Return the lock as JSON text: sorted keys, one final newline, always the same bytes.

    The distribution's packages are a line each, name first, so that what a renewal changes
    reads as a list.
    """
    data = {"schema_version": SCHEMA_VERSION} | asdict(lock)
    packages = [json.dumps(item) for item in data.pop("system_packages")]
    text = json.dumps(data, indent=1, sort_keys=True)
    listed = "[\n  " + ",\n  ".join(packages) + "\n ]" if packages else "[]"
    return f'{text[:-2]},\n "system_packages": {listed}\n}}\n'


def load_lock(path: Path) -> Lock:
    """Read a lock.

    Raises:
        UserError: the file is missing, not JSON, or not a lock of this schema.
    """
    stack = path.parent.name if path == lock_path(path.parent.name) else "S"
    again = f"make it anew: invoke lock --stack {stack}"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError("a lock file", found=f"{path}: {error.strerror}", fix=again) from error
    except ValueError as error:
        raise UserError("a lock in JSON", found=f"{path}: {error}", fix=again) from error
    if not isinstance(data, dict) or data.pop("schema_version", None) != SCHEMA_VERSION:
        raise UserError(f"a lock of schema_version {SCHEMA_VERSION}", found=str(path), fix=again)
    try:
        return _lock(data)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UserError("a complete lock", found=f"{path}: {error!r}", fix=again) from error


def render_requirements(lock: Lock, *, group: str | Sequence[str]) -> str:
    """Return a pip requirements text for some groups, every file held to its hash.

    Args:
        lock: the lock.
        group: ``"build"``, ``"run"`` or ``"develop"``, or several of them.
    """
    wanted = {group} if isinstance(group, str) else set(group)
    lines = []
    for package in lock.python:
        if wanted.intersection(package.groups):
            hashes = " ".join(f"--hash=sha256:{digest}" for digest in package.sha256)
            lines.append(f"{package.name}=={package.version} {hashes}")
    return "\n".join(lines) + "\n"


def render_value(lock: Lock, *, key: str) -> str:
    """Return one value of the lock for a shell: a line for each item, ``key=value`` in tables.

    Args:
        lock: the lock.
        key: names joined by dots, e.g. ``"system.run"`` or ``"flags"``.

    Raises:
        UserError: the lock has no such key; those it has there are listed.
    """
    value: Any = asdict(lock)
    del value["python"], value["system_packages"]
    for name in key.split("."):
        if not isinstance(value, dict) or name not in value:
            known = value if isinstance(value, dict) else ()
            raise unknown_name("key of the lock", key, known=known)
        value = value[name]
    if isinstance(value, dict):
        value = [f"{name}={item}" for name, item in value.items()]
    return "\n".join([value or ""] if isinstance(value, str | None) else value) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Print a part of a lock for a shell script; return the exit code."""
    parser = argparse.ArgumentParser(prog="python3 -m env.lock", description="Read a lock.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    requirements = verbs.add_parser("requirements", help="a requirements text for pip, hashed")
    requirements.add_argument("--group", choices=GROUPS, action="append", required=True)
    get = verbs.add_parser("get", help="one value, e.g. system.run or flags")
    get.add_argument("key")
    for verb in (requirements, get):
        which = verb.add_mutually_exclusive_group(required=True)
        which.add_argument("--stack", help="a stack whose lock is committed")
        which.add_argument("--lock", type=Path, help="a lock file")
    args = parser.parse_args(argv)
    try:
        lock = load_lock(args.lock or lock_path(args.stack))
        if args.verb == "get":
            text = render_value(lock, key=args.key)
        else:
            text = render_requirements(lock, group=args.group)
    except UserError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    sys.stdout.write(text)
    return 0


# What a lock holds: a type, a list of one shape, a table by names of any kind, or by these.
_NAMED, _BY_NAME = {"name": str, "version": str, "groups": [str]}, {str: str}
_SHAPE: dict[str, Any] = {
    "stack": str, "stack_sha256": str, "archive_date": str, "driver_minimum": str,
    "components": _BY_NAME, "sources": _BY_NAME, "flags": _BY_NAME, "gaps": _BY_NAME,
    "gpus": [_BY_NAME], "downloads": {str: {"url": str, "sha256": str}},
    "base": {"distribution": str, "release": str, "codename": str, "image": str,
             "sections": [str], "digest": str | None, "build_image": str | None,
             "build_digest": str | None},
    "edits": {"path": str, "sha256": str},
    "system": {str: [str]},
    "python": [_NAMED | {"sha256": [str]}],
    "system_packages": [_NAMED | {"architecture": str, "sha256": str, "size_bytes": int,
                                  "path": str}],
}  # fmt: skip


def _check(value: object, shape: type | UnionType | list | dict, where: str) -> None:
    """Refuse a value of another shape.

    Raises:
        TypeError: it has; the place in the lock is named.
    """
    kind = type(shape) if isinstance(shape, list | dict) else shape
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"{where} is {value!r:.60}, no {getattr(kind, '__name__', kind)}")
    if isinstance(shape, list):
        for number, item in enumerate(value):
            _check(item, shape[0], f"{where}[{number}]")
    elif isinstance(shape, dict):
        for key in value if str in shape else shape:
            _check(value.get(key), shape.get(key, shape.get(str)), f"{where}.{key}")


def _lock(data: dict[str, Any]) -> Lock:
    for key, value in data.items():
        if key in _SHAPE:  # an unknown one is refused below
            _check(value, _SHAPE[key], key)
    if data.get("archive_date"):
        datetime.fromisoformat(data["archive_date"])
    python = tuple(
        PythonPackage(p["name"], p["version"], tuple(p["sha256"]), tuple(p["groups"]))
        for p in data.pop("python")
    )
    packages = tuple(
        SystemPackage(**item | {"groups": tuple(item["groups"])})
        for item in data.pop("system_packages")
    )
    system = {key: tuple(names) for key, names in data.pop("system").items()}
    base = data.pop("base")
    base["sections"] = tuple(base["sections"])
    data["gpus"] = tuple(data["gpus"])
    return Lock(base=base, system=system, python=python, system_packages=packages, **data)


if __name__ == "__main__":
    sys.exit(main())
