"""Asking Debian's archive: what is read, which mirror, and that this machine stays out of it."""

import re
from dataclasses import replace

import pytest

from containers import archive
from containers.archive import find_mirror, mirror_url, read_record, resolve_system, sources
from env.errors import UserError
from env.stack import load_stack

CPU = load_stack("cpu")
# apt as these tests see it: what it prints, and a note of how it was asked.
APT_GET = """#!/bin/sh
echo "$APT_CONFIG $*" >> "$NOTE"
case "$*" in
  *indextargets*) echo "main http://mirror.example/debian/";;
  *update*) cp "$(dirname $APT_CONFIG)/etc/sources.list" "$NOTE.sources"
    echo "Date: Sat, 03 Jan 2026 04:05:06 UTC" > "$(dirname $APT_CONFIG)/state/lists/x_InRelease"
    echo "Date: Fri, 02 Jan 2026 04:05:06 UTC" > "$(dirname $APT_CONFIG)/state/lists/y_InRelease";;
  *essential*)
    echo "'http://mirror.example/debian/pool/libc6_2.36%2b1_amd64.deb' libc6_2.36+1_amd64.deb 9 X";;
  *"g++"*)
    grep -q 'Package: libc6' "$(dirname $APT_CONFIG)/status" || exit 1
    grep -q 'Status: install ok installed' "$(dirname $APT_CONFIG)/status" || exit 1
    echo "'http://mirror.example/debian/pool/g/g_1.deb' g++_4%3a1_amd64.deb 9 X"
    echo "'http://mirror.example/debian-security/pool/updates/x_1.deb' x_1_all.deb 9 X";;
  *) echo "'http://mirror.example/debian-security/pool/updates/x_1.deb' x_1_all.deb 9 X";;
esac
"""
APT_CACHE = """#!/bin/sh
shift
for one; do
  printf 'Package: %s\\nVersion: %s\\nArchitecture: amd64\\nSize: 9\\n' "${one%=*}" "${one#*=}"
  printf 'Description: a\\n more: than one line\\nSHA256: %064d\\n\\n' 7
done
"""


@pytest.fixture
def apt(tmp_path, monkeypatch):
    """Put an apt of our own on PATH and return the file that notes how it was asked."""
    for name, text in (
        ("apt-get", APT_GET), ("apt-cache", APT_CACHE), ("apt-config", "#!/bin/sh\n"),
    ):  # fmt: skip
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("NOTE", str(tmp_path / "note"))
    monkeypatch.delenv(archive.MIRROR_VARIABLE, raising=False)
    monkeypatch.setattr(archive, "KEYRING", tmp_path)
    return tmp_path / "note"


def test_every_package_is_resolved_with_the_stages_that_need_it(apt):
    found = resolve_system(CPU)
    assert found.date == "2026-01-03T04:05:06Z"
    assert [(p.name, p.version, p.groups) for p in found.packages] == [
        ("g++", "4:1", ("build",)),
        ("libc6", "2.36+1", ("base",)),
        ("x", "1", ("build", "run")),
    ]
    assert found.packages[1].path == "debian/pool/libc6_2.36+1_amd64.deb"
    assert found.packages[2].path == "debian-security/pool/updates/x_1.deb"
    assert found.packages[0].sha256 == "7".rjust(64, "0")
    assert found.packages[0].size_bytes == 9


def test_apt_works_in_folders_of_its_own_on_the_stacks_sources(apt):
    resolve_system(CPU)
    asked = [line for line in apt.read_text().splitlines() if "indextargets" not in line]
    assert all(re.match(r"/\S*chexnet-apt-\S*/apt.conf ", line) for line in asked)
    text = apt.with_name("note.sources").read_text()
    assert text.splitlines()[0].endswith("http://mirror.example/debian bookworm main")
    assert text.splitlines()[2].endswith("/debian-security bookworm-security main")
    assert text.count("signed-by=") == 3


def test_other_sections_are_asked_for_where_the_stack_names_them():
    more = replace(CPU, base=replace(CPU.base, sections=("main", "non-free"), codename="trixie"))
    assert sources(more)[1] == "debian trixie-updates main non-free"


def test_what_apt_says_reaches_the_user(apt, monkeypatch):
    says = "#!/bin/sh\necho E: Unable to locate package g+++\nexit 100\n"
    apt.with_name("apt-get").write_text(says)
    monkeypatch.setenv(archive.MIRROR_VARIABLE, "http://m/debian")
    with pytest.raises(UserError, match=r"Unable to locate package g\+\+\+") as caught:
        resolve_system(CPU)
    assert caught.value.exit_code == 1


def test_without_apt_it_is_said_where_this_can_be_done(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="Debian 12 or 13"):
        resolve_system(CPU)


def test_the_mirror_is_the_named_one_else_apts(apt, monkeypatch):
    assert find_mirror({}) == "http://mirror.example/debian"
    assert find_mirror({archive.MIRROR_VARIABLE: "http://site/debian/"}) == "http://site/debian"
    apt.with_name("apt-get").write_text("#!/bin/sh\necho main http://else.example/ubuntu\n")
    with pytest.raises(UserError, match=archive.MIRROR_VARIABLE):
        find_mirror({})


def test_security_updates_lie_beside_the_archive():
    mirror = "http://mirror.example/sub/debian"
    assert mirror_url(mirror, "debian/pool/a.deb") == "http://mirror.example/sub/debian/pool/a.deb"
    security = mirror_url(mirror, "debian-security/pool/b.deb")
    assert security == "http://mirror.example/sub/debian-security/pool/b.deb"


def test_a_record_keeps_the_lines_of_a_long_value():
    record = read_record("Package: a\nDescription: one\n two: not a field\nSize: 3\n")
    assert record == {"Package": "a", "Description": "one\n two: not a field", "Size": "3"}
