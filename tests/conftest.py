"""What several tests share: images built once, a user without rights, ends, no skips in CI."""

import hashlib
import os
import platform
import re
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from containers.blueprint import SUFFIXES, cache_folder
from containers.context import find_host_ca, stage_project
from containers.packages import fetch_packages
from env.lock import load_lock, lock_path
from env.stack import PROJECT, load_stack
from recipes.render import render_definition

CA_MARK = "lent to this build by tests/conftest.py"
# Of a test that is slow or may have to build an image first; others have that of pyproject.toml.
LONG_LIMIT_S = 7200
PATIENCE_S = 20


def content_key(folder, *texts):
    """Return the hash of texts and of every file below a folder, names included."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode() + b"\0")
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder)}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:32]


# Builds as a user would, once everything it installs is here.
BUILD = """
import sys
from pathlib import Path
from containers.build import build_image
from env.stack import load_stack
build_image(load_stack(sys.argv[1]), format=sys.argv[2], output=Path(sys.argv[3]))
"""


def without_network():
    """Return the words that run a command where there is no network, if we are root.

    The loopback stays up, as on every machine: without any interface Open MPI's compiler
    wrapper complains, and CMake takes the complaint for a folder.
    """
    up = 'ip link set lo up && exec "$0" "$@"'
    return ["unshare", "--net", "sh", "-c", up] if os.geteuid() == 0 else []


@pytest.fixture(scope="session")
def networkless():
    """Return the words that run a command without a network."""
    return without_network()


def build_once(format, folder, *, name="cpu"):
    """Return an image of a stack, built now or kept from the same content before.

    It is built without a network, not even to this machine, once its packages are in the
    cache: what reaches for anything else fails. (Only root can take the network away and
    still build.)
    """
    stack = load_stack(name)
    staged = folder / "staged"
    stage_project(staged, root=PROJECT)
    text = render_definition(stack, format=format)
    key = content_key(staged, text, platform.machine())
    kept = cache_folder() / "tested"
    image = kept / f"chexnet-{name}-{key}{SUFFIXES[format]}"
    if not image.exists():
        kept.mkdir(parents=True, exist_ok=True)
        for old in kept.glob(f"chexnet-{name}-*{SUFFIXES[format]}*"):
            old.unlink()
        bundle = folder / "ca.pem"
        host = find_host_ca()
        bundle.write_text(f"# {CA_MARK}\n" + (host.read_text() if host else ""))
        lock = load_lock(lock_path(name))
        fetch_packages(lock, stack=stack, folder=cache_folder() / "packages")
        subprocess.run(
            [*without_network(), sys.executable, "-c", BUILD, name, format, str(image)], check=True,
            cwd=PROJECT, env=os.environ | {"PIP_CERT": str(bundle)},
        )  # fmt: skip
    return image


@pytest.fixture(scope="session")
def sif(tmp_path_factory):
    """Return the path of the Singularity image of stack cpu."""
    return build_once("singularity", tmp_path_factory.mktemp("sif"))


@pytest.fixture(scope="session")
def gpu_sif(tmp_path_factory):
    """Return the path of the Singularity image of stack cuda12: one given, or built here."""
    given = os.environ.get("CHEXNET_CUDA12_IMAGE")
    return Path(given or build_once("singularity", tmp_path_factory.mktemp("gpu"), name="cuda12"))


@pytest.fixture(scope="session")
def oci(tmp_path_factory):
    """Return the path of the OCI archive of stack cpu."""
    return build_once("docker", tmp_path_factory.mktemp("oci"))


@pytest.fixture(scope="session")
def same_mpi():
    """Return whether this host's Open MPI is of the release series that is in the image.

    Ranks of Open MPI 4 in an image do not find the mpirun of Open MPI 5 around them (seen
    with 4.1 in 5.0); the other way round they do.
    """
    banner = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=True)
    host = re.search(r"(\d+)\.\d+", banner.stdout)[1]
    return host == load_stack("cpu").components["openmpi"].partition(".")[0]


@pytest.fixture(scope="session")
def ca_mark():
    """Return the line that marks the CA bundle lent to these builds."""
    return CA_MARK


@pytest.fixture
def ordinary(tmp_path_factory):
    """Return the words that run a command as a user without any right, if we are root.

    Without an open /dev/fuse such a user's engine unpacks the whole image each time.
    """
    if os.geteuid() != 0:
        yield []
        return
    device = Path("/dev/fuse")
    before = stat.S_IMODE(device.stat().st_mode)
    device.chmod(0o666)
    yield ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--no-new-privs"]
    device.chmod(before)


@pytest.fixture(scope="session")
def runs():
    """Return whether a process runs; one that ended and that nobody has waited for does not."""

    def state(pid):
        try:
            return Path(f"/proc/{int(pid)}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    return state


@pytest.fixture(scope="session")
def ends(runs):
    """Return whether a process ends, be it that a killed one takes a moment to go."""

    def wait(pid):
        deadline = time.monotonic() + PATIENCE_S
        while runs(pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        return not runs(pid)

    return wait


def pytest_collection_modifyitems(config, items):
    """Give tests that take minutes the time for it."""
    for item in items if config.pluginmanager.hasplugin("timeout") else ():
        if item.get_closest_marker("slow") or item.get_closest_marker("container"):
            item.add_marker(pytest.mark.timeout(LONG_LIMIT_S))


def pytest_sessionfinish(session, exitstatus):
    """Fail a run in continuous integration that skipped anything: a tool is missing then."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    if os.environ.get("CI") and skipped and exitstatus == pytest.ExitCode.OK:
        reporter.write_line(f"{len(skipped)} skipped: in CI that is a failure")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
