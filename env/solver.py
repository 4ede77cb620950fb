"""Which versions go together: an exact search over every version that the rules name.

Answers with the versions that can be part of a set which breaks no rule, or with the
smallest set of rules that cannot be kept together. Leaves judging to ``env.rules``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from env.conditions import Range, SameAs
from env.errors import UserError, unknown_name
from env.rules import BROKEN, COMPONENTS, FAIL, Rule, judge_rules, load_rules
from env.versions import Version, parse_version

# Decided in this order, so that TensorFlow is the last to be an old one.
_ORDER = tuple(COMPONENTS)
# The versions tried for each component.
Domains = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Solution:
    """What the search found.

    Attributes:
        wanted: the versions asked for, by component.
        newest: one set that breaks no rule, newer versions preferred; None where there is none.
        choices: for each component the versions that are part of at least one such set.
        conflict: the smallest set of rules that cannot be kept together; empty where
            a set was found.
    """

    wanted: Mapping[str, str]
    newest: Mapping[str, str] | None
    choices: Mapping[str, tuple[str, ...]]
    conflict: tuple[Rule, ...]


def parse_wanted(text: str) -> dict[str, str]:
    """Read ``"tensorflow=2.18 driver=535"``.

    Raises:
        UserError: a part is not COMPONENT=VERSION, or the component is unknown.
    """
    wanted = {}
    for part in text.replace(",", " ").split():
        component, equals, version = part.partition("=")
        if not equals:
            raise UserError("COMPONENT=VERSION, such as tensorflow=2.18", found=repr(part),
                            fix="join the two by one ="  )  # fmt: skip
        if component not in COMPONENTS:
            raise unknown_name("component", component, known=COMPONENTS)
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

    Searched are the components that some rule ties to a wanted one. A wanted version stands
    for all that begin with it: 2.18 for 2.18.1. A rule that only warns forbids nothing.

    Args:
        wanted: version by component.
        rules: the rules to keep; those of ``rules.toml`` by default.
        others: further sets whose versions are tried, such as those of the stacks.
    """
    every = tuple(load_rules() if rules is None else rules)
    every = tuple(rule for rule in every if rule.severity == FAIL)
    tied = set(wanted).union(*(rule.components for rule in every if rule.components & set(wanted)))
    kept = tuple(rule for rule in every if rule.components <= tied)
    named = _named(every, others)
    domains = {name: _tried(name, wanted.get(name), named) for name in sorted(tied)}
    search = _Search()
    newest = search.first(domains, kept)
    if newest is None:
        return Solution(wanted, None, {}, _smallest_conflict(search, domains, kept))
    possible = set(newest.items())
    for name, tried in domains.items():
        for version in tried:
            if (name, version) not in possible:
                found = search.first({**domains, name: (version,)}, kept) or {}
                possible.update(found.items())
    choices = {
        name: tuple(version for version in tried if (name, version) in possible)
        for name, tried in domains.items()
    }
    return Solution(wanted, newest, choices, ())


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


def _has_version_of(limit: Version, named: Iterable[str]) -> bool:
    return any(parse_version(text).has_prefix(str(limit)) for text in named)


def _tried(component: str, wanted: str | None, named: Mapping[str, set[str]]) -> tuple[str, ...]:
    """Return the versions to try for a component, newest first, equal ones once."""
    distinct = {parse_version(text): text for text in sorted(named[component]) if text != "0"}
    if component == "horovod_edits":
        distinct[parse_version("0")] = "0"
    fitting = [version for version in distinct if wanted is None or version.has_prefix(wanted)]
    if not fitting and wanted is not None:
        return (wanted,)
    return tuple(distinct[version] for version in sorted(fitting, reverse=True))


class _Search:
    """A search that remembers which choices break which rule."""

    def __init__(self) -> None:
        self._broken: dict[tuple[str, ...], bool] = {}

    def first(self, domains: Domains, rules: Sequence[Rule]) -> dict[str, str] | None:
        """Return the first set of the domains that breaks no rule, or None."""
        narrowed = self._narrow(dict(domains), rules)
        if narrowed is None:
            return None
        undecided = [name for name, tried in narrowed.items() if len(tried) > 1]
        if not undecided:
            return {name: tried[0] for name, tried in narrowed.items()}
        name = min(undecided, key=_ORDER.index)
        for version in narrowed[name]:
            found = self.first({**narrowed, name: (version,)}, rules)
            if found is not None:
                return found
        return None

    def _narrow(
        self, domains: dict[str, Sequence[str]], rules: Sequence[Rule]
    ) -> dict[str, Sequence[str]] | None:
        """Strike what a rule with one undecided component forbids; None where nothing is left."""
        before = None
        while before != (before := {name: len(tried) for name, tried in domains.items()}):
            for rule in rules:
                undecided = [name for name in rule.components if len(domains[name]) > 1]
                if len(undecided) > 1:
                    continue
                name = undecided[0] if undecided else min(rule.components)
                chosen = {one: domains[one][0] for one in rule.components}
                domains[name] = tuple(
                    version
                    for version in domains[name]
                    if not self._is_broken(rule, {**chosen, name: version})
                )
                if not domains[name]:
                    return None
        return domains

    def _is_broken(self, rule: Rule, chosen: Mapping[str, str]) -> bool:
        key = (rule.id, *(chosen[name] for name in sorted(chosen)))
        if key not in self._broken:
            (verdict,) = judge_rules(chosen, rules=(rule,))
            self._broken[key] = verdict.outcome == BROKEN
        return self._broken[key]


def _smallest_conflict(
    search: _Search, domains: Domains, rules: Sequence[Rule]
) -> tuple[Rule, ...]:
    """Return the fewest rules that no set of the domains keeps together.

    Every conflict holds a rule of each correction, which is a set of rules without which the
    others can be kept. So the fewest rules that meet all corrections found so far are the
    answer once they conflict, and lead to a further correction as long as they do not.
    """

    def fails(some: Iterable[int]) -> bool:
        kept = [rules[index] for index in some]
        names = {name for rule in kept for name in rule.components}
        return search.first({name: domains[name] for name in names}, kept) is None

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
