"""Shell steps that fetch something.

Knows how a step borrows the host's CA bundle in either format. Leaves mounting it
to whoever runs the build.
"""

from __future__ import annotations

import hpccm
from hpccm.common import container_type
from hpccm.primitives import shell

from recipes.layout import HOST_CA

# Debian's Python reads SSL_CERT_FILE, pip carries authorities of its own.
USE_HOST_CA = f"if [ -s {HOST_CA} ]; then export PIP_CERT={HOST_CA} SSL_CERT_FILE={HOST_CA}; fi"


def shell_with_network(commands: list[str]) -> shell:
    """Return a shell step that trusts the host's CA bundle where the build lends it.

    A Dockerfile has to ask for the bundle, as a secret, so that it is a mount and
    never a layer; a Singularity build binds it from outside.
    """
    mount = f"--mount=type=secret,id=host-ca,target={HOST_CA}"
    docker = hpccm.config.g_ctype == container_type.DOCKER
    # HPCCM warns of `_arguments` in the other format, and its warnings are errors here.
    return shell(commands=[USE_HOST_CA, *commands], **({"_arguments": mount} if docker else {}))
