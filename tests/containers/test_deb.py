"""Debian's package files, as dpkg-deb makes them."""

import subprocess

import pytest

from containers.deb import read_control, render_index
from env.errors import UserError
from env.lock import SystemPackage

CONTROL = """\
Package: tiny
Version: 2:1.0-3+b1
Architecture: all
Maintainer: Nobody <nobody@example.org>
Priority: important
Essential: yes
Depends: libc6 (>= 2.3)
Description: a package
 of more than one line
"""


@pytest.fixture(params=["xz", "gzip"])
def deb(request, tmp_path):
    """Return a package file as dpkg makes it, in one of its compressions."""
    root = tmp_path / "root"
    (root / "DEBIAN").mkdir(parents=True)
    (root / "DEBIAN" / "control").write_text(CONTROL)
    (root / "usr").mkdir()
    (root / "usr" / "file").write_text("content")
    path = tmp_path / "tiny_1.0-3+b1_all.deb"
    command = ["dpkg-deb", f"-Z{request.param}", "--root-owner-group", "--build", root, path]
    subprocess.run(command, check=True, capture_output=True)
    return path


def package(path, *groups):
    return SystemPackage("tiny", "2:1.0-3+b1", "all", "a" * 64, path.stat().st_size,
                         f"debian/pool/t/{path.name}", groups)  # fmt: skip


def test_the_record_is_what_dpkg_reads(deb):
    told = subprocess.run(["dpkg-deb", "-f", deb], check=True, capture_output=True, text=True)
    assert read_control(deb) == told.stdout
    assert "Version: 2:1.0-3+b1" in read_control(deb)


@pytest.mark.parametrize(("group", "priority"), [("base", "required"), ("run", "optional")])
def test_the_index_says_what_belongs_to_the_base(deb, group, priority):
    text = render_index([package(deb, group)], folder=deb.parent)
    fields = dict(line.split(": ", 1) for line in text.splitlines() if line[0] != " ")
    assert fields["Priority"] == priority
    assert text.count("Priority:") == 1
    assert fields["Filename"] == "./tiny_1.0-3+b1_all.deb"
    assert fields["SHA256"] == "a" * 64
    assert int(fields["Size"]) == deb.stat().st_size
    assert fields["Depends"] == "libc6 (>= 2.3)"


def test_records_of_an_index_are_apart(deb):
    text = render_index([package(deb, "base"), package(deb, "run")], folder=deb.parent)
    assert len([part for part in text.split("\n\n") if part.startswith("Package: tiny\n")]) == 2


@pytest.mark.parametrize("content", [b"", b"no archive", b"!<arch>\n", b"!<arch>\nshort"])
def test_what_is_no_package_is_refused_by_name(tmp_path, content):
    path = tmp_path / "x.deb"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"x\.deb"):
        read_control(path)


def test_a_broken_package_is_refused_by_name(deb):
    deb.write_bytes(deb.read_bytes()[:150])
    with pytest.raises(UserError, match="tiny"):
        read_control(deb)
