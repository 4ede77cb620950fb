"""The environment in which the peers run: made once, from a requirements file with hashes.

Knows where it lies and when it is complete. Leaves what is in it to `requirements.txt`.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from containers.blueprint import cache_folder

REQUIREMENTS = Path(__file__).with_name("requirements.txt")


def environment_folder(requirements: str, *, cache: Path) -> Path:
    """Return where the environment of some requirements lies, for this Python.

    Args:
        requirements: the text of the file.
        cache: the folder of what can be made again.
    """
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    digest = hashlib.sha256(f"{python}\0{requirements}".encode()).hexdigest()
    return cache / f"peers-{digest[:16]}"


def ensure_environment() -> Path:
    """Return the Python that has the peers; install them first where that was not done.

    Raises:
        subprocess.CalledProcessError: a package could not be installed; pip says which.
    """
    folder = environment_folder(REQUIREMENTS.read_text(), cache=cache_folder().parent)
    python, complete = folder / "bin" / "python", folder / ".complete"
    if not complete.exists():
        print(f"installing the peers into {folder}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        # All that is needed is listed, so nothing else is looked for.
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
             "--require-hashes", "--no-deps", "--only-binary=:all:", "-r", REQUIREMENTS],
            check=True,
        )  # fmt: skip
        complete.touch()
    return python


def read_versions(python: Path, packages: Sequence[str]) -> dict[str, str]:
    """Return the versions of some distributions in the environment of a Python."""
    program = (
        "import importlib.metadata as m, json, sys; "
        "print(json.dumps({name: m.version(name) for name in sys.argv[1:]}))"
    )
    done = subprocess.run([python, "-c", program, *packages], check=True, capture_output=True,
                          text=True)  # fmt: skip
    return json.loads(done.stdout)
