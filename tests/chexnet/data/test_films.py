"""The table of prepared films: what goes in comes out, and damage is named."""

import numpy as np
import pytest

from chexnet.data.films import COLUMNS, load_films, render_films
from chexnet.errors import UserError
from chexnet.labels import FINDINGS
from chexnet.nih import Film

FILMS = [
    Film("a,b.png", "17", ("Mass", "Hernia"), 58.0, "PA", 3),
    Film("c.png", "2", (), None, "", None),
]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "train-films.csv"
    path.write_text(render_films(FILMS))
    return path


def test_what_goes_in_comes_out(table):
    films = load_films(table, num_films=2)
    assert films.names == ("a,b.png", "c.png")
    assert films.patients == ("17", "2")
    assert films.labels.dtype == np.float32
    assert np.argwhere(films.labels).tolist() == [[0, 4], [0, 13]]
    lines = table.read_text().splitlines()
    assert lines[1].startswith('"a,b.png",17,3,58.0,PA,0,0,0,0,1,')
    assert lines[2] == "c.png,2,,,," + ",".join("0" * 14)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace("Hernia", "Gout"), "the columns"),
        (lambda text: text + text.splitlines()[1] + "\n", "2 films"),
        (lambda text: text.rsplit("\n", 2)[0] + "\n", "2 films"),
        (lambda text: text[:-2] + "2\n", "labels 0 and 1"),
        (lambda text: text[:-3] + "\n", "2 films"),
        (lambda text: "", "the columns"),
    ],
)
def test_damage_is_named(table, change, words):
    table.write_text(change(table.read_text()))
    with pytest.raises(UserError, match=words) as error:
        load_films(table, num_films=2)
    assert str(table) in error.value.expected


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"none\.csv"):
        load_films(tmp_path / "none.csv", num_films=1)


def test_the_columns_are_features_then_findings():
    assert COLUMNS[-14:] == FINDINGS
