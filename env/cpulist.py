"""CPU lists as Linux writes them (``0-3,8``): to numbers and back. Nothing else."""

from __future__ import annotations

from collections.abc import Iterable

MAX_CPUS = 2**16  # far more than any kernel is built for: what names more is no such list


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Return the CPU ids of a list such as ``"0-3,8"``, ascending: ``(0, 1, 2, 3, 8)``.

    ``"none"`` is the list without any, as ``render_cpu_list`` writes it.

    Raises:
        ValueError: the text is not such a list.
    """
    cpus: set[int] = set()
    text = text.strip()
    for part in filter(None, text.split(",")) if text != "none" else ():
        first, _, last = part.partition("-")
        if int(last or first) >= MAX_CPUS:
            raise ValueError(f"a CPU of number {last or first}")
        cpus.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(cpus))


def render_cpu_list(cpus: Iterable[int]) -> str:
    """Return CPU ids in Linux's short form, ``"none"`` where there are none."""
    runs: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs) or "none"
