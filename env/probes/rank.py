"""What one rank observes of itself under a launcher.

Knows which probes a rank runs and in what order. The first write needs no MPI: a rank
that hangs while joining the others has reported all the same.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from env.facts import Fact, Facts, record_path, write_facts
from env.probes.frameworks import IMPORT_TIMEOUT_S, probe_frameworks
from env.probes.gpu import probe_gpu
from env.probes.host import probe_host
from env.probes.launch import probe_launch
from env.probes.packages import probe_packages


def record_rank(
    folder: Path,
    *,
    lock_sha256: Fact,
    environ: Mapping[str, str] = os.environ,
    root: Path = Path("/"),
    timeout_s: float = IMPORT_TIMEOUT_S,
) -> Path:
    """Observe this rank, write its record, and return the record's path.

    Joining the other ranks happens in a child with a time limit: the ranks meet the
    judge through files only, so that a report comes out even where MPI is broken.

    Args:
        folder: where all ranks write, on a file system that the judge sees.
        lock_sha256: the hash of the lock this rank has before it.
        environ: the rank's environment.
        root: the folder in which /proc, /sys, /etc and /dev lie.
        timeout_s: seconds to wait for the other ranks.
    """
    launch = probe_launch(environ=environ)
    path = record_path(folder, rank=launch["launch.rank"].value or 0)
    facts = Facts(launch) | probe_host(root, environ=environ) | probe_packages(environ=environ)
    facts |= probe_gpu(root, environ=environ) | {"rank.lock": lock_sha256}
    waiting = Fact(None, "hvd.init()", problem="never came back from joining the other ranks")
    write_facts(path, facts | {"frameworks.horovod_init": waiting})
    frameworks = probe_frameworks(environ=environ, init=True, timeout_s=timeout_s)
    write_facts(path, facts | frameworks)
    return path
