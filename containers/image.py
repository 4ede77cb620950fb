"""An image as a user names it: which kind it is, and how its inside is reached.

Knows the kinds (a .sif file, a root folder, an OCI or Docker archive, a name in an engine's
store), told by content and not by name. Leaves the engines' flags to ``containers.runtime``
and what is asked inside to its callers.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from containers.blueprint import cache_folder
from containers.layers import read_labels
from containers.runtime import ENGINES, exec_command, find_engine, needs_fakeroot
from containers.site import engine_of
from env.errors import UserError

SIF = "sif"
SANDBOX = "sandbox"
ARCHIVE = "archive"
STORED = "stored"
WITH_STORES = ("docker", "podman")
# A SIF file begins with a line that runs it (32 bytes); then this.
_SIF_MAGIC = b"SIF_MAGIC"
_SQUASHFS_MAGIC = b"hsqs"
_KNOWN = "a .sif file, a root folder, an OCI archive, or the name of an image in an engine's store"
# What only the engine says, before the reason.
_NOISE = ("INFO:", "WARNING:")


def image_kind(image: str) -> str:
    """Return which kind of image a user named: ``sif``, ``sandbox``, ``archive``, ``stored``.

    Raises:
        UserError: there is no such file, it cannot be read, or it is something else.
    """
    path = Path(image)
    if not path.exists():
        if image.startswith(("/", ".", "~")) or image.endswith((".sif", ".simg", ".tar")):
            raise UserError(_KNOWN, found=f"no file {image}",
                            fix="build one: invoke build-image --stack S")  # fmt: skip
        return STORED
    if path.is_dir():
        if not (path / "etc").is_dir() or not (path / "usr").is_dir():
            raise UserError(_KNOWN, found=f"the folder {image}, with no /etc and /usr in it",
                            fix="name the root folder of an image")  # fmt: skip
        return SANDBOX
    try:
        with path.open("rb") as file:
            head = file.read(64)
    except OSError as error:
        raise UserError("an image that can be read", found=f"{image}: {error.strerror}",
                        fix="ask its owner, or run as who may read it") from error  # fmt: skip
    if head[32:].startswith(_SIF_MAGIC) or _SQUASHFS_MAGIC in head[:40]:
        return SIF
    if tarfile.is_tarfile(path):
        return ARCHIVE
    raise UserError(_KNOWN, found=f"{image}, which is none of them by its content",
                    fix="name an image; one is built by invoke build-image --stack S")  # fmt: skip


def need_enterable(image: Path) -> Path:
    """Return an image that ranks can be started in.

    Raises:
        UserError: it is none, or one that must be run by its engine.
    """
    if engine_of(image)[0]:
        return image
    kind = image_kind(str(image))
    if kind in (ARCHIVE, STORED):
        found = f"{image}, an archive" if kind == ARCHIVE else f"nothing at {image}"
        raise UserError("an image: a .sif file, or a root folder", found=found,
                        fix="build one: invoke build-image --format singularity; an image in an "
                        "engine's store is named with it: podman:NAME, docker:NAME")  # fmt: skip
    return image


@contextmanager
def opened(image: str) -> Iterator[str]:
    """Yield what an engine can enter: the image itself, or a folder unpacked from its archive.

    Raises:
        UserError: it is no image, or it cannot be unpacked.
    """
    kind = image_kind(image)
    if kind == STORED and not any(ENGINES[name].is_ready() for name in WITH_STORES):
        found = f"no file {image}, and no engine with a store here"
        raise UserError(_KNOWN, found=found, fix="build one: invoke build-image --stack S")
    if kind != ARCHIVE:
        yield image
        return
    engine = find_engine(format="singularity")
    work = cache_folder() / "work"
    work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="unpacked-", dir=work) as folder:
        target = Path(folder) / "root"
        command = ["env", f"APPTAINER_TMPDIR={folder}", f"SINGULARITY_TMPDIR={folder}"]
        command += [engine.name, "build", *(["--fakeroot"] if needs_fakeroot() else [])]
        source = f"{_archive_form(Path(image))}:{Path(image).absolute()}"
        print(f"unpacking {image} …", file=sys.stderr)
        run_quietly([*command, "--sandbox", str(target), source], expected="an archive to unpack")
        yield str(target)


def outer_labels(image: str) -> dict[str, str] | None:
    """Return the labels that an image carries outside of its root file system.

    Returns:
        None for .sif files and root folders, where they are a file inside.

    Raises:
        UserError: the archive is damaged, or the engine does not know the image.
    """
    kind = image_kind(image)
    if kind == ARCHIVE:
        return read_labels(Path(image))
    if kind == STORED:
        engine = find_engine(format="docker").name
        line = [engine, "image", "inspect", "--format", "{{json .Config.Labels}}", image]
        told = json.loads(run_quietly(line, expected="an image in the engine's store"))
        return dict(told or {})
    return None


def run_inside(image: str, command: Sequence[str], **options: Sequence) -> str:
    """Run a command inside an opened image and return what it printed.

    Args:
        image: what ``opened`` yielded.
        command: what runs inside.
        options: those of ``containers.runtime.exec_command``.

    Raises:
        UserError: no engine enters it, or the command failed there.
    """
    line = exec_command(image, command, **options)
    return run_quietly(line, expected=f"an image of this project, which can run {command[0]}")


def run_quietly(command: Sequence[str], *, expected: str) -> str:
    """Run a command to its end and return what it printed.

    Args:
        command: the command line.
        expected: what it should have met, for the error.

    Raises:
        UserError: it failed; its last words are told.
    """
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
            check=False,
        )  # fmt: skip
    except OSError as error:
        raise UserError(expected, found=f"{command[0]}: {error.strerror}",
                        fix="run env/bootstrap.sh, which brings it") from error  # fmt: skip
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if not line.startswith(_NOISE)]
        reason = said[-1].removeprefix("FATAL:").strip() if said else f"exit code {done.returncode}"
        raise UserError(expected, found=reason, fix="name another image, or build it again: "
                        "invoke build-image --stack S")  # fmt: skip
    return done.stdout


def _archive_form(archive: Path) -> str:
    """Return how engines call an archive's form: OCI's has an index, Docker's a manifest."""
    with tarfile.open(archive) as outer:
        for member in outer:
            if member.name.removeprefix("./") == "oci-layout":
                return "oci-archive"
    return "docker-archive"
