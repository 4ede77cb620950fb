"""Kernels counted in libraries made by hand, byte by byte as CUDA's tools lay them out."""

import json
import struct
import subprocess
import sys
import zipfile

from benchmarks.kernels import count_kernels
from env.stack import PROJECT


def entry(kind, architecture, code=b"x" * 40):
    head = struct.pack("<HHIQ", kind, 0x101, 64, len(code)) + b"\0" * 12
    return (head + struct.pack("<I", architecture)).ljust(64, b"\0") + code


def fat_binary(*entries):
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


LIBRARY = b"".join([
    b"\x7fELF", b"\0" * 100,
    fat_binary(entry(2, 70), entry(2, 80), entry(1, 90)), b"text between",
    struct.pack("<I", 0xBA55ED50), b"a number that is no fat binary",
    fat_binary(entry(2, 70), entry(2, 80), entry(2, 90), entry(1, 90)),
])  # fmt: skip


def test_code_is_counted_by_kind_and_architecture(tmp_path):
    (tmp_path / "x.so").write_bytes(LIBRARY)
    assert count_kernels(tmp_path / "x.so") == {
        ("binary", 70): 2, ("binary", 80): 2, ("binary", 90): 1, ("ptx", 90): 2,
    }  # fmt: skip


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
    found = {(r["kind"], r["architecture"]): r["value"] for r in record["results"]}
    assert found["binary", "sm_90"] == 1
    assert list(record["ratios"].values()) == [0.5]
