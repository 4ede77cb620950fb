"""Tries what containers are known to refuse; a child process of its own, by path.

Imports nothing of this project, and prints one line of JSON for each thing tried as soon as
it is known: its name, and None or the name of the error. Leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
from collections.abc import Callable

_SIZE = 8
_SET_PTRACER, _ANY = 0x59616D61, ctypes.c_ulong(-1)


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def try_thread() -> int:
    """Start a thread as the C library does; returns the error number, 0 for none."""
    libc = ctypes.CDLL(None)
    thread = ctypes.c_ulong()
    start = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: None)
    code = libc.pthread_create(ctypes.byref(thread), None, start, None)
    if code == 0:
        libc.pthread_join(thread, None)
    return code


def try_peer_memory() -> int:
    """Read the memory of another process as ranks of one host do; returns the error number.

    The other process is a child that permits it, as Open MPI's ranks permit each other, so
    that what refuses is the container and not the kernel's default (ptrace_scope).
    """
    libc = ctypes.CDLL(None, use_errno=True)
    source = ctypes.create_string_buffer(b"x" * _SIZE)
    target = ctypes.create_string_buffer(_SIZE)
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            libc.prctl(_SET_PTRACER, _ANY, 0, 0, 0)
            os.write(ready[1], b"r")
            os.close(go[1])
            os.read(go[0], 1)
        os._exit(0)
    try:
        os.read(ready[0], 1)
        here = _Vector(ctypes.addressof(target), _SIZE)
        there = _Vector(ctypes.addressof(source), _SIZE)
        done = libc.process_vm_readv(child, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
        return 0 if done == _SIZE else ctypes.get_errno()
    finally:
        os.close(go[1])
        os.waitpid(child, 0)


def main() -> None:
    """Try everything, each in turn."""
    trials: list[tuple[str, Callable[[], int]]] = [
        ("thread", try_thread),
        ("peer_memory", try_peer_memory),
    ]
    for name, trial in trials:
        try:
            number = trial()
            told = errno.errorcode.get(number, str(number)) if number else None
        except (OSError, AttributeError, ValueError) as error:  # refused, or not in this libc
            told = errno.errorcode.get(getattr(error, "errno", None) or 0, repr(error))
        print(json.dumps([name, told]), flush=True)


if __name__ == "__main__":
    main()
