"""What inspect-data says of folders made by hand."""

import io
import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from chexnet.__main__ import main
from chexnet.data import inspection
from chexnet.data.inspection import inspect_data
from chexnet.data.inspection_picture import draw_inspection
from chexnet.data.inspection_text import print_inspection
from chexnet.errors import UserError
from chexnet.labels import FINDINGS
from chexnet.prepare import prepare_data

TABLE = """\
Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,\
OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y]
a.png,Cardiomegaly|Emphysema,0,1,57,M,PA,9,9,0.1,0.1
b.png,Cardiomegaly,1,1,58,M,AP,9,9,0.1,0.1
c.png,No Finding,0,2,414,F,PA,9,9,0.1,0.1
d.png,Hernia,0,3,30,F,PA,9,9,0.1,0.1
"""
BOXES = """\
Image Index,Finding Label,Bbox [x,y,w,h],,,
a.png,Cardiomegaly,225.0,547.0,86.7,79.1
x.png,Infiltrate,225.0,547.0,86.7,79.1,,
"""
SCHEMA = json.loads(inspection.SCHEMA.read_text())


@pytest.fixture
def folder(tmp_path):
    images = tmp_path / "nih" / "images"
    images.mkdir(parents=True)
    for name in "abcd":
        Image.fromarray(np.full((16, 16), 99, np.uint8)).save(images / f"{name}.png")
    (tmp_path / "nih" / "Data_Entry_2017.csv").write_text(TABLE)
    (tmp_path / "nih" / "train_val_list.txt").write_text("a.png\nb.png\nd.png\n")
    (tmp_path / "nih" / "test_list.txt").write_text("c.png\n")
    return tmp_path / "nih"


def test_counts_by_side_and_view(folder):
    found = inspect_data(folder, workers=1)
    assert (found.kind, found.num_films, found.num_patients) == ("nih", 4, 3)
    assert {k: v for k, v in found.findings["all"].items() if v} == {
        "Cardiomegaly": 2, "Emphysema": 1, "Hernia": 1, "No Finding": 1,
    }  # fmt: skip
    assert found.findings["train_val"]["Cardiomegaly"] == 2
    assert found.findings["test"] == {**dict.fromkeys(FINDINGS, 0), "No Finding": 1}
    assert found.views == {
        "all": {"PA": 3, "AP": 1},
        "train_val": {"PA": 2, "AP": 1},
        "test": {"PA": 1},
    }
    heart, lung = FINDINGS.index("Cardiomegaly"), FINDINGS.index("Emphysema")
    assert (found.together[heart][heart], found.together[heart][lung]) == (2, 1)
    assert found.images == {"16x16 L": 4}
    assert found.wrong == ()
    assert found.odd == ("1 films of patients above 110 years, up to 414 (c.png)",)


def test_json_follows_its_schema(folder):
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    data = json.loads(inspection.render_inspection(inspect_data(folder, workers=1)))
    jsonschema.validate(data, SCHEMA)


def test_odd_and_unreadable_images_are_named(folder):
    Image.new("RGBA", (16, 16)).save(folder / "images" / "a.png")
    (folder / "images" / "b.png").write_text("<html>")
    (folder / "images" / "more.png").write_bytes((folder / "images" / "c.png").read_bytes())
    Image.new("1", (20000, 5000)).save(folder / "images" / "d.png")
    found = inspect_data(folder, workers=1)
    assert "1 images of kind 16x16 RGBA: a.png" in found.odd
    assert "1 images that the table does not name: more.png" in found.odd
    assert [line.split(": ")[0] for line in sorted(found.wrong)] == [
        "unreadable, no image whatever the name says", "unreadable, too many pixels to be a film",
    ]  # fmt: skip
    assert str(folder / "images" / "b.png") in "".join(found.wrong)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: (f / "images" / "c.png").unlink(), "1 missing: c.png"),
        (lambda f: (f / "test_list.txt").write_text("b.png\n"), "patient 1 in train_val (a.png)"),
        (lambda f: (f / "test_list.txt").write_text("z.png\n"), "line 1: z.png"),
        (lambda f: (f / "images").rename(f / "pictures"), "images/"),
    ],
)
def test_what_stops_prepare_data_is_told(folder, change, words):
    change(folder)
    found = inspect_data(folder, workers=1)
    assert any(words in line for line in found.wrong), found.wrong


def test_archives_as_downloaded_are_told_how_to_unpack(folder):
    (folder / "images").rename(folder.parent / "elsewhere")
    for number in (1, 2):
        (folder / f"images_{number:03d}.tar.gz").write_bytes(b"")
    [line] = inspect_data(folder, workers=1).wrong
    assert line.startswith("2 archives are not unpacked: cd ")


def test_boxes_are_counted_under_the_findings_names(folder):
    (folder / "BBox_List_2017.csv").write_text(BOXES)
    found = inspect_data(folder, workers=1)
    assert found.boxes == {"Cardiomegaly": 1, "Infiltration": 1}
    assert "BBox_List_2017.csv names 1 films that the table lacks" in found.odd
    (folder / "BBox_List_2017.csv").write_text(BOXES + "y.png,Mass,1,2,three,4\n")
    with pytest.raises(UserError, match="line 4"):
        inspect_data(folder, workers=1)


def test_prepared_data_is_counted_by_its_own_sides(folder, tmp_path):
    (folder / "images" / "d.png").write_text("<html>")
    data = prepare_data(folder, output=tmp_path / "data", size_px=8, workers=1, max_bad=1)
    found = inspect_data(data.root)
    assert (found.kind, found.num_films) == ("prepared", 3)
    assert set(found.findings) == {"all", "train", "validation", "test"}
    assert found.odd == ("d.png was left out: not an image, whatever its name says",)
    jsonschema.validate(json.loads(inspection.render_inspection(found)), SCHEMA)


def test_people_get_tables(folder):
    stream = io.StringIO()
    print_inspection(inspect_data(folder, workers=1), console=Console(file=stream, width=160))
    text = stream.getvalue()
    assert "4 films of 3 patients" in text
    assert "Findings that come together" in text
    assert "odd:   1 films of patients above 110" in text


def test_the_command_exits_1_where_preparing_would_stop(folder, tmp_path, capsys):
    command = ["inspect-data", str(folder), "--json", str(tmp_path / "i.json"), "--workers", "1"]
    assert main(command) == 0
    assert json.loads((tmp_path / "i.json").read_text())["num_films"] == 4
    (folder / "images" / "c.png").unlink()
    assert main(command) == 1
    assert "1 missing: c.png" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["nothing", "file"])
def test_what_is_no_folder_of_films_is_refused(tmp_path, name):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="NIH's layout"):
        inspect_data(tmp_path / name)


def test_the_schema_lies_beside_the_code():
    assert inspection.SCHEMA.parent == Path(inspection.__file__).parent


def test_a_picture_shows_what_the_table_says(folder, tmp_path):
    picture = tmp_path / "new" / "findings.svg"
    assert main(["inspect-data", str(folder), "--picture", str(picture)]) == 0
    found = inspect_data(folder, workers=1)
    # The matrix is drawn from these: Cardiomegaly and Emphysema come together on a.png alone.
    assert found.together[FINDINGS.index("Cardiomegaly")][FINDINGS.index("Emphysema")] == 1
    assert picture.read_text().count("<svg") == 1
    png = tmp_path / "findings.png"
    draw_inspection(found, output=png)
    with Image.open(png) as image:
        assert image.size == (13 * 120, int(6.5 * 120))
        assert len(np.unique(np.asarray(image.convert("L")))) > 10  # not a blank page


def test_a_picture_of_another_kind_is_refused_before_the_work(folder, tmp_path, capsys):
    assert main(["inspect-data", str(folder), "--picture", str(tmp_path / "a.bmp")]) == 2
    assert ".png, .svg, .pdf" in capsys.readouterr().err
