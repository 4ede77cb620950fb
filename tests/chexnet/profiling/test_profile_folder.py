"""The folder of a profile: nothing is overwritten, and that is said before a rank starts."""

import pytest

import chexnet.__main__ as program
from chexnet.errors import UserError
from chexnet.profiling.profile_folder import check_folder, make_folder


def test_new_and_empty_folders_are_taken(tmp_path):
    folder = tmp_path / "some" / "where"
    check_folder(folder)
    assert not folder.exists()
    make_folder(folder)
    make_folder(folder)
    assert folder.is_dir()


@pytest.mark.parametrize("kind", ["a file", "profile.json"])
def test_what_is_there_is_kept(tmp_path, kind):
    folder = tmp_path / "one"
    if kind == "a file":
        folder.write_text("mine")
    else:
        folder.mkdir()
        (folder / kind).write_text("mine")
    with pytest.raises(UserError, match="empty or new") as caught:
        make_folder(folder)
    assert kind in str(caught.value)


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="can be written"):
        make_folder(tmp_path / "file" / "below")


def test_the_check_before_the_ranks_refuses_it(fast_data, tmp_path, capsys):
    (tmp_path / "profile.json").write_text("{}")
    words = ["profile", "--data", str(fast_data), "--set", "preset=demo", "--check", "--output"]
    assert program.main([*words, str(tmp_path)]) == 2
    assert "empty or new" in capsys.readouterr().err
    assert program.main([*words, str(tmp_path / "new")]) == 0
