"""Draws a binding plan as SVG: sockets, memory nodes, cores, GPUs, and which rank has what.

Knows how to lay boxes into boxes. A rank is told by its number as well as its colour, and the
picture follows the reader's light or dark theme. Leaves the plan to ``env.binding``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from env.binding import BindingPlan, RankBinding
from env.cpulist import render_cpu_list
from env.topology import Core, Gpu, HostTopology

CELL_WIDTH, CELL_HEIGHT, GAP, PAD = 30, 22, 4, 10
GPU_WIDTH, GPU_HEIGHT, LINE = 150, 36, 20
MAX_COLUMNS = 14
# Black text reads on all of them, in either theme.
COLOURS = ("#f4b860", "#7cc4f0", "#6fcf97", "#f2e36b", "#b9aef5", "#f39c7d", "#eba6cf", "#9adbd4")

STYLE = """
svg { --page: #ffffff; --ink: #1b1f24; --soft: #5a6470; --line: #9aa4af; --box: #f3f5f7; }
@media (prefers-color-scheme: dark) {
  svg { --page: #14181d; --ink: #e8ecf0; --soft: #a3adb8; --line: #5c6773; --box: #1f262d; }
}
text { font: 12px system-ui, sans-serif; fill: var(--ink); }
.page { fill: var(--page); }
.box { fill: var(--box); stroke: var(--line); }
.title { font-weight: 600; }
.soft { fill: var(--soft); }
.free { fill: none; stroke: var(--line); }
.barred { fill: none; stroke: var(--line); stroke-dasharray: 2 3; }
.on { fill: #111111; }
.small { font-size: 10px; }
.mid { text-anchor: middle; }
"""


@dataclass(frozen=True)
class Block:
    """A part of the picture: its size in pixels, and its drawing from the corner at 0, 0."""

    width: int
    height: int
    svg: str


def render_picture(plan: BindingPlan, topology: HostTopology) -> str:
    """Return an SVG of one host's part of a plan.

    Args:
        plan: its ranks on other hosts are left out.
        topology: the host.
    """
    ranks = plan.hosts.get(topology.host, ())
    head = _text(f"{topology.host}: {_count(len(ranks), 'rank')}", css="title")
    parts = [head, _machine(ranks, topology), _legend(ranks)]
    whole = _padded(_column(parts, gap=PAD), PAD)
    size = f'width="{whole.width}" height="{whole.height}"'
    label = escape(f"Binding plan of {topology.host}", {'"': "&quot;"})
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {whole.width} '
        f'{whole.height}" role="img" aria-label="{label}">\n<style>{STYLE}</style>\n'
        f'<rect class="page" {size}/>\n{whole.svg}\n</svg>\n'
    )


def _machine(ranks: Sequence[RankBinding], topology: HostTopology) -> Block:
    cores = {cpu: rank for rank in ranks for cpu in rank.cores}
    gpus = {rank.gpu: rank for rank in ranks if rank.gpu is not None}
    sockets = []
    for socket in dict.fromkeys(core.socket for core in topology.cores):
        inside = [core for core in topology.cores if core.socket == socket]
        nodes = []
        for node in dict.fromkeys(core.node for core in inside):
            members = [core for core in inside if core.node == node]
            at_node = [
                _gpu(n, gpu, gpus.get(n))
                for n, gpu in enumerate(topology.gpus)
                if topology.home_of(gpu) == node and node is not None
            ]
            parts = [_cores(members, topology, cores), *([_grid(at_node, 2)] if at_node else [])]
            title = "cores" if node is None else f"memory node {node}"
            nodes.append(_framed(title, _column(parts, gap=PAD)))
        sockets.append(_framed(f"socket {socket}", _row(nodes, gap=PAD)))
    lost = [
        _gpu(n, gpu, gpus.get(n))
        for n, gpu in enumerate(topology.gpus)
        if topology.home_of(gpu) is None
    ]
    if lost:
        sockets.append(_framed("attached to a node that nobody tells", _grid(lost, 4)))
    return _column(sockets, gap=PAD)


def _cores(cores: Sequence[Core], topology: HostTopology, owners: dict[int, RankBinding]) -> Block:
    """Draw the cores of a node, those that share a cache side by side."""
    groups = []
    for cache in dict.fromkeys(core.cache for core in cores):
        cells = [_core(core, topology, owners) for core in cores if core.cache == cache]
        rows = -(-len(cells) // MAX_COLUMNS)
        groups.append(_grid(cells, -(-len(cells) // rows)))
    per_row = max(1, MAX_COLUMNS * (CELL_WIDTH + GAP) // (groups[0].width + PAD))
    return _grid(groups, min(per_row, 2 if len(groups) > 2 else 1), gap=PAD)


def _core(core: Core, topology: HostTopology, owners: dict[int, RankBinding]) -> Block:
    rank = next((owners[cpu] for cpu in core.cpus if cpu in owners), None)
    told = f"CPU {render_cpu_list(core.cpus)}"
    if rank is not None:
        return _cell(str(core.cpus[0]), f"{told}: rank {rank.rank}", _colour(rank))
    allowed = set(core.cpus) & set(topology.allowed)
    state = "free" if allowed else "not this job's"
    return _cell(str(core.cpus[0]), f"{told}: {state}", None, css="free" if allowed else "barred")


def _cell(text: str, told: str, colour: str | None, *, css: str = "") -> Block:
    size = f'width="{CELL_WIDTH}" height="{CELL_HEIGHT}" rx="3"'
    rect = f'<rect {size} fill="{colour}"/>' if colour else f'<rect {size} class="{css}"/>'
    ink = "on" if colour else "soft"
    label = f'<text class="small mid {ink}" x="{CELL_WIDTH // 2}" y="15">{escape(text)}</text>'
    svg = f"<g><title>{escape(told)}</title>{rect}{label}</g>"
    return Block(CELL_WIDTH, CELL_HEIGHT, svg)


def _gpu(number: int, gpu: Gpu, rank: RankBinding | None) -> Block:
    size = f'width="{GPU_WIDTH}" height="{GPU_HEIGHT}" rx="6"'
    rect = f'<rect {size} fill="{_colour(rank)}"/>' if rank else f'<rect {size} class="free"/>'
    ink = "on" if rank else "soft"
    head = f"GPU {number}" + (f" · rank {rank.rank}" if rank else " · free")
    lines = (
        f'<text class="{ink}" x="8" y="15">{escape(head)}</text>'
        f'<text class="small {ink}" x="8" y="29">{escape(gpu.pci)}</text>'
    )
    told = escape(f"{gpu.model or 'GPU'} at {gpu.pci}")
    return Block(GPU_WIDTH, GPU_HEIGHT, f"<g><title>{told}</title>{rect}{lines}</g>")


def _legend(ranks: Sequence[RankBinding]) -> Block:
    rows = [_row([_swatch(rank), _text(describe(rank))], gap=PAD) for rank in ranks]
    hint = "a number is a core's first logical CPU; outlined: free; dotted: not this job's"
    return _column([*rows, _text(hint, css="soft small")], gap=GAP)


def describe(rank: RankBinding) -> str:
    """Return one line on what a rank gets."""
    parts = [f"rank {rank.rank}"]
    if rank.gpu is not None:
        parts.append(f"GPU {rank.gpu} ({rank.gpu_pci})")
    parts.append(f"CPUs {render_cpu_list(rank.cores)}" if rank.cores else "no cores of its own")
    if rank.memory_node is not None:
        parts.append(f"memory node {rank.memory_node}")
    parts.append(_count(rank.threads, "thread"))
    return ", ".join(parts) + (f" — {rank.note}" if rank.note else "")


def _swatch(rank: RankBinding) -> Block:
    return _cell(str(rank.rank), f"rank {rank.rank}", _colour(rank))


def _colour(rank: RankBinding) -> str:
    return COLOURS[rank.local_rank % len(COLOURS)]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _text(text: str, *, css: str = "") -> Block:
    # Seven pixels a letter is wide enough for any of the usual fonts at this size.
    svg = f'<text class="{css}" y="{LINE - 5}">{escape(text)}</text>'
    return Block(7 * len(text), LINE, svg)


def _moved(block: Block, x: int, y: int) -> str:
    return f'<g transform="translate({x} {y})">{block.svg}</g>'


def _row(blocks: Iterable[Block], *, gap: int) -> Block:
    x, height, parts = 0, 0, []
    for block in blocks:
        parts.append(_moved(block, x, 0))
        x, height = x + block.width + gap, max(height, block.height)
    return Block(max(0, x - gap), height, "".join(parts))


def _column(blocks: Iterable[Block], *, gap: int) -> Block:
    y, width, parts = 0, 0, []
    for block in blocks:
        parts.append(_moved(block, 0, y))
        y, width = y + block.height + gap, max(width, block.width)
    return Block(width, max(0, y - gap), "\n".join(parts))


def _grid(blocks: Sequence[Block], columns: int, *, gap: int = GAP) -> Block:
    rows = [blocks[n : n + columns] for n in range(0, len(blocks), columns)]
    return _column([_row(row, gap=gap) for row in rows], gap=gap)


def _padded(block: Block, pad: int) -> Block:
    return Block(block.width + 2 * pad, block.height + 2 * pad, _moved(block, pad, pad))


def _framed(title: str, block: Block) -> Block:
    inner = _padded(_column([_text(title, css="soft"), block], gap=0), PAD)
    rect = f'<rect class="box" rx="8" width="{inner.width}" height="{inner.height}"/>'
    return Block(inner.width, inner.height, rect + inner.svg)
