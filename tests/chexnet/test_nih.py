import pytest

from chexnet import nih
from chexnet.errors import UserError

# The first release: ages with a unit, and a comma at the end of every line.
FIRST = """\
Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,\
OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y],
00000001_000.png,Cardiomegaly,0,1,058Y,M,PA,2682,2749,0.143,0.143,
00000001_001.png,Cardiomegaly|Emphysema,1,1,059Y,M,PA,2894,2729,0.143,0.143,
00000002_000.png,No Finding,0,2,006M,F,AP,2500,2048,0.168,0.168,
"""
SECOND = """\
Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,\
OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y]
00000001_000.png,Cardiomegaly,0,1,58,M,PA,2682,2749,0.14300000000000002,0.14300000000000002
00000001_001.png,Cardiomegaly|Emphysema,1,1,59,M,PA,2894,2729,0.143,0.143
00000002_000.png,No Finding,0,2,,F,AP,2500,2048,0.168,0.168
"""


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "Data_Entry_2017.csv"
    path.write_text(FIRST)
    return path


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize(("text", "baby"), [(FIRST, 0.5), (SECOND, None)])
def test_both_releases(table, text, baby, encoding, newline):
    table.write_bytes(text.replace("\n", newline).encode(encoding))
    assert nih.load_table(table) == [
        nih.Film("00000001_000.png", "1", ("Cardiomegaly",), 58.0, "PA", 0),
        nih.Film("00000001_001.png", "1", ("Cardiomegaly", "Emphysema"), 59.0, "PA", 1),
        nih.Film("00000002_000.png", "2", (), baby, "AP", 0),
    ]


def test_columns_after_the_brackets_are_found(table):
    table.write_text('"Image Index",Bbox [x,y],"Finding Labels",Patient ID\na.png,1,2,Hernia,7\n\n')
    assert nih.load_table(table) == [nih.Film("a.png", "7", ("Hernia",), None, "")]


@pytest.mark.parametrize("column", ["Image Index", "Finding Labels", "Patient ID"])
def test_a_missing_column_is_named_with_those_there(table, column):
    table.write_text(FIRST.replace(column, "Something"))
    with pytest.raises(UserError) as error:
        nih.load_table(table)
    assert f"no column {column}; there are:" in error.value.found
    assert "Something" in error.value.found
    assert f"{table}, line 1" in error.value.expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("Cardiomegaly|Emphysema", "Cardiomegaly|Gout", "findings that the label table knows"),
        ("059Y", "old", "a patient's age"),
        ("00000001_001.png", "../secret.png", "without a folder"),
        ("00000001_001.png", "images\\a.png", "without a folder"),
        ("00000001_001.png", "", "an image name"),
        ("00000001_001.png", "00000001_000.png", "once"),
        (",1,1,059Y", ",1,,059Y", "a patient"),
        (",1,1,059Y,M,PA,2894,2729,0.143,0.143,", "", "at least 7 columns"),
    ],
)
def test_a_bad_line_is_named(table, old, new, expected):
    table.write_text(FIRST.replace(old, new))
    with pytest.raises(UserError) as error:
        nih.load_table(table)
    assert f"{table}, line 3" in error.value.expected
    assert expected in error.value.expected


def test_other_encodings_are_refused(table):
    table.write_bytes(FIRST.encode("utf-16"))
    with pytest.raises(UserError, match="UTF-8"):
        nih.load_table(table)


def test_find_table(tmp_path):
    def found(folder):
        with pytest.raises(UserError) as error:
            nih.find_table(folder)
        assert str(folder) in error.value.expected
        return error.value.found

    assert found(tmp_path / "nowhere") == "no such folder"
    assert found(tmp_path) == "an empty folder"
    (tmp_path / "images").mkdir()
    assert found(tmp_path) == "none"
    first = tmp_path / "Data_Entry_2017.csv"
    first.touch()
    assert nih.find_table(tmp_path) == first
    (tmp_path / "Data_Entry_2017_v2020.csv").touch()
    assert found(tmp_path) == "Data_Entry_2017.csv, Data_Entry_2017_v2020.csv"
    assert found(first) == "a file"


def test_images_in_one_folder_or_in_twelve(tmp_path):
    with pytest.raises(UserError, match="images_001/images"):
        nih.find_images(tmp_path)
    for folder, name in [("images", "a.png"), ("images_001/images", "b.PNG"),
                         ("images_012/images", "c.jpeg"), ("images", "note.txt")]:  # fmt: skip
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / name).touch()
    assert nih.find_images(tmp_path) == {
        "a.png": tmp_path / "images/a.png",
        "b.PNG": tmp_path / "images_001/images/b.PNG",
        "c.jpeg": tmp_path / "images_012/images/c.jpeg",
    }
    (tmp_path / "images_012/images/a.png").touch()
    with pytest.raises(UserError, match=r"images_012/images/a\.png"):
        nih.find_images(tmp_path)


def test_missing_images_are_counted_and_the_first_named(table):
    films = [nih.Film(f"{n}.png", "1", (), None, "") for n in range(9)]
    nih.check_images_present(films[:1], images={"0.png": table}, table=table)
    with pytest.raises(UserError) as error:
        nih.check_images_present(films, images={"0.png": table}, table=table)
    assert error.value.found == "8 missing: 1.png, 2.png, 3.png, 4.png, 5.png and 3 more"
    assert str(table) in error.value.expected


def test_lists(tmp_path):
    path = tmp_path / "test_list.txt"
    with pytest.raises(UserError, match="--split patient") as error:
        nih.load_list(path, known=set())
    assert error.value.found == "no such file"
    path.write_text("a.png\r\n\nb.png")
    assert nih.load_list(path, known={"a.png", "b.png", "c.png"}) == {"a.png", "b.png"}
    with pytest.raises(UserError) as error:
        nih.load_list(path, known={"a.png"})
    assert error.value.found == "1 others, the first in line 3: b.png"
    assert str(path) in error.value.expected


@pytest.mark.parametrize("name", ["../a.png", "/etc/passwd", "images/a.png", ".."])
def test_a_list_cannot_leave_the_folder(tmp_path, name):
    path = tmp_path / "test_list.txt"
    path.write_text(f"a.png\n{name}\n")
    with pytest.raises(UserError, match="without a folder") as error:
        nih.load_list(path, known={"a.png", name})
    assert f"{path}, line 2" in error.value.expected
