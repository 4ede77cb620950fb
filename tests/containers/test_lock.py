"""Resolving: what pip is asked, what it is kept from, and how its report is dealt out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from containers import lock as locking
from containers.archive import Resolution
from containers.lock import packages_of, pip_command, pip_environment, platforms, requirements_of
from env.errors import UserError
from env.lock import load_lock
from env.stack import load_stack

CPU = load_stack("cpu")
SMALL = replace(
    CPU,
    components=CPU.components | {"python": "3.13", "glibc": "2.41"},
    python=replace(
        CPU.python, build=("cmake",), run=("keras", "PyYAML"), develop=("hypothesis[cli]",)
    ),
)


def item(name: str, version: str, *requires: str, digest: str | None = None) -> dict:
    hashes = {"sha256": digest or name[0].lower() * 64}
    return {
        "metadata": {"name": name, "version": version, "requires_dist": list(requires)},
        "download_info": {"archive_info": {"hashes": hashes}},
    }


REPORT = {
    "install": [
        item("cmake", "3.31.10"),
        item("tensorflow_cpu", "2.21.0", "numpy>=1.26", "keras"),
        item("keras", "3.15.1", "numpy", 'typing_extensions; python_version < "3.12"'),
        item("numpy", "2.4.6"),
        item("PyYAML", "6.0.4"),
        item("typing_extensions", "4.16.0"),
        item("hypothesis", "6.1", 'click; extra == "cli"', 'black; extra == "ghostwriter"'),
        item("click", "8.1", "numpy"),
    ]
}


def test_each_package_gets_every_group_that_leads_to_it():
    found = {package.name: package for package in packages_of(SMALL, REPORT)}
    assert {name: package.groups for name, package in found.items()} == {
        "cmake": ("build",),
        "tensorflow-cpu": ("run",),
        "keras": ("run",),
        "numpy": ("run", "develop"),
        "pyyaml": ("run",),
        "hypothesis": ("develop",),
        "click": ("develop",),
    }  # typing_extensions is left out: Python 3.13 does not need it
    assert found["numpy"].sha256 == ("n" * 64,)
    assert list(found) == sorted(found)


def test_a_condition_that_holds_on_the_stacks_python_alone_is_an_error():
    report = {
        "install": [
            *REPORT["install"],
        ]
    }
    report["install"][3] = item("numpy", "2.4.6", 'backport; python_version >= "3.13"')
    with pytest.raises(UserError, match=r"backport[\s\S]*Python 3\.13"):
        packages_of(SMALL, report)
    older = replace(SMALL, components=SMALL.components | {"python": "3.11"})
    assert "numpy" in {package.name for package in packages_of(older, report)}


def test_a_file_without_a_hash_is_refused():
    report = json.loads(json.dumps(REPORT))
    report["install"][0]["download_info"]["archive_info"] = {}
    with pytest.raises(UserError, match="none for cmake"):
        packages_of(SMALL, report)


def test_components_of_the_catalogue_are_held():
    assert [str(r) for r in requirements_of(SMALL, group="run")] == [
        f"tensorflow-cpu=={CPU.components['tensorflow']}",
        f"keras=={CPU.components['keras']}",
        "PyYAML",
    ]
    assert [str(r) for r in requirements_of(SMALL, group="build")] == [
        f"cmake=={CPU.components['cmake']}"
    ]


def test_pip_is_asked_for_the_stacks_python_and_distribution():
    argv = pip_command(SMALL, report=Path("/x/report.json"))
    text = " ".join(argv)
    for words in (
        "-m pip install --dry-run",
        "--python-version 3.13",
        "--only-binary :all:",
        "--report /x/report.json",
        "--platform manylinux_2_41_x86_64 --platform manylinux_2_40_x86_64",
    ):
        assert words in text
    assert argv.count("keras==3.15.1") == 1


def test_platforms_run_from_the_newest_that_fits_to_the_oldest():
    tags = platforms("2.36")
    assert tags[0] == "manylinux_2_36_x86_64"
    assert tags[-1] == "linux_x86_64"
    assert tags.index("manylinux2014_x86_64") == tags.index("manylinux_2_17_x86_64") + 1
    assert "manylinux_2_37_x86_64" not in tags
    assert "manylinux1_x86_64" in tags


def test_settings_that_choose_packages_do_not_reach_pip():
    kept = pip_environment(
        {
            "PATH": "/bin",
            "PIP_FIND_LINKS": "/wheels",
            "PIP_EXTRA_INDEX_URL": "https://else.example",
            "PIP_CONSTRAINT": "c.txt",
            "PIP_INDEX_URL": "https://mirror.example/simple",
            "PIP_CERT": "/ca.pem",
            "SSL_CERT_FILE": "/ca.pem",
            "https_proxy": "http://proxy:3128",
        }
    )
    assert kept["PIP_CONFIG_FILE"] == "/dev/null"
    assert kept["PIP_CERT"] == kept["SSL_CERT_FILE"] == "/ca.pem"
    assert kept["PIP_INDEX_URL"] == "https://mirror.example/simple"
    assert kept["https_proxy"] == "http://proxy:3128"
    assert not {"PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_CONSTRAINT"} & set(kept)


def stub_pip(monkeypatch, tmp_path, body: str) -> None:
    stub = tmp_path / "python"
    stub.write_text(f"#!/bin/sh\n{body}\n")
    stub.chmod(0o755)
    monkeypatch.setattr(locking.sys, "executable", str(stub))


def test_a_lock_is_written_from_what_pip_reports(monkeypatch, tmp_path):
    canned = tmp_path / "canned.json"
    canned.write_text(json.dumps(REPORT))
    stub_pip(
        monkeypatch,
        tmp_path,
        f'while [ "$1" != --report ]; do shift; done; cp {canned} "$2"',
    )
    monkeypatch.setattr(locking, "load_stack", lambda name: SMALL)
    monkeypatch.setattr(
        locking, "resolve_system", lambda _stack: Resolution((), "2026-01-02T03:04:05Z")
    )
    monkeypatch.setattr(locking, "find_digest", lambda _image: None)
    path = locking.write_lock("small", output=tmp_path / "new" / "lock.json")
    lock = load_lock(path)
    assert lock.stack_sha256 == SMALL.sha256
    assert lock.version("keras") == "3.15.1"
    assert lock.archive_date == "2026-01-02T03:04:05Z"
    assert "no registry" in lock.gaps["base.digest"]
    assert [p.name for p in path.parent.iterdir()] == ["lock.json"]


def test_a_folder_is_no_place_for_a_lock_and_nothing_is_asked_before(monkeypatch, tmp_path):
    monkeypatch.setattr(locking, "resolve_lock", lambda stack: pytest.fail("it asked"))
    (tmp_path / "locks").mkdir()
    with pytest.raises(UserError, match="is a folder") as refusal:
        locking.write_lock("cpu", output=tmp_path / "locks")
    assert refusal.value.exit_code == 2
    assert [path.name for path in tmp_path.rglob("*")] == ["locks"]


def test_what_pip_says_reaches_the_user(monkeypatch, tmp_path):
    stub_pip(
        monkeypatch, tmp_path, "echo 'ERROR: No matching distribution for keras==9' >&2; exit 1"
    )
    with pytest.raises(UserError, match=r"No matching distribution for keras==9") as caught:
        locking.resolve_lock(SMALL)
    assert caught.value.exit_code == 1


def test_the_image_of_the_first_stage_is_locked_where_it_is_another(monkeypatch):
    other = replace(SMALL, base=replace(SMALL.base, build_image="example.org/devel:1"))
    known = {SMALL.base.image: "sha256:" + "a" * 64, "example.org/devel:1": "sha256:" + "b" * 64}
    monkeypatch.setattr(locking, "resolve_python", lambda _stack: ())
    monkeypatch.setattr(locking, "resolve_system", lambda _stack: Resolution((), ""))
    monkeypatch.setattr(locking, "find_digest", known.get)
    assert locking.resolve_lock(other).base["build_digest"] == "sha256:" + "b" * 64
    assert "build_digest" not in locking.resolve_lock(SMALL).base
    del known["example.org/devel:1"]
    lock = locking.resolve_lock(other)
    assert lock.base["build_digest"] is None
    assert list(lock.gaps) == ["base.build_digest"]


def test_a_distribution_that_cannot_be_asked_is_a_gap_with_a_reason(monkeypatch):
    ubuntu = replace(SMALL, base=replace(SMALL.base, distribution="ubuntu"))
    monkeypatch.setattr(locking, "resolve_python", lambda _stack: ())
    monkeypatch.setattr(locking, "find_digest", lambda _image: "sha256:" + "a" * 64)
    lock = locking.resolve_lock(ubuntu)
    assert lock.system_packages == ()
    assert "ubuntu" in lock.gaps["system_packages"]
    assert lock.base["digest"] == "sha256:" + "a" * 64
    assert "base.digest" not in lock.gaps
