"""What limits a training, on situations that are planted: each must get its verdict."""

import dataclasses
import json
import time
from pathlib import Path
from typing import ClassVar

import jsonschema
import pytest

import chexnet.profiling.profile
from chexnet.config import load_config
from chexnet.distributed import Ranks
from chexnet.profiling.bottleneck import COMMUNICATION, COMPUTE, INPUT, LAUNCH, judge
from chexnet.profiling.profile import Bench, choose_other
from chexnet.progress import Reporter
from chexnet.records import load_dataset
from chexnet.run import fit_config, settle_config

pytestmark = pytest.mark.usefixtures("joined")
SCHEMA = json.loads(
    Path(chexnet.profiling.profile.__file__).with_name("profile.schema.json").read_text()
)


# Far more than a step of eight films through the tiny network takes on the busiest machine.
SLEEP_S = 0.25
# Of the tiny network: 8 x 27 + 16 x 72 + 32 x 144, 2 x 56 of normalisation, a head of 32 x 14 + 14.
WEIGHTS = 216 + 1152 + 4608 + 112 + 462


def make_bench(data, *, kind=Bench, **changes):
    values = {"preset": "demo", "model": "tiny", "device": "cpu", "seed": 1} | changes
    config = load_config(settings=[f"{key}={value}" for key, value in values.items()])
    dataset = load_dataset(data)
    config = settle_config(fit_config(config, dataset=dataset), device="cpu")
    return kind(
        dataset, config=config, device="cpu", ranks=Ranks(0, 1, 0),
        reporter=Reporter(enabled=False),
    )  # fmt: skip


def measure(data, *, steps=30, **changes):
    return make_bench(data, **changes).measure(steps=steps).times


def test_slow_input(fast_data, monkeypatch):
    pipeline = chexnet.profiling.profile.make_pipeline

    def slow(*words, **options):
        for batch in pipeline(*words, **options):
            time.sleep(SLEEP_S)
            yield batch

    monkeypatch.setattr(chexnet.profiling.profile, "make_pipeline", slow)
    times = measure(fast_data, batch_size=8, steps=6)
    verdict = judge(times)
    assert verdict.kind == INPUT
    assert times.wait_s > 0.9 * SLEEP_S
    assert "local disk" in verdict.next_steps[0]
    assert times.gpu_use is None
    assert times.exchange_s == 0


class Planted(Bench):
    """Takes its steps, and times them as is written here, whatever the machine is busy with."""

    seconds: ClassVar[dict[str, float]] = {}

    def _block(self, trainer, films, *, calls):
        super()._block(trainer, films, calls=1)
        if trainer is self._other:
            return self.seconds["other"], 0.0
        name = "films" if films is self._films else "memory"
        return self.seconds[name], self.seconds[name] - self.seconds["memory"]


# Of a batch of 8 and of one of 4. What is left where the line through both reaches no film is
# 0.125 s of a step (0.25 - 8 x 0.0625 / 4), 0.1875 s and 0.05 s.
PLANTED = [
    ({"films": 0.5, "memory": 0.25, "other": 0.1875}, INPUT),
    ({"films": 0.25, "memory": 0.25, "other": 0.21875}, LAUNCH),
    ({"films": 0.25, "memory": 0.25, "other": 0.15}, COMPUTE),
]


@pytest.fixture(scope="module")
def planted(fast_data):
    """Return a bench of a rank that is built once; its times are still to be planted."""
    return make_bench(fast_data, kind=Planted, batch_size=8)


@pytest.mark.parametrize(("seconds", "kind"), PLANTED, ids=[row[1] for row in PLANTED])
def test_planted_times_get_their_verdict(planted, seconds, kind):
    planted.seconds = seconds
    times = planted.measure(steps=6).times
    assert (times.step_s, times.memory_step_s) == (seconds["films"], seconds["memory"])
    assert (times.other_step_s, times.wait_s) == (
        seconds["other"],
        seconds["films"] - seconds["memory"],
    )
    assert (times.batch_size, times.other_batch_size) == (8, 4)
    assert judge(times).kind == kind


@pytest.mark.parametrize(("compression", "size"), [("none", 4), ("fp16", 2)])
def test_what_crosses_is_counted_as_it_is_sent(planted, compression, size):
    config = dataclasses.replace(planted._config, compression=compression)
    assert chexnet.profiling.profile._count_bytes(config, planted._trainer) == size * WEIGHTS


def verdicts(bench, *, steps):
    """Measure again where something else was busy, as the page about profiles advises."""
    return (judge(bench.measure(steps=steps).times).kind for _ in range(3))


@pytest.mark.slow  # what the machine really takes
def test_tiny_step(fast_data):
    assert LAUNCH in verdicts(make_bench(fast_data, batch_size=2), steps=60)


@pytest.mark.slow
def test_plain_computing(fast_data):
    bench = make_bench(fast_data, batch_size=16, image_size=96)
    assert COMPUTE in verdicts(bench, steps=12)


def test_a_batch_of_one_is_held_against_one_of_two():
    assert [choose_other(films) for films in (1, 2, 3, 64)] == [2, 1, 1, 32]


# One rank comes late to every exchange, as behind a slow link or on a busy host.
LATE = """
import sys, time
import horovod.tensorflow as hvd
import tensorflow as tf

exchange = hvd.grouped_allreduce

def late(tensors, **options):
    if hvd.rank() == 1:
        wait = tf.py_function(lambda: time.sleep(0.1), [], [])
        with tf.control_dependencies([wait]):
            tensors = [tf.identity(one) for one in tensors]
    return exchange(tensors, **options)

hvd.grouped_allreduce = late
from chexnet.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.mpi
def test_slowed_allreduce(fast_data, launch, tmp_path):
    folder = tmp_path / "profile"
    settings = ("preset=demo", "model=tiny", "device=cpu", "batch_size=8")
    done = launch(
        "-c", LATE, "profile", "--data", fast_data, "--output", folder, "--steps", "12",
        *(word for setting in settings for word in ("--set", setting)), ranks=2,
    )  # fmt: skip
    assert done.code == 0, done.err
    found = json.loads((folder / "profile.json").read_text())
    jsonschema.validate(found, SCHEMA)
    assert found["verdict"]["kind"] == COMMUNICATION
    assert [row["rank"] for row in found["by_rank"]] == [0, 1]
    assert all(row["exchange_s"] > 0.095 for row in found["by_rank"])
    assert found["times"]["exchange_mib"] == pytest.approx(4 * WEIGHTS / 2**20)
    assert found["files"]["kept"] == ["timeline.json", "trace"]
    assert "ALLREDUCE" in (folder / "timeline.json").read_text()
    assert list((folder / "trace").rglob("*.xplane.pb"))
    assert (folder / "profile.png").read_bytes().startswith(b"\x89PNG")
    assert "communication-bound: adding up" in done.out
