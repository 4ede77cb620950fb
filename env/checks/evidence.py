"""Evidence: all that a check may look at. Knows how to ask it; leaves judging to the checks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from env.binding import BindingPlan, RankBinding
from env.facts import CannotTellError, Facts
from env.lock import Lock
from env.site import Site


@dataclass(frozen=True)
class Evidence:
    """What was observed, and what it is held against.

    Attributes:
        facts: of the static phase: this process on this host.
        num_ranks: how many ranks the training is to have.
        ranks: the facts of every rank that reported; empty in the static phase.
        lock: what must be installed, None where no lock is at hand.
        plan: where each rank should run, None where nobody made one.
        device: what the user asked to train on: ``auto``, ``cpu`` or ``gpu``.
        stack_device: what the stack was made for: ``cpu`` or ``gpu``; None if unknown.
        site: what the site expects of its nodes, None where it said nothing.
    """

    facts: Facts
    num_ranks: int = 1
    ranks: Mapping[int, Facts] = field(default_factory=dict)
    lock: Lock | None = None
    plan: BindingPlan | None = None
    device: str = "auto"
    stack_device: str | None = "cpu"
    site: Site | None = None

    @property
    def wants_gpu(self) -> bool:
        """Whether the training will compute on GPUs.

        Raises:
            CannotTellError: the device follows the stack, and the stack is unknown.
        """
        if self.device == "auto" and self.stack_device is None:
            raise CannotTellError("--device auto follows the stack, and no stack is known")
        return (self.stack_device if self.device == "auto" else self.device) == "gpu"

    @cached_property
    def ranks_a_host(self) -> int:
        """How many ranks share one host at most: all of them where no plan says otherwise."""
        hosts = self.plan.hosts.values() if self.plan else ()
        return max(map(len, hosts), default=self.num_ranks)

    @cached_property
    def num_hosts(self) -> int:
        """How many hosts the ranks are on, by the plan or by their records; at least 1."""
        planned = self.plan.hosts if self.plan else {}
        return max(1, len(planned), len({self.host_of(rank) for rank in self.ranks}))

    @cached_property
    def plan_names(self) -> dict[str, list[str]]:
        """What the plan calls hosts, by what they call themselves, e.g. node2.cluster.local.

        The plan's are the names that lead to them, and a scheduler knows no others. This host,
        where none of its ranks reported, is the one of the plan that is alike up to the first dot.
        """
        names: dict[str, list[str]] = {}
        for rank, facts in self.reported.items():
            if rank in self.planned():
                own = str(facts["host.name"].value)
                names.setdefault(own, []).append(self.planned()[rank].host)
        here = str(self.facts["host.name"].value)
        short = here.partition(".")[0]
        planned = self.plan.hosts if self.plan else {}
        names.setdefault(here, [name for name in planned if name.partition(".")[0] == short][:1])
        return names

    @cached_property
    def reported(self) -> dict[int, Facts]:
        """The facts of each rank whose record could be read, in the order of the ranks."""
        return {
            rank: facts for rank, facts in sorted(self.ranks.items()) if "rank.record" not in facts
        }

    @cached_property
    def other_hosts(self) -> dict[str, int]:
        """The rank that looked at each other host for the static checks, by the host's name."""
        return {
            self.host_of(rank): rank
            for rank, facts in self.ranks.items()
            if facts["rank.of_host"].value
        }

    @cached_property
    def looks(self) -> dict[int, Mapping[str, int]]:
        """For each rank's record a number by fact: the same number for what is equal."""
        numbers: dict[str | int, int] = {}
        return {rank: _Looks(facts, numbers) for rank, facts in self.ranks.items()}

    def at(self, facts: Facts) -> Evidence:
        """Return this evidence as another host has it, which told these facts."""
        other = replace(self, facts=facts)
        for name in ("ranks_a_host", "num_hosts", "reported"):
            other.__dict__[name] = getattr(self, name)  # counted once, not once a host
        return other

    def need_lock(self) -> Lock:
        """Return the lock.

        Raises:
            CannotTellError: there is none.
        """
        if self.lock is None:
            raise CannotTellError("no lock file to compare with: give --lock FILE or --stack S")
        return self.lock

    def locked(self, component: str) -> str:
        """Return the locked version of a component.

        Raises:
            CannotTellError: there is no lock, or it does not name the component.
        """
        version = self.need_lock().components.get(component)
        if version is None:
            raise CannotTellError(f"the lock names no version of {component}")
        return version

    def of_ranks(self, key: str) -> dict[int, Any]:
        """Return a fact's value of every rank that reported.

        Raises:
            CannotTellError: no rank reported, or some could not read the fact; it names them,
                and the registry judges the others.
        """
        if not self.reported:
            raise CannotTellError("no rank reported")
        values, unread = {}, {}
        for rank, facts in self.reported.items():
            try:
                values[rank] = facts.value(key)
            except CannotTellError as error:
                unread[rank] = str(error)
        if unread:
            text = "; ".join(f"rank {rank}: {why}" for rank, why in unread.items())
            raise CannotTellError(text, ranks=unread)
        return values

    def without(self, ranks: Iterable[int]) -> Evidence:
        """Return this evidence as if some ranks had not reported."""
        left_out = set(ranks)
        kept = {rank: facts for rank, facts in self.ranks.items() if rank not in left_out}
        return replace(self, ranks=kept)

    def known_of_ranks(self, key: str) -> dict[int, Any]:
        """Return a fact's value of the ranks that could read it."""
        facts = {rank: facts[key] for rank, facts in self.reported.items()}
        return {rank: fact.value for rank, fact in facts.items() if fact.problem is None}

    def planned(self) -> dict[int, RankBinding]:
        """Return the plan by rank; empty without a plan."""
        return self.plan.by_rank if self.plan else {}

    def host_of(self, rank: int) -> str:
        """Return the name of a rank's host, ``"an unknown host"`` where nobody knows."""
        if rank in self.ranks and self.ranks[rank]["host.name"].value:
            return str(self.ranks[rank]["host.name"].value)
        planned = self.planned().get(rank)
        return planned.host if planned else "an unknown host"


class _Looks(dict[str, int]):
    """Numbers for the facts of a record, made when they are asked for."""

    def __init__(self, facts: Facts, numbers: dict[str | int, int]) -> None:
        super().__init__()
        self._facts, self._numbers = facts, numbers

    def __missing__(self, key: str) -> int:
        fact, numbers = self._facts[key], self._numbers
        # Records share what is equal in them: most facts are the very ones of another rank.
        number = numbers.get(id(fact)) if key in self._facts else None
        if number is None:
            text = json.dumps([fact.value, fact.problem], default=repr)
            number = numbers[id(fact)] = numbers.setdefault(text, len(numbers))
        self[key] = number
        return number
