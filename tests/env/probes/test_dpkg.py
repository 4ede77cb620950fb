"""dpkg's database read without dpkg: packages, owners, and files that are not as shipped."""

import hashlib
import shutil
import subprocess

import pytest

from env.probes.dpkg import check_files, find_owners, read_packages

STATUS = """\
Package: libfoo1
Status: install ok installed
Architecture: amd64
Source: foo (1.2-3)
Version: 1.2-3+b1
Conffiles:
 /etc/foo.conf {conf}
 /etc/new.conf newconffile
 /etc/old.conf 00000000000000000000000000000000 obsolete
Description: a library
 of two lines

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 9

Package: bar
Status: hold ok installed
Architecture: all
Version: 2:1.0~rc1
"""
COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/

Files: *
License: GPL-2+

Files: debian/*
License: MIT
 Permission is hereby granted

License: GPL-2+
 text
"""


def md5(text):
    return hashlib.md5(text.encode()).hexdigest()


def write(root, path, text):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


@pytest.fixture
def root(tmp_path):
    """Return a root folder with two packages, all of their files as shipped."""
    write(tmp_path, "var/lib/dpkg/status", STATUS.format(conf=md5("setting = 1\n")))
    info = "var/lib/dpkg/info"
    write(tmp_path, f"{info}/libfoo1:amd64.md5sums", f"{md5('code')}  usr/lib/libfoo.so.1\n")
    write(tmp_path, f"{info}/libfoo1:amd64.list", "/.\n/lib\n/lib/libfoo.so.1\n/etc/foo.conf\n")
    write(tmp_path, f"{info}/bar.md5sums", f"{md5('doc')}  usr/share/doc/bar/a b\n")
    write(tmp_path, f"{info}/bar.list", "/usr/share/doc/bar/a b\n")
    write(tmp_path, "usr/lib/libfoo.so.1", "code")
    write(tmp_path, "usr/share/doc/bar/a b", "doc")
    write(tmp_path, "usr/share/doc/bar/copyright", COPYRIGHT)
    write(tmp_path, "usr/share/doc/libfoo1/copyright", "It was written by somebody.\n")
    write(tmp_path, "etc/foo.conf", "setting = 1\n")
    return tmp_path


def test_installed_packages_are_read_and_no_others(root):
    told = [(p.name, p.version, p.architecture, p.source) for p in read_packages(root)]
    assert told == [("bar", "2:1.0~rc1", "all", "bar"), ("libfoo1", "1.2-3+b1", "amd64", "foo")]


def test_licences_come_from_copyright_files_that_a_program_can_read(root):
    told = {p.name: p.licences for p in read_packages(root, licences=True)}
    assert told == {"bar": ("GPL-2+", "MIT"), "libfoo1": ()}


def test_files_as_shipped_are_in_order(root):
    assert check_files(root) == (3, [])


@pytest.mark.parametrize(
    ("path", "change", "problem", "owner"),
    [
        ("usr/lib/libfoo.so.1", "other code", "edited", "libfoo1 1.2-3+b1"),
        ("etc/foo.conf", "setting = 2\n", "edited", "libfoo1 1.2-3+b1"),
        ("usr/share/doc/bar/a b", None, "missing", "bar 2:1.0~rc1"),
    ],
)
def test_a_file_that_is_not_as_shipped_is_told_with_its_owner(root, path, change, problem, owner):
    if change is None:
        (root / path).unlink()
    else:
        write(root, path, change)
    checked, (wrong,) = check_files(root)
    assert checked == 3
    assert (wrong.path, wrong.problem, wrong.owner) == (f"/{path}", problem, owner)
    assert wrong.found == ("" if change is None else md5(change))


def test_a_folder_in_a_files_place_is_unreadable(root):
    (root / "etc/foo.conf").unlink()
    (root / "etc/foo.conf").mkdir()
    assert [one.problem for one in check_files(root)[1]] == ["unreadable"]


def test_what_dpkg_was_told_to_leave_out_may_be_missing_but_not_edited(root):
    write(root, "etc/dpkg/dpkg.cfg.d/docker", "path-exclude /usr/share/doc/*\n"
          "path-include=/usr/share/doc/*/copyright\n")  # fmt: skip
    path = root / "usr/share/doc/bar/a b"
    path.write_text("edited")
    assert [one.problem for one in check_files(root)[1]] == ["edited"]
    path.unlink()
    assert check_files(root)[1] == []


def test_what_is_included_again_must_be_there(root):
    write(root, "etc/dpkg/dpkg.cfg.d/docker", "path-exclude /usr/share/*\n"
          "path-include /usr/share/doc/bar/*\n")  # fmt: skip
    (root / "usr/share/doc/bar/a b").unlink()
    assert [one.problem for one in check_files(root)[1]] == ["missing"]


def test_a_diverted_file_is_looked_for_where_it_went(root):
    write(root, "var/lib/dpkg/diversions", "/usr/lib/libfoo.so.1\n/usr/lib/libfoo.so.real\nbar\n")
    (root / "usr/lib/libfoo.so.1").rename(root / "usr/lib/libfoo.so.real")
    assert check_files(root)[1] == []


def test_owners_are_found_across_the_merged_usr(root):
    paths = ["/usr/lib/libfoo.so.1", "/usr/share/doc/bar/a b", "/usr/lib/libforeign.so"]
    assert find_owners(paths, root=root) == {
        "/usr/lib/libfoo.so.1": "libfoo1 1.2-3+b1",
        "/usr/share/doc/bar/a b": "bar 2:1.0~rc1",
    }


def test_without_a_database_it_says_which_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="var/lib/dpkg/status"):
        read_packages(tmp_path)


@pytest.mark.skipif(not shutil.which("dpkg-query"), reason="no dpkg here")
def test_it_reads_what_dpkg_itself_tells():
    line = ["dpkg-query", "-W", "-f", "${Package} ${Version} ${Architecture} ${db:Status-Status}\n"]
    told = subprocess.run(line, capture_output=True, text=True, check=True).stdout.splitlines()
    wanted = {tuple(words[:3]) for words in map(str.split, told) if words[3] == "installed"}
    assert {(p.name, p.version, p.architecture) for p in read_packages()} == wanted
