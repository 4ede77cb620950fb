"""What a build is given: the project's files, the host's CA bundle, where it all is from.

Knows how to stage a clean folder to build from. Leaves what the definition does
with it to ``recipes``, and running the build to ``containers.build``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from containers.runtime import HOST_CA_NAME
from env.errors import UserError
from recipes.layout import PROJECT_PARTS

_CA_VARIABLES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_CA_FILES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
)
_NEVER = shutil.ignore_patterns("__pycache__", "*.pyc", ".*", "runs", "data")
UNKNOWN = "unknown"


def stage_project(destination: Path, *, root: Path, parts: Sequence[str] = PROJECT_PARTS) -> None:
    """Copy the project's own files into a new folder.

    What git tracks, as it stands in the working tree; without git, the named parts less
    what is made while working. So never a run, data or a cache.

    Args:
        destination: a folder that is not there yet.
        root: the project's folder.
        parts: files and folders of it.

    Raises:
        UserError: a part is missing.
    """
    destination.mkdir(parents=True)
    missing = [part for part in parts if not (root / part).exists()]
    if missing:
        raise UserError("the whole project", found=f"no {missing[0]} in {root}",
                        fix="restore it, or run from a complete checkout")  # fmt: skip
    tracked = _git(root, "ls-files", "-z", "--", *parts)
    if tracked is None:
        for part in parts:
            source = root / part
            if source.is_dir():
                shutil.copytree(source, destination / part, ignore=_NEVER)
            else:
                shutil.copy2(source, destination / part)
        _even_modes(destination)
        return
    for name in filter(None, tracked.split("\0")):
        if (root / name).is_file():
            (destination / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, destination / name)
    _even_modes(destination)


def _even_modes(folder: Path) -> None:
    """Give files the modes that git knows of: a checkout has those of its user's mask."""
    for path in folder.rglob("*"):
        runs = path.is_dir() or path.stat().st_mode & 0o100
        path.chmod(0o755 if runs else 0o644)


def find_host_ca(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the file with the authorities this host trusts, None where there is none."""
    named = [environ[name] for name in _CA_VARIABLES if environ.get(name)]
    return next((Path(name) for name in (*named, *_CA_FILES) if Path(name).is_file()), None)


def lend_host_ca(ca: Path, *, folder: Path) -> Path:
    """Put the CA bundle into a folder of its own, to be mounted, and return that folder."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ca, folder / HOST_CA_NAME)
    return folder


def find_epoch(root: Path, *, otherwise: int, environ: Mapping[str, str] = os.environ) -> int:
    """Return the time that a build of this project gives to what it makes.

    Not the time of building, so that two builds are the same: SOURCE_DATE_EPOCH where that
    is set, else when the revision was committed, else the lock's own.

    Raises:
        UserError: SOURCE_DATE_EPOCH is no number.
    """
    told = environ.get("SOURCE_DATE_EPOCH")
    try:
        return int(told or _git(root, "log", "-1", "--format=%ct") or otherwise)
    except ValueError as error:
        raise UserError("SOURCE_DATE_EPOCH in seconds since 1970", found=repr(told),
                        fix="unset it, or set a whole number") from error  # fmt: skip


def origin_labels(root: Path, *, epoch: int) -> dict[str, str]:
    """Return the labels that say what an image is made from, by their OCI names.

    The revision ends in ``-dirty`` where the working tree differs from it.
    """
    revision = (_git(root, "rev-parse", "HEAD") or UNKNOWN).strip()
    if _git(root, "status", "--porcelain", "--", *PROJECT_PARTS):
        revision += "-dirty"
    moment = datetime.fromtimestamp(epoch, UTC)
    return {
        "org.opencontainers.image.created": moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "org.opencontainers.image.revision": revision,
        "org.opencontainers.image.source": _public_url(_git(root, "remote", "get-url", "origin")),
    }


def tracked_files(root: Path, *, revision: str, parts: Sequence[str]) -> dict[str, str] | None:
    """Return git's hash by path of the files of a revision.

    Args:
        root: the project's folder.
        revision: a commit; one that ends in ``-dirty`` names no state that git knows.
        parts: files and folders of it.

    Returns:
        None where this is no repository or the revision is not in it.
    """
    if not revision or revision.startswith("-"):
        return None
    told = _git(root, "ls-tree", "-r", "-z", revision, "--", *parts)
    if told is None:
        return None
    entries = (entry.partition("\t") for entry in told.split("\0") if entry)
    return {path: head.split()[2] for head, _, path in entries}


def _public_url(remote: str | None) -> str:
    """Return a remote's web address without any password; a path of this host is no address."""
    parts = urlsplit((remote or "").strip())
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return UNKNOWN
    port = f":{parts.port}" if parts.port else ""
    return urlunsplit((parts.scheme, parts.hostname + port, parts.path, "", ""))


def _git(root: Path, *arguments: str) -> str | None:
    """Return what git prints, None where it fails or the folder is not a repository's root."""
    if not (root / ".git").exists():
        return None
    # A checkout may belong to another user than the one who builds, as in containers.
    command = ["git", "-c", f"safe.directory={root}", "-C", str(root), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None
