"""Which versions go together: an exact search over every version that the rules name.

Answers with the versions that can be part of a set which breaks no rule, or with the
smallest set of rules that cannot be kept together. Leaves judging to ``env.rules``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from env.conditions import Condition, Range, SameAs
from env.errors import UserError, unknown_name
from env.rules import COMPONENTS, FAIL, Rule, load_rules
from env.versions import Version, parse_version

# Decided in this order, so that TensorFlow is the last to be an old one.
_ORDER = tuple(COMPONENTS)
# Most machines have none: it is part of a set only where it was asked for.
_SELDOM = frozenset({"kernel_driver"})
# Of edits to Horovod 0 says that there are none; elsewhere it is short for all that begin with it.
_NONE = ("horovod_edits", "0")
_CAPABILITY = re.compile(r"1?\d(\.\d)?")
# The versions tried for each component.
Domains = Mapping[str, Sequence[str]]
# One of these components has one of these versions (bits).
_Clause = dict[str, int]


@dataclass(frozen=True)
class Solution:
    """What the search found.

    Attributes:
        wanted: the versions asked for, by component.
        newest: one set that breaks no rule, newer versions preferred; None where there is none.
        choices: for each component the versions that are part of at least one such set.
        conflict: the smallest set of rules that cannot be kept together; empty where
            a set was found.
        unnamed: the components wanted in a version that no rule and no other set names.
    """

    wanted: Mapping[str, str]
    newest: Mapping[str, str] | None
    choices: Mapping[str, tuple[str, ...]]
    conflict: tuple[Rule, ...]
    unnamed: tuple[str, ...] = ()


def parse_wanted(text: str) -> dict[str, str]:
    """Read ``"tensorflow=2.18 driver=535"``.

    Raises:
        UserError: a part is not COMPONENT=VERSION, or the component is unknown or there twice.
    """
    wanted = {}
    for part in text.replace(",", " ").split():
        component, equals, version = part.partition("=")
        if not equals:
            raise UserError("COMPONENT=VERSION, such as tensorflow=2.18", found=repr(part),
                            fix="join the two by one ="  )  # fmt: skip
        if component not in COMPONENTS:
            raise unknown_name("component", component, known=COMPONENTS)
        if component in wanted:
            raise UserError("each component once", found=f"{component} twice: {text!r}",
                            fix="ask one question for each of its versions")  # fmt: skip
        if component == "compute_capability" and not _CAPABILITY.fullmatch(version):
            raise UserError("a compute capability such as 9.0", found=repr(version),
                            fix="write a dot before the last digit: sm_90 is 9.0")  # fmt: skip
        wanted[component] = str(parse_version(version))
    if not wanted:
        raise UserError("one COMPONENT=VERSION or more", found="nothing",
                        fix='ask for example: --solve "tensorflow=2.18 driver=535"')  # fmt: skip
    return wanted


def solve(
    wanted: Mapping[str, str],
    *,
    rules: Iterable[Rule] | None = None,
    others: Iterable[Mapping[str, str | None]] = (),
) -> Solution:
    """Search for versions that go together with those wanted.

    Searched are the components that rules tie to a wanted one, over any number of steps: the
    compiler is tied to a driver by nvcc, and that by TensorFlow's CUDA. A wanted version stands
    for all that begin with it: 2.18 for 2.18.1. A rule that only warns forbids nothing.

    Args:
        wanted: version by component.
        rules: the rules to keep; those of ``rules.toml`` by default.
        others: further sets whose versions are tried, such as those of the stacks.
    """
    every = binding_rules(wanted, rules=rules)
    tied, before = frozenset(wanted), frozenset()
    while tied != before:
        tied, before = tied_to(tied, rules=every), tied
    kept = tuple(rule for rule in every if rule.components <= tied)
    named = _named(every, others)
    unnamed = _add_wanted(named, wanted, rules=every)
    domains = {name: _tried(name, wanted.get(name), named) for name in sorted(tied)}
    search = _Search(domains, kept)
    masks = search.everything()
    newest = search.first(masks, kept)
    if newest is None:
        return Solution(wanted, None, {}, _smallest_conflict(search, kept), unnamed)
    possible = set(newest.items())
    for name, tried in domains.items():
        for version in tried:
            if (name, version) not in possible:
                pinned = {**masks, name: search.mask(name, (version,))}
                possible.update((search.first(pinned, kept) or {}).items())
    choices = {
        name: tuple(version for version in tried if (name, version) in possible)
        for name, tried in domains.items()
    }
    return Solution(wanted, newest, choices, (), unnamed)


def binding_rules(
    wanted: Iterable[str], *, rules: Iterable[Rule] | None = None
) -> tuple[Rule, ...]:
    """Return the rules that a set must keep: none that only warns, none of what it has not got.

    Args:
        wanted: the components asked for.
        rules: to choose from; those of ``rules.toml`` by default.
    """
    absent = _SELDOM - set(wanted)
    every = load_rules() if rules is None else rules
    return tuple(r for r in every if r.severity == FAIL and not r.components & absent)


def is_version_of(text: str, wanted: str, *, component: str) -> bool:
    """Whether a version is one of those that a wanted one stands for: 2.18.1 of 2.18."""
    if (component, wanted) == _NONE:
        return text == wanted
    return parse_version(text).has_prefix(wanted)


def tied_to(components: Iterable[str], *, rules: Iterable[Rule]) -> frozenset[str]:
    """Return the components, and those that a rule speaks about together with one of them."""
    start = frozenset(components)
    return start.union(*(rule.components for rule in rules if rule.components & start))


def _named(
    rules: Iterable[Rule], others: Iterable[Mapping[str, str | None]]
) -> dict[str, set[str]]:
    """Return every version that rules and other sets name, upper limits left out.

    What is only named as ``<2.22`` need not exist, and no rule would speak about it. A lower
    limit such as 2.18 is left out where a version of it, such as 2.18.1, is named.
    """
    named: dict[str, set[str]] = {name: set() for name in COMPONENTS}
    sets = [*others, *(example for rule in rules for example in (rule.passes, rule.fails))]
    for versions in sets:
        for component, version in versions.items():
            if version is not None:
                named[component].add(version)
    conditions = [item for rule in rules for item in rule.requires.items()]
    for component, condition in conditions:
        if isinstance(condition, Range):
            limits = dict(condition.comparisons)
            named[component].update(
                str(limits[sign])
                for sign in (">=", "==")
                if sign in limits and not _has_version_of(limits[sign], named[component])
            )
    for component, condition in conditions:
        if isinstance(condition, SameAs):
            named[component] |= named[condition.component]
    return named


def _add_wanted(
    named: Mapping[str, set[str]], wanted: Mapping[str, str], *, rules: Iterable[Rule]
) -> tuple[str, ...]:
    """Have what is wanted tried, and by each component whose version must be the same.

    Without that, no Horovod could have been built for a TensorFlow that no rule names.

    Returns:
        The wanted components of which no version named is one.
    """
    pairs = [
        {component, condition.component}
        for rule in rules
        for component, condition in rule.requires.items()
        if isinstance(condition, SameAs)
    ]
    unnamed = []
    for component, version in wanted.items():
        texts = {t for t in named[component] if is_version_of(t, version, component=component)}
        if not texts:
            unnamed.append(component)
            texts = {version}
        same, before = {component}, set()
        while same != before:
            before = same
            same = same.union(*(pair for pair in pairs if pair & same))
        for name in same:
            named[name].update(texts)
    return tuple(unnamed)


def _has_version_of(limit: Version, named: Iterable[str]) -> bool:
    return any(parse_version(text).has_prefix(str(limit)) for text in named)


def _tried(component: str, wanted: str | None, named: Mapping[str, set[str]]) -> tuple[str, ...]:
    """Return the versions to try for a component, newest first, equal ones once."""
    distinct = {parse_version(text): text for text in sorted(named[component]) if text != "0"}
    if component == "horovod_edits":
        distinct[parse_version("0")] = "0"
    fitting = [
        version
        for version, text in distinct.items()
        if wanted is None or is_version_of(text, wanted, component=component)
    ]
    if not fitting and wanted is not None:
        return (wanted,)
    return tuple(distinct[version] for version in sorted(fitting, reverse=True))


class _Search:
    """The rules as clauses over the versions tried, so that one look at a clause prunes.

    A rule says: where all conditions of ``when`` hold, each of ``requires`` holds. For each of
    the latter that is a clause: one of these components has one of these versions. The versions
    of a component are the bits of a number, the newest the lowest bit.
    """

    def __init__(self, domains: Domains, rules: Iterable[Rule]) -> None:
        self._versions = {name: tuple(tried) for name, tried in domains.items()}
        self._clauses = {rule.id: self._compile(rule) for rule in rules}

    def mask(self, name: str, versions: Iterable[str]) -> int:
        """Return some versions of a component as bits."""
        return sum(1 << self._versions[name].index(version) for version in versions)

    def everything(self) -> dict[str, int]:
        """Return all versions of all components."""
        return {name: (1 << len(tried)) - 1 for name, tried in self._versions.items()}

    def first(self, masks: Mapping[str, int], rules: Iterable[Rule]) -> dict[str, str] | None:
        """Return the first set among these versions that breaks no rule, or None."""
        clauses = [clause for rule in rules for clause in self._clauses[rule.id]]
        found = self._decide(dict(masks), clauses)
        if found is None:
            return None
        return {name: self._versions[name][mask.bit_length() - 1] for name, mask in found.items()}

    def _decide(self, masks: dict[str, int], clauses: list[_Clause]) -> dict[str, int] | None:
        open_ = self._propagate(masks, clauses)
        if open_ is None:
            return None
        # What no clause is open about may be anything: the newest.
        named = {name for clause in open_ for name in clause}
        undecided = [name for name in named if masks[name] & (masks[name] - 1)]
        if not undecided:
            return {name: mask & -mask for name, mask in masks.items()}
        name = min(undecided, key=_ORDER.index)
        rest = masks[name]
        while rest:
            version = rest & -rest
            found = self._decide({**masks, name: version}, open_)
            if found is not None:
                return found
            rest ^= version
        return None

    @staticmethod
    def _propagate(masks: dict[str, int], clauses: list[_Clause]) -> list[_Clause] | None:
        """Strike what a clause with one way left forbids; return the clauses still open.

        None where nothing is left of a component.
        """
        changed = True
        while changed:
            changed, open_ = False, []
            for clause in clauses:
                ways = [name for name, allowed in clause.items() if masks[name] & allowed]
                if not ways:
                    return None
                if len(ways) == 1:
                    (name,) = ways
                    left = masks[name] & clause[name]
                    changed |= left != masks[name]
                    masks[name] = left
                elif all(masks[name] & ~clause[name] for name in ways):
                    open_.append(clause)
            clauses = open_
        return clauses

    def _compile(self, rule: Rule) -> list[_Clause]:
        escapes: list[_Clause] = [{}]
        for name, condition in rule.when.items():
            escapes = [
                _either(clause, one)
                for clause in escapes
                for one in self._literals(name, condition, holds=False)
            ]
        return [
            _either(clause, literal)
            for clause in escapes
            for name, condition in rule.requires.items()
            for literal in self._literals(name, condition, holds=True)
        ]

    def _literals(self, name: str, condition: Condition, *, holds: bool) -> list[_Clause]:
        """Return clauses, all of which say that a condition holds, or that it does not."""
        tried = self._versions[name]
        if isinstance(condition, Range):
            chosen = [text for text in tried if condition.holds(text, {}) is holds]
            return [{name: self.mask(name, chosen)}]
        other = condition.component
        clauses = []
        for text in self._versions[other]:
            fitting = [one for one in tried if condition.holds(one, {other: text}) is holds]
            without = [one for one in self._versions[other] if one != text]
            clauses.append({name: self.mask(name, fitting), other: self.mask(other, without)})
        return clauses


def _either(one: _Clause, other: _Clause) -> _Clause:
    """Return the clause that says: the one or the other."""
    return {name: one.get(name, 0) | other.get(name, 0) for name in {**one, **other}}


def _smallest_conflict(search: _Search, rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Return the fewest rules that no set of the domains keeps together.

    Every conflict holds a rule of each correction, which is a set of rules without which the
    others can be kept. So the fewest rules that meet all corrections found so far are the
    answer once they conflict, and lead to a further correction as long as they do not.
    """

    def fails(some: Iterable[int]) -> bool:
        return search.first(search.everything(), [rules[index] for index in some]) is None

    corrections: list[frozenset[int]] = []
    while True:
        fewest = _fewest_that_meet(corrections)
        if fails(fewest):
            return tuple(rules[index] for index in sorted(fewest))
        kept = set(fewest)
        for index in range(len(rules)):
            if index not in kept and not fails({*kept, index}):
                kept.add(index)
        corrections.append(frozenset(range(len(rules))) - kept)


def _fewest_that_meet(sets: Sequence[frozenset[int]]) -> frozenset[int]:
    """Return a smallest set that has a member in each of some sets."""
    found, size = _meeting(sets, most=0), 0
    while found is None:
        size += 1
        found = _meeting(sets, most=size)
    return found


def _meeting(sets: Sequence[frozenset[int]], *, most: int) -> frozenset[int] | None:
    if not sets:
        return frozenset()
    if most == 0:
        return None
    for member in sorted(sets[0]):
        rest = [one for one in sets if member not in one]
        found = _meeting(rest, most=most - 1)
        if found is not None:
            return found | {member}
    return None
