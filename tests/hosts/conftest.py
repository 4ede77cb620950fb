"""Hosts and a Slurm of our own; both need root, namespaces and Debian's packages."""

import json
import os
import runpy
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
LAN = runpy.run_path(str(Path(__file__).with_name("lan.py")), run_name="lan")


@pytest.fixture
def make_lan(tmp_path):
    """Start hosts by name; they are gone when the test is."""
    missing = [*LAN["missing_tools"](), *(["root"] if os.geteuid() else [])]
    if missing:
        pytest.skip(f"missing: {', '.join(missing)}")  # in CI that is a failure
    started = []

    def start(*names, **options):
        lan = LAN["Lan"](tmp_path / f"lan{len(started)}", *names, **options)
        started.append(lan)
        return lan.__enter__()

    yield start
    for lan in started:
        lan.__exit__()


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
