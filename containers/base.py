"""The base an image stands on: from a registry, or a root folder made here.

Knows how to ask whether a registry answers, and how Debian's own tool makes the same
thing from a folder of Debian's packages. Leaves building on it to ``containers.build``.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from containers.process import Step
from env.errors import UserError, unknown_name
from env.lock import Lock

CHOICES = ("auto", "registry", "local")
PROBE_TIMEOUT_S = 5.0
# An index of several machines' images comes first, as what a tag names.
_MANIFEST_TYPES = ", ".join((
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
))  # fmt: skip


@dataclass(frozen=True)
class LocalBase:
    """A root folder, and the tar file it came from, made of a lock's own packages.

    Attributes:
        codename: of the distribution's release.
        key: the hash of the packages that are in it.
        epoch: the newest time that a file in it may have, in seconds since 1970.
        cache: where bases are kept.
    """

    codename: str
    key: str
    epoch: int
    cache: Path

    @property
    def tar(self) -> Path:
        """The tar file, which Docker's format adds to an empty image."""
        return self.folder.with_name(self.folder.name + ".tar")

    @property
    def folder(self) -> Path:
        """The unpacked folder, which Singularity's format starts from."""
        return self.cache / f"{self.codename}-{self.key}"

    def steps(self, *, work: Path, packages: Path, unpack: bool) -> list[Step]:
        """Return what has to run, nothing where it was all made before.

        Args:
            work: a scratch folder on the cache's file system.
            packages: a folder with its packages, and no others, and their index.
            unpack: whether the folder is wanted too.
        """
        steps = []
        tar = self.tar
        if not tar.exists():
            made = work / "base.tar"
            command = (
                "env", f"SOURCE_DATE_EPOCH={self.epoch}", "mmdebstrap", "--variant=minbase",
                # No device files: making them takes rights, and the engines bring their own.
                "--skip=output/dev",
                *(f"--setup-hook={hook}" for hook in _SETUP),
                f"--customize-hook={_FORGET}",
                self.codename, str(made), "",
            )  # fmt: skip
            command = tuple(word.replace(_PACKAGES, shlex.quote(str(packages))) for word in command)
            steps.append(Step(f"make a {self.codename} base", command, product=(made, tar)))
        if unpack and not self.folder.exists():
            made = work / "base"
            # The engines want a /dev to fill.
            script = 'mkdir -p "$1/dev" && tar --directory "$1" --extract --file "$2"'
            command = ("sh", "-c", script, "unpack", str(made), str(tar))
            steps.append(Step("unpack the base", command, product=(made, self.folder)))
        return steps


_PACKAGES = "PACKAGES"
# The packages are taken in first: where mmdebstrap works as a user of its own making, it may
# not look into this user's folders.
_SETUP = (
    'mkdir "$1/packages"',
    f"sync-in {_PACKAGES} /packages",
    'echo "deb [trusted=yes] copy:$1/packages ./" > "$1/etc/apt/sources.list"',
)
# They are no source that an image could use; and what differs each time goes (mmdebstrap
# itself sees to the rest).
_FORGET = (
    'rm -r "$1/packages"; '
    "echo '# This image holds the packages of its lock and asks no archive.' "
    '> "$1/etc/apt/sources.list"; '
    'rm -f "$1"/var/log/*.log "$1"/var/cache/debconf/*-old "$1"/var/lib/dpkg/*-old'
)


def make_key(lock: Lock) -> str:
    """Return the hash of the packages that a base made from a lock holds."""
    hashes = "".join(sorted(package.sha256 for package in lock.system_group("base")))
    return hashlib.sha256(f"{_SETUP}{_FORGET}{hashes}".encode()).hexdigest()[:16]


def choose_base(choice: str, *, lock: Lock, cache: Path) -> LocalBase | None:
    """Return the base to build on; None stands for the registry's.

    Args:
        choice: ``"registry"``, ``"local"``, or ``"auto"`` for the first that answers.
        lock: names the base and what a local one is made of.
        cache: where local bases are kept.

    Raises:
        UserError: the choice is unknown, or a local base is wanted and cannot be made.
    """
    if choice not in CHOICES:
        raise unknown_name("base", choice, known=CHOICES)
    image = lock.base["image"]
    if choice == "registry" or (choice == "auto" and registry_answers(image)):
        return None
    if not lock.system_packages:
        raise UserError(f"a registry that has {image}",
                        found=f"{registry_host(image)} does not answer, and a base can be made "
                        f"of locked packages only: {lock.gaps.get('system_packages', 'none')}",
                        fix="build where the registry is reachable")  # fmt: skip
    local = LocalBase(lock.base["codename"], make_key(lock), lock.epoch, cache)
    if not local.tar.exists() and shutil.which("mmdebstrap") is None:
        raise UserError(
            f"a registry that has {image}, or mmdebstrap to make a base",
            found=f"{registry_host(image)} does not answer, and no mmdebstrap on PATH",
            fix="apt-get install mmdebstrap, or give --base registry where one is reachable",
        )
    return local


def registry_host(image: str) -> str:
    """Return the host that serves an image, by the rules of image names."""
    host, slash, _ = image.partition("/")
    if not slash or ("." not in host and ":" not in host and host != "localhost"):
        host = "docker.io"
    return "registry-1.docker.io" if host == "docker.io" else host


def registry_answers(image: str, *, timeout_s: float = PROBE_TIMEOUT_S) -> bool:
    """Return whether the registry of an image answers as one does (200, or 401: log in).

    Anything else, such as a proxy's refusal, is no answer.
    """
    try:
        with urllib.request.urlopen(f"https://{registry_host(image)}/v2/", timeout=timeout_s):
            return True
    except urllib.error.HTTPError as error:
        return error.code == 401
    except (OSError, ValueError):
        return False


def find_digest(image: str, *, timeout_s: float = PROBE_TIMEOUT_S) -> str | None:
    """Return an image's digest (``sha256:…``) as its registry tells it, None without an answer.

    A registry that wants everybody to hold a token says where one is to be had; see the
    distribution project's specification of token authentication.
    """
    name, _, tag = image.rpartition(":")
    host = registry_host(image)
    # "debian:x" is short for a name on the default registry.
    path = name.partition("/")[2] if "/" in name else f"library/{name}"
    url = f"https://{host}/v2/{path}/manifests/{tag}"
    try:
        try:
            return _head_digest(url, timeout_s=timeout_s)
        except urllib.error.HTTPError as error:
            if error.code != 401:
                return None
            asked = dict(re.findall(r'(\w+)="([^"]*)"', error.headers["WWW-Authenticate"] or ""))
            query = urllib.parse.urlencode({k: v for k, v in asked.items() if k != "realm"})
            with urllib.request.urlopen(f"{asked['realm']}?{query}", timeout=timeout_s) as answer:
                token = json.load(answer)["token"]
            return _head_digest(url, timeout_s=timeout_s, token=token)
    except (OSError, ValueError, KeyError):
        return None


def _head_digest(url: str, *, timeout_s: float, token: str = "") -> str | None:
    headers = {"Accept": _MANIFEST_TYPES} | ({"Authorization": f"Bearer {token}"} if token else {})
    request = urllib.request.Request(url, headers=headers, method="HEAD")
    with urllib.request.urlopen(request, timeout=timeout_s) as answer:
        return answer.headers["Docker-Content-Digest"]
