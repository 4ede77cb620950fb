"""Bootstrap intervals: against films counted out one by one, and against a known truth."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from chexnet.metrics import Ranking
from chexnet.results.intervals import Bootstrap, make_intervals, resample


def make_films(seed=0, num_films=120, num_findings=2):
    random = np.random.default_rng(seed)
    labels = random.random((num_films, num_findings)) < 0.3
    scores = np.round(random.normal(size=labels.shape) + labels, 1)  # with ties
    patients = [f"{number:08d}" for number in random.integers(0, 30, num_films)]
    return labels, scores, patients


def test_a_resample_scores_as_the_films_it_drew_written_out():
    labels, scores, patients = make_films()
    rankings = [Ranking(labels[:, f], scores=scores[:, f]) for f in range(2)]
    found = resample(rankings, patients=patients, how=Bootstrap(resamples=5, seed=7))
    random = np.random.default_rng(7)
    known = sorted(set(patients))
    for number in range(5):
        drawn = [known[n] for n in random.integers(len(known), size=len(known))]
        films = [film for one in drawn for film, of in enumerate(patients) if of == one]
        for f in range(2):
            y, x = labels[films, f], scores[films, f]
            expected = [roc_auc_score(y, x), average_precision_score(y, x)]
            assert found[number, f] == pytest.approx(expected, abs=1e-12)


def test_the_same_seed_gives_the_same_intervals_and_another_one_others():
    labels, scores, patients = make_films()
    arguments = {"scores": scores, "patients": patients}
    once, again, other = (
        make_intervals(labels, how=Bootstrap(100, seed=seed), **arguments) for seed in (1, 1, 2)
    )
    assert once == again != other


def test_an_interval_holds_the_middle_of_the_resamples():
    labels, scores, patients = make_films()
    how = Bootstrap(resamples=200, level=0.9, seed=3)
    found = make_intervals(labels, scores=scores, patients=patients, how=how)
    rankings = [Ranking(labels[:, f], scores=scores[:, f]) for f in range(2)]
    areas = resample(rankings, patients=patients, how=how)
    low, high = found.auroc[0]
    inside = (areas[:, 0, 0] >= low) & (areas[:, 0, 0] <= high)
    assert inside.mean() == pytest.approx(0.9, abs=0.011)
    assert low < roc_auc_score(labels[:, 0], scores[:, 0]) < high
    low, high = found.mean_auroc
    inside = (areas[..., 0].mean(axis=1) >= low) & (areas[..., 0].mean(axis=1) <= high)
    assert inside.mean() == pytest.approx(0.9, abs=0.011)


def test_patients_of_many_alike_films_widen_the_interval():
    labels, scores, patients = make_films(num_films=60, num_findings=1)
    many = [np.repeat(x, 9, axis=0) for x in (labels, scores, np.array(patients))]
    by_patient = make_intervals(many[0], scores=many[1], patients=many[2], how=Bootstrap(300))
    alone = [str(n) for n in range(len(many[0]))]
    by_film = make_intervals(many[0], scores=many[1], patients=alone, how=Bootstrap(300))

    def width(found):
        return found.auroc[0][1] - found.auroc[0][0]

    assert width(by_patient) > 2 * width(by_film)


def test_a_finding_without_positives_has_no_interval_and_does_not_enter_the_mean():
    labels, scores, patients = make_films()
    labels[:, 1] = False
    found = make_intervals(labels, scores=scores, patients=patients, how=Bootstrap(100))
    assert found.auroc[1] is None
    assert found.auprc[1] is None
    assert found.mean_auroc == pytest.approx(found.auroc[0])


def test_a_finding_of_one_patient_is_told_by_the_resamples_that_drew_him():
    # A third of the resamples lack him: the rest is enough for an interval, of 100 not of 50.
    labels, scores, patients = make_films()
    labels[:, 1] = np.array(patients) == patients[0]
    enough = make_intervals(labels, scores=scores, patients=patients, how=Bootstrap(100))
    too_few = make_intervals(labels, scores=scores, patients=patients, how=Bootstrap(50))
    assert enough.auroc[1] is not None
    assert too_few.auroc[1] is None


def test_ten_patients_have_an_interval_and_nine_a_reason_for_none():
    labels, scores, _ = make_films()
    nine, ten = ([str(film % number) for film in range(len(labels))] for number in (9, 10))
    few = make_intervals(labels, scores=scores, patients=nine, how=Bootstrap(60))
    enough = make_intervals(labels, scores=scores, patients=ten, how=Bootstrap(60))
    assert (few.mean_auroc, few.auroc, few.auprc) == (None, (None, None), (None, None))
    assert "9 patients" in few.refused
    assert enough.refused is None
    assert None not in (enough.mean_auroc, *enough.auroc, *enough.auprc)


def test_no_resamples_no_intervals():
    labels, scores, patients = make_films()
    found = make_intervals(labels, scores=scores, patients=patients, how=Bootstrap(0))
    assert (found.mean_auroc, found.auroc) == (None, (None, None))


@pytest.mark.slow
def test_intervals_cover_the_truth_at_the_nominal_rate():
    """Binormal scores: positives N(1, 1), negatives N(0, 1) have AUROC Phi(1 / sqrt 2).

    Patients of 1 to 5 films share a part of their score, as films of one patient do. With
    400 trials the rate of a true 95 % has a standard deviation of 1.1 %.
    """
    from statistics import NormalDist

    truth, covered, trials = NormalDist().cdf(1 / np.sqrt(2)), 0, 400
    for trial in range(trials):
        random = np.random.default_rng(trial)
        patients = np.repeat(np.arange(200), random.integers(1, 6, 200))
        shared = random.normal(scale=0.8, size=200)[patients]
        labels = random.random(len(patients)) < 0.25
        scores = shared + random.normal(scale=0.6, size=len(patients)) + labels
        found = make_intervals(
            labels[:, None], scores=scores[:, None], patients=patients.astype(str),
            how=Bootstrap(resamples=400, seed=trial),
        )  # fmt: skip
        low, high = found.auroc[0]
        covered += low <= truth <= high
    assert 0.92 <= covered / trials <= 0.98
