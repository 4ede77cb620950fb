import csv
import hashlib

import numpy as np
import pytest
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from chexnet import nih, synthetic
from chexnet.data import planted, splits
from chexnet.errors import UserError
from chexnet.labels import FINDINGS, encode_findings


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sample") / "s"
    synthetic.make_sample_data(folder, num_images=200, size_px=32, seed=4, workers=1)
    return folder


def digests(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def test_layout_is_nihs(sample):
    films = nih.load_table(nih.find_table(sample))
    images = nih.find_images(sample)
    assert len(films) == len(images) == 200
    nih.check_images_present(films, images=images, table=sample)
    sides = splits.split_films(films, source=sample, kind="official")
    assert sum(map(len, sides.values())) == 200
    assert 30 <= len(sides["test"]) <= 36  # 15 %, and at most one patient's films more
    assert len({film.patient for film in films}) < 120
    for path in images.values():
        with Image.open(path) as image:
            assert (image.mode, image.size, image.format) == ("L", (32, 32), "PNG")
    header = (sample / "Data_Entry_2017.csv").read_text().splitlines()[0]
    assert header == (
        "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,"
        "View Position,OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y],"
    )


def test_boxes_belong_to_the_findings_and_lie_inside(sample):
    with (sample / "BBox_List_2017.csv").open() as stream:
        assert stream.readline() == "Image Index,Finding Label,Bbox [x,y,w,h],,,\n"
        rows = list(csv.reader(stream))
    found = {(name, finding) for name, finding, *_ in rows}
    films = nih.load_table(nih.find_table(sample))
    assert found == {(film.name, finding) for film in films for finding in film.findings}
    for _, _, *box in rows:
        left, top, width, height = map(int, box)
        assert min(left, top) >= 0
        assert max(left + width, top + height) <= 32
        assert width == height >= 6


def test_no_film_is_there_twice(sample):
    # The same film on both sides of the split would be a leak that looks like learning.
    films = [digest for name, digest in digests(sample).items() if name.startswith("images/")]
    assert len(films) == len(set(films)) == 200


def test_prevalence(sample):
    films = nih.load_table(nih.find_table(sample))
    labels = np.array([encode_findings(film.findings) for film in films])
    # 200 films at about 0.145: three standard deviations are 0.075.
    assert np.all((labels.mean(0) > 0.07) & (labels.mean(0) < 0.22))
    assert 0.1 < np.mean(labels.sum(1) == 0) < 0.4
    assert (labels.sum(1) > 1).any()


def test_same_bytes_whatever_the_workers(sample, tmp_path):
    other = synthetic.make_sample_data(
        tmp_path / "two", num_images=200, size_px=32, seed=4, workers=2
    )
    assert digests(other) == digests(sample)
    third = synthetic.make_sample_data(tmp_path / "three", num_images=20, size_px=32, seed=5)
    assert digests(third)["images/00000001_000.png"] != digests(sample)["images/00000001_000.png"]


def test_random_labels_keep_films_and_counts_and_lose_the_link(sample, tmp_path):
    folder = synthetic.make_sample_data(
        tmp_path / "r", num_images=200, size_px=32, seed=4, random_labels=True, workers=1
    )
    true, dealt = (nih.load_table(nih.find_table(each)) for each in (sample, folder))
    assert digests(folder)["images/00000001_000.png"] == digests(sample)["images/00000001_000.png"]
    assert [film.name for film in dealt] == [film.name for film in true]
    assert sorted(film.findings for film in dealt) == sorted(film.findings for film in true)
    true, dealt = (np.array([encode_findings(f.findings) for f in each]) for each in (true, dealt))
    agreement = [np.corrcoef(true[:, k], dealt[:, k])[0, 1] for k in range(14)]
    assert abs(np.mean(agreement)) < 0.1
    assert len((folder / "BBox_List_2017.csv").read_text().splitlines()) == 1


def test_every_shape_is_visible_where_its_box_says_and_mirrors_to_itself():
    assert set(planted.SHAPES) == set(FINDINGS)
    x = (np.arange(12) + 0.5) / 12 * 2 - 1
    for finding, shape in planted.SHAPES.items():
        change = shape(*np.meshgrid(x, x))
        assert 0.9 < np.abs(change).max() <= 1, finding
        assert np.abs(change).mean() > 0.2, finding
        mirrored = change[:, ::-1]
        # A chessboard mirrors to its negative: a chessboard still.
        assert np.allclose(mirrored, change) or np.allclose(mirrored, -change), finding


@pytest.mark.slow
def test_a_linear_model_cannot_learn_the_findings():
    """The films must need more than a weighted sum of their pixels."""
    films = [planted.draw_film(seed=0, index=index, size_px=64) for index in range(2400)]
    images = np.stack([film.image.ravel() for film in films]).astype(np.float32)
    labels = np.array([encode_findings(film.boxes) for film in films])
    train, held_out = slice(0, 1800), slice(1800, None)
    mean, spread = images[train].mean(0), images[train].std(0)
    images = (images - mean) / spread

    def score(strength):
        scores = []
        for index in range(14):
            model = LogisticRegression(C=strength, max_iter=300)
            model.fit(images[train], labels[train, index])
            found = model.decision_function(images[held_out])
            scores.append(roc_auc_score(labels[held_out, index], found))
        return np.mean(scores)

    # From far too much regularisation to far too little: the best lies between.
    scores = [score(strength) for strength in (1e-6, 1e-5, 1e-4, 1e-3)]
    assert 0.5 < max(scores) < 0.75


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"num_images": 19}, "at least 20 films"),
        ({"size_px": 31}, "32 to 2048 px"),
        ({"size_px": 4000}, "32 to 2048 px"),
        ({"workers": 0}, "at least one worker"),
        ({"seed": -1}, "--seed of 0 or more"),
    ],
)
def test_wrong_options_leave_nothing(tmp_path, options, expected):
    with pytest.raises(UserError, match=expected):
        synthetic.make_sample_data(tmp_path / "s", **{"num_images": 20, **options})
    assert list(tmp_path.iterdir()) == []
