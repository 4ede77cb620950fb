"""The base an image stands on: from a registry, or a root folder made here.

Knows how to ask whether a registry answers, and how Debian's own tool makes the same
thing from Debian's archive. Leaves building on it to ``containers.build``.
"""

from __future__ import annotations

import json
import platform
import re
import shutil
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from datetime import UTC, datetime
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
    """A root folder, and the tar file it came from.

    A base is good for the calendar month it was made in: Debian moves on under the same
    name, and an image should have its security updates.
    """

    codename: str
    cache: Path

    @property
    def _stem(self) -> Path:
        month = datetime.now(UTC).strftime("%Y-%m")
        return self.cache / f"{self.codename}-{platform.machine()}-{month}"

    @property
    def tar(self) -> Path:
        """The tar file, which Docker's format adds to an empty image."""
        return self._stem.with_name(self._stem.name + ".tar")

    @property
    def folder(self) -> Path:
        """The unpacked folder, which Singularity's format starts from."""
        return self._stem

    def steps(self, *, work: Path, unpack: bool) -> list[Step]:
        """Return what has to run, nothing where it was all made before.

        Args:
            work: a scratch folder on the cache's file system.
            unpack: whether the folder is wanted too.
        """
        steps = []
        tar = self.tar
        if not tar.exists():
            made = work / "base.tar"
            # No device files: making them takes rights, and the engines bring their own.
            options = ("--variant=minbase", "--skip=output/dev")
            command = ("mmdebstrap", *options, self.codename, str(made))
            steps.append(Step(f"make a {self.codename} base", command, product=(made, tar)))
        if unpack and not self.folder.exists():
            made = work / "base"
            # The engines want a /dev to fill.
            script = 'mkdir -p "$1/dev" && tar --directory "$1" --extract --file "$2"'
            command = ("sh", "-c", script, "unpack", str(made), str(tar))
            steps.append(Step("unpack the base", command, product=(made, self.folder)))
        return steps


def choose_base(choice: str, *, lock: Lock, cache: Path) -> LocalBase | None:
    """Return the base to build on; None stands for the registry's.

    Args:
        choice: ``"registry"``, ``"local"``, or ``"auto"`` for the first that answers.
        lock: names the base.
        cache: where local bases are kept.

    Raises:
        UserError: the choice is unknown, or a local base is wanted and cannot be made.
    """
    if choice not in CHOICES:
        raise unknown_name("base", choice, known=CHOICES)
    image = lock.base["image"]
    if choice == "registry" or (choice == "auto" and registry_answers(image)):
        return None
    local = LocalBase(lock.base["codename"], cache)
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
