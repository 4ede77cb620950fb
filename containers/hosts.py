"""The hosts of a job as the user or Slurm names them: how many ranks each gets.

Leaves what the hosts are made of to ``containers.survey`` and starting ranks there to
``containers.launchers``.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from env.errors import UserError

# What --hosts says for "those of the Slurm job that this runs in".
SLURM = "slurm"
_FIX = "write NAME:RANKS, joined by commas: --hosts node1:4,node2:4"
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")


@dataclass(frozen=True)
class HostSlots:
    """A host by the name that leads to it, and its number of ranks, at least 1."""

    name: str
    ranks: int


def parse_hosts(
    text: str, *, environ: Mapping[str, str] = os.environ, resolve: bool = True
) -> tuple[HostSlots, ...]:
    """Return the hosts of ``--hosts``, in the order in which ranks fill them; none for "".

    Args:
        text: e.g. ``"node1:4,node2:4"``, or ``"slurm"``, or ``"slurm:3"`` for the first 3 ranks.
        environ: where Slurm says what it gave.
        resolve: whether each name has to lead to an address here.

    Raises:
        UserError: a host without a number of ranks, or without ranks, or named twice, or
            whose name leads nowhere; or Slurm is meant and this is no job of it.
    """
    if not text.strip():
        return ()
    word, _, number = text.partition(":")
    of_slurm = word == SLURM and (text == SLURM or (number.isascii() and number.isdigit()))
    hosts = slurm_hosts(environ) if of_slurm else _parse(text)
    if of_slurm and number:
        return take_ranks(hosts, ranks=int(number))
    for host in hosts if resolve and not of_slurm else ():
        try:
            socket.getaddrinfo(host.name, None)
        except OSError as error:
            raise UserError(
                f"a host called {host.name!r}",
                found=f"the name leads to no address: {error}",
                fix="correct the name, or add it to /etc/hosts or DNS",
            ) from error
    return hosts


def _parse(text: str) -> tuple[HostSlots, ...]:
    hosts: dict[str, HostSlots] = {}
    for part in text.split(","):
        name, colon, number = part.strip().partition(":")
        if not _NAME.match(name):
            raise UserError("the name of a host", found=f"{name!r} in {text!r}", fix=_FIX)
        if not colon or not number.isascii() or not number.isdigit():
            found = f"{part.strip()!r}"
            raise UserError(f"a number of ranks for {name}", found=found, fix=_FIX)
        if int(number) < 1:
            fix = "leave out a host that gets none"
            raise UserError(f"at least 1 rank on {name}", found=f"{part.strip()!r}", fix=fix)
        if name in hosts:
            fix = f"name it once, with all its ranks: {name}:{hosts[name].ranks + int(number)}"
            raise UserError("each host once", found=f"{name} twice in {text!r}", fix=fix)
        hosts[name] = HostSlots(name, int(number))
    return tuple(hosts.values())


def slurm_hosts(environ: Mapping[str, str]) -> tuple[HostSlots, ...]:
    """Return the hosts of this Slurm job, each with the tasks that Slurm counts for it.

    Raises:
        UserError: this is no Slurm job, or Slurm does not say what it gave.
    """
    nodes, tasks = environ.get("SLURM_JOB_NODELIST"), environ.get("SLURM_TASKS_PER_NODE")
    if not nodes or not tasks:
        raise UserError(
            "a Slurm job, whose hosts --hosts slurm means",
            found="no SLURM_JOB_NODELIST or SLURM_TASKS_PER_NODE in the environment",
            fix="run it inside sbatch or salloc with --ntasks-per-node, or name the hosts",
        )
    try:
        done = subprocess.run(
            ["scontrol", "show", "hostnames", nodes],
            capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True, timeout=20,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        fix = "name the hosts: --hosts NAME:RANKS,…"
        raise UserError(f"the hosts in {nodes!r}", found=str(error), fix=fix) from error
    names, counts = done.stdout.split(), _task_counts(tasks)
    if len(names) != len(counts):
        found = f"{len(names)} hosts in {nodes!r}, {len(counts)} numbers in {tasks!r}"
        raise UserError("a number of tasks for each host", found=found, fix=_FIX)
    return tuple(HostSlots(name, count) for name, count in zip(names, counts, strict=True))


def take_ranks(hosts: Sequence[HostSlots], *, ranks: int) -> tuple[HostSlots, ...]:
    """Return the first so many ranks, which fill the hosts in order.

    Raises:
        UserError: there are not so many.
    """
    total = sum(host.ranks for host in hosts)
    if not 1 <= ranks <= total:
        raise UserError(f"1 to {total} of the job's ranks", found=f"{SLURM}:{ranks}",
                        fix="ask for fewer, or give the job more tasks")  # fmt: skip
    taken = []
    for host in hosts:
        here = min(host.ranks, ranks)
        ranks -= here
        if here:
            taken.append(HostSlots(host.name, here))
    return tuple(taken)


def _task_counts(text: str) -> list[int]:
    """Return ``[2, 2, 2, 1]`` for Slurm's ``"2(x3),1"``.

    Raises:
        UserError: it is not of that form.
    """
    counts: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if not match:
            raise UserError("numbers of tasks, e.g. '2(x3),1'", found=f"{text!r}", fix=_FIX)
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def total_ranks(hosts: Sequence[HostSlots], *, ranks: int | None) -> int:
    """Return the job's number of ranks: that of the hosts, with which --ranks has to agree.

    Args:
        hosts: the hosts; none for this machine alone.
        ranks: what --ranks said, None where it was left out.

    Raises:
        UserError: both were given and differ.
    """
    if not hosts:
        return 1 if ranks is None else ranks
    total = sum(host.ranks for host in hosts)
    if ranks not in (None, total):
        raise UserError(
            f"--ranks {total}, the sum over --hosts", found=f"--ranks {ranks}",
            fix="leave --ranks out, or correct one of them",
        )  # fmt: skip
    return total
