import pytest

from chexnet.data import splits
from chexnet.errors import UserError
from chexnet.nih import Film


def films_of(num_patients, *, films_each=3):
    return [
        Film(f"{patient}_{nth}.png", str(patient), (), None, "PA")
        for patient in range(num_patients)
        for nth in range(films_each)
    ]


def write_lists(folder, train_val, test):
    (folder / "train_val_list.txt").write_text("\n".join(film.name for film in train_val))
    (folder / "test_list.txt").write_text("\n".join(film.name for film in test))


def patients(films):
    return {film.patient for film in films}


def test_patient_split_is_70_10_20_of_the_patients(tmp_path):
    films = films_of(100)
    sides = splits.split_films(films, source=tmp_path, kind="patient", seed=1)
    assert {side: len(patients(each)) for side, each in sides.items()} == {
        "train": 70,
        "validation": 10,
        "test": 20,
    }
    assert sorted(film.name for each in sides.values() for film in each) == sorted(
        film.name for film in films
    )
    assert not patients(sides["train"]) & patients(sides["test"])
    again = splits.split_films(films[::-1], source=tmp_path, kind="patient", seed=1)
    assert patients(again["test"]) == patients(sides["test"])
    other = splits.split_films(films, source=tmp_path, kind="patient", seed=2)
    assert patients(other["test"]) != patients(sides["test"])


def test_three_patients_are_enough_for_three_sides(tmp_path):
    sides = splits.split_films(films_of(3), source=tmp_path, kind="patient")
    assert [len(patients(each)) for each in sides.values()] == [1, 1, 1]


def test_official_split_carves_validation_by_patient(tmp_path):
    films = films_of(50)
    write_lists(tmp_path, films[:120], films[120:147])  # 40 patients, 9, and one in neither
    sides = splits.split_films(films, source=tmp_path, kind="official", seed=5)
    assert sides["test"] == films[120:147]
    assert len(patients(sides["validation"])) == 4  # 12 films: a tenth of 120
    assert len(patients(sides["train"])) == 36
    assert patients(sides["train"]) | patients(sides["validation"]) == patients(films[:120])
    again = splits.split_films(films, source=tmp_path, kind="official", seed=5)
    assert again == sides
    assert splits.split_films(films, source=tmp_path, kind="official", seed=6) != sides


def test_a_patient_in_both_lists_is_an_error(tmp_path):
    films = films_of(4)
    write_lists(tmp_path, films[:7], films[7:])
    with pytest.raises(UserError) as error:
        splits.split_films(films, source=tmp_path, kind="official")
    assert error.value.found == (
        "patient 2 in train_val_list.txt (2_0.png) and test_list.txt (2_1.png)"
    )


def test_unknown_kind_lists_the_known(tmp_path):
    with pytest.raises(UserError, match="official, patient"):
        splits.split_films(films_of(3), source=tmp_path, kind="random")
