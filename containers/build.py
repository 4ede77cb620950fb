"""Builds an image of a stack, whole or not at all.

Knows the order of things: base, first stage, image, and what may be reused. Leaves
the definition to ``recipes``, the engines' flags to ``containers.runtime``, what is
staged to ``containers.context`` and running to ``containers.process``.

The first stage (the wheels, Horovod compiled) takes most of the time and changes
seldom. Docker's engines keep it in their layer cache; for Singularity it is kept
here as a root folder whose name is the hash of every input it has.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from containers.base import LocalBase, choose_base
from containers.context import find_host_ca, lend_host_ca, origin_labels, stage_project
from containers.process import Step, run_step, stoppable
from containers.runtime import BuildRequest, Engine, find_engine
from env.errors import UserError
from env.lock import Lock, load_lock, lock_path
from env.stack import PROJECT, Stack
from recipes.layout import build_sources
from recipes.render import (
    FILE_NAMES,
    check_format,
    render_build_stage,
    render_definition,
)

SCHEMA_VERSION = 1
KEPT = 2
"""How many of each kind the cache keeps: the first stage alone takes two gigabytes."""
SUFFIXES = {"singularity": ".sif", "docker": ".tar"}


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


@dataclass(frozen=True)
class _Plan:
    """A build, decided but not begun: what is where, and what runs."""

    stack: Stack
    lock: Lock
    engine: Engine
    base: LocalBase | None
    work: Path
    output: Path
    root: Path
    ca: Path | None

    @property
    def context(self) -> Path:
        return self.work / "context"

    @property
    def partial(self) -> Path:
        """The image while it is made: beside the output, so that moving it is one step."""
        return self.output.with_name(f".{self.output.name}.partial-{os.getpid()}")

    @property
    def log(self) -> Path:
        return self.output.with_name(self.output.name + ".log")

    @property
    def format(self) -> str:
        return self.engine.format

    @property
    def lent(self) -> Path | None:
        return self.work / "lent" if self.ca else None

    @property
    def local_base(self) -> str:
        """How the definition names the local base, empty for the registry's."""
        if self.base is None:
            return ""
        return str(self.base.folder) if self.format == "singularity" else self.base.tar.name

    @property
    def labels(self) -> dict[str, str]:
        """The labels that only this build knows: where from, when, and on what."""
        base = f"mmdebstrap:{self.base.codename}" if self.base else self.lock.base["image"]
        return origin_labels(self.root) | {"org.opencontainers.image.base.name": base}

    @property
    def stage(self) -> Path:
        """The cached first stage (Singularity), named by the hash of its inputs."""
        return cache_folder() / "stages" / f"{self.stack.name}-{self._stage_key()}"

    def _stage_key(self) -> str:
        """Return the hash of every input of the first stage.

        The base's own content counts through its name, which holds the month; so does
        the distribution's archive, whose packages change within a release only in ways
        that keep their interfaces.
        """
        digest = hashlib.sha256()
        definition = render_build_stage(self.stack, lock=self.lock, local_base=self.local_base)
        month = datetime.now(UTC).strftime("%Y-%m")
        for text in (definition, platform.machine(), month):
            digest.update(text.encode() + b"\0")
        for name in build_sources(self.lock):
            content = (self.root / name).read_bytes()
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
        return digest.hexdigest()[:32]


def cache_folder(environ: os._Environ | dict[str, str] = os.environ) -> Path:
    """Return where what can be made again is kept: ``$CHEXNET_HOME/cache/images``."""
    home = environ.get("CHEXNET_HOME")
    if not home:
        root = os.geteuid() == 0
        home = "/opt/chexnet-host" if root else str(Path.home() / ".local/share/chexnet")
    return Path(home) / "cache" / "images"


def build_image(
    stack: Stack,
    *,
    format: str,
    engine: str | None = None,
    output: Path | None = None,
    base: str = "auto",
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
        force: replace an image that is there.
        dry_run: print the command lines and run none of them.
        root: the project's folder.

    Returns:
        What was made and how long it took; None after a dry run.

    Raises:
        UserError: wrong use (exit code 2), or the build failed (1); then nothing is
            left but the log.
    """
    plan = _plan(stack, format=format, engine=engine, output=output, base=base, root=root)
    _check_output(plan.output, force=force)
    _say(plan)
    if dry_run:
        for step in _steps(plan):
            print(step)
        return None
    started = time.monotonic()
    with stoppable(), _folders(plan):
        seconds = _run(plan)
    seconds["all"] = time.monotonic() - started
    result = BuildResult(
        stack.name, format, plan.engine.name, "local" if plan.base else "registry",
        str(plan.output), plan.output.stat().st_size,
        {title: round(value, 1) for title, value in seconds.items()}, str(plan.log),
    )  # fmt: skip
    print(f"{result.output}: {result.size_bytes / 2**20:.0f} MiB in {seconds['all']:.0f} s"
          f" (log: {result.log})")  # fmt: skip
    return result


def render_result(result: BuildResult) -> str:
    """Return a build's result as JSON text."""
    return json.dumps({"schema_version": SCHEMA_VERSION} | asdict(result), indent=1) + "\n"


def _plan(
    stack: Stack, *, format: str, engine: str | None, output: Path | None, base: str, root: Path
) -> _Plan:
    """Decide everything that can be decided before anything is made."""
    check_format(format)
    lock = load_lock(lock_path(stack.name))
    if lock.stack_sha256 != stack.sha256:
        raise UserError(
            f"a lock of stack {stack.name!r} as the catalogue has it",
            found=f"{lock_path(stack.name)}, made from another state of it",
            fix=f"invoke lock --stack {stack.name}",
        )
    chosen = find_engine(format=format, name=engine)
    cache = cache_folder()
    target = (output or Path(f"chexnet-{stack.name}{SUFFIXES[format]}")).absolute()
    return _Plan(
        stack=stack, lock=lock, engine=chosen,
        base=choose_base(base, lock=lock, cache=cache / "bases"),
        work=cache / "work" / f"{stack.name}-{format}-{os.getpid()}",
        output=target, root=root, ca=find_host_ca(),
    )  # fmt: skip


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


def _say(plan: _Plan) -> None:
    base = "a local base, made by mmdebstrap" if plan.base else plan.lock.base["image"]
    lent = f"; lending {plan.ca} to the build" if plan.ca else ""
    print(f"building {plan.output.name} with {plan.engine.name} on {base}{lent}", file=sys.stderr)


def _steps(plan: _Plan) -> list[Step]:
    """Return every command line of the build, in order."""
    steps = []
    if plan.base:
        steps += plan.base.steps(work=plan.work, unpack=plan.format == "singularity")
    definition = plan.work / FILE_NAMES[plan.format]
    if plan.format == "singularity" and not plan.stage.exists():
        made = plan.work / "stage"
        request = BuildRequest(
            plan.work / "stage.def", plan.context, made, plan.work, lent=plan.lent, sandbox=True
        )
        (argv,) = plan.engine.build_commands(request)
        title = "compile the first stage"
        steps.append(Step(title, tuple(argv), plan.context, product=(made, plan.stage)))
    request = BuildRequest(
        definition, plan.context, plan.partial, plan.work, tag=f"chexnet:{plan.stack.name}",
        labels=plan.labels, lent=plan.lent,
    )  # fmt: skip
    commands = plan.engine.build_commands(request)
    titles = ("build the image", "write the archive")
    steps += [Step(*pair, plan.context) for pair in zip(titles, map(tuple, commands), strict=False)]
    last = steps.pop()
    product = (plan.partial, plan.output)
    return [*steps, Step(last.title, last.argv, last.cwd, product=product)]


def _run(plan: _Plan) -> dict[str, float]:
    """Stage what the build reads, write the definitions, run every step."""
    steps = _steps(plan)
    stage_project(plan.context, root=plan.root)
    if plan.ca:
        lend_host_ca(plan.ca, folder=plan.work / "lent")
    _write_definitions(plan)
    seconds = {}
    for step in steps:
        if step.product:
            step.product[1].parent.mkdir(parents=True, exist_ok=True)
        if plan.format == "docker" and plan.base and plan.base.tar.exists():
            _place_base(plan)
        seconds[step.title] = run_step(step, log=plan.log)
    if plan.format == "singularity":
        os.utime(plan.stage)  # it was of use: the newest are kept
    _prune(cache_folder() / "stages", keep=KEPT)
    _prune(cache_folder() / "bases", keep=2 * KEPT)  # a tar file and a folder each
    return seconds


def _prune(folder: Path, *, keep: int) -> None:
    """Remove all but the newest of a cache's entries."""
    if folder.is_dir():
        newest = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
        for old in newest[keep:]:
            if old.is_dir():
                _remove(old)
            else:
                old.unlink()


def _write_definitions(plan: _Plan) -> None:
    """Write the definitions of this build: the committed text, on this base, with labels."""
    singularity = plan.format == "singularity"
    text = render_definition(
        plan.stack, format=plan.format, lock=plan.lock, local_base=plan.local_base,
        build_stage=str(plan.stage) if singularity else "",
    )  # fmt: skip
    if singularity:
        lines = (f"    {name} {value}\n" for name, value in sorted(plan.labels.items()))
        text += "%labels\n" + "".join(lines)
        first = render_build_stage(plan.stack, lock=plan.lock, local_base=plan.local_base)
        (plan.work / "stage.def").write_text(first, encoding="utf-8")
    (plan.work / FILE_NAMES[plan.format]).write_text(text, encoding="utf-8")


def _place_base(plan: _Plan) -> None:
    """Put the base's tar into the context, where a Dockerfile can reach it."""
    placed = plan.context / plan.base.tar.name
    if not placed.exists():
        placed.hardlink_to(plan.base.tar)


@contextmanager
def _folders(plan: _Plan) -> Iterator[None]:
    """Make the work folder; take it and any half image away again, however it ends."""
    try:
        plan.work.mkdir(parents=True)
    except OSError as error:
        raise UserError("a cache folder to work in", found=f"{plan.work}: {error.strerror}",
                        fix="set CHEXNET_HOME to a folder of yours") from error  # fmt: skip
    plan.log.write_text("", encoding="utf-8")
    try:
        yield
    finally:
        plan.partial.unlink(missing_ok=True)
        _remove(plan.work)


def _remove(folder: Path) -> None:
    """Remove a folder, also one whose folders a build has left without write permission."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        print(f"left behind, not ours to remove: {folder}", file=sys.stderr)
