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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from env.errors import UserError, unknown_name
from env.stack import PROJECT, Stack

SCHEMA_VERSION = 1
GROUPS = ("build", "run", "develop")


@dataclass(frozen=True)
class PythonPackage:
    """One wheel set: ``sha256`` holds every accepted file's hash, ``groups`` who needs it."""

    name: str
    version: str
    sha256: tuple[str, ...]
    groups: tuple[str, ...]


@dataclass(frozen=True)
class Lock:
    """A Stack made exact.

    Attributes:
        stack: the stack's name.
        stack_sha256: the hash of the stack this was resolved from.
        components: version by component, as in the Stack.
        base: distribution, release, codename, image.
        sources: sha256 by file name, for what is compiled.
        edits: path and sha256 of the edit rules applied to the sources.
        flags: variables set while Horovod is compiled.
        system: distribution packages to build and to run with.
        python: every Python package, direct or not.
    """

    stack: str
    stack_sha256: str
    components: Mapping[str, str]
    base: Mapping[str, str]
    sources: Mapping[str, str]
    edits: Mapping[str, str]
    flags: Mapping[str, str]
    system: Mapping[str, tuple[str, ...]]
    python: tuple[PythonPackage, ...]

    def version(self, package: str) -> str | None:
        """Return the locked version of a Python package, None where it is not locked."""
        return next((p.version for p in self.python if p.name == package), None)

    @property
    def sha256(self) -> str:
        """The hash of the lock's own text (64 hex digits)."""
        return hashlib.sha256(render_lock(self).encode()).hexdigest()


def lock_path(stack: str) -> Path:
    """Return where the committed lock of a stack lies."""
    return PROJECT / "containers" / stack / "stack.lock.json"


def make_lock(stack: Stack, *, python: tuple[PythonPackage, ...]) -> Lock:
    """Return the lock of a stack, given its resolved Python packages."""
    edits = PROJECT / stack.horovod.edits
    return Lock(
        stack=stack.name,
        stack_sha256=stack.sha256,
        components=stack.components,
        base=asdict(stack.base),
        sources={stack.horovod.archive: stack.horovod.sha256},
        edits={
            "path": stack.horovod.edits,
            "sha256": hashlib.sha256(edits.read_bytes()).hexdigest(),
        },
        flags=stack.horovod.flags,
        system=asdict(stack.system),
        python=python,
    )


def render_lock(lock: Lock) -> str:
    """Return the lock as JSON text: sorted keys, one final newline, always the same bytes."""
    data = {"schema_version": SCHEMA_VERSION} | asdict(lock)
    return json.dumps(data, indent=1, sort_keys=True) + "\n"


def load_lock(path: Path) -> Lock:
    """Read a lock.

    Raises:
        UserError: the file is missing, not JSON, or not a lock of this schema.
    """
    again = "make it anew: invoke lock --stack S"
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
    except (KeyError, TypeError, AttributeError) as error:
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
    value: Any = {k: v for k, v in asdict(lock).items() if k != "python"}
    for name in key.split("."):
        if not isinstance(value, dict) or name not in value:
            known = value if isinstance(value, dict) else ()
            raise unknown_name("key of the lock", key, known=known)
        value = value[name]
    if isinstance(value, dict):
        value = [f"{name}={item}" for name, item in value.items()]
    return "\n".join([value] if isinstance(value, str) else value) + "\n"


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


def _lock(data: dict[str, Any]) -> Lock:
    python = tuple(
        PythonPackage(p["name"], p["version"], tuple(p["sha256"]), tuple(p["groups"]))
        for p in data.pop("python")
    )
    system = {key: tuple(names) for key, names in data.pop("system").items()}
    return Lock(system=system, python=python, **data)


if __name__ == "__main__":
    sys.exit(main())
