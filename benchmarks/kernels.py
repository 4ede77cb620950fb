"""For which GPUs TensorFlow's wheels hold machine code, and for which only PTX.

The rules about GPU generations (env/rules.toml) rest on this: a wheel says of its build which
architectures it was compiled for, and not that most kernels have no machine code for the newest.
Reads the fat binaries in a wheel's library as ``cuobjdump`` lists them, without CUDA.

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

from benchmarks.record import write_record

# From TensorFlow 2.10 on the kernels are in libtensorflow_cc.
_LIBRARIES = (r"libtensorflow_cc\.so\.2$", r"_pywrap_tensorflow_internal\.so$")
_MAGIC = struct.pack("<I", 0xBA55ED50)
_HEADER = struct.Struct("<IHHQ")  # magic, version, size of this header, size of what follows
_ENTRY = struct.Struct("<HHIQ")  # kind, version, size of this header, size of what follows
_ARCHITECTURE = 28  # bytes into an entry's header
_KINDS = {1: "ptx", 2: "binary"}


def count_kernels(library: Path) -> Counter[tuple[str, int]]:
    """Return how many fat binaries hold code of a kind for an architecture.

    Args:
        library: a shared library.

    Returns:
        The number by kind (``"binary"`` or ``"ptx"``) and architecture (90 for sm_90).
    """
    counts: Counter[tuple[str, int]] = Counter()
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        place = data.find(_MAGIC)
        while place >= 0:
            entries, end = _fat_binary(data, place)
            counts.update(set(entries))
            place = data.find(_MAGIC, end)
    return counts


def _fat_binary(data: mmap.mmap, start: int) -> tuple[list[tuple[str, int]], int]:
    """Return what the fat binary at a place holds, and where to look on; nothing if it is none."""
    _, version, header, size = _HEADER.unpack_from(data, start)
    end = start + header + size
    if version != 1 or header != _HEADER.size or end > len(data):
        return [], start + len(_MAGIC)
    return list(_entries(data, start + header, end)), end


def _entries(data: mmap.mmap, place: int, end: int) -> Iterator[tuple[str, int]]:
    while place + _ARCHITECTURE + 4 <= end:
        kind, _, header, size = _ENTRY.unpack_from(data, place)
        if kind not in _KINDS or header <= _ARCHITECTURE:
            return
        yield _KINDS[kind], struct.unpack_from("<I", data, place + _ARCHITECTURE)[0]
        place += header + size


def look_into(wheel: Path) -> list[dict[str, object]]:
    """Return a result for each kind of code and architecture in a wheel's main library."""
    with zipfile.ZipFile(wheel) as packed, tempfile.TemporaryDirectory() as folder:
        names = [n for p in _LIBRARIES for n in packed.namelist() if re.search(p, n)]
        counts = count_kernels(Path(packed.extract(names[0], folder)))
    version = wheel.name.split("-")[1]
    return [
        {"name": f"tensorflow {version}", "value": number, "unit": "fat binaries",
         "kind": kind, "architecture": f"sm_{architecture}"}
        for (kind, architecture), number in sorted(counts.items())
    ]  # fmt: skip


def main() -> None:
    """Look into each wheel and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheels", type=Path, nargs="+", metavar="WHEEL")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE.json")
    arguments = parser.parse_args()
    results = [result for wheel in arguments.wheels for result in look_into(wheel)]
    ratios = {}
    for wheel in arguments.wheels:
        version = wheel.name.split("-")[1]
        mine = [r for r in results if r["name"] == f"tensorflow {version}"]
        most = max(int(str(r["value"])) for r in mine if r["kind"] == "binary")
        newest = [r for r in mine if r["kind"] == "binary"][-1]
        name = f"{version}: sets of kernels with machine code for {newest['architecture']}, of all"
        ratios[name] = round(int(str(newest["value"])) / most, 3)
    write_record(
        arguments.output,
        command=["python", "-m", "benchmarks.kernels", *(w.name for w in arguments.wheels)],
        packages=(),
        results=results,
        ratios=ratios,
    )


if __name__ == "__main__":
    main()
