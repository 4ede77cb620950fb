"""Writing whole files, and leaving alone what is no file."""

import os
import subprocess
import sys

import pytest

from env.atomic import write_text
from env.stack import PROJECT


def test_a_file_is_written_whole_and_its_folders_made(tmp_path):
    path = tmp_path / "a" / "b" / "report.json"
    write_text(path, "first\n")
    write_text(path, "second\n")
    assert path.read_text() == "second\n"
    assert [one.name for one in path.parent.iterdir()] == ["report.json"]


def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link.json").symlink_to("real/report.json")
    for text in ("first\n", "second\n"):
        write_text(tmp_path / "link.json", text)
        assert (tmp_path / "link.json").is_symlink()
        assert (tmp_path / "real" / "report.json").read_text() == text


def test_a_pipe_is_written_to_and_stays(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = subprocess.Popen(["cat", str(path)], stdout=subprocess.PIPE, text=True)
    write_text(path, "through\n")
    assert reader.communicate(timeout=60)[0] == "through\n"
    assert path.is_fifo()


@pytest.mark.parametrize("redirected", [False, True])
def test_standard_output_by_its_name_stays_what_it_is(tmp_path, redirected):
    # A link of our own, as /dev/stdout is one: a fault here must not take the machine's away.
    link = tmp_path / "stdout"
    link.symlink_to("/proc/self/fd/1")
    code = f"import pathlib, env.atomic; env.atomic.write_text(pathlib.Path({str(link)!r}), 'told')"
    out = (tmp_path / "out").open("w+") if redirected else subprocess.PIPE
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, stdout=out, text=True, check=True
    )
    assert ((tmp_path / "out").read_text() if redirected else done.stdout) == "told"
    assert link.is_symlink()
