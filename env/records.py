"""Rank records: what a rank observed, as a file in a shared folder or as lines of its output.

Knows both forms. The lines need no folder that all hosts see: they travel the way that the
launcher's own words travel, which works before any MPI does. Leaves what is in a record to
``env.probes.rank``, and starting ranks to whoever launches them.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from env.errors import UserError
from env.facts import Fact, Facts, load_facts, parse_facts, render_facts, write_facts

# Facts of the launch itself, written beside the ranks' own by whoever launched them.
LAUNCH_FILE = "launch.json"
# What a record may unpack to: far above any, far below what would hurt the reader.
_MAX_BYTES = 64 * 2**20

_LINE = re.compile(r"@chexnet-record ([0-9a-f]{8}) ([A-Za-z0-9+/=]+)#")
# How launchers name the rank whose output follows: Open MPI 4 and 5 before each piece, also in
# the middle of a line that another rank interrupted; srun at the start of a line.
_LABEL = re.compile(r"(\[[^\]\s]{1,200},\d+\]<std[a-z]+>: ?|^ *\d+: )", re.MULTILINE)


def record_path(folder: Path, *, rank: int) -> Path:
    """Return where a rank's record lies."""
    return folder / f"rank-{rank:05d}.json"


def load_records(folder: Path) -> dict[int, Facts]:
    """Read every rank record of a folder, by rank; a folder without any gives none.

    A record that cannot be read counts as one whose every fact could not be read: it
    must not hide the others.

    Raises:
        UserError: the folder does not exist.
    """
    if not folder.is_dir():
        fix = "write them: python -m env rank --records DIR under the launcher"
        raise UserError("a folder of rank records", found=f"{folder}: no such folder", fix=fix)
    return {int(path.stem[5:]): _load(path) for path in _records(folder)}


def load_launch(folder: Path) -> Facts:
    """Read how the launch ended; no facts where nobody wrote it down.

    Raises:
        UserError: the file is bad.
    """
    path = folder / LAUNCH_FILE
    return load_facts(path) if path.exists() else Facts()


def _load(path: Path) -> Facts:
    try:
        return load_facts(path)
    except UserError as error:
        return Facts({"rank.record": Fact(None, str(path), problem=error.found)})


def _records(folder: Path) -> Iterable[Path]:
    return sorted(path for path in folder.glob("rank-*.json") if path.stem[5:].isdigit())


def render_line(facts: Mapping[str, Fact]) -> str:
    """Return facts as one line that survives a launcher's labels and other output around it."""
    packed = zlib.compress(render_facts(facts).encode())
    return f"@chexnet-record {zlib.crc32(packed):08x} {base64.b64encode(packed).decode()}#"


def parse_output(text: str) -> tuple[dict[int, Facts], str]:
    """Return the records in what ranks printed, by rank, and the rest of the text.

    A rank prints a record in several parts, the later over the earlier. A part that was
    cut or changed on its way does not count.

    Args:
        text: the launcher's whole output, each piece labelled with its rank if more than
            one rank printed.
    """
    streams: dict[str, list[str]] = defaultdict(list)
    pieces = _LABEL.split(text)
    for label, piece in zip(["", *pieces[1::2]], pieces[::2], strict=True):
        streams[label.strip()].append(piece)
    ranks: dict[int, Facts] = {}
    rest = []
    for parts in streams.values():
        # A launcher may break a long line, never within its own label.
        joined = "".join(parts)
        whole = joined.replace("\r", "").replace("\n", "")
        for match in _LINE.finditer(whole):
            facts = _unpack(*match.groups())
            rank = facts["launch.rank"].value
            if isinstance(rank, int) and not isinstance(rank, bool) and rank >= 0:
                ranks[rank] = ranks.get(rank, Facts()) | facts
        rest.append(_without_records(joined))
    return ranks, "\n".join(part for part in rest if part)


def _without_records(text: str) -> str:
    lines = re.sub(r"@chexnet-record [^#@]*#?", "", text).splitlines()
    return "\n".join(line.rstrip() for line in lines if line.strip())


def _unpack(crc: str, packed: str) -> Facts:
    """Return the facts of one line; none where it is not what a rank wrote."""
    try:
        data = base64.b64decode(packed, validate=True)
        if zlib.crc32(data) != int(crc, 16):
            return Facts()
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(data, _MAX_BYTES).decode()
        return Facts() if unpacker.unconsumed_tail else parse_facts(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error, zlib.error):
        return Facts()


def write_records(folder: Path, ranks: Mapping[int, Facts]) -> None:
    """Write records where ``load_records`` finds them."""
    for rank, facts in ranks.items():
        write_facts(record_path(folder, rank=rank), facts)
