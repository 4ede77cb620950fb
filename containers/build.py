"""Builds an image of a stack, whole or not at all.

Knows how a build begins and ends: what is refused, what is left behind, what is
reported. Leaves which commands run to ``containers.blueprint``, what is staged to
``containers.context`` and running to ``containers.process``.

The first stage (the wheels, Horovod compiled) takes most of the time and changes
seldom. Docker's engines keep it in their layer cache; for Singularity it is kept
here as a folder whose name is the hash of every input it has, with what the second takes.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from containers.blueprint import (
    Blueprint,
    cache_folder,
    draw_blueprint,
    list_steps,
    load_current_lock,
    place_base,
    write_definitions,
)
from containers.compatibility import require_compatible
from containers.context import lend_host_ca, stage_project
from containers.drift import follow_archive
from containers.packages import check_packages, fetch_packages, stage_base, stage_packages
from containers.process import run_step, stoppable
from env.atomic import write_text
from env.errors import UserError
from env.lock import render_lock
from env.stack import PROJECT, Stack
from recipes.layout import PACKAGES, lock_source

SCHEMA_VERSION = 1
UNUSED_S = 30 * 24 * 3600.0
"""How long the cache keeps a package that no build uses."""
KEPT = 2
"""How many of each kind the cache keeps: a virtual environment takes two gigabytes, one for
GPUs seven."""


@dataclass(frozen=True)
class BuildResult:
    """What a build made.

    Attributes:
        stack: the stack's name.
        format: ``"singularity"`` or ``"docker"``.
        engine: the program that built it.
        base: ``"registry"`` or ``"local"``.
        output: the image file.
        size_bytes: its size.
        seconds: how long it all took, by step.
        log: everything the engine printed.
    """

    stack: str
    format: str
    engine: str
    base: str
    output: str
    size_bytes: int
    seconds: dict[str, float]
    log: str


def build_image(
    stack: Stack,
    *,
    format: str,
    engine: str | None = None,
    output: Path | None = None,
    base: str = "auto",
    packages: Path | None = None,
    allow_drift: bool = False,
    force: bool = False,
    dry_run: bool = False,
    root: Path = PROJECT,
) -> BuildResult | None:
    """Build an image of a stack.

    Args:
        stack: a stack of the catalogue; its lock is the committed one.
        format: ``"singularity"`` makes a .sif file, ``"docker"`` an OCI archive (.tar),
            which is also in the engine's store, as ``chexnet:STACK``.
        engine: which program builds; by default the first here that can.
        output: the file to make; ``chexnet-STACK.sif`` or ``.tar`` in this folder by default.
        base: ``"registry"``, ``"local"`` (made by mmdebstrap), or ``"auto"``.
        packages: a folder saved by ``fetch-packages`` to build from; nothing is fetched then.
        allow_drift: build with the packages that the archive has now, whatever the lock says.
        force: replace an image that is there.
        dry_run: print the command lines and run none of them.
        root: the project's folder.

    Returns:
        What was made and how long it took; None after a dry run.

    Raises:
        UserError: wrong use or a saved folder that is not whole (exit code 2), the stack
            breaks a rule of compatibility (1), or the build failed, be it that the archive
            has not got the locked packages any more (1); then nothing is left but the log.
    """
    if packages and allow_drift:
        raise UserError("a saved folder, or what the archive has now",
                        found="both --packages and --allow-drift", fix="leave one out")  # fmt: skip
    lock, drift = load_current_lock(stack), ()
    if allow_drift and not dry_run:
        lock, drift = follow_archive(lock, stack=stack)
    plan = draw_blueprint(
        stack, lock=lock, format=format, engine=engine, output=output, base=base,
        saved=packages and packages.absolute(), drift=drift, root=root,
    )  # fmt: skip
    require_compatible(stack, lock=plan.lock)
    _check_output(plan.output, force=force)
    _say(plan)
    if dry_run:
        for step in list_steps(plan):
            print(step)
        return None
    started = time.monotonic()
    with stoppable(), _folders(plan):
        seconds = _run(plan)
    seconds["all"] = time.monotonic() - started
    return _tell(plan, format=format, seconds=seconds)


def render_result(result: BuildResult) -> str:
    """Return a build's result as JSON text."""
    return json.dumps({"schema_version": SCHEMA_VERSION} | asdict(result), indent=1) + "\n"


def _tell(plan: Blueprint, *, format: str, seconds: Mapping[str, float]) -> BuildResult:
    result = BuildResult(
        plan.stack.name, format, plan.engine.name, "local" if plan.base else "registry",
        str(plan.output), plan.output.stat().st_size,
        {title: round(value, 1) for title, value in seconds.items()}, str(plan.log),
    )  # fmt: skip
    print(f"{result.output}: {result.size_bytes / 2**20:.0f} MiB in {seconds['all']:.0f} s"
          f" (log: {result.log})")  # fmt: skip
    return result


def _check_output(output: Path, *, force: bool) -> None:
    if output.is_dir():
        raise UserError("a file to write the image to", found=f"{output} is a folder",
                        fix="name a file in it")  # fmt: skip
    if not output.parent.is_dir():
        raise UserError("a folder for the image", found=f"no {output.parent}", fix="make it first")
    if not os.access(output.parent, os.W_OK):
        raise UserError("a folder to write the image to", found=f"{output.parent} is read-only",
                        fix="name another with --output")  # fmt: skip
    if output.exists() and not force:
        raise UserError("no image there yet", found=str(output),
                        fix="give --force to replace it, or another --output")  # fmt: skip


def _say(plan: Blueprint) -> None:
    base = "a local base, made by mmdebstrap" if plan.base else plan.lock.base["image"]
    lent = f"; lending {plan.ca} to the build" if plan.ca else ""
    if plan.stack.status == "candidate":
        print(f"candidate: {plan.stack.summary}", file=sys.stderr)
    print(f"building {plan.output.name} with {plan.engine.name} on {base}{lent}", file=sys.stderr)
    for line in plan.drift:
        print(f"drift: {line}", file=sys.stderr)


def _run(plan: Blueprint) -> dict[str, float]:
    """Stage what the build reads, write the definitions, run every step."""
    _touch(plan)  # at once: a build beside this one prunes what is oldest
    steps = list_steps(plan)
    started = time.monotonic()
    files = _obtain_packages(plan)
    seconds = {"obtain the packages": time.monotonic() - started}
    stage_project(plan.context, root=plan.root)
    if plan.drift:  # the image's lock is what the image was made from
        write_text(plan.context / lock_source(plan.lock), render_lock(plan.lock))
    if plan.packages != plan.saved:
        stage_packages(plan.lock, files=files, folder=plan.packages)
    if plan.base:
        stage_base(plan.lock, files=files, folder=plan.base_packages)
    # A run's record names the program's revision; in an image there is no repository to ask.
    revision = plan.labels["org.opencontainers.image.revision"]
    (plan.context / "chexnet" / "REVISION").write_text(revision + "\n", encoding="utf-8")
    # Mounted over a folder that is itself mounted: it needs a place there.
    (plan.lent / Path(PACKAGES).name).mkdir(parents=True)
    if plan.ca:
        lend_host_ca(plan.ca, folder=plan.lent)
    write_definitions(plan)
    for step in steps:
        if step.product:
            step.product[1].parent.mkdir(parents=True, exist_ok=True)
        if plan.format == "docker" and plan.base and plan.base.tar.exists():
            place_base(plan)
        seconds[step.title] = run_step(step, log=plan.log)
        _touch(plan)  # what is unpacked comes with the archive's date
    own = _cached(plan)
    _prune(cache_folder() / "stages", keep=KEPT, own=own)
    _prune(cache_folder() / "bases", keep=2 * KEPT, own=own)  # a tar file and a folder each
    return seconds


def _cached(plan: Blueprint) -> list[Path]:
    """Return what of the cache this build uses and is there by now, packages apart."""
    paths = [plan.base.tar, plan.base.folder] if plan.base else []
    if plan.format == "singularity":
        paths.append(plan.stage)
    return [path for path in paths if path.exists()]


def _touch(plan: Blueprint) -> None:
    """Date what this build uses of the cache by now: the newest are kept."""
    for path in _cached(plan):
        os.utime(path)


def _obtain_packages(plan: Blueprint) -> list[Path]:
    """Return the files to install from: those of the saved folder, or of the cache.

    Raises:
        UserError: a saved folder is not whole, or the archive has drifted from the lock.
    """
    if plan.saved:
        return check_packages(plan.lock, folder=plan.saved)
    cache = cache_folder() / "packages"
    files = fetch_packages(plan.lock, stack=plan.stack, folder=cache)
    _forget_unused(cache, used=files)
    return files


def _forget_unused(folder: Path, *, used: Iterable[Path]) -> None:
    """Remove the files of a cache that no build has used for a while."""
    for path in used:
        os.utime(path)
    for path in folder.glob("*/*"):
        if time.time() - path.stat().st_mtime > UNUSED_S:
            path.unlink(missing_ok=True)


def _prune(folder: Path, *, keep: int, own: Iterable[Path]) -> None:
    """Remove all but the newest of a cache's entries, and none of this build's own."""
    if folder.is_dir():

        def rank(path: Path) -> tuple[bool, float]:
            return path in own, path.stat().st_mtime

        newest = sorted(folder.glob("[!.]*"), key=rank, reverse=True)
        for old in newest[keep:]:
            if not old.is_dir():
                old.unlink()
                continue
            # Under another name first: a half removed folder must not pass for a whole one.
            gone = old.with_name(f".gone-{old.name}")
            old.rename(gone)
            _remove(gone)


@contextmanager
def _folders(plan: Blueprint) -> Iterator[None]:
    """Make the work folder; take it and any half image away again, however it ends."""
    try:
        plan.work.mkdir(parents=True)
    except OSError as error:
        raise UserError("a cache folder to work in", found=f"{plan.work}: {error.strerror}",
                        fix="set CHEXNET_HOME to a folder of yours") from error  # fmt: skip
    try:
        plan.log.write_text("", encoding="utf-8")
        yield
    finally:
        plan.partial.unlink(missing_ok=True)
        _remove(plan.work)


def _remove(folder: Path) -> None:
    """Remove a folder, also one whose folders a build has left without write permission."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        print(f"left behind, not ours to remove: {folder}", file=sys.stderr)
