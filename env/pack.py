"""One file that validates a node which has nothing but Python: ``env.pyz``.

Knows what goes into the file and how it starts. It unpacks itself into a private
temporary folder and removes that at its end, since the probes start children that run
files. Leaves what is validated to ``env.cli``. Written by ``python -m env pack``.
"""

from __future__ import annotations

import importlib.util
import io
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

from env.errors import UserError
from env.stack import PROJECT

# Read-only zip entries of 1980-01-01, the format's first day: the same input, the same bytes.
_DATE = (1980, 1, 1, 0, 0, 0)
_START = '''\
"""Unpacks this file, runs ``python -m env`` in it, and removes what it unpacked."""

import sys

if sys.version_info < (3, 11):
    sys.exit("expected: Python 3.11 or later\\nfound:    %d.%d" % sys.version_info[:2]
             + "\\nfix:      python3.11 env.pyz")

import os
import tempfile
import zipfile

try:
    folder = tempfile.TemporaryDirectory(prefix="env-pyz-")
except OSError as error:
    sys.stderr.write("expected: a temporary folder that can be written to\\n"
                     "found:    %s\\nfix:      set TMPDIR to one\\n" % error)
    sys.exit(2)
with folder as place:
    with zipfile.ZipFile(os.path.dirname(os.path.abspath(__file__))) as packed:
        packed.extractall(place)
    os.environ["PYTHONPATH"] = place
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    sys.path[0] = place
    from env.cli import main

    code = main()
sys.exit(code)
'''


def write_pack(path: Path) -> None:
    """Write the file, executable, from this checkout and the installed nvidia-ml-py.

    Raises:
        UserError: nvidia-ml-py is not installed here, or the file cannot be written.
    """
    content = io.BytesIO(b"")
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as pack:
        for name, data in [*_parts(), ("__main__.py", _START.encode())]:
            pack.writestr(zipfile.ZipInfo(name, _DATE), data, zipfile.ZIP_DEFLATED)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(b"#!/usr/bin/env python3\n" + content.getvalue())
        beside.chmod(0o755)
        beside.replace(path)
    except OSError as error:
        fix = "name a file in a folder you may write to"
        raise UserError("a place to write to", found=f"{path}: {error}", fix=fix) from error


def _parts() -> Iterator[tuple[str, bytes]]:
    """Yield every file by its name in the pack, sorted: env, the locks, NVML's binding."""
    files = [p for p in (PROJECT / "env").rglob("*") if p.is_file()]
    files = [p for p in files if p.suffix in {".py", ".toml", ".json"}]
    files += sorted((PROJECT / "containers").glob("*/stack.lock.json"))
    for file in sorted(files):
        yield file.relative_to(PROJECT).as_posix(), file.read_bytes()
    nvml = importlib.util.find_spec("pynvml")
    if nvml is None or nvml.origin is None:
        raise UserError("nvidia-ml-py, which reads the GPUs", found="no module pynvml",
                        fix="run through env/bootstrap.sh")  # fmt: skip
    yield "pynvml.py", Path(nvml.origin).read_bytes()
