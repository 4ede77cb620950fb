"""Drift: how it is found, told, and followed."""

from dataclasses import replace

import pytest

from containers import drift
from containers.archive import Resolution
from containers.drift import find_drift, follow_archive, refuse_drift
from env.errors import UserError
from env.lock import SystemPackage
from env.stack import load_stack

CPU = load_stack("cpu")


def package(name, version):
    path = f"debian/{name}_{version}_amd64.deb"
    return SystemPackage(name, version, "amd64", "a" * 64, 1, path, ("run",))


LOCKED = (package("libc6", "2.36-9"), package("libold", "1"), package("make", "4"))
OFFERED = (package("libc6", "2.36-10"), package("libnew", "3"), package("make", "4"))


@pytest.fixture
def archive(monkeypatch):
    """Let the archive offer what it does now."""
    monkeypatch.setattr(drift, "resolve_system", lambda _stack: Resolution(OFFERED, "2026-05-05"))


def test_each_package_that_differs_is_a_line():
    assert find_drift(LOCKED, offered=OFFERED) == (
        "libc6: locked 2.36-9, offered 2.36-10",
        "libnew: locked nothing, offered 3",
        "libold: locked 1, offered nothing",
    )
    assert find_drift(LOCKED, offered=LOCKED) == ()


def test_following_the_archive_makes_another_lock_that_says_so(archive, tiny):
    followed, lines = follow_archive(replace(tiny, system_packages=LOCKED), stack=CPU)
    assert followed.system_packages == OFFERED
    assert followed.archive_date == "2026-05-05"
    assert followed.sha256 != tiny.sha256
    assert "3 packages" in followed.gaps["drift"]
    assert len(lines) == 3


def test_without_drift_the_lock_stays_what_it_is(archive, tiny):
    same = replace(tiny, system_packages=OFFERED)
    assert follow_archive(same, stack=CPU) == (same, ())


def test_vanished_packages_are_told_with_every_way_on(archive, tiny):
    error = refuse_drift(replace(tiny, system_packages=LOCKED), stack=CPU, gone=["libc6"])
    assert error.exit_code == 1
    assert "libc6: locked 2.36-9, offered 2.36-10" in error.found
    assert "libold" not in error.found
    for way in ("invoke lock --stack cpu", "--packages", "--allow-drift"):
        assert way in error.fix


def test_an_index_that_does_not_answer_does_not_hide_what_is_gone(monkeypatch, tiny):
    def fail(_stack):
        raise UserError("apt", found="nothing", fix="x")

    monkeypatch.setattr(drift, "resolve_system", fail)
    error = refuse_drift(replace(tiny, system_packages=LOCKED), stack=CPU, gone=["libold"])
    assert "libold: locked 1, offered not known" in error.found


def test_a_file_that_is_gone_while_its_version_is_offered_is_named_too(archive, tiny):
    error = refuse_drift(replace(tiny, system_packages=LOCKED), stack=CPU, gone=["make"])
    assert "make: locked 4, offered 4" in error.found
