"""The container engines: which there are, which is here, and their command lines.

Knows every flag of every engine, and why it is there. Leaves what is built to
``containers.build`` and running anything to ``containers.process``.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from containers.entry import WITH_VARIABLES, bind_words
from env.errors import UserError, unknown_name
from recipes.layout import PACKAGES

PROBE_TIMEOUT_S = 10
_USUAL = (Path("/usr/bin"), Path("/usr/local/bin"), Path("/bin"))
Binds = Sequence[tuple[Path, Path | None]]
HOST_CA_NAME = "host-ca.crt"
_CAP_SYS_RESOURCE = 1 << 24  # linux/capability.h


@dataclass(frozen=True)
class BuildRequest:
    """What an engine needs to know to build.

    Attributes:
        definition: the rendered text, as a file.
        context: the folder that relative paths of the definition start from.
        output: the file (or folder, for a sandbox) to make.
        tag: the image's name in an engine's store.
        labels: those only known now; Singularity has them in its definition.
        scratch: where an engine may unpack things while it builds.
        lent: a folder to mount; it holds the host's CA bundle as ``host-ca.crt``, or not.
        lends_ca: whether it does.
        packages: the folder of packages that the definition installs from.
        epoch: the time that the image's files are dated by, in seconds since 1970.
        sandbox: make a root folder rather than an image file (Singularity).
    """

    definition: Path
    context: Path
    output: Path
    scratch: Path
    lent: Path
    packages: Path
    epoch: int
    lends_ca: bool = False
    tag: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    sandbox: bool = False


@dataclass(frozen=True)
class Engine(ABC):
    """A program that makes or enters images.

    Attributes:
        name: the program's name, which is also how the user chooses it.
        format: the format of definition that it builds from.
        install: how to get it.
    """

    name: str
    format: str
    install: str

    def is_ready(self) -> bool:
        """Return whether the program is here and works."""
        return shutil.which(self.name) is not None

    def program(self, *, rank: bool) -> str:
        """Return the program's name; its path where it lies where other hosts would not look.

        mpirun hands no PATH on; what is not one of the system's is to lie at the same place there.
        """
        path = shutil.which(self.name) if rank else None
        return self.name if path is None or Path(path).parent in _USUAL else path

    @abstractmethod
    def build_commands(self, request: BuildRequest) -> list[list[str]]:
        """Return the command lines that build an image into ``request.output``."""

    @abstractmethod
    def exec_command(
        self, image: str, *, command: Sequence[str], binds: Binds, gpu: bool = False,
        rank: bool = False,
    ) -> list[str]:  # fmt: skip
        """Return the command line that runs a command inside an image.

        Args:
            image: a file, or the name of a stored image.
            command: what runs inside.
            binds: folders of the host, with where the image sees them (None: the same path).
            gpu: whether it is to see the host's GPUs and the driver's libraries.
            rank: whether a launcher outside starts it, which tells it who it is by variables.
        """


class SingularityEngine(Engine):
    """Apptainer and Singularity, which differ by their name."""

    def build_commands(self, request: BuildRequest) -> list[list[str]]:
        """Return one line; the definition's labels and paths are already in it.

        What a release may not know is set by variables, which older ones ignore.
        """
        command = ["env", f"SOURCE_DATE_EPOCH={request.epoch}"]  # mksquashfs dates by it
        for prefix in ("APPTAINER", "SINGULARITY"):
            command.append(f"{prefix}_TMPDIR={request.scratch}")
        # gzip, which every kernel reads, at its first level: the default one takes many
        # times as long for an image that is little smaller.
        command.append("APPTAINER_MKSQUASHFS_ARGS=-Xcompression-level 1")
        # Forced, the definition's labels stand over the engine's own (its time of building).
        command += [self.name, "build", "--force"]
        if needs_fakeroot():
            command.append("--fakeroot")
        if request.sandbox:
            command.append("--sandbox")
        for source, target in ((request.lent, "/mnt"), (request.packages, PACKAGES)):
            command += ["--bind", f"{source}:{target}:ro"]
        return [[*command, str(request.output), str(request.definition)]]

    def exec_command(
        self, image: str, *, command: Sequence[str], binds: Binds, gpu: bool = False,
        rank: bool = False,
    ) -> list[str]:  # fmt: skip
        """Return an ``exec`` line.

        The environment is kept (no ``--cleanenv``): a host's mpirun tells its ranks who
        they are through OMPI_ and PMIX_ variables. The image itself overrides what
        would do harm (PATH, PYTHONPATH, user site packages).
        """
        head = [self.program(rank=rank), "exec"]
        if os.geteuid() == 0 and not has_capability(_CAP_SYS_RESOURCE):
            # Root without its full set is refused: "Requesting capability set …".
            head.append("--no-privs")
        if gpu:
            head.append("--nv")
        for source, target in binds:
            head += bind_words("--bind", source, target or source)
        return [*head, image, *command]


class DockerEngine(Engine):
    """Docker, whose daemon has to answer as well."""

    def is_ready(self) -> bool:
        """Return whether the program is here and its daemon answers within seconds."""
        return shutil.which(self.name) is not None and _succeeds([self.name, "info"])

    def build_commands(self, request: BuildRequest) -> list[list[str]]:
        """Return the build, then the line that saves the stored image as an archive."""
        # Before release 23 Docker's older builder is the default; it has no mounts.
        build = ["env", "DOCKER_BUILDKIT=1", self.name, "build"]
        build += [*_docker_options(request), str(request.context)]
        save = [self.name, "save", "--output", str(request.output), request.tag]
        return [build, save]

    def exec_command(
        self, image: str, *, command: Sequence[str], binds: Binds, gpu: bool = False,
        rank: bool = False,
    ) -> list[str]:  # fmt: skip
        """Return a ``run`` line; ranks talk over the host's network and shared memory.

        Nothing of the environment is seen inside. A rank gets the variables by which launchers and
        libraries speak to it, whose names only the launcher knows, and the launcher's own
        files and processes.
        """
        head = ["--rm", "--network", "host", "--ipc", "host", *self.user_options()]
        if gpu:
            head += self.gpu_options
        if rank:
            place = Path(tempfile.gettempdir())
            head += ["--pid", "host", "--volume", f"{place}:{place}"]
            # Memory of a process in another user namespace cannot be read past it.
            head += ["--env", "OMPI_MCA_btl_vader_single_copy_mechanism=none"]
        for source, target in binds:
            head += bind_words("--volume", source, target or source)
        line = [*head, "--workdir", str(Path.cwd()) if binds else "/", image, *command]
        if rank:
            return ["sh", "-c", WITH_VARIABLES, "rank", self.program(rank=rank), *line]
        return [self.name, "run", *line]

    gpu_options: ClassVar[tuple[str, ...]] = ("--gpus", "all")

    def user_options(self) -> list[str]:
        """Return what makes files that are written ours: the daemon is root."""
        return [] if os.geteuid() == 0 else ["--user", f"{os.getuid()}:{os.getgid()}"]


class PodmanEngine(DockerEngine):
    """Podman: Docker's options, no daemon, and archives by the name of their format."""

    gpu_options: ClassVar[tuple[str, ...]] = ("--device", "nvidia.com/gpu=all")

    def user_options(self) -> list[str]:
        """Return what makes files that are written ours: root inside is another user outside."""
        return [] if os.geteuid() == 0 else ["--userns", "keep-id"]

    def is_ready(self) -> bool:
        """Return whether the program is here and can read its own store."""
        return shutil.which(self.name) is not None and _succeeds([self.name, "info"])

    def build_commands(self, request: BuildRequest) -> list[list[str]]:
        """Return the build and the line that saves an OCI archive."""
        options = [*_buildah_options(), *_docker_options(request)]
        build = [self.name, "build", *options, str(request.context)]
        save = [self.name, "save", "--format", "oci-archive", "--output", str(request.output)]
        return [build, [*save, request.tag]]


class BuildahEngine(Engine):
    """Buildah, which builds and stores but is not for running things."""

    def build_commands(self, request: BuildRequest) -> list[list[str]]:
        """Return the build and the line that pushes it into an OCI archive."""
        options = [*_buildah_options(), *_docker_options(request)]
        build = [self.name, "bud", *options, str(request.context)]
        push = [self.name, "push", request.tag, f"oci-archive:{request.output}:{request.tag}"]
        return [build, push]

    def exec_command(
        self, image: str, *, command: Sequence[str], binds: Binds, gpu: bool = False,
        rank: bool = False,
    ) -> list[str]:  # fmt: skip
        """Refuse.

        Raises:
            UserError: always; the engines that can are named.
        """
        raise UserError("an engine that enters images", found="buildah, which only builds",
                        fix="use docker or podman, or apptainer with a .sif file")  # fmt: skip


_APPTAINER = "run env/bootstrap.sh, which brings it, or see apptainer.org"
ENGINES: dict[str, Engine] = {
    engine.name: engine
    for engine in (
        SingularityEngine("apptainer", "singularity", _APPTAINER),
        SingularityEngine("singularity", "singularity", _APPTAINER),
        DockerEngine("docker", "docker", "install it and start its daemon: docs.docker.com"),
        PodmanEngine("podman", "docker", "install it: apt-get install podman"),
        BuildahEngine("buildah", "docker", "install it: apt-get install buildah"),
    )
}
"""Every engine by name, in the order in which they are looked for."""


def find_engine(*, format: str, name: str | None = None) -> Engine:
    """Return the engine to use: the one chosen, or the first that is here and works.

    Args:
        format: the format of definition or image it must handle.
        name: the user's choice.

    Raises:
        UserError: the name is unknown, the engine does not do this format, or it is not
            here or does not answer.
    """
    able = [engine for engine in ENGINES.values() if engine.format == format]
    if name is None:
        chosen = next((engine for engine in able if engine.is_ready()), None)
        if chosen is None:
            raise UserError(
                f"an engine for {format} images on PATH",
                found=f"none of {', '.join(engine.name for engine in able)} that works",
                fix=able[-1].install,
            )
        return chosen
    if name not in ENGINES:
        raise unknown_name("engine", name, known=ENGINES)
    engine = ENGINES[name]
    if engine not in able:
        raise UserError(f"an engine for {format} images", found=f"{name!r}, for {engine.format}",
                        fix=f"use one of: {', '.join(e.name for e in able)}")  # fmt: skip
    if not engine.is_ready():
        raise UserError(f"{name} on PATH, and answering", found="it is not", fix=engine.install)
    return engine


def exec_command(
    image: Path | str,
    command: Sequence[str],
    *,
    binds: Binds = (),
    engine: str | None = None,
    gpu: bool = False,
    rank: bool = False,
) -> list[str]:
    """Return the command line that runs a command inside an image.

    Args:
        image: a .sif file or root folder, else the name of an image in Docker's form.
        command: what runs inside.
        binds: folders of the host with where the image sees them (None: the same path).
        engine: which to use; by default the first here that enters such an image.
        gpu: whether it is to see the host's GPUs.
        rank: whether a launcher outside starts it.

    Raises:
        UserError: the file is not there, or no engine is.
    """
    if str(image).endswith(".tar"):
        raise UserError(
            "a .sif file, or the name of an image in an engine's store",
            found=f"the archive {image}",
            fix="build a .sif: invoke build-image --format singularity; or load the archive "
            f"(podman load --input {image}) and run the command inside: podman run …",
        )
    is_file = Path(image).exists() or str(image).endswith((".sif", ".simg"))
    if is_file and not Path(image).exists():
        raise UserError("an image", found=f"no file {image}", fix="build it: invoke build-image")
    chosen = find_engine(format="singularity" if is_file else "docker", name=engine)
    return chosen.exec_command(str(image), command=command, binds=binds, gpu=gpu, rank=rank)


def needs_fakeroot() -> bool:
    """Return whether Apptainer must build in a user namespace: not root, or half a root."""
    return os.geteuid() != 0 or not has_capability(_CAP_SYS_RESOURCE)


def has_capability(bit: int, *, status: Path = Path("/proc/self/status")) -> bool:
    """Return whether this process may use a capability, as its effective set says."""
    for line in status.read_text(encoding="ascii").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) & bit)
    return False


def _docker_options(request: BuildRequest) -> list[str]:
    options = ["--file", str(request.definition), "--tag", request.tag]
    for name, value in sorted(request.labels.items()):
        options += ["--label", f"{name}={value}"]
    if request.lends_ca:
        options += ["--secret", f"id=host-ca,src={request.lent / HOST_CA_NAME}"]
    return options


def _buildah_options() -> list[str]:
    """Return what lets Buildah work without the rights to make namespaces.

    ``--layers`` keeps each step, so that a second build starts where something changed;
    Docker's format, since OCI's has no health check.
    """
    options = ["--isolation=chroot", "--network=host", "--layers", "--force-rm", "--format=docker"]
    if not has_capability(_CAP_SYS_RESOURCE):
        # Newer releases raise these limits by themselves, which then is refused; older ones
        # have lowered nproc to 32768 before they look at what is asked for.
        files = _hard_limit(resource.RLIMIT_NOFILE, most=2**20)
        processes = _hard_limit(resource.RLIMIT_NPROC, most=2**15)
        options += ["--ulimit", f"nofile={files}:{files}"]
        options += ["--ulimit", f"nproc={processes}:{processes}"]
    return options


def _hard_limit(limit: int, *, most: int) -> int:
    hard = resource.getrlimit(limit)[1]
    return most if hard == resource.RLIM_INFINITY else min(hard, most)


def _succeeds(command: Sequence[str]) -> bool:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, timeout=PROBE_TIMEOUT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
