"""The catalogue of stacks: loading it, checking it, hashing one stack of it.

Knows the shape of ``stacks.toml``. Leaves the exact, hashed set of packages to
``env.lock`` and the judgement whether versions fit each other to the rules.
"""

from __future__ import annotations

import hashlib
import json
import re
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
CODES = ("binary", "ptx")
_COMMON = (
    "python", "openmpi", "ucx", "pmix", "gcc", "glibc", "tensorflow", "keras", "horovod", "cmake",
    "setuptools",
)  # fmt: skip
COMPONENTS = {"cpu": _COMMON, "gpu": (*_COMMON, "cuda", "cuda_toolkit", "cudnn", "nccl")}
"""What a stack for each device must choose a version of."""

# Every table of a stack with the type of its values; a `dict` holds texts.
_TABLES: dict[str, dict[str, type]] = {
    "base": {
        "distribution": str, "release": str, "codename": str, "image": str, "sections": list,
    },
    "python": {"wheels": dict, "build": list, "run": list, "develop": list},
    "system": {"build": list, "run": list},
    "horovod": {"archive": str, "sha256": str, "edits": str, "flags": dict},
}  # fmt: skip
# Keys that only some stacks have, with what stands for them elsewhere.
_OPTIONAL: dict[str, dict[str, Any]] = {"base": {"build_image": ""}}
# Tables with a check of their own.
_OWN_CHECKS = ("components", "driver_minimum", "gpus", "sources", "downloads")
_GPU_KEYS = ("name", "compute_capability", "code", "driver")
_VERSION = re.compile(r"\d+(\.\d+)*((a|b|rc|\.post)\d+)?", re.ASCII)
_CAPABILITY = re.compile(r"1?\d\.\d", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_GLIBC, _ARCHIVE = re.compile(r"2\.\d+"), re.compile(rf"horovod-{_VERSION.pattern}\.tar\.gz")
# What pip can be asked for, without and with bounds; it may be absent where this is read.
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_BOUND = rf"(?:==|!=|<=|>=|<|>){_VERSION.pattern}"
_WHEEL = re.compile(rf"{_NAME}(\[{_NAME}(,{_NAME})*\])?")
_PACKAGE = re.compile(rf"{_WHEEL.pattern}({_BOUND}(,{_BOUND})*)?", re.ASCII)
# What apt can be asked for (Debian's policy, 5.6.1 and 5.6.12); it goes into a shell's line.
_DEB = re.compile(r"[a-z0-9][a-z0-9+.-]+(=\d[0-9A-Za-z.+~:-]*)?", re.ASCII)


@dataclass(frozen=True)
class Base:
    """The distribution a stack stands on.

    Attributes:
        image: its name in a registry.
        sections: the parts of its archive that packages come from, e.g. ``"main"``.
        build_image: what the first stage stands on, where that is another image.
    """

    distribution: str
    release: str
    codename: str
    image: str
    sections: tuple[str, ...]
    build_image: str = ""


@dataclass(frozen=True)
class Gpu:
    """A generation of GPUs that a stack promises to serve.

    Attributes:
        name: the generation and its best known card.
        compute_capability: e.g. ``"9.0"``.
        code: ``"binary"`` where TensorFlow's wheel has machine code for it, else ``"ptx"``.
        driver: the oldest driver that serves it with this stack.
    """

    name: str
    compute_capability: str
    code: str
    driver: str


@dataclass(frozen=True)
class PythonPackages:
    """What comes from PyPI.

    Attributes:
        wheels: requirement by component, for wheels of another name; all needed to run.
        build: names to compile Horovod with.
        run: names to run with.
        develop: names to work on the project with.
    """

    wheels: Mapping[str, str]
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
class Download:
    """The sources of a component that is compiled in the image: where from, and their hash."""

    url: str
    sha256: str


@dataclass(frozen=True)
class Stack:
    """A chosen set of versions.

    Attributes:
        name: its key in the catalogue, e.g. ``"cpu"``.
        status: ``"supported"`` or ``"candidate"``.
        device: ``"cpu"`` or ``"gpu"``: what the stack trains on.
        components: version by component, e.g. ``{"tensorflow": "2.16.1"}``.
        driver_minimum: the oldest NVIDIA driver that any of it works with; ``""`` without GPUs.
        gpus: the generations of GPUs it promises to serve.
        sources: where each claim is from, by component, ``driver_minimum`` and ``gpus``:
            addresses of pages, or packages whose own metadata says it.
        downloads: by component, for what the distribution has not got.
    """

    name: str
    status: str
    summary: str
    device: str
    base: Base
    components: Mapping[str, str]
    driver_minimum: str
    gpus: tuple[Gpu, ...]
    sources: Mapping[str, tuple[str, ...]]
    downloads: Mapping[str, Download]
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
        # Two stacks of one name end here too: "Cannot declare ('stacks', 'NAME') twice".
        raise UserError("a TOML file, each stack and key once", found=f"{path}: {error}",
                        fix="correct the line named") from error  # fmt: skip
    if data.get("schema_version") != 1:
        raise UserError("schema_version = 1", found=f"{path}: {data.get('schema_version')!r}",
                        fix="use a catalogue of this release")  # fmt: skip
    unknown = set(data) - {"schema_version", "stacks"}
    if unknown:
        raise _wrong(path, "the file", sorted(unknown)[0], "only schema_version and stacks")
    raw = data.get("stacks", {})
    if not isinstance(raw, dict) or not all(isinstance(table, dict) for table in raw.values()):
        raise _wrong(path, "the file", "stacks", "a table for each stack: [stacks.NAME]")
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
    if not isinstance(parent, str) or parent not in raw or parent in (*seen, name):
        raise _wrong(path, f"stack {name!r}", "extends", "the name of another stack, no circle")
    return _laid_over(_extended(path, raw, parent, (*seen, name)), own)


def _laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return two tables as one, key by key at any depth; "" above takes a key away."""
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _laid_over(merged[key], value) if both else value
    return {key: value for key, value in merged.items() if value != ""}


def _stack(path: Path, name: str, raw: Mapping[str, Any]) -> Stack:
    where = f"stack {name!r}"
    scalars = {"status": STATUSES, "device": DEVICES, "summary": None}
    for key in raw:
        if key not in {*scalars, *_TABLES, *_OWN_CHECKS}:
            raise _wrong(path, where, key, "a known key")
    for key, allowed in scalars.items():
        value = raw.get(key)
        if not isinstance(value, str) or (allowed and value not in allowed):
            raise _wrong(path, where, key, f"one of {', '.join(allowed)}" if allowed else "a text")
    for table, keys in _TABLES.items():
        _check_table(path, where, table, raw.get(table), keys)
    _check_sha256(path, where, "horovod", raw["horovod"])
    if not _ARCHIVE.fullmatch(raw["horovod"]["archive"]):
        raise _wrong(path, where, "horovod.archive", "a name such as 'horovod-1.2.3.tar.gz'")
    _check_components(path, where, raw)
    _check_packages(path, where, raw)
    gpus = _gpus(path, where, raw)
    _check_sources(path, where, raw)
    downloads = _downloads(path, where, raw)
    return Stack(
        name=name, status=raw["status"], summary=raw["summary"], device=raw["device"],
        base=Base(**_frozen(raw["base"])), components=dict(raw["components"]),
        driver_minimum=raw.get("driver_minimum", ""), gpus=gpus,
        sources=_frozen(raw["sources"]), downloads=downloads,
        python=PythonPackages(**_frozen(raw["python"])),
        system=SystemPackages(**_frozen(raw["system"])), horovod=HorovodBuild(**raw["horovod"]),
    )  # fmt: skip


def _frozen(table: Mapping[str, Any]) -> dict[str, Any]:
    return {k: tuple(value) if isinstance(value, list) else value for k, value in table.items()}


def _check_table(path: Path, where: str, table: str, value: object, keys: dict[str, type]) -> None:
    if not isinstance(value, dict):
        raise _wrong(path, where, table, "a table")
    optional = _OPTIONAL.get(table, {})
    for key in value:
        if key not in keys and key not in optional:
            raise _wrong(path, where, f"{table}.{key}", "a known key")
    wanted = keys | {key: type(other) for key, other in optional.items() if key in value}
    for key, kind in wanted.items():
        if not isinstance(value.get(key), kind):
            raise _wrong(path, where, f"{table}.{key}", f"a {kind.__name__}")
        items = value[key] if kind is list else value[key].values() if kind is dict else ()
        if not all(isinstance(item, str) for item in items):
            raise _wrong(path, where, f"{table}.{key}", "texts only")


def _check_components(path: Path, where: str, raw: Mapping[str, Any]) -> None:
    """Refuse a component that is missing or unknown, or has no version that can be."""
    known, found = COMPONENTS[raw["device"]], raw.get("components")
    if not isinstance(found, dict):
        raise _wrong(path, where, "components", "a table")
    for key in known:
        if key not in found:
            raise _wrong(path, where, f"components.{key}", "a version for every component")
    for key, value in found.items():
        if key not in known:
            raise _wrong(path, where, f"components.{key}", f"one of a {raw['device']} stack")
        if not _is_version(value):
            raise _wrong(path, where, f"components.{key}", "a version in quotes, e.g. '1.2.3'")
    if not _GLIBC.fullmatch(found["glibc"]):  # which wheels fit is told by its minor
        raise _wrong(path, where, "components.glibc", "a version such as '2.36'")


def _check_packages(path: Path, where: str, raw: Mapping[str, Any]) -> None:
    """Refuse what pip or apt cannot be asked for, and bounds of what ``components`` chooses."""
    python, held = raw["python"], set(raw["components"])
    for key, wheel in python["wheels"].items():
        if key not in held or not _WHEEL.fullmatch(wheel):
            raise _wrong(path, where, f"python.wheels.{key}", "a package's name, by component")
    held |= {wheel.partition("[")[0] for wheel in python["wheels"].values()}
    for key in ("build", "run", "develop"):
        for item in python[key]:
            name = re.match(f"({_NAME})?", item)[0].lower()
            if not (_WHEEL if name in held else _PACKAGE).fullmatch(item):
                raise _wrong(path, where, f"python.{key}", f"packages for pip, not {item!r}")
    for key, names in raw["system"].items():
        if bad := [item for item in names if not _DEB.fullmatch(item)]:
            raise _wrong(path, where, f"system.{key}", f"packages for apt, not {bad[0]!r}")


def _is_version(value: object) -> bool:
    return isinstance(value, str) and _VERSION.fullmatch(value) is not None


def _gpus(path: Path, where: str, raw: Mapping[str, Any]) -> tuple[Gpu, ...]:
    """Return the generations that a GPU stack promises, and refuse them anywhere else."""
    if raw["device"] != "gpu":
        for key in ("driver_minimum", "gpus"):
            if key in raw:
                raise _wrong(path, where, key, "no such key in a stack without GPUs")
        return ()
    if not _is_version(raw.get("driver_minimum")):
        raise _wrong(path, where, "driver_minimum", "the oldest driver, e.g. '525.60.13'")
    tables = raw.get("gpus")
    if not isinstance(tables, list) or not tables or not all(isinstance(t, dict) for t in tables):
        raise _wrong(path, where, "gpus", "a list of tables, one a generation")
    for table in tables:
        name = f"gpus.{table.get('name', '?')}"
        for key in (*table, *_GPU_KEYS):
            if key not in _GPU_KEYS or not isinstance(table.get(key), str):
                raise _wrong(path, where, f"{name}.{key}", f"texts for {', '.join(_GPU_KEYS)} only")
        if table["code"] not in CODES:
            raise _wrong(path, where, f"{name}.code", f"one of {', '.join(CODES)}")
        for key, shape in (("compute_capability", _CAPABILITY), ("driver", _VERSION)):
            if not shape.fullmatch(table[key]):
                raise _wrong(path, where, f"{name}.{key}", "a version in quotes, such as '9.0'")
    return tuple(Gpu(**table) for table in tables)


def _check_sha256(path: Path, where: str, table: str, value: Mapping[str, Any]) -> None:
    """Refuse a table whose checksum is missing or cannot be one."""
    digest = value.get("sha256")
    if not isinstance(digest, str) or not _SHA256.fullmatch(digest):
        raise _wrong(path, where, f"{table}.sha256", "64 hex digits")


def _downloads(path: Path, where: str, raw: Mapping[str, Any]) -> dict[str, Download]:
    """Return the sources that are compiled, each with its hash."""
    tables = raw.get("downloads", {})
    if not isinstance(tables, dict):
        raise _wrong(path, where, "downloads", "a table for each component that is compiled")
    for component, table in tables.items():
        name = f"downloads.{component}"
        if component not in raw["components"] or not isinstance(table, dict):
            raise _wrong(path, where, name, "a table for a component of this stack")
        for key in table:
            if key not in ("url", "sha256"):
                raise _wrong(path, where, f"{name}.{key}", "url and sha256 only")
        if not str(table.get("url", "")).startswith("https://"):
            raise _wrong(path, where, f"{name}.url", "an address (https:)")
        _check_sha256(path, where, name, table)
    return {component: Download(**table) for component, table in tables.items()}


def _check_sources(path: Path, where: str, raw: Mapping[str, Any]) -> None:
    """Refuse a claim that nobody can look up, and a source for what is not claimed."""
    sources = raw.get("sources")
    if not isinstance(sources, dict):
        raise _wrong(path, where, "sources", "a table")
    gpu = ("driver_minimum", "gpus") if raw["device"] == "gpu" else ()
    claims = (*raw["components"], *gpu)
    for key in sources:
        if key not in claims:
            raise _wrong(path, where, f"sources.{key}", "a claim of this stack")
    for key in claims:
        if not _are_sources(sources.get(key)):
            raise _wrong(path, where, f"sources.{key}", "a list of https: addresses or pkg: names")


def _are_sources(value: object) -> bool:
    texts = [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
    return bool(texts) and texts == value and all(t.startswith(("https://", "pkg:")) for t in texts)
