"""Heat maps against boxes, with maps and boxes made by hand."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from chexnet.data.boxes import Box, load_boxes
from chexnet.data.films import load_films
from chexnet.data.stored import read_films
from chexnet.distributed import Ranks
from chexnet.labels import FINDINGS
from chexnet.records import load_dataset
from chexnet.results import agreement
from chexnet.results.agreement import PlacedBox, compare, cut_area, measure_agreement, place_boxes

ALONE = Ranks(0, 1, 0)


def test_share_chance_and_hit_by_hand():
    heat = np.zeros((4, 4))
    heat[1, 1], heat[1, 2], heat[3, 3] = 5, 3, 2
    # The box covers columns 1 and half of 2, row 1: 5 + 3 / 2 of 10, and 1.5 of 16 cells.
    area = (0.25, 0.25, 0.625, 0.5)
    found = compare(heat, area=area, size_px=4)
    assert found == (pytest.approx(0.65), pytest.approx(1.5 / 16), 1.0)
    found = compare(heat, area=(0.75, 0.75, 1.0, 1.0), size_px=4)
    assert found == (pytest.approx(0.2), 1 / 16, 0.0)


def test_a_map_of_nothing_has_nothing_inside_and_hits_nothing():
    assert compare(np.zeros((4, 4)), area=(0, 0, 1, 1), size_px=4) == (0, 1, 0)


@pytest.mark.parametrize("cells", [2, 7])
def test_of_a_single_cell_a_small_box_round_its_middle_is_hit_and_no_other(cells):
    for row, column in np.ndindex(cells, cells):  # those at the border too
        heat = np.zeros((cells, cells), np.float32)
        heat[row, column] = 3.0
        x, y = (column + 0.5) / cells, (row + 0.5) / cells
        for aside, hit in ((0, 1), (0.04, 0)):
            area = (x + aside - 0.02, y - 0.02, x + aside + 0.02, y + 0.02)
            assert compare(heat, area=area, size_px=224)[2] == hit


def test_a_box_of_the_film_is_moved_into_its_middle():
    # 256 px, the middle 224: 16 px are cut off at each side.
    assert cut_area((0.5, 0.5, 1.0, 1.0), size_px=256, crop_px=224) == (
        pytest.approx((128 - 16) / 224),
        pytest.approx((128 - 16) / 224),
        pytest.approx((256 - 16) / 224),
        pytest.approx((256 - 16) / 224),
    )


def test_boxes_of_1024_px_become_shares_and_films_of_other_sides_are_left_out(fast_data, tmp_path):
    dataset = load_dataset(fast_data)
    test = load_films(fast_data / "test-films.csv", num_films=dataset.splits["test"].num_examples)
    train = load_films(
        fast_data / "train-films.csv", num_films=dataset.splits["train"].num_examples
    )
    boxes = [
        Box(test.names[3], "Mass", 512, 256, 256, 128),
        Box(test.names[1], "Hernia", 0, 0, 1024, 1024),
        Box(train.names[0], "Mass", 0, 0, 10, 10),
    ]
    placed = place_boxes(boxes, dataset=dataset, split="test", source=tmp_path)
    assert placed == [
        PlacedBox(1, FINDINGS.index("Hernia"), (0, 0, 1, 1)),
        PlacedBox(3, FINDINGS.index("Mass"), (0.5, 0.25, 0.75, 0.375)),
    ]
    # Beside the list lie its images: they tell their own size.
    (tmp_path / "images").mkdir()
    Image.new("L", (2048, 512)).save(tmp_path / "images" / test.names[3])
    placed = place_boxes(boxes[:1], dataset=dataset, split="test", source=tmp_path)
    assert placed[0].area == (0.25, 0.5, 0.375, 0.75)


def test_the_planted_places_agree_with_maps_of_them(fast_data, monkeypatch):
    """Maps drawn from the box list itself have all their mass inside, whatever the format."""
    monkeypatch.setattr(agreement.distributed.hvd, "size", lambda: 1)
    dataset = load_dataset(fast_data)
    source = fast_data.parent / "nih"
    boxes = load_boxes(source / "BBox_List_2017.csv")
    placed = place_boxes(boxes, dataset=dataset, split="test", source=source)
    assert len(placed) > 20
    films = iter(sorted({box.film for box in placed}))

    def heatmaps(images):
        number = next(films)
        assert images.shape == (1, 32, 32, 1)
        maps = np.full((1, 32, 32, 14), 0.0, np.float32)
        for box in placed:
            if box.film == number:
                left, top, right, bottom = (round(edge * 32) for edge in box.area)
                maps[0, top:bottom, left:right, box.finding] = 1
        return maps

    measured = measure_agreement(
        heatmaps, placed=placed, dataset=dataset, split="test", crop_px=32, ranks=ALONE
    )
    assert measured[:, 0] == pytest.approx(np.ones(len(placed)))
    assert measured[:, 1].mean() == pytest.approx(0.055, abs=0.01)  # 0.19 to 0.28 of the width
    assert measured[:, 2].tolist() == [1] * len(placed)
    found = agreement.summarise(measured, placed=placed, file=Path("f"), method="cam")
    assert (found["num_boxes"], found["hit_rate"]) == (len(placed), 1)
    assert sum(row["num_boxes"] for row in found["findings"]) == len(placed)


def test_of_the_middle_only_what_lies_in_it_counts(fast_data, monkeypatch):
    """The middle 24 px of 32: 4 px are cut off at each side."""
    monkeypatch.setattr(agreement.distributed.hvd, "size", lambda: 1)
    dataset = load_dataset(fast_data)
    placed = [
        PlacedBox(0, 2, (4 / 32, 4 / 32, 16 / 32, 28 / 32)),  # the left half of the middle
        PlacedBox(1, 2, (0, 0, 10 / 32, 10 / 32)),  # its upper left 6 by 6 px
        PlacedBox(2, 2, (0, 0, 4 / 32, 1)),  # beside it
    ]
    [first, *_] = read_films(dataset, split="test", numbers=[0])
    seen = []

    def heatmaps(images):
        seen.append(images)
        maps = np.zeros((1, 24, 24, 14), np.float32)
        maps[0, 3, 3, 2], maps[0, 3, 20, 2] = 3, 1  # in the film: row 7, columns 7 and 24
        return maps

    measured = measure_agreement(
        heatmaps, placed=placed, dataset=dataset, split="test", crop_px=24, ranks=ALONE
    )
    assert np.array_equal(seen[0][0, ..., 0], first[1][4:28, 4:28])
    assert measured.ravel() == pytest.approx([0.75, 0.5, 1, 0.75, 36 / 576, 1, 0, 0, 0])
