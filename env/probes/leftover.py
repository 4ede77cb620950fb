"""What a launcher left in this shell: does the server that its variables name still answer?

Knows PMIx's variables. Connects, says nothing, and hangs up.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Iterator, Mapping

from env.facts import Fact
from env.probes.reading import is_folder

TIMEOUT_S = 1.0
# pmix_ns.0;tcp4://127.0.0.1:41231 or …;tcp6://[::1]:41231
_ADDRESS = re.compile(r"tcp[46]?://\[?([^\]\s;]+?)\]?:(\d{1,5})$")
_MOST = 8


def probe_leftover(
    *, environ: Mapping[str, str] = os.environ, timeout_s: float = TIMEOUT_S
) -> dict[str, Fact]:
    """Return the fact ``leftover.servers``: ``{variable, place, problem}``, problem None if good.

    Args:
        environ: the process's environment.
        timeout_s: seconds that each server may take to answer.
    """
    return {"leftover.servers": Fact(list(_servers(environ, timeout_s))[:_MOST], "environment")}


def _servers(environ: Mapping[str, str], timeout_s: float) -> Iterator[dict[str, str | None]]:
    seen = set()
    for name in sorted(environ):
        value = environ[name].strip()
        if re.fullmatch(r"PMIX_SERVER_URI\d*", name) and value not in seen:
            seen.add(value)
            match = _ADDRESS.search(value)
            if match is None:  # a file or another kind of address, which says nothing by itself
                continue
            host, port = match[1], int(match[2])
            if not _is_address(host):  # PMIx writes addresses: a name is nothing to look up
                continue
            yield {"variable": name, "place": f"{host}:{port}",
                   "problem": _refusal(host, port, timeout_s)}  # fmt: skip
        elif name in ("PMIX_SERVER_TMPDIR", "PMIX_SYSTEM_TMPDIR") and value:
            problem = None if is_folder(value) else "no such folder"
            yield {"variable": name, "place": value, "problem": problem}


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _refusal(host: str, port: int, timeout_s: float) -> str | None:
    try:
        socket.create_connection((host, port), timeout=timeout_s).close()
    except (OSError, OverflowError, UnicodeError) as error:
        return getattr(error, "strerror", None) or str(error) or "no answer"
    return None
