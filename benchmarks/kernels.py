"""For which GPUs TensorFlow's wheels hold machine code, and for which only PTX, of which version.

The rules about GPU generations (env/rules.toml) rest on this: a wheel says of its build which
architectures it was compiled for, and not that most kernels have no machine code for the newest.
Reads the fat binaries in a wheel's library, without CUDA: also those that TensorFlow's own
compiler made, which lie among its constants and which ``cuobjdump`` does not list.

    pip download --no-deps tensorflow==X.Y.Z
    python -m benchmarks.kernels tensorflow-*.whl --output FILE.json
"""

from __future__ import annotations

import argparse
import mmap
import re
import struct
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.record import write_record

# From TensorFlow 2.10 on the kernels are in libtensorflow_cc.
_LIBRARIES = (r"libtensorflow_cc\.so\.2$", r"_pywrap_tensorflow_internal\.so$")
_MAGIC = struct.pack("<I", 0xBA55ED50)
_HEADER = struct.Struct("<IHHQ")  # magic, version, size of this header, size of what follows
_ENTRY = struct.Struct("<HHIQ")  # kind, version, size of this header, size of what follows
# Into an entry's header: minor and major number of what cuobjdump calls the code version (of PTX
# that of its language, which decides the driver that can read it), and the architecture.
_CODE = struct.Struct("<HHI")
_CODE_AT = 24
# The header has 90 for sm_90a too. PTX's text tells them apart near its begin, which compression
# (LZ4) leaves as it is: nothing before it repeats.
_TARGET = re.compile(rb"\.target (sm_\w+)")
_BEGIN = 200
_KINDS = {1: "ptx", 2: "binary"}


class Code(NamedTuple):
    """What an entry of a fat binary holds.

    Attributes:
        kind: ``"binary"`` or ``"ptx"``.
        target: what it was compiled for, e.g. ``"sm_90"``. PTX for sm_90 runs on all later GPUs
            too, PTX for sm_90a on none.
        version: of PTX's own language, e.g. ``"8.5"``; empty for machine code.
    """

    kind: str
    target: str
    version: str = ""


def count_kernels(library: Path) -> Counter[frozenset[Code]]:
    """Return how many fat binaries of a shared library hold what, those that hold nothing left out.

    Args:
        library: a shared library.
    """
    counts: Counter[frozenset[Code]] = Counter()
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        place = data.find(_MAGIC)
        while place >= 0:
            entries, end = _fat_binary(data, place)
            if entries:
                counts[frozenset(entries)] += 1
            place = data.find(_MAGIC, end)
    return counts


def _fat_binary(data: mmap.mmap, start: int) -> tuple[list[Code], int]:
    """Return what the fat binary at a place holds, and where to look on; nothing if it is none."""
    _, version, header, size = _HEADER.unpack_from(data, start)
    end = start + header + size
    if version != 1 or header != _HEADER.size or end > len(data):
        return [], start + len(_MAGIC)
    return list(_entries(data, start + header, end)), end


def _entries(data: mmap.mmap, place: int, end: int) -> Iterator[Code]:
    while place + _CODE_AT + _CODE.size <= end:
        kind, _, header, size = _ENTRY.unpack_from(data, place)
        if kind not in _KINDS or header < _CODE_AT + _CODE.size:
            return
        minor, major, architecture = _CODE.unpack_from(data, place + _CODE_AT)
        target, version = f"sm_{architecture}", ""
        if _KINDS[kind] == "ptx":
            begin = place + header
            text = _TARGET.search(data[begin : min(begin + _BEGIN, begin + size)])
            target, version = text[1].decode() if text else target, f"{major}.{minor}"
        yield Code(_KINDS[kind], target, version)
        place += header + size


def look_into(wheel: Path) -> tuple[list[dict[str, object]], dict[str, float]]:
    """Return a result for each content of fat binaries in a wheel's main library, and its ratio."""
    with zipfile.ZipFile(wheel) as packed, tempfile.TemporaryDirectory() as folder:
        names = [n for p in _LIBRARIES for n in packed.namelist() if re.search(p, n)]
        counts = count_kernels(Path(packed.extract(names[0], folder)))
    version = wheel.name.split("-")[1]
    results: list[dict[str, object]] = [
        {
            "name": f"tensorflow {version}", "value": number, "unit": "fat binaries",
            "binary": [code.target for code in sorted(codes) if code.kind == "binary"],
            "ptx": [f"{code.target} {code.version}" for code in sorted(codes)
                    if code.kind == "ptx"],
        }
        for codes, number in sorted(counts.items(), key=lambda item: sorted(item[0]))
    ]  # fmt: skip
    binary = {code for codes in counts for code in codes if code.kind == "binary"}
    newest = max(binary, key=lambda code: int(code.target.removeprefix("sm_")))
    compiled = {codes: n for codes, n in counts.items() if codes & binary}
    have = sum(n for codes, n in compiled.items() if newest in codes)
    name = f"{version}: sets of kernels with machine code for {newest.target}, of all"
    return results, {name: round(have / sum(compiled.values()), 3)}


def main() -> None:
    """Look into each wheel and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheels", type=Path, nargs="+", metavar="WHEEL")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE.json")
    arguments = parser.parse_args()
    results: list[dict[str, object]] = []
    ratios: dict[str, float] = {}
    for wheel in arguments.wheels:
        found, ratio = look_into(wheel)
        results += found
        ratios |= ratio
    write_record(
        arguments.output,
        command=["python", "-m", "benchmarks.kernels", *(w.name for w in arguments.wheels)],
        packages=(),
        results=results,
        ratios=ratios,
    )


if __name__ == "__main__":
    main()
