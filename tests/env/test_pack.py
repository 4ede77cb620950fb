"""env.pyz: one file that validates a node with nothing but Python, and leaves nothing behind."""

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

from env.errors import UserError
from env.pack import write_pack


@pytest.fixture(scope="module")
def pack():
    """Write the file where every user of the machine can read it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "env.pyz"
        write_pack(path)
        path.parent.chmod(0o755)
        yield path


def run(pack, *argv, folder, prefix=(), **environ):
    # -S: no site-packages at all, as on a node that has only Python.
    return subprocess.run(
        [*prefix, sys.executable, "-S", "-E", str(pack), *map(str, argv)],
        cwd="/", env={"PATH": "/usr/bin:/bin", "TMPDIR": str(folder), **environ},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def test_it_validates_a_bare_node_and_leaves_nothing(pack, tmp_path):
    done = run(pack, "--node", "--json", "-", folder=tmp_path)
    assert done.stderr == ""
    report = json.loads(done.stdout)
    ids = {result["id"] for result in report["results"]}
    assert {"memory.shm", "limits.files", "gpu.present"} <= ids
    assert not [name for name in ids if name.startswith(("python.", "tensorflow.", "horovod."))]
    assert done.returncode == report["exit_code"] == 0
    assert list(tmp_path.iterdir()) == []


def test_it_serves_a_user_without_a_home_or_rights(pack, ordinary):
    done = run(pack, "--only", "host.root", folder="/tmp", prefix=ordinary)
    assert (done.returncode, done.stderr) == (0, "")
    assert "host.root" in done.stdout


def test_the_same_input_gives_the_same_bytes(pack, tmp_path):
    again = tmp_path / "again.pyz"
    write_pack(again)
    assert again.read_bytes() == pack.read_bytes()
    assert os.access(again, os.X_OK)


def test_it_holds_what_it_needs_and_no_more(pack):
    names = zipfile.ZipFile(pack).namelist()
    assert {"__main__.py", "pynvml.py", "env/cli.py", "env/rules.toml"} <= set(names)
    assert "containers/cpu/stack.lock.json" in names
    assert not [name for name in names if name.endswith((".pyc", ".sh"))]


def test_a_place_that_cannot_be_written_to_is_named(tmp_path):
    with pytest.raises(UserError, match="no/env"):
        write_pack(tmp_path / "no" / "env.pyz")
