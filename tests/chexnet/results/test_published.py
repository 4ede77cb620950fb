"""Which published results may stand beside ours: by the films, never by the name alone."""

import pytest

from chexnet.errors import UserError
from chexnet.labels import FINDINGS
from chexnet.records import Dataset, Split, Table
from chexnet.results.published import check_beside, compare, load_published, our_films


def make_dataset(kind="official", train=77_871, validation=8_653, test=25_596):
    sizes = {"train": train, "validation": validation, "test": test}
    splits = {name: Split(size, {}, Table("t", "", 0), ()) for name, size in sizes.items()}
    return Dataset("data", FINDINGS, kind, 256, "fast", splits, (), "")


def find(work):
    return next(one for one in load_published() if one.work == work)


def test_results_hold_what_they_say():
    results = load_published()
    assert len({one.work for one in results}) == len(results)
    for one in results:
        assert 0.5 < one.mean_auroc < 1
        assert one.source
        assert not one.findings or tuple(one.findings) == FINDINGS
        if one.findings:  # each row averages to the published mean
            mean = sum(one.findings.values()) / 14
            assert mean == pytest.approx(one.mean_auroc, abs=1.5e-3)


def test_nihs_test_films_stand_beside_results_on_the_official_list_alone():
    films = our_films(make_dataset(), split="test")
    assert films.title == "test, NIH's official list (25,596 films)"
    same, refused = compare(films)
    assert {"Wang 2017", "Guendel 2018", "Xiao 2023", "Taslimi 2022"} <= {x.work for x in same}
    assert all(one.films.num_examples == 25_596 for one in same)
    assert not {"CheXNet 2017", "Dell 2019", "jrzech re-run"} & {x.work for x in same}
    for name in ("CheXNet 2017", "Dell 2019"):
        assert name in refused


@pytest.mark.parametrize(
    ("dataset", "split", "title"),
    [
        (make_dataset(test=25_595), "test", "test, official lists, 25,595 of 25,596 films"),
        (make_dataset("patient"), "test", "test, divided by patient (25,596 films)"),
        (make_dataset("lists"), "test", "test, the user's lists (25,596 films)"),
        (make_dataset(), "validation", "validation, 8,653 films out of NIH's train_val list"),
        (make_dataset(train=5), "train", "train, 5 films out of the train_val list"),
    ],
)
def test_other_films_stand_beside_nothing_and_are_not_called_nihs_test(dataset, split, title):
    films = our_films(dataset, split=split)
    assert films.title == title
    same, refused = compare(films)
    assert same == ()
    assert "Wang 2017" in refused


def test_dells_score_is_of_validation_and_stands_beside_its_own_records_only():
    [dell] = compare(our_films(make_dataset("records"), split="validation"))[0]
    assert dell.work == "Dell 2019"
    assert dell not in compare(our_films(make_dataset("records"), split="test"))[0]
    assert dell not in compare(our_films(make_dataset(), split="validation"))[0]
    # As published: two of its rows look exchanged, and that is not ours to mend.
    assert dell.findings["Pneumonia"] > dell.findings["Pneumothorax"]


def test_asking_for_results_on_other_films_is_refused_with_both_named():
    films = our_films(make_dataset(), split="test")
    check_beside("", films=films)
    check_beside("Wang 2017", films=films)
    with pytest.raises(UserError, match="Dell 2019 on Dell's validation records") as caught:
        check_beside("Dell 2019", films=films)
    assert "NIH's official list" in caught.value.expected
    with pytest.raises(UserError, match="Wang 2017"):
        check_beside("Wang 2016", films=films)
