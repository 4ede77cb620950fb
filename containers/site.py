"""Where a command runs: this environment, or an image, entered in the way that its kind asks for.

Knows how images are named, which of them a launcher outside can enter rank by rank, and which are
srun's own matter. Leaves the engines' flags to ``containers.runtime``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from containers.entry import bind_words
from containers.runtime import exec_command
from env.errors import UserError

PYXIS = "pyxis"
# Before the name of a stored image stands what enters it: podman:localhost/chexnet-cpu
NAMED = ("docker", "podman", PYXIS)
_NVIDIA = Path("/dev/nvidiactl")


def engine_of(image: Path | str) -> tuple[str | None, str]:
    """Return the engine that an image is named with, and the rest; None for a file or folder."""
    engine, colon, rest = str(image).partition(":")
    if colon and rest and engine in NAMED:
        return engine, rest
    return (PYXIS if str(image).endswith(".sqsh") else None), str(image)


def sees_gpus(device: str) -> bool | None:
    """Return whether an image has to see GPUs for a device; None: where this host has some."""
    return {"gpu": True, "cpu": False}.get(device)


@dataclass(frozen=True)
class Site:
    """Where a command runs: this environment, or an image with folders bound into it.

    Attributes:
        image: a .sif file or root folder, ``podman:NAME`` or ``docker:NAME`` in the engine's store,
            or ``pyxis:NAME`` or a .sqsh file, which srun's plugin enters.
        binds: folders of the host that the image must see, at the same path.
        gpu: whether the image must see the host's GPUs; None for where there are NVIDIA's.
    """

    image: Path | None = None
    binds: tuple[Path, ...] = ()
    gpu: bool | None = None

    def __post_init__(self) -> None:
        """Refuse what is no image to enter.

        Raises:
            UserError: there is no such file or folder.
        """
        if self.image is None or engine_of(self.image)[0] or self.image.exists():
            return
        raise UserError(
            "an image: a .sif file, or a root folder",
            found=f"nothing at {self.image}",
            fix="build one: invoke build-image --format singularity; an image in an engine's store "
            "is named with its engine: podman:NAME, docker:NAME; srun's plugin enters pyxis:NAME",
        )

    @property
    def by_srun(self) -> bool:
        """Return whether srun itself enters the image."""
        return self.image is not None and engine_of(self.image)[0] == PYXIS

    def enter(self, command: Sequence[str], *, rank: bool = False) -> list[str]:
        """Return the command line that runs ``command`` at this site.

        A leading ``python`` is the image's own there, and this interpreter here.

        Args:
            command: what runs.
            rank: whether a launcher outside starts it, as one of several.
        """
        if self.image is None:
            return [sys.executable, *command[1:]] if command[0] == "python" else list(command)
        engine, name = engine_of(self.image)
        if engine == PYXIS:
            alone = ["srun", "--overlap", "--nodes=1", "--ntasks=1", *self.srun_options()]
            return list(command) if rank else [*alone, *command]
        binds = [(bind, None) for bind in self.binds]
        gpu = _NVIDIA.exists() if self.gpu is None else self.gpu
        return exec_command(name if engine else self.image, command, binds=binds, engine=engine,
                            gpu=gpu, rank=rank)  # fmt: skip

    def srun_options(self) -> list[str]:
        """Return the options of srun's plugin; none where srun has nothing to enter.

        The home folder stays outside, and with it packages that a user has installed there.

        Raises:
            UserError: a folder that the plugin cannot mount.
        """
        if not self.by_srun:
            return []
        options = [f"--container-image={engine_of(self.image or '')[1]}"]
        mounts = []
        for bind in self.binds:
            short, text = bind_words("", bind, bind)
            if short:
                raise UserError("a folder without , : or quotes in its path for pyxis to mount",
                                found=str(bind), fix="rename it, or link to it")  # fmt: skip
            mounts.append(text)
        options += [f"--container-mounts={','.join(mounts)}"] if mounts else []
        return [*options, "--no-container-mount-home"]
