"""In continuous integration nothing is skipped: a missing tool is a failure."""

import os

import pytest


def pytest_sessionfinish(session, exitstatus):
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    if os.environ.get("CI") and skipped and exitstatus == pytest.ExitCode.OK:
        reporter.write_line(f"{len(skipped)} skipped: in CI that is a failure")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
