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
from functools import cached_property
from pathlib import Path

from containers.base import LocalBase, choose_base
from containers.context import find_epoch, find_host_ca, origin_labels
from containers.process import Step
from containers.runtime import BuildRequest, Engine, find_engine
from env.errors import UserError
from env.lock import Lock, load_lock, lock_path, render_requirements
from env.stack import Stack
from recipes.blocks.network import mount_packages
from recipes.layout import build_sources, lock_source, taken_paths
from recipes.render import FILE_NAMES, check_format, render_build_stage, render_definition

SUFFIXES = {"singularity": ".sif", "docker": ".tar"}
BASE_LINK = "base"
STAGE_LINK = "stage"
"""The names under which a Singularity build sees the cached folders it starts from."""


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
        saved: a folder of packages saved before, None to use the cache's and fetch.
        drift: where the lock is no longer the committed one, a line for each package.
    """

    stack: Stack
    lock: Lock
    engine: Engine
    base: LocalBase | None
    work: Path
    output: Path
    root: Path
    ca: Path | None
    saved: Path | None = None
    drift: tuple[str, ...] = ()

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
    def lent(self) -> Path:
        """The folder that lends the CA bundle to the build, if there is one."""
        return self.work / "lent"

    @property
    def packages(self) -> Path:
        """The folder of packages that the definition installs from.

        A Dockerfile sees nothing outside its context.
        """
        if self.saved and self.format == "singularity":
            return self.saved
        return self.context / "packages"

    @property
    def base_packages(self) -> Path:
        """The folder of packages that a local base is made from."""
        return self.work / "base-packages"

    @cached_property
    def epoch(self) -> int:
        """The time that what is made is dated by, in seconds since 1970."""
        return find_epoch(self.root, otherwise=self.lock.epoch)

    @property
    def local_base(self) -> str:
        """How the definition names the local base, empty for the registry's."""
        if self.base is None:
            return ""
        return BASE_LINK if self.format == "singularity" else self.base.tar.name

    @cached_property
    def labels(self) -> dict[str, str]:
        """The labels that only this build knows: where from, when, and on what."""
        base = f"mmdebstrap:{self.base.codename}" if self.base else self.lock.base["image"]
        labels = origin_labels(self.root, epoch=self.epoch)
        labels["org.opencontainers.image.base.name"] = base
        if self.drift:
            labels["chexnet.drift"] = "; ".join(self.drift)
        return labels

    @cached_property
    def stage(self) -> Path:
        """The cached first stage (Singularity), named by the hash of its inputs."""
        return cache_folder() / "stages" / f"{self.stack.name}-{self._stage_key()}"

    def _stage_key(self) -> str:
        """Return the hash of every input of the first stage.

        The definition names the distribution's packages exactly. Of the lock the stage reads
        the wheels alone, so that renewing the rest does not compile anew.
        """
        digest = hashlib.sha256()
        definition = render_build_stage(self.stack, lock=self.lock, local_base=self.local_base)
        base = self.base.folder.name if self.base else ""
        wheels = render_requirements(self.lock, group=("build", "run"))
        for text in (definition, platform.machine(), base, wheels):
            digest.update(text.encode() + b"\0")
        for name in build_sources(self.lock):
            if name != lock_source(self.lock):
                content = (self.root / name).read_bytes()
                digest.update(f"{name}\0{len(content)}\0".encode() + content)
        return digest.hexdigest()[:32]


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where what can be made again is kept: ``$CHEXNET_HOME/cache/images``."""
    own = Path.home() / ".local/share/chexnet"
    home = Path(environ.get("CHEXNET_HOME") or ("/opt/chexnet-host" if os.geteuid() == 0 else own))
    # A folder that root has set up for everybody is used, and left alone.
    return (own if home.exists() and not os.access(home, os.W_OK) else home) / "cache" / "images"


def load_current_lock(stack: Stack) -> Lock:
    """Return the committed lock of a stack.

    Raises:
        UserError: it is missing, or was made from another state of the catalogue.
    """
    lock = load_lock(lock_path(stack.name))
    if lock.stack_sha256 != stack.sha256:
        raise UserError(
            f"a lock of stack {stack.name!r} as the catalogue has it",
            found=f"{lock_path(stack.name)}, made from another state of it",
            fix=f"invoke lock --stack {stack.name}",
        )
    return lock


def draw_blueprint(
    stack: Stack,
    *,
    lock: Lock,
    format: str,
    engine: str | None = None,
    output: Path | None = None,
    base: str = "auto",
    saved: Path | None = None,
    drift: tuple[str, ...] = (),
    root: Path,
) -> Blueprint:
    """Decide a build; see ``Blueprint`` and ``containers.build.build_image``.

    Raises:
        UserError: an unknown name, no engine that works, or no base to be had.
    """
    check_format(format)
    chosen = find_engine(format=format, name=engine)
    cache = cache_folder()
    target = (output or Path(f"chexnet-{stack.name}{SUFFIXES[format]}")).absolute()
    return Blueprint(
        stack=stack, lock=lock, engine=chosen,
        # A saved folder is for where there is no network: no registry is asked.
        base=choose_base("local" if saved and base == "auto" else base, lock=lock,
                         cache=cache / "bases"),
        work=cache / "work" / f"{stack.name}-{format}-{os.getpid()}",
        output=target, root=root, ca=find_host_ca(), saved=saved, drift=drift,
    )  # fmt: skip


def list_steps(plan: Blueprint) -> list[Step]:
    """Return every command line of the build, in order."""
    steps = []
    if plan.base:
        singularity = plan.format == "singularity"
        steps += plan.base.steps(work=plan.work, packages=plan.base_packages, unpack=singularity)
    definition = plan.work / FILE_NAMES[plan.format]
    if plan.format == "singularity" and not plan.stage.exists():
        made = plan.work / "stage"
        request = _request(plan, plan.work / "stage.def", made, sandbox=True)
        (argv,) = plan.engine.build_commands(request)
        steps.append(Step("compile the first stage", tuple(argv), plan.context))
        steps.append(_keep_step(plan, made=made, kept=plan.work / "kept"))
    request = _request(plan, definition, plan.partial)
    commands = plan.engine.build_commands(request)
    titles = ("build the image", "write the archive")
    steps += [Step(*pair, plan.context) for pair in zip(titles, map(tuple, commands), strict=False)]
    last = steps.pop()
    product = (plan.partial, plan.output)
    return [*steps, Step(last.title, last.argv, last.cwd, product=product)]


def _keep_step(plan: Blueprint, *, made: Path, kept: Path) -> Step:
    """Return the step that keeps of a first stage what the second takes, and no compiler.

    With a toolkit for GPUs the rest is larger still, and an engine would copy all of it. It
    goes at once, as far as it is ours to remove, to leave room for the second stage.
    """
    move = 'mkdir -p "$2$(dirname "$path")" && mv "$1$path" "$2$path"'
    each = f"for path in {' '.join(taken_paths(plan.lock))}; do {move}; done"
    script = f'set -e; {each}; rm -rf "$1" || true'
    argv = ("sh", "-c", script, "keep", str(made), str(kept))
    return Step("keep what the second stage takes", argv, product=(kept, plan.stage))


def _request(
    plan: Blueprint, definition: Path, output: Path, *, sandbox: bool = False
) -> BuildRequest:
    return BuildRequest(
        definition, plan.context, output, plan.work, lent=plan.lent, lends_ca=plan.ca is not None,
        packages=plan.packages, epoch=plan.epoch, tag=f"chexnet:{plan.stack.name}",
        labels=plan.labels, sandbox=sandbox,
    )  # fmt: skip


def write_definitions(plan: Blueprint) -> None:
    """Write the definitions of this build: the committed text, on this base, with labels."""
    singularity = plan.format == "singularity"
    text = render_definition(
        plan.stack, format=plan.format, lock=plan.lock, local_base=plan.local_base,
        build_stage=STAGE_LINK if singularity else "",
    )  # fmt: skip
    if singularity:
        # Singularity keeps the definition in the image: it names no folder of this host.
        (plan.context / STAGE_LINK).symlink_to(plan.stage)
        if plan.base:
            (plan.context / BASE_LINK).symlink_to(plan.base.folder)
        # Otherwise Apptainer's own time of building.
        dated = {"org.label-schema.build-date": plan.labels["org.opencontainers.image.created"]}
        labels = sorted((plan.labels | dated).items())
        lines = (f"    {name} {value}\n" for name, value in labels)
        text += "%labels\n" + "".join(lines)
        first = render_build_stage(plan.stack, lock=plan.lock, local_base=plan.local_base)
        (plan.work / "stage.def").write_text(first, encoding="utf-8")
    else:
        text = mount_packages(text)
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
