import errno
import os

import pytest

from chexnet.errors import UserError
from chexnet.folders import new_folder

MARKER = "dataset.json"


def names_in(folder):
    return [path.name for path in folder.iterdir()]


def fill(output, text="new", **options):
    with new_folder(output, marker=MARKER, **options) as folder:
        (folder / MARKER).write_text(text)


def test_appears_when_complete(tmp_path):
    output = tmp_path / "deep" / "data"
    with new_folder(output, marker=MARKER) as folder:
        (folder / MARKER).write_text("x")
        assert not output.exists()
    assert (output / MARKER).read_text() == "x"
    assert names_in(output.parent) == ["data"]


def test_an_error_leaves_nothing_and_an_old_folder_alone(tmp_path):
    output = tmp_path / "data"
    fill(output, "old")

    def fail():
        with new_folder(output, marker=MARKER, force=True):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert (output / MARKER).read_text() == "old"
    assert names_in(tmp_path) == ["data"]


def test_leavings_of_a_killed_run_go(tmp_path):
    (tmp_path / ".data.partial").mkdir()
    (tmp_path / ".data.partial" / "half").touch()
    fill(tmp_path / "data")
    assert names_in(tmp_path) == ["data"]
    assert names_in(tmp_path / "data") == [MARKER]


def test_work_that_can_go_on_keeps_what_was_done_and_other_work_says_what_it_removes(
    tmp_path, capsys
):
    def stop(work):
        with new_folder(tmp_path / "data", marker=MARKER, work=work) as folder:
            (folder / "half").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop("size 256")
    assert capsys.readouterr().err == ""
    with pytest.raises(KeyboardInterrupt):
        stop("size 256")
    assert capsys.readouterr().err == ""
    fill(tmp_path / "data", work="size 320")
    assert capsys.readouterr().err.startswith(f"removed {tmp_path / '.data.partial'}: ")
    assert names_in(tmp_path / "data") == [MARKER]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_no_wrong_path(tmp_path, number):
    def fail():
        with new_folder(tmp_path / "data", marker=MARKER):
            raise OSError(number, os.strerror(number))

    with pytest.raises(UserError, match="make room there") as error:
        fail()
    assert error.value.exit_code == 1
    assert names_in(tmp_path) == []


def test_an_empty_folder_is_filled_and_a_full_one_kept(tmp_path):
    output = tmp_path / "data"
    output.mkdir()
    fill(output, "first")
    with pytest.raises(UserError, match="new or empty folder"):
        fill(output, "second")
    assert (output / MARKER).read_text() == "first"
    fill(output, "second", force=True)
    assert (output / MARKER).read_text() == "second"
    assert names_in(tmp_path) == ["data"]


def test_force_never_removes_what_is_not_ours(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").touch()
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"no dataset\.json"):
        fill(tmp_path / "thesis", force=True)
    with pytest.raises(UserError, match="a file"):
        fill(tmp_path / "file", force=True)
    assert (tmp_path / "thesis" / "chapter.tex").exists()


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="a place to write"):
        fill(tmp_path / "file" / "data")
