"""How a run ended, by the record in its folder; and its end where no rank could write it.

Knows the fields of record.json that tell it. Leaves the rest of the record to ``chexnet``, which
writes it, and starting a run to ``containers.train``.
"""

from __future__ import annotations

import fcntl
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from env.atomic import write_text

RECORD, LOCK = "record.json", ".lock"
RUNNING, FAILED, INTERRUPTED = "running", "failed", "interrupted"


def end_of(run: Path) -> tuple[str, int]:
    """Return the status in a run's record, and when it was written; "" and 0 without one."""
    path = run / RECORD
    try:
        return _read(path)["status"], path.stat().st_mtime_ns
    except (OSError, ValueError, KeyError, TypeError):
        return "", 0


def close_record(run: Path, *, code: int) -> bool:
    """Say in the record that the ranks are gone, where they were killed before they could.

    Left alone is a record that has an end already, and one of a training that still runs there,
    which holds the folder's lock.

    Args:
        run: the run folder.
        code: what the launcher returned.

    Returns:
        Whether the record was closed here.
    """
    path = run / RECORD
    try:
        # For writing: NFS gives a lock of one's own to no other.
        with (run / LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            record = _read(path)
            if record["status"] != RUNNING:
                return False
            now = datetime.now(UTC).isoformat(timespec="seconds")
            said = (
                f"expected: every rank to go on\nfound:    the launcher ended with code {code}, "
                "and no rank could say why\nfix:      see the launcher's own words; continue with "
                "--resume"
            )
            closed = record | {"status": FAILED, "ended": now, "error": said}
            write_text(path, json.dumps(closed, indent=1) + "\n")
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return True


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))
