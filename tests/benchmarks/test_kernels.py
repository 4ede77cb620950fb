"""Kernels counted in libraries made by hand, byte by byte as CUDA's tools lay them out."""

import json
import struct
import subprocess
import sys
import zipfile

from benchmarks.kernels import count_kernels
from env.stack import PROJECT


def entry(kind, architecture, *, version=(7, 1), code=b"x" * 40):
    """Return an entry: the version's minor number comes first, as numbers are laid out there."""
    head = struct.pack("<HHIQ", kind, 0x101, 64, len(code)) + b"\0" * 8
    minor = struct.pack("<HH", version[1], version[0])
    return (head + minor + struct.pack("<I", architecture)).ljust(64, b"\0") + code


def ptx(architecture, *, version, target):
    text = f"//\n\n.version {version[0]}.{version[1]}\n.target {target}\n.address_size 64\n"
    return entry(1, architecture, version=version, code=text.encode())


def fat_binary(*entries):
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


LIBRARY = b"".join([
    b"\x7fELF", b"\0" * 100,
    fat_binary(entry(2, 70), entry(2, 80), ptx(90, version=(8, 5), target="sm_90a")), b"text",
    struct.pack("<I", 0xBA55ED50), b"a number that is no fat binary",
    fat_binary(entry(2, 70), entry(2, 80), entry(2, 90), entry(1, 90, version=(8, 3))),
    fat_binary(entry(2, 70), entry(2, 80), ptx(90, version=(8, 5), target="sm_90a")),
    fat_binary(ptx(90, version=(7, 10), target="sm_90")),
])  # fmt: skip


def test_contents_are_counted_with_the_version_and_the_target_of_ptx(tmp_path):
    (tmp_path / "x.so").write_bytes(LIBRARY)
    older = {("binary", "sm_70", ""), ("binary", "sm_80", "")}
    assert count_kernels(tmp_path / "x.so") == {
        frozenset({*older, ("ptx", "sm_90a", "8.5")}): 2,
        frozenset({*older, ("binary", "sm_90", ""), ("ptx", "sm_90", "8.3")}): 1,
        frozenset({("ptx", "sm_90", "7.10")}): 1,
    }


def test_a_library_without_kernels(tmp_path):
    (tmp_path / "x.so").write_bytes(b"\x7fELF" + b"\0" * 1000)
    assert not count_kernels(tmp_path / "x.so")


def test_the_record_of_a_wheel(tmp_path):
    wheel = tmp_path / "tensorflow-2.99.0-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("tensorflow/libtensorflow_cc.so.2", LIBRARY)
    command = [sys.executable, "-m", "benchmarks.kernels", wheel, "--output", tmp_path / "r.json"]
    subprocess.run(command, cwd=PROJECT, check=True)
    record = json.loads((tmp_path / "r.json").read_text())
    found = [(r["value"], r["binary"], r["ptx"]) for r in record["results"]]
    assert sorted(found) == [
        (1, [], ["sm_90 7.10"]),
        (1, ["sm_70", "sm_80", "sm_90"], ["sm_90 8.3"]),
        (2, ["sm_70", "sm_80"], ["sm_90a 8.5"]),
    ]
    # Of three sets with machine code one has it for the newest GPU.
    assert list(record["ratios"].values()) == [0.333]
