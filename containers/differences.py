"""Holds what was found inside an image against the lock: pure functions, no image opened.

Knows what an image built from a lock must hold, and what its build takes out on purpose.
Leaves observing to ``env.probes.inventory``, which runs in the image, and the order of it
all to ``containers.verify``.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import PurePath
from typing import Any

from containers.parts import Difference, Part, checks_part
from containers.redirects import find_redirects
from env.facts import CannotTellError, Facts
from env.lock import Lock, SystemPackage
from env.names import normal_name
from env.result import Result, Status
from recipes.blocks.project import stack_labels
from recipes.blocks.system import WRAPPERS
from recipes.layout import PROJECT, SBOM

# What the build takes out on purpose: a file that is missing there is as intended, one that
# was edited never is.
REMOVED = (*WRAPPERS, "*/site-packages/tensorflow/include/*")
TOLD = ("cuda", "cudnn", "nccl")
"""Components whose libraries tell their own version (``env.probes.versions``). PMIx does too,
but Debian's says that it is a pre-release of what it is."""
REVISION_LABEL = "org.opencontainers.image.revision"
ORIGIN_LABELS = tuple(
    f"org.opencontainers.image.{name}" for name in ("revision", "created", "source", "base.name")
)
# Libraries worth naming: those that decide how ranks meet and compute.
NAMED = re.compile(
    r"/(libmpi|libpmix|libucp|libnccl|libcudart|libcudnn|libcublas|libstdc\+\+|libc|libm"
    r"|libtensorflow_framework|mpi_lib)\.[^/]*$"
)


_Judged = tuple[int, list[Difference], str]
"""How many things were compared, which differ, and a note."""


class Judge:
    """Judges one image; every method makes one part.

    Args:
        facts: what ``env.probes.inventory`` observed in it.
        lock: what it should have been built from.
    """

    def __init__(self, facts: Facts, *, lock: Lock) -> None:
        self._facts = facts
        self._lock = lock
        self.rebuild = f"build it again: invoke build-image --stack {lock.stack}"

    def parts(
        self, *, revision_files: Mapping[str, str] | None, results: Sequence[Result]
    ) -> list[Part]:
        """Return every part, the lock first.

        Args:
            revision_files: git's hash by path of the project at the revision that the image
                names; None where nobody here knows that revision.
            results: what the checks of ``env`` say of the image.
        """
        return [
            self._part("lock", "the lock inside is the lock", self._lock_inside),
            self._part("labels", "labels as the lock wants them", self._labels),
            self._part("system", "distribution packages as locked", self._system),
            self._part(
                "system-files", "files of distribution packages as shipped", self._system_files
            ),
            self._part("python", "Python packages as locked", self._python),
            self._part("python-files", "files of Python packages as installed", self._python_files),
            self._part("loaded", "libraries loaded by a process that trains", self._loaded),
            self._part("programs", "programs on PATH", self._programs),
            self._part(
                "redirects",
                "files that decide what a run starts as the build writes them",
                self._redirects,
            ),
            self._part("components", "components by the libraries' own word", self._components),
            self._part("sbom", "the bill of materials lists what is there", self._sbom),
            self._part(
                "project",
                "the project's files as of its revision",
                lambda part: self._project(part, revision_files),
            ),
            checks_part(results),
        ]

    def _part(self, name: str, title: str, judge: Callable[[str], _Judged]) -> Part:
        """Run one method; what it could not read makes it UNKNOWN."""
        part = f"image.{name}"
        try:
            compared, differences, note = judge(part)
        except CannotTellError as error:
            return Part(part, title, Status.UNKNOWN, 0, f"could not tell: {error}")
        status = Status.FAIL if differences else Status.INFO if note else Status.PASS
        return Part(part, title, status, compared, note, tuple(differences))

    def _differ(self, part: str, expected: str, found: str, where: str) -> Difference:
        return Difference(part, expected, found, where, self.rebuild)

    def _lock_inside(self, part: str) -> _Judged:
        where = self._facts["inventory.lock"].origin
        try:
            inside = dict(json.loads(self._facts.value("inventory.lock")))
        except (ValueError, TypeError) as error:
            return 1, [self._differ(part, "a lock in JSON", str(error), where)], ""
        wanted = json.loads(json.dumps(asdict(self._lock)))
        keys = sorted((set(inside) | set(wanted)) - {"schema_version"})
        differences = [
            self._differ(part, f"{key}: {_brief(wanted.get(key), inside.get(key))}",
                         _brief(inside.get(key), wanted.get(key)), where)
            for key in keys if wanted.get(key) != inside.get(key)
        ]  # fmt: skip
        return len(keys), differences, ""

    def _labels(self, part: str) -> _Judged:
        labels = self._facts.value("inventory.labels")
        where = self._facts["inventory.labels"].origin
        wanted = stack_labels(self._lock)
        differences = [
            self._differ(part, f"{name}={value}", _label(labels, name), where)
            for name, value in wanted.items()
            if labels.get(name) != value
        ]
        differences += [
            self._differ(part, f"a label {name}", _label(labels, name), where)
            for name in ORIGIN_LABELS
            if not labels.get(name)
        ]
        return len(wanted) + len(ORIGIN_LABELS), differences, ""

    def _system(self, part: str) -> _Judged:
        locked = self._locked_system()
        found = {
            (p["name"], p["architecture"]): p["version"]
            for p in self._facts.value("inventory.system")
        }
        wanted = {(p.name, p.architecture): p.version for p in locked}
        where = self._facts["inventory.system"].origin
        return len(wanted), self._versions(part, wanted, found, where), ""

    def _locked_system(self) -> list[SystemPackage]:
        locked = [p for p in self._lock.system_packages if {"base", "run"} & set(p.groups)]
        if not locked:
            reason = self._lock.gaps.get("system_packages", "no reason given")
            raise CannotTellError(f"the lock names no distribution packages: {reason}")
        return locked

    def _versions(
        self, part: str, wanted: Mapping[Any, str], found: Mapping[Any, str], where: str
    ) -> list[Difference]:
        """Return packages whose version differs, that are missing, or that nobody asked for."""
        differences = []
        for key in sorted(wanted.keys() | found.keys()):
            name = key if isinstance(key, str) else ":".join(key)
            if key not in found:
                line = (f"{name} {wanted[key]}", "not installed")
            elif key not in wanted:
                line = (f"no {name}", f"{name} {found[key]}")
            elif wanted[key] != found[key]:
                line = (f"{name} {wanted[key]}", found[key])
            else:
                continue
            differences.append(self._differ(part, *line, where))
        return differences

    def _system_files(self, part: str) -> _Judged:
        return self._files(part, "inventory.system_files")

    def _python(self, part: str) -> _Judged:
        wanted = {normal_name(p.name): p.version for p in self._lock.python if "run" in p.groups}
        wanted["horovod"] = self._lock.components["horovod"]
        found = {p["name"]: p["version"] for p in self._facts.value("inventory.python")}
        where = self._facts["inventory.python"].origin
        return len(wanted), self._versions(part, wanted, found, where), ""

    def _python_files(self, part: str) -> _Judged:
        compared, differences, note = self._files(part, "inventory.python_files")
        differences += [
            self._differ(part, "a file that a package brought", "a file of nobody", path)
            for path in self._facts.value("inventory.unowned")
        ]
        differences += [
            self._differ(part, f"the list of {one['name']}'s files", "no RECORD", one["location"])
            for one in self._facts.value("inventory.python")
            if not one["recorded"]
        ]
        return compared, differences, note

    def _files(self, part: str, key: str) -> _Judged:
        told = self._facts.value(key)
        listed = self._listed_files()
        differences = []
        for one in told["wrong"]:
            if one["problem"] == "missing" and any(
                fnmatch.fnmatch(one["path"], p) for p in REMOVED
            ):
                continue
            # Compiled files are stripped after their hash was recorded; the bill, written
            # when all was done, has the hash of what was left.
            if one["found"] and listed.get(one["path"]) == one["found"]:
                continue
            expected = f"{one['owner']}'s file, hash {one['expected'][:12]}"
            found = (
                f"{one['problem']}, hash {one['found'][:12]}" if one["found"] else one["problem"]
            )
            differences.append(self._differ(part, expected, found, one["path"]))
        return told["checked"], differences, ""

    def _programs(self, part: str) -> _Judged:
        strays = self._facts.value("inventory.programs")
        line = ("a program that a package brought", "a program of nobody")
        return 1, [self._differ(part, *line, path) for path in strays], ""

    def _redirects(self, part: str) -> _Judged:
        compared, lines = find_redirects(self._facts, lock=self._lock)
        return compared, [self._differ(part, *line) for line in lines], ""

    def _loaded(self, part: str) -> _Judged:
        loaded = self._facts.value("inventory.loaded")
        known = {f"{p.name} {p.version}" for p in self._lock.system_packages}
        known |= {f"{normal_name(p.name)} {p.version}" for p in self._lock.python}
        known.add(f"horovod {self._lock.components['horovod']}")
        because = self._because()
        differences = []
        for one in loaded:
            where = f"{one['path']}{because}"
            if one["owner"] is None:
                line = ("a library that a package of the image brought", "a library of nobody")
                differences.append(self._differ(part, *line, where))
            elif self._lock.system_packages and one["owner"] not in known:
                line = ("a library of a locked package", f"one of {one['owner']}")
                differences.append(self._differ(part, *line, where))
        names = {PurePath(one["path"]).name for one in loaded}
        if "nccl" in self._lock.components and not any(n.startswith("libnccl.so") for n in names):
            line = ("libnccl loaded with Horovod", "no libnccl in the process")
            differences.append(self._differ(part, *line, self._facts["inventory.loaded"].origin))
        return len(loaded), differences, ""

    def _components(self, part: str) -> _Judged:
        """Hold what the libraries say of themselves, opened as a training would, to the lock.

        Each may tell fewer numbers than the lock has (CUDA two of three): those must agree.
        """
        wanted = {n: v for n, v in self._lock.components.items() if n in TOLD}
        differences = []
        for name, version in wanted.items():
            told = self._facts.value(f"versions.{name}")
            if told is None or not f"{version}.".startswith(f"{told}."):
                where = self._facts[f"versions.{name}"].origin
                line = (f"{name} {version}", f"{name} {told}" if told else f"no {name} to load")
                differences.append(self._differ(part, *line, where))
        return len(wanted), differences, ""

    def _because(self) -> str:
        """Return what may have brought a foreign library in, as an addition to a place."""
        variables = self._facts.value("inventory.environment")
        told = [f"{n}={v}" for n, v in variables.items() if n.startswith("LD_")]
        if self._facts["inventory.preloaded"].value:
            told.append("/etc/ld.so.preload")
        return f" ({', '.join(told)})" if told else ""

    def _listed_files(self) -> dict[str, str]:
        """Return the SHA-256 by path of the files in the bill of materials."""
        try:
            bill = json.loads(self._facts["inventory.sbom"].value or "")
            return {
                file["name"]: file["hashes"][0]["content"]
                for component in bill["components"]
                for file in component.get("components", ())
            }
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            return {}  # the part of the bill itself says what is wrong with it

    def _sbom(self, part: str) -> _Judged:
        where = self._facts["inventory.sbom"].origin
        if self._facts["inventory.sbom"].problem == "no such file":
            return 1, [self._differ(part, "a bill of materials", "none", where)], ""
        try:
            bill = json.loads(self._facts.value("inventory.sbom"))
            listed = {
                (one["purl"].partition(":")[2].partition("/")[0], one["name"]): one["version"]
                for one in bill["components"] if "purl" in one
            }  # fmt: skip
            told = {p["name"]: p["value"] for p in bill["metadata"]["component"]["properties"]}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return 1, [self._differ(part, "a CycloneDX bill", repr(error), where)], ""
        found = {("deb", p["name"]): p["version"] for p in self._facts.value("inventory.system")}
        found |= {("pypi", p["name"]): p["version"] for p in self._facts.value("inventory.python")}
        differences = self._versions(part, listed, found, where)
        if told.get("chexnet:lock:sha256") != self._lock.sha256:
            line = (
                f"a bill of lock {self._lock.sha256[:12]}",
                str(told.get("chexnet:lock:sha256")),
            )
            differences.append(self._differ(part, *line, where))
        return len(found) + 1, differences, ""

    def _project(self, part: str, revision_files: Mapping[str, str] | None) -> _Judged:
        """Hold the project's files against the revision, or against the bill without it."""
        inside = dict(self._facts.value("inventory.project"))
        if revision_files is not None:
            inside.pop("chexnet/REVISION", None)
            kind, wanted, note = "git", dict(revision_files), ""
        else:
            kind, note = "sha256", "held against the bill: no commit here is that revision"
            prefix = f"{PROJECT}/"
            wanted = {
                path.removeprefix(prefix): digest
                for path, digest in self._listed_files().items() if path.startswith(prefix)
            }  # fmt: skip
            if not wanted:
                raise CannotTellError(f"neither the revision's files nor {SBOM} are at hand")
        found = {path: hashes[kind] for path, hashes in inside.items()}
        differences = [
            self._differ(part, _short(wanted.get(path)), _short(found.get(path)),
                         f"{PROJECT}/{path}")
            for path in sorted(wanted.keys() | found.keys())
            if wanted.get(path) != found.get(path) and not path.endswith(".pyc")
        ]  # fmt: skip
        return len(wanted), differences, note


def named_libraries(facts: Facts) -> list[dict[str, str | None]]:
    """Return the loaded libraries worth naming: path and owner."""
    loaded = facts["inventory.loaded"].value or []
    return [one for one in loaded if NAMED.search(one["path"])]


def _label(labels: Mapping[str, str], name: str) -> str:
    return f"{name}={labels[name]}" if labels.get(name) else "no such label"


def _short(digest: str | None) -> str:
    return f"hash {digest[:12]}" if digest else "no such file"


def _brief(value: Any, other: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return what of a value is not in another, short enough for a line."""
    if isinstance(value, dict) and isinstance(other, dict):
        value = {key: item for key, item in value.items() if other.get(key) != item}
    elif isinstance(value, list) and isinstance(other, list):
        told = [_name(item) for item in value if item not in other]
        return f"{', '.join(told[:5])}{' …' if len(told) > 5 else ''}" or "nothing more"
    text = json.dumps(value, sort_keys=True) if not isinstance(value, str) else value
    return text if len(text) <= 120 else text[:120] + " …"


def _name(item: Any) -> str:  # noqa: ANN401 - any JSON value
    if isinstance(item, dict) and "name" in item:
        return f"{item['name']} {item.get('version', '')}".strip()
    return str(item)
