"""Hosts and a Slurm of our own; both need root, namespaces and Debian's packages."""

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
LAN, SLURM = (
    runpy.run_path(str(Path(__file__).with_name(f"{name}.py")), run_name=name)
    for name in ("lan", "slurm")
)


def need(*missing):
    """Skip without root or a tool; in continuous integration that is a failure."""
    missing = [*missing, *(["root"] if os.geteuid() else [])]
    if missing:
        pytest.skip(f"missing: {', '.join(missing)}")


@pytest.fixture
def make_lan(tmp_path):
    """Start hosts by name; they are gone when the test is."""
    need(*LAN["missing_tools"]())
    started = []

    def start(*names, **options):
        lan = LAN["Lan"](tmp_path / f"lan{len(started)}", *names, **options)
        started.append(lan)
        return lan.__enter__()

    yield start
    for lan in started:
        lan.__exit__()


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """Return a Slurm of two nodes, node1 and node2, for the tests of one file."""
    need(*LAN["missing_tools"](), *SLURM["missing_tools"]())
    with LAN["Lan"](tmp_path_factory.mktemp("slurm") / "lan", "node1", "node2") as lan:
        yield SLURM["Slurm"](lan).start()


@pytest.fixture
def window():
    """Make an image of nothing, in which a host's own folders are seen, for the hosts of a lan.

    It is a real .sif that real Apptainer enters, made in a second. Returns its path, and the
    environment by which it is a window; logins on the hosts have that too.
    """
    if not shutil.which("apptainer"):
        pytest.skip("missing: apptainer")

    def make(lan):
        root, sif = lan.folder / "root", lan.folder / "x.sif"
        tops = {"/usr", "/etc", *(f"/{Path(p).parts[1]}" for p in (PROJECT, sys.prefix))} - {"/tmp"}
        for name in ("proc", "sys", "dev", "tmp", "run/lan", "root", *(t[1:] for t in tops)):
            (root / name).mkdir(parents=True, exist_ok=True)
        for name in ("bin", "sbin", "lib", "lib64"):
            (root / name).symlink_to(f"usr/{name}")
        for name in ("passwd", "group", "hosts", "resolv.conf", "localtime"):
            (root / "etc" / name).touch()
        subprocess.run(["apptainer", "build", sif, root], check=True, capture_output=True)
        environ = {"APPTAINER_BIND": ",".join(sorted(tops)),
                   "APPTAINERENV_PATH": os.environ["PATH"]}  # fmt: skip
        pairs = " ".join(f"{name}={value}" for name, value in environ.items())
        for name in lan.names:
            lan.stop_sshd(lan[name])
            lan.start_sshd(lan[name], "-o", f"SetEnv={pairs}")
        return f"/run/lan/{sif.name}", environ

    return make


@pytest.fixture
def validate():
    """Run ``invoke validate-env`` on a host; returns its exit code, report and all it printed."""

    def run(host, *argv, environ=None, timeout=120):
        report = host.own / "tmp/report.json"
        report.unlink(missing_ok=True)
        line = [sys.executable, "-m", "invoke", "validate-env", "--json", "/tmp/report.json", *argv]
        done = host.run(*line, cwd=PROJECT, environ={**os.environ, **(environ or {})},
                        timeout=timeout)  # fmt: skip
        told = json.loads(report.read_text()) if report.exists() else {"results": []}
        results = {}
        for result in told["results"]:
            results.setdefault(result["id"], []).append(result)
        return done.returncode, results, done.stdout + done.stderr

    return run
