"""The text of a definition, Dockerfile or Singularity.def: its bases and what it installs.

Reads text, and judges nothing. Leaves writing definitions to ``recipes``.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

# Flags of apt-get and pip that are followed by a value.
_WITH_VALUE = ("-o", "-t", "-r", "-c", "-i", "--target-release", "--index-url", "--requirement",
               "--constraint", "--find-links", "-f", "--target", "--prefix")  # fmt: skip
_INSTALL = re.compile(
    r"(?:^|[\s/;&|(])(apt|apt-get|\$apt|pip3?)((?:\s+-\S+)*)\s+install\s+([^\n;&|]*)"
)


@dataclass(frozen=True)
class Definition:
    """What a definition says.

    Attributes:
        bases: names of the images it starts from; stages of its own are left out.
        unpinned: packages that it installs by name alone, in whatever version there is.
        old_keys: lines that fetch a key of NVIDIA's archive that was withdrawn, or that trust
            the archive before its present key is there.
    """

    bases: tuple[str, ...]
    unpinned: tuple[str, ...]
    old_keys: tuple[str, ...]


def parse_definition(text: str) -> Definition:
    """Return what a definition says; text that is none says nothing."""
    joined = re.sub(r"\\\n\s*", " ", text)
    lines = [line for line in joined.splitlines() if not line.lstrip().startswith("#")]
    body = "\n".join(lines)
    return Definition(_bases(lines), tuple(_unpinned(body)), tuple(_old_keys(lines)))


def _bases(lines: list[str]) -> tuple[str, ...]:
    found, stages = [], set()
    for line in lines:
        match = re.match(r"\s*FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?", line, re.IGNORECASE)
        match = match or re.match(r"\s*From:\s*(\S+)()", line, re.IGNORECASE)
        if match:
            if match[1] not in stages and match[1] != "scratch":
                found.append(match[1])
            stages.add(match[2])
    return tuple(dict.fromkeys(found))


def _unpinned(body: str) -> list[str]:
    """Return names without a version; files, folders, options and variables are no names."""
    found = []
    for match in _INSTALL.finditer(body):
        try:
            words = shlex.split(match[3])
        except ValueError:
            words = match[3].split()
        skip = "--require-hashes" in match[3] or "-r" in words
        previous = ""
        for word in () if skip else words:
            is_name = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*(\[[\w,]+\])?(:\w+)?", word)
            if is_name and previous not in _WITH_VALUE and not word.endswith((".deb", ".whl")):
                found.append(word)
            previous = word
    return list(dict.fromkeys(found))


def _old_keys(lines: list[str]) -> list[str]:
    """Return lines with the key 7fa2af80, or an update before cuda-keyring is installed.

    The archive's key was exchanged on 2022-04-27: developer.nvidia.com/blog/
    updating-the-cuda-linux-gpg-repository-key.
    """
    old = [line.strip() for line in lines if re.search(r"7fa2af80", line, re.IGNORECASE)]
    text = "\n".join(lines)
    archive = re.search(r"nvidia\.com/compute/(cuda|machine-learning)/repos", text)
    if archive and not re.search(r"cuda-keyring|3bf863cc|signed-by=", text, re.IGNORECASE):
        old.append(f"{archive[0]} without cuda-keyring")
    return old
