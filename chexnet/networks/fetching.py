"""Fetching a published file of weights: resumed, shown, and kept only if it is whole.

Knows how a file comes over HTTP and that what came before an interruption is gone on with. Leaves
which file it is, and its hash, to ``weights``. Imports without TensorFlow.
"""

from __future__ import annotations

import http.client
import os
import shutil
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from chexnet.errors import EXIT_FAILED, UserError
from chexnet.networks.weights import Published, check_hash, get_published, weights_folder

TIMEOUT_S = 30.0
PLAIN_EVERY_S = 10.0
PARTIAL_CONTENT = 206
NOT_SATISFIABLE = 416
_CHUNK_BYTES = 1 << 20

Tell = Callable[[int, int], None]


def fetch_weights(model: str, *, source: str = "", folder: Path | None = None) -> Path:
    """Put the published weights of a network where a training looks for them.

    Args:
        model: name of the network.
        source: a file, or an address that begins with http, that holds them; "" for the
            address at which Keras publishes them.
        folder: where to put them; by default where ``weights=imagenet`` looks.

    Returns:
        The path of the file, which is whole.

    Raises:
        UserError: unknown network, no such file, no network, or another file than the
            published one.
    """
    published = get_published(model)
    target = (folder or weights_folder()) / published.file
    if target.is_file():
        check_hash(target, published=published)
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")
    if source and not source.startswith(("http://", "https://")):
        _copy(Path(source), part=part, published=published)
    else:
        _download(source or published.url, part=part, published=published)
        try:
            check_hash(part, published=published)
        except UserError:
            part.unlink()  # not worth going on with
            raise
    part.replace(target)
    return target


def _copy(source: Path, *, part: Path, published: Published) -> None:
    if not source.is_file():
        raise UserError(f"the file {published.file}", found=f"no file {source}",
                        fix="correct --from FILE")  # fmt: skip
    check_hash(source, published=published)
    shutil.copyfile(source, part)


def _download(url: str, *, part: Path, published: Published) -> None:
    """Append to the part what of the file is not there yet.

    Raises:
        UserError: there is no answer, a refusal, or an end before the end.
    """
    try:
        with _progress(published.file) as tell:
            _receive(url, part, tell=tell)
    except (OSError, http.client.HTTPException, ValueError) as error:
        if isinstance(error, urllib.error.HTTPError) and error.code == NOT_SATISFIABLE:
            part.unlink(missing_ok=True)  # more is here than there is
        reason = str(getattr(error, "reason", error)) or type(error).__name__
        raise UserError(
            f"{published.file} from {url}",
            found=reason,
            fix=f"where there is no network, fetch {published.url} elsewhere, bring it here and "
            "add --from FILE; else run the same again: what has come is kept",
            exit_code=EXIT_FAILED,
        ) from error


def _receive(url: str, part: Path, *, tell: Tell) -> None:
    there = part.stat().st_size if part.exists() else 0
    headers = {"Range": f"bytes={there}-"} if there else {}
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        resumed = answer.status == PARTIAL_CONTENT
        done = there if resumed else 0
        total = done + int(answer.headers["Content-Length"] or 0)
        with part.open("ab" if resumed else "wb") as file:
            while chunk := answer.read(_CHUNK_BYTES):
                file.write(chunk)
                done += len(chunk)
                tell(done, total)
            file.flush()
            os.fsync(file.fileno())
    if done < total:  # http.client ends such a file without a word
        raise OSError(f"the line dropped after {done:,} of {total:,} bytes")


@contextmanager
def _progress(name: str) -> Iterator[Tell]:
    """Yield what to tell of bytes: a bar on a terminal, now and then a line elsewhere."""
    if sys.stderr.isatty():
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=16), DownloadColumn(),
                   TransferSpeedColumn())  # fmt: skip
        with Progress(*columns) as bar:
            task = bar.add_task(name, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total or None)
        return
    told = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal told
        if time.monotonic() - told >= PLAIN_EVERY_S:
            told = time.monotonic()
            of_total = f" of {total / 2**20:.0f}" if total else ""
            print(f"{name}: {done / 2**20:.0f}{of_total} MiB", file=sys.stderr, flush=True)

    yield tell
