"""verify-data: all that is wrong is named, and nothing else."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from chexnet import records
from chexnet.__main__ import main
from chexnet.data.verification import verify_data
from chexnet.errors import UserError
from chexnet.prepare import prepare_data
from chexnet.synthetic import make_sample_data


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Films, and both kinds of data prepared from them."""
    folder = tmp_path_factory.mktemp("made")
    make_sample_data(folder / "nih", num_images=60, size_px=32, workers=1)
    for format in records.FORMATS:
        prepare_data(folder / "nih", output=folder / format, size_px=32, format=format, workers=1)
    return folder


@pytest.fixture(params=records.FORMATS)
def data(request, made, tmp_path):
    """A copy to spoil."""
    shutil.copytree(made / request.param, tmp_path / "data")
    return tmp_path / "data"


def first_shard(data):
    return sorted([*data.glob("train-0*.tfrecord"), *data.glob("train-0*.u8")])[0]


def test_whole_data_is_whole(data, made):
    assert verify_data(data) == []
    assert verify_data(data, source=made / "nih") == []


def test_a_flipped_bit_is_named(data):
    path = first_shard(data)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    [line] = verify_data(data)
    assert line == f"{path}: other bytes than were written"


def test_a_changed_table_of_films_is_named(data):
    table = data / "train-films.csv"
    text = table.read_text()
    table.write_text(text[:-2] + ("1" if text[-2] == "0" else "0") + "\n")
    assert verify_data(data) == [f"{table}: other bytes than were written"]


def test_files_of_other_data_are_named(data):
    shutil.copy(first_shard(data), data / "train-00099-of-00100.u8")
    [line] = verify_data(data)
    assert "train-00099-of-00100.u8" in line


def test_a_missing_file_is_named(data):
    path = first_shard(data)
    path.unlink()
    with pytest.raises(UserError, match=path.name):
        verify_data(data)


def test_other_labels_are_named(data):
    description = json.loads((data / "dataset.json").read_text())
    description["splits"]["train"]["positives"]["Mass"] += 1
    (data / "dataset.json").write_text(json.dumps(description))
    [line] = verify_data(data)
    assert "films with Mass" in line


def test_other_pixels_than_the_source_s_are_named(data, made, tmp_path):
    source = tmp_path / "nih"
    shutil.copytree(made / "nih", source)
    name = (data / "test-films.csv").read_text().splitlines()[1].split(",")[0]
    pixels = np.asarray(Image.open(source / "images" / name)).copy()
    pixels[3, 4] ^= 8
    Image.fromarray(pixels).save(source / "images" / name)
    assert verify_data(data, source=source) == [
        f"test: {name}: other pixels than the source's, by up to 8 of 255"
    ]
    (source / "images" / name).unlink()
    assert verify_data(data, source=source) == [f"test: {name}: not in the source"]


def test_a_negative_sample_is_refused(data, made, capsys):
    assert main(["verify-data", str(data), "--source", str(made / "nih"), "--sample=-1"]) == 2
    assert "--sample of 0 or more" in capsys.readouterr().err


def test_the_command_says_all_of_it_and_exits_1(data, capsys):
    assert main(["verify-data", str(data)]) == 0
    (data / "stray.u8").write_bytes(b"")
    assert main(["verify-data", str(data)]) == 1
    assert "stray.u8" in capsys.readouterr().err
