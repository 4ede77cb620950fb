"""The catalogue of stacks: loading it, checking it, hashing one stack of it.

Knows the shape of ``stacks.toml``. Leaves the exact, hashed set of packages to
``env.lock`` and the judgement whether versions fit each other to the rules.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from env.errors import UserError, unknown_name

PROJECT = Path(__file__).resolve().parent.parent
CATALOGUE = PROJECT / "env" / "stacks.toml"
STATUSES = ("supported", "candidate")
DEVICES = ("cpu", "gpu")
REQUIRED_COMPONENTS = (
    "python", "openmpi", "gcc", "glibc", "tensorflow", "keras", "horovod", "cmake", "setuptools",
)  # fmt: skip

# Every table of a stack with the type of its values; `horovod` holds `flags` as well.
_TABLES: dict[str, dict[str, type]] = {
    "base": {"distribution": str, "release": str, "codename": str, "image": str},
    "python": {"tensorflow": str, "build": list, "run": list, "develop": list},
    "system": {"build": list, "run": list},
    "horovod": {"archive": str, "sha256": str, "edits": str, "flags": dict},
}


@dataclass(frozen=True)
class Base:
    """The distribution a stack stands on; ``image`` is its name in a registry."""

    distribution: str
    release: str
    codename: str
    image: str


@dataclass(frozen=True)
class PythonPackages:
    """PyPI names: TensorFlow's in this stack, and those to build, run and develop with."""

    tensorflow: str
    build: tuple[str, ...]
    run: tuple[str, ...]
    develop: tuple[str, ...]


@dataclass(frozen=True)
class SystemPackages:
    """Names in the distribution's archive: to compile with, and to run with."""

    build: tuple[str, ...]
    run: tuple[str, ...]


@dataclass(frozen=True)
class HorovodBuild:
    """Horovod's source archive, our edits to it, and the variables of its build."""

    archive: str
    sha256: str
    edits: str
    flags: Mapping[str, str]


@dataclass(frozen=True)
class Stack:
    """A chosen set of versions.

    Attributes:
        name: its key in the catalogue, e.g. ``"cpu"``.
        status: ``"supported"`` or ``"candidate"``.
        device: ``"cpu"`` or ``"gpu"``: what the stack trains on.
        components: version by component, e.g. ``{"tensorflow": "2.16.1"}``.
    """

    name: str
    status: str
    summary: str
    device: str
    base: Base
    components: Mapping[str, str]
    python: PythonPackages
    system: SystemPackages
    horovod: HorovodBuild

    @property
    def sha256(self) -> str:
        """The hash of everything the catalogue says about this stack (64 hex digits)."""
        text = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def load_stacks(path: Path = CATALOGUE) -> dict[str, Stack]:
    """Read the catalogue.

    Args:
        path: a TOML file in the shape of ``env/stacks.toml``.

    Returns:
        Every stack by name, in the file's order.

    Raises:
        UserError: the file is missing, is not TOML, or a stack has an unknown key,
            misses one, or holds a value of another type; file, stack and key are named.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError("a catalogue of stacks", found=f"{path}: {error.strerror}",
                        fix="restore it: git checkout env/stacks.toml") from error  # fmt: skip
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError("a TOML file", found=f"{path}: {error}",
                        fix="correct the line named") from error  # fmt: skip
    if data.get("schema_version") != 1:
        raise UserError("schema_version = 1", found=f"{path}: {data.get('schema_version')!r}",
                        fix="use a catalogue of this release")  # fmt: skip
    unknown = set(data) - {"schema_version", "stacks"}
    if unknown:
        raise _wrong(path, "the file", sorted(unknown)[0], "only schema_version and stacks")
    raw = data.get("stacks", {})
    return {name: _stack(path, name, _extended(path, raw, name, ())) for name in raw}


def load_stack(name: str, *, path: Path = CATALOGUE) -> Stack:
    """Return one stack of the catalogue.

    Raises:
        UserError: there is no stack of that name (the known ones are listed), or the
            catalogue is bad.
    """
    stacks = load_stacks(path)
    if name not in stacks:
        raise unknown_name("stack", name, known=stacks)
    return stacks[name]


def _wrong(path: Path, stack: str, key: str, expected: str) -> UserError:
    return UserError(expected, found=f"{path}: {stack}: key {key!r}", fix=f"correct {key!r}")


def _extended(path: Path, raw: Mapping[str, Any], name: str, seen: tuple[str, ...]) -> dict:
    """Return the table of one stack laid over those it extends."""
    own = dict(raw[name])
    parent = own.pop("extends", None)
    if parent is None:
        return own
    if parent not in raw or parent in (*seen, name):
        raise _wrong(path, f"stack {name!r}", "extends", "the name of another stack, no circle")
    merged = _extended(path, raw, parent, (*seen, name))
    for key, value in own.items():
        laid_over = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = merged[key] | value if laid_over else value
    return merged


def _stack(path: Path, name: str, raw: Mapping[str, Any]) -> Stack:
    where = f"stack {name!r}"
    scalars = {"status": STATUSES, "device": DEVICES, "summary": None}
    for key in raw:
        if key not in {*scalars, *_TABLES, "components"}:
            raise _wrong(path, where, key, "a known key")
    for key, allowed in scalars.items():
        value = raw.get(key)
        if not isinstance(value, str) or (allowed and value not in allowed):
            raise _wrong(path, where, key, f"one of {', '.join(allowed)}" if allowed else "a text")
    for table, keys in _TABLES.items():
        _check_table(path, where, table, raw.get(table), keys)
    components = raw.get("components", {})
    for key in REQUIRED_COMPONENTS:
        if key not in components:
            raise _wrong(path, where, f"components.{key}", "a version for every component")
    for key, value in components.items():
        if key not in REQUIRED_COMPONENTS:
            raise _wrong(path, where, f"components.{key}", "a known component")
        if not isinstance(value, str) or not value[:1].isdigit():
            raise _wrong(path, where, f"components.{key}", "a version in quotes")
    python, system = raw["python"], raw["system"]
    return Stack(
        name=name, status=raw["status"], summary=raw["summary"], device=raw["device"],
        base=Base(**raw["base"]), components=dict(components),
        python=PythonPackages(
            python["tensorflow"], *(tuple(python[k]) for k in ("build", "run", "develop"))
        ),
        system=SystemPackages(*(tuple(system[k]) for k in ("build", "run"))),
        horovod=HorovodBuild(**raw["horovod"]),
    )  # fmt: skip


def _check_table(path: Path, where: str, table: str, value: object, keys: dict[str, type]) -> None:
    if not isinstance(value, dict):
        raise _wrong(path, where, table, "a table")
    for key in value:
        if key not in keys:
            raise _wrong(path, where, f"{table}.{key}", "a known key")
    for key, kind in keys.items():
        if not isinstance(value.get(key), kind):
            raise _wrong(path, where, f"{table}.{key}", f"a {kind.__name__}")
        items = value[key] if kind is list else value[key].values() if kind is dict else ()
        if not all(isinstance(item, str) for item in items):
            raise _wrong(path, where, f"{table}.{key}", "texts only")
