"""Compatibility facts as data: which versions go together, why, and who says so.

Knows the shape of ``rules.toml``, the names of the components, and how a set of versions is
judged. The set may be a stack at build time or what was found on a machine: the rules are
the same. Leaves the conditions to ``env.conditions``, searching to ``env.solver``, and
finding versions to the catalogue, the locks and the probes.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from env.conditions import Condition, SameAs, parse_range
from env.errors import EXIT_CANNOT_TELL, EXIT_FAILED, EXIT_GOOD, UserError, unknown_name
from env.lock import Lock
from env.names import normal_name
from env.stack import PROJECT, Stack
from env.versions import parse_version

RULES = PROJECT / "env" / "rules.toml"

# Every component a rule may speak about, and what its version is the version of.
COMPONENTS = {
    "tensorflow": "TensorFlow",
    "python": "the interpreter",
    "keras": "the package keras",
    "numpy": "the package numpy",
    "protobuf": "the package protobuf",
    "h5py": "the package h5py",
    "ml_dtypes": "the package ml-dtypes",
    "horovod": "Horovod",
    "horovod_edits": "the Horovod whose sources were edited before compiling (0: none)",
    "horovod_tensorflow": "the TensorFlow that Horovod was compiled against",
    "horovod_python": "the interpreter that Horovod was compiled for",
    "cuda": "the CUDA run-time libraries",
    "cuda_toolkit": "the CUDA whose nvcc compiled Horovod",
    "cudnn": "cuDNN",
    "nccl": "NCCL",
    "nccl_cuda": "the CUDA that NCCL was built for",
    "driver": "the NVIDIA driver that programs meet: the host's, or a cuda-compat before it",
    "kernel_driver": "the driver in the host's kernel, below a cuda-compat; else there is none",
    "compute_capability": "the GPU's generation, e.g. 9.0",
    "openmpi": "Open MPI's library",
    "pmix": "the PMIx that Open MPI uses",
    "prrte": "the PRRTE that gives Open MPI 5 its mpirun",
    "hwloc": "the hwloc that Open MPI uses",
    "slurm": "Slurm",
    "slurm_pmix": "the PMIx that Slurm's plugin was built with",
    "gcc": "the compiler of Horovod, nvcc's host compiler too",
    "cmake": "the CMake that builds Horovod",
    "glibc": "the C library",
}

HOLDS = "HOLDS"  # what the rule requires is so
BROKEN = "BROKEN"  # it is not
CANNOT_TELL = "CANNOT_TELL"  # a version that decides it is not known
DOES_NOT_APPLY = "DOES_NOT_APPLY"  # not a rule for these versions or these components

# The Python packages of a lock that are components of their own. A wheel of NVIDIA's says in
# its name which CUDA it was built for: nvidia-nccl-cu12.
_PACKAGES = {
    "numpy": "numpy", "protobuf": "protobuf", "h5py": "h5py", "ml-dtypes": "ml_dtypes",
    "nvidia-cuda-runtime-cu": "cuda", "nvidia-cudnn-cu": "cudnn", "nvidia-nccl-cu": "nccl",
}  # fmt: skip
# The distribution's packages that are components, by the start of their names: the numbers
# after it are the library's binary interface (libpmix2t64).
_SYSTEM = {
    "libopenmpi": "openmpi", "libpmix": "pmix", "libprrte": "prrte", "libhwloc": "hwloc",
    "libslurm": "slurm", "libc": "glibc", "libnccl": "nccl",
}  # fmt: skip
_SYSTEM_NAME = re.compile(r"(lib[a-z]+)\d+(?:t64)?")
FAIL, WARN = "FAIL", "WARN"  # how bad a broken rule is
_TEXTS = ("id", "reason", "fix")
_KEYS = (*_TEXTS, "when", "requires", "sources", "passes", "fails")


@dataclass(frozen=True)
class Rule:
    """One compatibility fact: where ``when`` holds, ``requires`` must hold.

    Attributes:
        id: its name, e.g. ``"cuda-12-driver"``.
        when: conditions by component; the rule is about versions that meet them all.
        requires: conditions by component that must then be met.
        reason: what goes wrong otherwise.
        sources: ids of known failures (``VER-01``), addresses of pages, and packages
            whose own metadata says it (``pkg:pypi/NAME@VERSION``).
        fix: what to do.
        passes: versions that keep the rule: its first example.
        fails: versions that break it: its second example.
        severity: ``FAIL``, or ``WARN`` where what it warns of still works.
    """

    id: str
    when: Mapping[str, Condition]
    requires: Mapping[str, Condition]
    reason: str
    sources: tuple[str, ...]
    fix: str
    passes: Mapping[str, str]
    fails: Mapping[str, str]
    severity: str = FAIL

    @property
    def components(self) -> frozenset[str]:
        """The components that the rule speaks about."""
        conditions = (*self.when.values(), *self.requires.values())
        others = {c.component for c in conditions if isinstance(c, SameAs)}
        return frozenset({*self.when, *self.requires, *others})


@dataclass(frozen=True)
class Verdict:
    """What a rule says of a set of versions: one of the four outcomes."""

    rule: Rule
    outcome: str


def judge_rules(
    versions: Mapping[str, str | None], *, rules: Iterable[Rule] | None = None
) -> tuple[Verdict, ...]:
    """Judge a set of versions by every rule.

    Args:
        versions: version by component. None: the component is there, its version unknown.
            A component that is left out is not part of the set, and no rule that speaks
            about it applies.
        rules: the rules to judge by; those of ``rules.toml`` by default.

    Returns:
        A verdict for each rule, in the file's order.

    Raises:
        UserError: a component is unknown, or a text is no version.
    """
    for component in versions:
        if component not in COMPONENTS:
            raise unknown_name("component", component, known=COMPONENTS)
    return tuple(
        Verdict(rule, _outcome(rule, versions))
        for rule in (load_rules() if rules is None else rules)
    )


def exit_code(verdicts: Iterable[Verdict]) -> int:
    """Return 1 where a rule is broken, 3 where one cannot tell, else 0.

    A rule that only warns counts for neither.
    """
    outcomes = {verdict.outcome for verdict in verdicts if verdict.rule.severity == FAIL}
    if BROKEN in outcomes:
        return EXIT_FAILED
    return EXIT_CANNOT_TELL if CANNOT_TELL in outcomes else EXIT_GOOD


def versions_of_stack(stack: Stack, *, lock: Lock) -> dict[str, str | None]:
    """Return the versions that a stack chooses and its lock makes exact.

    The driver and the GPU belong to a machine, so they are not among them; see ``machines_of``.
    """
    found: dict[str, str | None] = {
        name: version for name, version in stack.components.items() if name in COMPONENTS
    }
    edited = Path(stack.horovod.edits).stem.rpartition("-")[2]
    found["horovod_edits"] = edited or "0"
    for name in ("tensorflow", "python"):  # Horovod is compiled in the same image
        if name in found:
            found.setdefault(f"horovod_{name}", found[name])
    locked = [(p.name, p.version) for p in lock.system_packages if set(p.groups) != {"build"}]
    # Of a distribution that is not locked, those held to a version in the catalogue.
    held = [tuple(text.split("=", 1)) for text in stack.system.run if "=" in text]
    for name, version in (*held, *locked):
        match = _SYSTEM_NAME.fullmatch(name)
        if match and match[1] in _SYSTEM:
            found[_SYSTEM[match[1]]] = version
        if match and match[1] == "libnccl" and "+cuda" in version:
            found["nccl_cuda"] = version.rpartition("+cuda")[2]
    for package in lock.python:
        name, _, cuda = normal_name(package.name).partition("-cu1")
        component = _PACKAGES.get(f"{name}-cu" if cuda else name)
        if component is not None:
            found[component] = package.version
        if component == "nccl":
            found["nccl_cuda"] = f"1{cuda}"
    return found


def machines_of(stack: Stack) -> tuple[dict[str, str], ...]:
    """Return the machines that a stack promises to serve: driver and GPU; one empty for CPUs."""
    return tuple(
        {"driver": gpu.driver, "compute_capability": gpu.compute_capability} for gpu in stack.gpus
    ) or ({},)


def judge_stack(
    stack: Stack, *, lock: Lock, rules: Iterable[Rule] | None = None
) -> tuple[Verdict, ...]:
    """Judge a stack by every rule, on each machine that it promises to serve.

    Returns:
        The worst verdict of each rule, in the file's order.
    """
    rules = load_rules() if rules is None else tuple(rules)
    versions = versions_of_stack(stack, lock=lock)
    each = [judge_rules(versions | machine, rules=rules) for machine in machines_of(stack)]
    worst = (BROKEN, CANNOT_TELL, HOLDS, DOES_NOT_APPLY)
    return tuple(
        min(said, key=lambda verdict: worst.index(verdict.outcome))
        for said in zip(*each, strict=True)
    )


def load_rules(path: Path = RULES) -> tuple[Rule, ...]:
    """Read the rules.

    Args:
        path: a TOML file in the shape of ``env/rules.toml``.

    Raises:
        UserError: the file is missing, is not TOML, or a rule has an unknown key, misses one,
            or names an unknown component; file, rule and key are named.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError("a file of rules", found=f"{path}: {error.strerror}",
                        fix="restore it: git checkout env/rules.toml") from error  # fmt: skip
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError("a TOML file", found=f"{path}: {error}",
                        fix="correct the line named") from error  # fmt: skip
    if data.get("schema_version") != 1 or set(data) - {"schema_version", "rules"}:
        raise UserError("schema_version = 1 and rules, nothing else",
                        found=f"{path}: {', '.join(sorted(data))}",
                        fix="use rules of this release")  # fmt: skip
    raw = data.get("rules")
    if not isinstance(raw, list) or not all(isinstance(table, dict) for table in raw):
        raise _wrong(path, "the file", "rules", "a list of tables: [[rules]]")
    rules = tuple(_rule(path, table, number) for number, table in enumerate(raw, start=1))
    for name, times in Counter(rule.id for rule in rules).items():
        if times > 1:
            raise _wrong(path, f"rule {name!r}", "id", "a name that no other rule has")
    return rules


def _outcome(rule: Rule, versions: Mapping[str, str | None]) -> str:
    if not rule.components <= versions.keys():
        return DOES_NOT_APPLY
    concerned = _all_hold(rule.when, versions)
    if concerned is False:
        return DOES_NOT_APPLY
    met = _all_hold(rule.requires, versions)
    if met is None or (concerned is None and not met):
        return CANNOT_TELL
    return HOLDS if met else BROKEN


def _all_hold(
    conditions: Mapping[str, Condition], versions: Mapping[str, str | None]
) -> bool | None:
    """Return False where one fails, else None where one cannot be told, else True."""
    answers = []
    for component, condition in conditions.items():
        found = versions[component]
        answers.append(None if found is None else condition.holds(found, versions))
    return False if False in answers else None if None in answers else True


def _wrong(path: Path, rule: str, key: str, expected: str) -> UserError:
    return UserError(expected, found=f"{path}: {rule}: key {key!r}", fix=f"correct {key!r}")


def _rule(path: Path, table: Mapping[str, Any], number: int) -> Rule:
    name = f"rule {table.get('id', number)!r}"
    for key in table:
        if key not in (*_KEYS, "severity"):
            raise _wrong(path, name, key, f"a known key: {', '.join((*_KEYS, 'severity'))}")
    for key in _TEXTS:
        if not isinstance(table.get(key), str) or not table[key].strip():
            raise _wrong(path, name, key, "a text")
    sources = table.get("sources")
    if not isinstance(sources, list) or not sources or not all(map(_is_source, sources)):
        raise _wrong(
            path,
            name,
            "sources",
            "ids such as VER-01, addresses (https://…) and packages (pkg:pypi/NAME@VERSION)",
        )
    conditions, examples = {}, {}
    for key in ("when", "requires", "passes", "fails"):
        if not isinstance(table.get(key), dict) or not table[key]:
            raise _wrong(path, name, key, "a table of components")
        for component, value in table[key].items():
            where = f"{key}.{component}"
            if component not in COMPONENTS:
                raise _wrong(path, name, where, f"a component: {', '.join(COMPONENTS)}")
            if key in {"when", "requires"}:
                conditions.setdefault(key, {})[component] = _condition(path, name, where, value)
            else:
                examples.setdefault(key, {})[component] = _version(path, name, where, value)
    severity = table.get("severity", FAIL)
    if severity not in (FAIL, WARN):
        raise _wrong(path, name, "severity", f"{FAIL} or {WARN}")
    texts = {key: table[key] for key in _TEXTS}
    return Rule(**texts, **conditions, **examples, sources=tuple(sources), severity=severity)


def _is_source(text: object) -> bool:
    """Whether this is an address, or an id such as VER-01."""
    if not isinstance(text, str):
        return False
    letters, _, digits = text.partition("-")
    return text.startswith(("https://", "pkg:")) or (letters.isupper() and digits.isdigit())


def _condition(path: Path, rule: str, where: str, value: object) -> Condition:
    if isinstance(value, str):
        try:
            return parse_range(value)
        except UserError as error:
            raise _wrong(path, rule, where, error.expected) from error
    known = isinstance(value, dict) and set(value) == {"same_as", "numbers"}
    if known and value["same_as"] in tuple(COMPONENTS) and value["numbers"] in (1, 2, 3):
        return SameAs(value["same_as"], value["numbers"])
    raise _wrong(path, rule, where, 'a range, or { same_as = "COMPONENT", numbers = 1, 2 or 3 }')


def _version(path: Path, rule: str, where: str, value: object) -> str:
    try:
        return str(parse_version(value if isinstance(value, str) else ""))
    except UserError as error:
        raise _wrong(path, rule, where, "a version in quotes") from error
