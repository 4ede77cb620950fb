"""What two and four real ranks agree on; they run rank_program.py and stall_program.py."""

import json
import platform
from pathlib import Path

import pytest

pytestmark = pytest.mark.mpi

PROGRAM = Path(__file__).with_name("rank_program.py")
STALL = Path(__file__).with_name("stall_program.py")


@pytest.fixture(scope="module")
def report(launch, tmp_path_factory):
    path = tmp_path_factory.mktemp("ranks") / "report.json"
    done = launch(PROGRAM, path, ranks=2)
    assert done.code == 0, done.err
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def stalled(launch, tmp_path_factory):
    """Return what rank 0 found without fusion, and when rank 1 did not come."""
    path = tmp_path_factory.mktemp("ranks") / "report.json"
    done = launch(STALL, path, 1, ranks=2)
    assert done.code == 7, done.err
    return json.loads(path.read_text())


def test_gradients_of_halves_equal_those_of_the_whole_batch(report, record_property):
    record_property("gradient_error_float32", report["gradient_error_float32"])
    print(f"largest relative error, float32: {report['gradient_error_float32']:.1e}")
    assert report["gradient_error_float64"] < 1e-10
    # A rounded value can move a maximum to another pixel, or switch a ReLU: no closer bound holds.
    assert report["gradient_error_float32"] < 0.05


# A threshold of 0 turns fusion off.
@pytest.mark.parametrize(
    ("ranks", "threshold"),
    [
        pytest.param(2, None, marks=pytest.mark.slow),
        (4, None),
        pytest.param(4, "0", marks=pytest.mark.slow),
    ],
)
def test_gradients_also_accumulated_equal_those_of_whole_batches(
    launch, tmp_path, monkeypatch, ranks, threshold
):
    if threshold:
        monkeypatch.setenv("HOROVOD_FUSION_THRESHOLD", threshold)
    done = launch(PROGRAM, tmp_path / "report.json", "gradients", ranks=ranks)
    assert done.code == 0, done.err
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["ranks"] == ranks
    assert threshold in (None, report["settings"]["HOROVOD_FUSION_THRESHOLD"])
    assert report["settings"]["HOROVOD_DISABLE_GROUP_FUSION"] == "1"
    assert report["gradient_error_float64"] < 1e-10
    assert report["moving_error_float64"] < 1e-12
    assert report["accumulated_error"] < 1e-10
    for name in ("grouped", "groups", "flat", "each"):
        assert report["exchanges"][name][0] < 1e-6, name


def test_ways_to_exchange_give_the_same_bytes_on_two_ranks(report):
    errors = {name: error for name, (error, _) in report["exchanges"].items()}
    digests = {name: digest for name, (_, digest) in report["exchanges"].items()}
    assert errors["grouped"] < 1e-6  # against numpy's sum in float64
    assert len({digests[name] for name in ("grouped", "groups", "flat", "each")}) == 1
    assert digests["fp16"] != digests["grouped"]
    assert errors["fp16"] < 2e-3  # it has 11 bits


def test_fusion_off_gives_the_same_bytes(report, stalled):
    assert stalled["exchanges"] == report["exchanges"]


def test_rank_that_does_not_come_is_named_with_its_host(stalled):
    text, code = stalled["error"]
    assert f"rank 1 on {platform.node()} did not come" in text
    assert code == 1


@pytest.mark.slow
def test_rank_0_that_does_not_come_is_named_by_rank_1(launch, tmp_path):
    done = launch(STALL, tmp_path / "report.json", 0, ranks=2)
    assert done.code == 7, done.err
    text, _ = json.loads((tmp_path / "report.json").read_text())["error"]
    assert f"rank 0 on {platform.node()} did not come" in text


def test_global_moving_statistics_equal_those_of_the_whole_batch(report):
    assert report["moving_error_float64"] < 1e-12


def test_ranks_start_alike_after_the_broadcast(report):
    before, after, *_ = report["spreads"]
    assert before > 0.01  # other seeds, so that the broadcast has something to do
    assert after == 0


def test_weights_and_optimizer_are_identical_after_20_steps(report):
    assert report["spreads"][2] == 0


def test_moving_statistics_differ_until_they_are_averaged(report):
    *_, apart, averaged = report["spreads"]
    assert apart > 0
    assert averaged == 0


def test_steps_are_traced_once_whatever_their_number_in_a_call(report):
    assert report["traces"] == 1  # calls of 3 steps and of 2


def test_effective_settings_are_told(report):
    assert report["effective"]["exchange"] == "grouped"
    assert report["effective"]["steps_per_call"] == 3
    assert report["effective"]["precision"] == "float32"


def test_xla_with_statistics_of_all_ranks_is_refused(report):
    assert "--set xla=off" in report["refuses_xla"]


def test_rows_of_unequal_number_are_gathered_in_order(report):
    assert report["rows"] == [[1], [1]]  # none of rank 0, two of rank 1


def test_measured_is_the_mean_of_the_ranks(report):
    # Losses 1 and 2; 0.5 s and 1.5 s for 30 films, and what measuring itself took; each
    # rank waited 0.25 s.
    loss, images_per_s, wait_fraction = report["measured"]
    assert loss == pytest.approx(1.5)
    assert 0 < images_per_s <= 30.0
    assert wait_fraction / images_per_s == pytest.approx(0.25 / 30)


def test_on_first_gives_all_ranks_the_result_and_the_error(report):
    assert report["on_first"] == "by 0"
    first, second = report["errors"]
    assert first == second == ["expected: a thing\nfound:    another\nfix:      change it", 3]
