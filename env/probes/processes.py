"""Whose the processes are that a GPU holds.

The driver names them by the host's numbers, which mean nothing inside a process namespace:
then nobody can be named. Knows /proc. Leaves judging to the checks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from env.facts import Fact
from env.probes.launch import RANK_VARIABLES

# The number of the first process namespace of a kernel (PROC_PID_INIT_INO in proc_ns.h).
_FIRST_NAMESPACE = "pid:[4026531836]"


def probe_processes(
    root: Path = Path("/"), *, pids: Iterable[int], environ: Mapping[str, str] = os.environ
) -> Fact:
    """Return ``{attributable, known: {pid: {name, state, uid, ours}}}``.

    ``attributable`` is None where the numbers are this host's and every process is shown,
    else the reason why a missing one may be alive. ``ours`` are this process, those it
    started and, under a launcher, all that the launcher started on this host.

    Args:
        root: the folder in which /proc lies.
        pids: the numbers that the driver names.
        environ: the process's environment.
    """
    proc = root / "proc"
    reason = _hidden(proc)
    first = _parent(proc, os.getpid()) if _is_rank(environ) else os.getpid()
    known = {}
    for pid in pids if reason is None or "hides" in reason else ():
        seen = _describe(proc, pid)
        if seen:
            known[str(pid)] = seen | {"ours": first in _line(proc, pid)}
    return Fact({"attributable": reason, "known": known}, str(proc))


def _hidden(proc: Path) -> str | None:
    try:
        namespace = str((proc / "self/ns/pid").readlink())
    except OSError as error:
        return f"the process namespace is not known: {error.strerror}"
    if namespace != _FIRST_NAMESPACE:
        return "this is a process namespace of its own, and the driver counts in the host's"
    try:
        mounts = (proc / "mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    options = [line.split()[3] for line in mounts if line.split()[1:3] == ["/proc", "proc"]]
    hides = any(re.search(r"hidepid=(?!0|off)", text) for text in options)
    return "/proc hides the processes of others (hidepid)" if hides and os.geteuid() else None


def _is_rank(environ: Mapping[str, str]) -> bool:
    return any(name in environ for name in RANK_VARIABLES)


def _describe(proc: Path, pid: int) -> dict[str, Any] | None:
    try:
        text = (proc / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    state, uid = fields.get("State", "?").split(), fields.get("Uid", "-1").split()
    name = "".join(c if c.isprintable() else "?" for c in fields.get("Name", "?").strip())
    return {"name": name, "state": state[0] if state else "?", "uid": int(uid[0])}


def _parent(proc: Path, pid: int) -> int:
    try:
        # The name may hold blanks and brackets: what follows its last bracket does not.
        text = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        return int(text.rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _line(proc: Path, pid: int) -> Iterator[int]:
    """Yield a process and all it descends from."""
    seen: set[int] = set()
    while pid > 1 and pid not in seen:
        yield pid
        seen.add(pid)
        pid = _parent(proc, pid)
