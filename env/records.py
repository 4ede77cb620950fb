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
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from env.errors import UserError
from env.facts import Fact, Facts, load_facts, parse_facts, render_facts, write_facts

# Facts of the launch itself, written beside the ranks' own by whoever launched them.
LAUNCH_FILE = "launch.json"
# What a record may unpack to: far above any, far below what would hurt the reader.
_MAX_BYTES = 64 * 2**20

# A piece of a record: rank, which part of its record, number and count of the pieces, checksum.
_PIECE = re.compile(
    r"@chexnet-record (\d{1,7}) ([0-9a-f]{8}) (\d{1,5})/(\d{1,5}) ([0-9a-f]{8}) ([A-Za-z0-9+/=]+)#"
)
# A piece's end is looked for once where such letters begin, not again at each of them.
_PIECES_OF_PIECES = re.compile(
    r"@chexnet-record[ 0-9a-f/]*[A-Za-z0-9+/=]*#?|(?<![A-Za-z0-9+/=])[A-Za-z0-9+/=]{40,}#"
)
# Far below what a launcher's daemon reads at once: where it cuts, it cuts few of them.
_PIECE_CHARS = 800
_REPEATS = 2
_PAUSE_S = 0.004
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
    shared: dict[str, Fact] = {}
    return {int(path.stem[5:]): _share(_load(path), shared) for path in _records(folder)}


def _share(facts: Facts, shared: dict[str, Fact]) -> Facts:
    """Return facts with those of an earlier rank in the place of equal ones.

    Thousands of ranks have the same packages: held once, they take little memory.
    """
    return Facts(
        {
            key: first if fact == (first := shared.setdefault(key, fact)) else fact
            for key, fact in facts.items()
        }
    )


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


def render_lines(facts: Mapping[str, Fact]) -> list[str]:
    """Return facts as short lines that survive a launcher's labels and other output around them.

    Each says of itself what it is and whether it is whole.
    """
    packed = zlib.compress(render_facts(facts).encode())
    text = base64.b64encode(packed).decode()
    pieces = [text[n : n + _PIECE_CHARS] for n in range(0, len(text), _PIECE_CHARS)]
    rank, part = facts["launch.rank"].value, f"{zlib.crc32(packed):08x}"
    return [
        f"@chexnet-record {rank} {part} {n}/{len(pieces)} {zlib.crc32(piece.encode()):08x} {piece}#"
        for n, piece in enumerate(pieces)
    ]


def print_record(facts: Mapping[str, Fact], *, write: Callable[[bytes], object]) -> None:
    """Print facts in such a way that each line arrives whole at least once.

    Launchers read a rank's output in blocks: Open MPI 5 puts the end of a block that stops
    within a line before the output of another rank. So the lines come one by one, and twice.

    Args:
        facts: one part of a rank's record.
        write: writes bytes at once, without a buffer.
    """
    for _ in range(_REPEATS):
        for line in render_lines(facts):
            write(f"{line}\n".encode())
            time.sleep(_PAUSE_S)


def parse_output(text: str) -> tuple[dict[int, Facts], str]:
    """Return the records in what ranks printed, by rank, and the rest of the text.

    A rank prints a record in several parts, the later over the earlier. A piece that was
    cut or changed on its way does not count, nor a part of which a piece is missing.

    Args:
        text: the launcher's whole output, labelled with the ranks if several printed.
    """
    streams: dict[str, list[str]] = defaultdict(list)
    pieces = _LABEL.split(text)
    for label, piece in zip(["", *pieces[1::2]], pieces[::2], strict=True):
        streams[label.strip()].append(piece)
    parts: dict[tuple[int, str], dict[int, str]] = {}
    totals: dict[tuple[int, str], int] = {}
    # Most launchers break a line only to label it, which joining the streams undoes; one that
    # has mixed the streams up leaves whole lines in the text as it stands.
    joined = ["".join(stream).replace("\r", "").replace("\n", "") for stream in streams.values()]
    for source in (*joined, text):
        for rank, part, number, total, crc, piece in _PIECE.findall(source):
            if zlib.crc32(piece.encode()) == int(crc, 16):
                parts.setdefault((int(rank), part), {}).setdefault(int(number), piece)
                totals[int(rank), part] = int(total)
    ranks: dict[int, Facts] = {}
    for (rank, part), found in parts.items():
        total = totals[rank, part]
        if set(found) == set(range(total)):
            facts = _unpack(part, "".join(found[n] for n in range(total)), rank=rank)
            ranks[rank] = ranks.get(rank, Facts()) | facts
    rest = (_without_records("".join(stream)) for stream in streams.values())
    return {rank: facts for rank, facts in ranks.items() if facts}, "\n".join(filter(None, rest))


def _without_records(text: str) -> str:
    lines = _PIECES_OF_PIECES.sub("", text).splitlines()
    return "\n".join(line.rstrip() for line in lines if line.strip(" \0"))


def _unpack(crc: str, packed: str, *, rank: int) -> Facts:
    """Return the facts of a part; none where it is not what that rank wrote."""
    try:
        data = base64.b64decode(packed, validate=True)
        if zlib.crc32(data) != int(crc, 16):
            return Facts()
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(data, _MAX_BYTES).decode()
        facts = parse_facts(json.loads(text))
        whole = not unpacker.unconsumed_tail and facts["launch.rank"].value == rank
        return facts if whole else Facts()
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error, zlib.error):
        return Facts()


def write_records(folder: Path, ranks: Mapping[int, Facts]) -> None:
    """Write records where ``load_records`` finds them."""
    for rank, facts in ranks.items():
        write_facts(record_path(folder, rank=rank), facts)
