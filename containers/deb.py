"""Debian's package files: the record inside one, and the index that apt reads of many.

Knows the two formats (an ``ar`` archive; ``Packages`` of a flat repository), without any
tool of Debian's, so that a folder of packages can be put together on any machine.
"""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterable
from pathlib import Path

from env.errors import EXIT_FAILED, UserError
from env.lock import SystemPackage

_MAGIC = b"!<arch>\n"
_HEADER_BYTES = 60


def read_control(path: Path) -> str:
    """Return a package file's own record: its name, version, dependencies.

    Raises:
        UserError: the file is no package of Debian's, or one of a form not known here.
    """
    try:
        with path.open("rb") as file:
            name, member = _find_control(file)
        with tarfile.open(fileobj=io.BytesIO(member), mode=f"r:{name.rpartition('.')[2]}") as tar:
            return tar.extractfile("./control").read().decode("utf-8").strip() + "\n"
    except (OSError, EOFError, ValueError, KeyError, tarfile.TarError) as error:
        raise UserError("a Debian package", found=f"{path}: {error}", fix="fetch it again",
                        exit_code=EXIT_FAILED) from error  # fmt: skip


def _find_control(file: io.BufferedReader) -> tuple[str, bytes]:
    """Return the name and content of the archive's member that holds the record."""
    if file.read(len(_MAGIC)) != _MAGIC:
        raise ValueError("not an ar archive")
    while header := file.read(_HEADER_BYTES):
        name = header[:16].decode("ascii").strip().rstrip("/")
        size = int(header[48:58])
        if name.startswith("control.tar."):
            return name, file.read(size)
        file.seek(size + size % 2, io.SEEK_CUR)  # members start at even places
    raise ValueError("no control.tar in it")


def render_index(packages: Iterable[SystemPackage], *, folder: Path) -> str:
    """Return the ``Packages`` of a folder that holds these packages' files.

    What belongs to the base gets the priority that mmdebstrap takes it by, and nothing else
    does: an archive overrides what a package says of itself in the same way.

    Raises:
        UserError: see ``read_control``.
    """
    records = []
    for package in packages:
        control = read_control(folder / package.file_name)
        control = re.sub(r"^Priority:.*\n", "", control, flags=re.MULTILINE)
        priority = "required" if "base" in package.groups else "optional"
        records.append(
            f"{control}Priority: {priority}\nFilename: ./{package.file_name}\n"
            f"Size: {package.size_bytes}\nSHA256: {package.sha256}\n"
        )
    return "\n".join(records)
