"""What inspect-data says of folders made by hand."""

import io
import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from matplotlib.axes import Axes
from PIL import Image
from rich.console import Console

from chexnet import nih
from chexnet.__main__ import main
from chexnet.data import inspection
from chexnet.data.inspection import inspect_data
from chexnet.data.inspection_picture import draw_inspection
from chexnet.data.inspection_text import print_inspection
from chexnet.data.splits import split_films
from chexnet.errors import UserError
from chexnet.labels import FINDINGS
from chexnet.prepare import prepare_data
from chexnet.synthetic import make_sample_data

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
        "2 of 4 films to prepare are unreadable",
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
        (lambda f: (f / "test_list.txt").unlink(), "no test_list.txt: only prepare-data --split"),
    ],
)
def test_what_stops_prepare_data_is_told(folder, change, words):
    change(folder)
    found = inspect_data(folder, workers=1)
    assert any(words in line for line in found.wrong), found.wrong


def spoil(path):
    """Keep the header of an image and no pixel of it."""
    path.write_bytes(path.read_bytes()[:45])


@pytest.mark.parametrize(
    ("num_bad", "listed", "stops"), [(1, True, False), (3, True, True), (9, False, False)]
)
def test_the_verdict_on_unreadable_images_is_prepare_data_s(tmp_path, num_bad, listed, stops):
    """Of 200 films on NIH's lists, 2 may be unreadable (1 in 100); others do not matter."""
    sample = make_sample_data(tmp_path / "nih", num_images=220, size_px=32, workers=1)
    lists = [sample / name for name in ("train_val_list.txt", "test_list.txt")]
    kept, test = (path.read_text().split() for path in lists)
    kept, dropped = kept[: 200 - len(test)], kept[200 - len(test) :]
    lists[0].write_text("\n".join(kept))
    for name in (kept if listed else dropped)[:num_bad]:
        spoil(sample / "images" / name)
    found = inspect_data(sample, decode=True, workers=1)
    assert bool(found.wrong) is stops
    said = [line for line in found.wrong + found.odd if "of 200 films to prepare" in line]
    assert said[0].startswith(f"{num_bad if listed else 0} of 200 films to prepare are unreadable")
    # Headers alone do not tell.
    assert inspect_data(sample, workers=1).wrong == ()
    if stops:
        with pytest.raises(UserError, match="at most 2 images"):
            prepare_data(sample, output=tmp_path / "data", size_px=32, workers=1)
    else:
        prepare_data(sample, output=tmp_path / "data", size_px=32, workers=1)


def test_a_table_as_long_as_nih_s_is_counted_and_divided(tmp_path):
    """112,120 films of 30,805 patients: those of odd patients have Mass, every third is AP."""
    patients = [number * 30805 // 112120 + 1 for number in range(112120)]
    names = [f"{patient:08d}_{number:06d}.png" for number, patient in enumerate(patients)]
    rows = [
        f"{name},{'Mass' if patient % 2 else 'No Finding'},0,{patient},50,M,"
        f"{'PA' if number % 3 else 'AP'},9,9,0.1,0.1\n"
        for number, (name, patient) in enumerate(zip(names, patients, strict=True))
    ]
    (tmp_path / "Data_Entry_2017.csv").write_text(TABLE.partition("a.png")[0] + "".join(rows))
    cut = patients.index(24000)  # the first film of a patient
    (tmp_path / "train_val_list.txt").write_text("\n".join(names[:cut]))
    (tmp_path / "test_list.txt").write_text("\n".join(names[cut:]))
    found = inspect_data(tmp_path, look_at_images=False)
    assert (found.num_films, found.num_patients) == (112120, 30805)
    assert found.findings["all"]["Mass"] == sum(patient % 2 for patient in patients)
    assert found.views["all"] == {"PA": 74746, "AP": 37374}
    assert found.findings["test"]["Mass"] + found.findings["test"]["No Finding"] == 112120 - cut
    sides = split_films(nih.load_table(tmp_path / "Data_Entry_2017.csv"), source=tmp_path,
                        kind="official")  # fmt: skip
    assert {film.name for film in sides["test"]} == set(names[cut:])
    assert sum(map(len, sides.values())) == 112120
    # A tenth of the rest, and no more than the films of one patient above it.
    assert 0 <= len(sides["validation"]) - cut / 10 < 4


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


def drawn_shares(monkeypatch, *, found, output):
    """Return what the matrix of the picture is coloured by."""
    drawn = []
    real = Axes.imshow
    monkeypatch.setattr(
        Axes, "imshow", lambda *args, **options: drawn.append(real(*args, **options)) or drawn[-1]
    )
    draw_inspection(found, output=output)
    return drawn[0].get_array()


def test_a_picture_shows_what_the_table_says(folder, tmp_path, monkeypatch):
    picture = tmp_path / "new" / "findings.svg"
    assert main(["inspect-data", str(folder), "--picture", str(picture)]) == 0
    found = inspect_data(folder, workers=1)
    # The matrix is drawn from these: Cardiomegaly and Emphysema come together on a.png alone.
    assert found.together[FINDINGS.index("Cardiomegaly")][FINDINGS.index("Emphysema")] == 1
    assert picture.read_text().count("<svg") == 1
    # Of a finding with itself nothing is coloured: the least share of others is no share of it.
    assert drawn_shares(monkeypatch, found=found, output=picture).mask.tolist() == (
        np.eye(len(FINDINGS), dtype=bool).tolist()
    )
    png = tmp_path / "findings.png"
    draw_inspection(found, output=png)
    with Image.open(png) as image:
        assert image.size == (13 * 120, int(6.5 * 120))
        assert len(np.unique(np.asarray(image.convert("L")))) > 10  # not a blank page


@pytest.mark.parametrize(
    "options", [["--json", "file/x.json"], ["--json", "."], ["--picture", "file/x.png"]]
)
def test_a_file_that_cannot_be_written_is_refused_before_the_work(
    folder, tmp_path, options, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert main(["inspect-data", str(folder), *options]) == 2
    said = capsys.readouterr()
    assert "a file that can be written at" in said.err
    assert (said.out, "images opened" in said.err) == ("", False)


def test_a_file_in_a_new_folder(folder, tmp_path):
    path = tmp_path / "new" / "x.json"
    assert main(["inspect-data", str(folder), "--no-images", "--json", str(path)]) == 0
    assert json.loads(path.read_text())["images"] == {}


def test_a_picture_of_another_kind_is_refused_before_the_work(folder, tmp_path, capsys):
    assert main(["inspect-data", str(folder), "--picture", str(tmp_path / "a.bmp")]) == 2
    assert ".png, .svg, .pdf" in capsys.readouterr().err
