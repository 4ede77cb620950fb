"""Which files are meant by files and folders."""

import errno
import os
from pathlib import Path

import pytest

from chexnet.data.pixels import BadImageError
from chexnet.errors import UserError
from chexnet.prediction.film_files import find_kind
from chexnet.prediction.inputs import find_inputs

DICOM = bytes(128) + b"DICM" + bytes(100)


def names(*given):
    return [one.name for one in find_inputs(given)]


def test_folders_are_searched_below_for_what_ends_as_images_do(tmp_path):
    for name in ("b.png", "a/z.JPG", "a/c/y.jpeg", "x.dcm", "notes.txt", ".hidden.png", "._x.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "thumb.png").write_bytes(b"x")
    assert names(tmp_path) == ["b.png", "x.dcm", "a/z.JPG", "a/c/y.jpeg"]


def test_dicom_without_an_ending_is_found_by_its_content(tmp_path):
    for name in ("IM000001", "1.2.840.113619.2"):
        (tmp_path / name).write_bytes(DICOM)
    (tmp_path / "README").write_bytes(b"text")
    (tmp_path / "page.html").write_bytes(DICOM)
    assert names(tmp_path) == ["1.2.840.113619.2", "IM000001"]


def test_the_list_of_contents_of_a_disc_is_passed_over_unless_it_is_named(tmp_path):
    for name in ("DICOMDIR", "IM1", "sub/dicomdir"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(DICOM)
    assert names(tmp_path) == ["IM1"]
    assert names(tmp_path / "DICOMDIR") == ["DICOMDIR"]


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "a.png").write_bytes(b"x")
    assert names(tmp_path) == ["a.png"]


def test_what_cannot_be_looked_into_is_taken_and_told(tmp_path, monkeypatch):
    for name in ("a.png", "closed/b.png", "IM1"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    scandir, opened = os.scandir, Path.open

    def refuse(path):
        if Path(path).name in ("closed", "IM1"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", lambda path: refuse(path) or scandir(path))
    monkeypatch.setattr(Path, "open", lambda self, *how: refuse(self) or opened(self, *how))
    found = find_inputs([tmp_path])
    assert [one.name for one in found] == ["IM1", "a.png", "closed"]
    for one, reason in ((found[0], "Permission denied"), (found[2], "cannot be searched")):
        with pytest.raises(BadImageError, match=reason):
            find_kind(one.path)


def test_a_file_that_is_named_is_taken_whatever_it_is(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    assert names(tmp_path / "notes.txt") == ["notes.txt"]


def test_each_file_comes_once_however_it_is_reached(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.png").write_bytes(b"x")
    (tmp_path / "in" / "up").symlink_to(tmp_path / "in")  # would never end
    (tmp_path / "link.png").symlink_to(tmp_path / "in" / "a.png")
    assert names(tmp_path / "in", tmp_path / "in" / "a.png", tmp_path / "link.png") == ["a.png"]


@pytest.mark.parametrize(
    ("given", "words"),
    [("gone", "nothing at"), ("empty", "no file that ends in .png"), ("texts", "images below")],
)
def test_nothing_to_read_is_wrong_use(tmp_path, given, words):
    (tmp_path / "empty").mkdir()
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("x")
    with pytest.raises(UserError, match=words) as raised:
        find_inputs([tmp_path / given])
    assert raised.value.exit_code == 2
