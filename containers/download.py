"""Fetching files that are known by their hash: several at once, resumed, verified.

Knows how a file comes over HTTP and when it is whole. Leaves which files, and where
they lie, to ``containers.packages``.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import http.client
import shutil
import ssl
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO
from urllib.parse import quote, unquote, urlsplit

from env.errors import EXIT_FAILED, UserError

NOT_FOUND = 404
PARTIAL_CONTENT = 206
NOT_SATISFIABLE = 416
TIMEOUT_S = 60.0
AT_ONCE = 4
TRIES = 3
_CHUNK_BYTES = 1 << 20
_PLAIN_EVERY_S = 10.0


@dataclass(frozen=True)
class Remote:
    """One file to fetch.

    Attributes:
        url: where from.
        target: where to.
        sha256: hashes that are accepted, of which the file must have one.
        size_bytes: its size, 0 where it is not known.
        login: what to log in with; see ``split_login``.
    """

    url: str
    target: Path
    sha256: tuple[str, ...]
    size_bytes: int = 0
    login: str = field(default="", repr=False)


NO_ANSWER = (OSError, http.client.HTTPException, ValueError)
"""What a server that is away, or that does not speak HTTP, or an address that is none, raises."""


class Missing(Exception):
    """The server has not got the file (any more)."""


def sha256_of(path: Path) -> str:
    """Return the hash of a file (64 hex digits)."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def split_login(url: str) -> tuple[str, str]:
    """Return an address without user and password, so that it can be told, and the header.

    The second is the value of ``Authorization``, "" where the address names no user.
    """
    scheme, slashes, rest = url.partition("://")
    host = rest.partition("/")[0]
    user, at, _ = host.rpartition("@")
    if not (slashes and at):
        return url, ""
    name, _, password = user.partition(":")
    plain = f"{unquote(name)}:{unquote(password)}".encode()
    return f"{scheme}://{rest[len(user) + 1 :]}", f"Basic {base64.b64encode(plain).decode()}"


def same_host(url: str, other: str) -> bool:
    """Return whether two addresses are of one server: what a login for one is good for."""
    return urlsplit(url)[:2] == urlsplit(other)[:2]


def open_url(
    url: str, *, ca: Path | None, headers: dict[str, str] | None = None, login: str = ""
) -> object:
    """Open an address, trusting the host's authorities.

    Args:
        url: without user and password.
        ca: the bundle of authorities to trust, None for the system's.
        headers: more to send.
        login: what to log in with; another server that this one sends us to never gets it.

    Raises:
        OSError: there is no answer, or a refusal.
        http.client.HTTPException: the answer is not HTTP.
        ValueError: it is no address.
    """
    safe = quote(url, safe=":/?&=%~+,@!")
    request = urllib.request.Request(safe, headers=headers or {})
    if login:
        request.add_unredirected_header("Authorization", login)
    context = _trust(ca) if safe.startswith("https:") else None
    return urllib.request.urlopen(request, timeout=TIMEOUT_S, context=context)


@functools.cache  # reading a bundle of authorities takes a tenth of a second
def _trust(ca: Path | None) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(ca) if ca else None)


def fetch_all(
    remotes: Sequence[Remote], *, ca: Path | None, stream: TextIO | None = None
) -> list[Remote]:
    """Fetch files, several at once, saying how far it is.

    What came of a file before an interruption is kept beside it and gone on with.

    Args:
        remotes: what to fetch; folders are made.
        ca: the bundle of authorities to trust, None for the system's.
        stream: where progress goes, standard error by default.

    Returns:
        Those that their servers have not got.

    Raises:
        UserError: a server cannot be reached or gives another content (exit code 1), or
            the disk is too small.
    """
    check_space(remotes)
    progress = Progress(len(remotes), sum(r.size_bytes for r in remotes), stream or sys.stderr)

    def fetch(remote: Remote) -> bool:
        try:
            fetch_one(remote, ca=ca, tell=progress.add)
        except Missing:
            return False
        progress.add(0, files=1)
        return True

    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            there = list(pool.map(fetch, remotes))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        finally:
            progress.close()
    return [remote for remote, found in zip(remotes, there, strict=True) if not found]


def check_space(remotes: Iterable[Remote]) -> None:
    """Refuse to begin what the disk cannot hold.

    Raises:
        UserError: there is too little room; how much is missing is said.
    """
    needed: dict[Path, int] = {}
    for remote in remotes:
        folder = next(path for path in remote.target.parents if path.is_dir())
        needed[folder] = needed.get(folder, 0) + remote.size_bytes
    for folder, wanted in needed.items():
        free = shutil.disk_usage(folder).free
        if wanted > free:
            raise UserError(
                f"{wanted / 2**20:.0f} MiB free in {folder}", found=f"{free / 2**20:.0f} MiB",
                fix="make room, or name another folder", exit_code=EXIT_FAILED,
            )  # fmt: skip


def fetch_one(remote: Remote, *, ca: Path | None, tell: Callable[[int], None]) -> None:
    """Fetch one file, whole or not at all.

    Raises:
        Missing: the server has not got it.
        UserError: it cannot be had, or it is another file than the hash says.
    """
    remote.target.parent.mkdir(parents=True, exist_ok=True)
    part = remote.target.with_name(f".{remote.target.name}.part")
    for attempt in range(TRIES):
        try:
            _receive(remote, part, ca=ca, tell=tell)
        except urllib.error.HTTPError as error:
            if error.code == NOT_FOUND:
                raise Missing(remote.url) from error
            if error.code == NOT_SATISFIABLE:  # more is here than there is
                part.unlink(missing_ok=True)
            failure = f"{error.code} {error.reason}"
        except NO_ANSWER as error:
            failure = tell_failure(error)
        else:
            found = sha256_of(part)
            if found in remote.sha256:
                part.replace(remote.target)
                return
            part.unlink()
            failure = f"a file of sha256 {found}, not {remote.sha256[0]}"
        if attempt + 1 < TRIES:
            time.sleep(attempt)
    raise UserError(f"{remote.target.name} from {remote.url}", found=failure,
                    fix="see to the way there (proxy, mirror, certificates); "
                    "what has come is kept: run the same again",
                    exit_code=EXIT_FAILED)  # fmt: skip


def tell_failure(error: Exception) -> str:
    """Return what went wrong with an answer, in a few words."""
    return str(getattr(error, "reason", error)) or type(error).__name__


def _receive(remote: Remote, part: Path, *, ca: Path | None, tell: Callable[[int], None]) -> None:
    """Append to the part what of the file is not there yet."""
    there = part.stat().st_size if part.exists() else 0
    headers = {"Range": f"bytes={there}-"} if there else {}
    with open_url(remote.url, ca=ca, headers=headers, login=remote.login) as answer:
        resumed = answer.status == PARTIAL_CONTENT
        tell(there if resumed else 0)
        remain = int(answer.headers["Content-Length"] or 0)
        with part.open("ab" if resumed else "wb") as file:
            while chunk := answer.read(_CHUNK_BYTES):
                file.write(chunk)
                remain -= len(chunk)
                tell(len(chunk))
        if remain > 0:  # http.client ends such a file without a word
            raise OSError("the line dropped")


@dataclass
class Progress:
    """How far a fetch is: a line that changes on a terminal, a line now and then elsewhere."""

    num_files: int
    size_bytes: int
    stream: TextIO
    _files: int = 0
    _bytes: int = 0
    _told: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, num_bytes: int, *, files: int = 0) -> None:
        """Count what has come, and say so if it is time."""
        with self._lock:
            self._files += files
            self._bytes += num_bytes
            every = 0.2 if self.stream.isatty() else _PLAIN_EVERY_S
            if time.monotonic() - self._told >= every:
                self._told = time.monotonic()
                self._say()

    def close(self) -> None:
        """Say the last state."""
        if self.num_files:
            self._say(end="\n")

    def _say(self, end: str = "") -> None:
        start, end = ("\r\x1b[2K", end) if self.stream.isatty() else ("", "\n")
        total = f" of {self.size_bytes / 2**20:.0f}" if self.size_bytes else ""
        line = (
            f"fetched {self._files} of {self.num_files} files, {self._bytes / 2**20:.0f}{total} MiB"
        )
        print(f"{start}{line}", end=end, file=self.stream, flush=True)
