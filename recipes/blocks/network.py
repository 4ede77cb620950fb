"""Shell steps that install something: over the network, or from a folder of packages.

Knows how a step borrows the host's CA bundle and finds the folder, in either format, and
what makes its outcome the same each time. Leaves mounting both to whoever runs the build.
"""

from __future__ import annotations

import hpccm
from hpccm.common import container_type
from hpccm.primitives import shell

from recipes.layout import HOST_CA, PACKAGES

# Debian's Python reads SSL_CERT_FILE, pip carries authorities of its own.
USE_HOST_CA = f"if [ -s {HOST_CA} ]; then export PIP_CERT={HOST_CA} SSL_CERT_FILE={HOST_CA}; fi"
USE_PACKAGES = (
    f"if [ -d {PACKAGES}/wheels ]; then export PIP_NO_INDEX=1 "
    f"PIP_FIND_LINKS='{PACKAGES}/wheels {PACKAGES}/sources'; fi"
)
# Python then stamps byte code with its source's hash instead of the time, archives and
# /etc/shadow carry this date (the first that a zip file can hold), and sets have one order.
SAME_EACH_TIME = "export SOURCE_DATE_EPOCH=315532800 PYTHONHASHSEED=0"

_CA_MOUNT = f"--mount=type=secret,id=host-ca,target={HOST_CA}"
_PACKAGES_MOUNT = f"--mount=type=bind,source=packages,target={PACKAGES}"


def shell_with_network(commands: list[str]) -> shell:
    """Return a shell step that takes the host's CA bundle and the packages it is lent.

    A Dockerfile has to ask for the bundle, as a secret, so that it is a mount and
    never a layer; a Singularity build binds it from outside.
    """
    docker = hpccm.config.g_ctype == container_type.DOCKER
    # HPCCM warns of `_arguments` in the other format, and its warnings are errors here.
    mount = {"_arguments": _CA_MOUNT} if docker else {}
    return shell(commands=[USE_HOST_CA, USE_PACKAGES, SAME_EACH_TIME, *commands], **mount)


def mount_packages(dockerfile: str) -> str:
    """Return a Dockerfile whose installing steps see the folder ``packages`` of the context.

    The committed text does without, so that it builds where there is no such folder.
    """
    return dockerfile.replace(_CA_MOUNT, f"{_CA_MOUNT} {_PACKAGES_MOUNT}")
