"""What limits a training, on situations that are planted: each must get its verdict."""

import json
import time
from pathlib import Path

import jsonschema
import pytest

import chexnet.profiling.profile
from chexnet import distributed
from chexnet.config import load_config
from chexnet.distributed import Ranks
from chexnet.profiling.bottleneck import COMMUNICATION, COMPUTE, INPUT, LAUNCH, judge
from chexnet.profiling.profile import Bench, choose_other
from chexnet.progress import Reporter
from chexnet.records import load_dataset
from chexnet.run import fit_config, settle_config

SCHEMA = json.loads(
    Path(chexnet.profiling.profile.__file__).with_name("profile.schema.json").read_text()
)


def measure(data, *, steps=30, **changes):
    distributed.start()
    values = {"preset": "demo", "model": "tiny", "device": "cpu", "seed": 1} | changes
    config = load_config(settings=[f"{key}={value}" for key, value in values.items()])
    dataset = load_dataset(data)
    config = settle_config(fit_config(config, dataset=dataset), device="cpu")
    bench = Bench(
        dataset, config=config, device="cpu", ranks=Ranks(0, 1, 0),
        reporter=Reporter(enabled=False),
    )  # fmt: skip
    return bench.measure(steps=steps).times


def test_slow_input(fast_data, monkeypatch):
    pipeline = chexnet.profiling.profile.make_pipeline

    def slow(*words, **options):
        for batch in pipeline(*words, **options):
            time.sleep(0.05)
            yield batch

    monkeypatch.setattr(chexnet.profiling.profile, "make_pipeline", slow)
    times = measure(fast_data, batch_size=8, steps=12)
    verdict = judge(times)
    assert verdict.kind == INPUT
    assert times.wait_s > 0.045
    assert times.step_s > times.memory_step_s + 0.04
    assert "local disk" in verdict.next_steps[0]


def test_tiny_step(fast_data):
    times = measure(fast_data, batch_size=2, steps=60)
    assert judge(times).kind == LAUNCH
    assert times.other_batch_size == 1


def test_plain_computing(fast_data):
    times = measure(fast_data, batch_size=16, image_size=96, steps=12)
    verdict = judge(times)
    assert verdict.kind == COMPUTE
    assert times.gpu_use is None
    assert times.exchange_s == 0


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
    # Of the tiny network: 8 x 27 + 16 x 72 + 32 x 144 weights, 2 x 56 of normalisation, a head of
    # 32 x 14 + 14; float32.
    weights = 216 + 1152 + 4608 + 112 + 462
    assert found["times"]["exchange_mib"] == pytest.approx(4 * weights / 2**20)
    assert found["files"]["kept"] == ["timeline.json", "trace"]
    assert "ALLREDUCE" in (folder / "timeline.json").read_text()
    assert list((folder / "trace").rglob("*.xplane.pb"))
    assert (folder / "profile.png").read_bytes().startswith(b"\x89PNG")
    assert "communication-bound: adding up" in done.out
