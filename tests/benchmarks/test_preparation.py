"""Each film under several names is so many films of the same patients, on the same sides."""

from benchmarks.preparation import repeat_films
from chexnet import nih
from chexnet.prepare import prepare_data
from chexnet.synthetic import make_sample_data


def test_films_under_three_names_are_three_times_as_many(tmp_path):
    source = make_sample_data(tmp_path / "s", num_images=40, size_px=32, workers=1)
    repeated = repeat_films(source, folder=tmp_path / "r", names=3)
    once, thrice = (
        prepare_data(folder, output=tmp_path / name, size_px=32, workers=1)
        for folder, name in ((source, "one"), (repeated, "three"))
    )
    for side, split in once.splits.items():
        assert thrice.splits[side].num_examples == 3 * split.num_examples
        assert thrice.splits[side].positives == {k: 3 * n for k, n in split.positives.items()}
    films = {film.name: film for film in nih.load_table(nih.find_table(source))}
    for film in nih.load_table(nih.find_table(repeated)):
        name, _, number = film.name.removesuffix(".png").rpartition("_")
        assert number in "012"
        assert film.patient == films[f"{name}.png"].patient
