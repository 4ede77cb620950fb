"""A build, decided but not begun: what is where, which command lines will run.

Knows how the definition, the base, the first stage and the engine fit together. Leaves
running any of it to ``containers.build``.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from containers.base import LocalBase, choose_base
from containers.context import find_host_ca, origin_labels
from containers.process import Step
from containers.runtime import BuildRequest, Engine, find_engine
from env.errors import UserError
from env.lock import Lock, load_lock, lock_path
from env.stack import Stack
from recipes.layout import VENV, build_sources
from recipes.render import FILE_NAMES, check_format, render_build_stage, render_definition

SUFFIXES = {"singularity": ".sif", "docker": ".tar"}


@dataclass(frozen=True)
class Blueprint:
    """Everything that is decided before anything is made.

    Attributes:
        stack: what is built.
        lock: the stack made exact.
        engine: what builds.
        base: the local base to stand on, None for the registry's.
        work: a scratch folder that goes again.
        output: the file to make.
        root: the project's folder.
        ca: the host's CA bundle, None to lend none.
    """

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
        """The folder that the definition's paths start from."""
        return self.work / "context"

    @property
    def partial(self) -> Path:
        """The image while it is made: beside the output, so that moving it is one step."""
        return self.output.with_name(f".{self.output.name}.partial-{os.getpid()}")

    @property
    def log(self) -> Path:
        """The file that gets all output; it stays."""
        return self.output.with_name(self.output.name + ".log")

    @property
    def format(self) -> str:
        """The definition's format."""
        return self.engine.format

    @property
    def lent(self) -> Path | None:
        """The folder that lends the CA bundle to the build."""
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


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where what can be made again is kept: ``$CHEXNET_HOME/cache/images``."""
    own = Path.home() / ".local/share/chexnet"
    home = Path(environ.get("CHEXNET_HOME") or ("/opt/chexnet-host" if os.geteuid() == 0 else own))
    # A folder that root has set up for everybody is used, and left alone.
    return (own if home.exists() and not os.access(home, os.W_OK) else home) / "cache" / "images"


def draw_blueprint(
    stack: Stack, *, format: str, engine: str | None, output: Path | None, base: str, root: Path
) -> Blueprint:
    """Decide a build.

    Raises:
        UserError: an unknown name, no engine that works, no base to be had, or a lock that
            is missing or was made from another state of the catalogue.
    """
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
    return Blueprint(
        stack=stack, lock=lock, engine=chosen,
        base=choose_base(base, lock=lock, cache=cache / "bases"),
        work=cache / "work" / f"{stack.name}-{format}-{os.getpid()}",
        output=target, root=root, ca=find_host_ca(),
    )  # fmt: skip


def list_steps(plan: Blueprint) -> list[Step]:
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
        steps.append(Step("compile the first stage", tuple(argv), plan.context))
        steps.append(_keep_step(made, kept=plan.work / "kept", stage=plan.stage))
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


def _keep_step(made: Path, *, kept: Path, stage: Path) -> Step:
    """Return the step that keeps of a first stage what the second takes, and no compiler.

    With a toolkit for GPUs the rest is three times as large, and an engine copies all of it.
    """
    script = 'mkdir -p "$(dirname "$2")" && mv "$1" "$2"'
    argv = ("sh", "-c", script, "keep", f"{made}{VENV}", f"{kept}{VENV}")
    return Step("keep what the second stage takes", argv, product=(kept, stage))


def write_definitions(plan: Blueprint) -> None:
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


def place_base(plan: Blueprint) -> None:
    """Put the base's tar into the context, where a Dockerfile can reach it."""
    placed = plan.context / plan.base.tar.name
    if placed.exists():
        return
    try:
        placed.hardlink_to(plan.base.tar)
    except OSError:  # not every file system has links
        shutil.copyfile(plan.base.tar, placed)
