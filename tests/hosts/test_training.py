"""Training over hosts: it stops with a checkpoint, goes on elsewhere, and a lost host is named."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.slow]

PROJECT = Path(__file__).resolve().parents[2]
SETTINGS = ("model=tiny", "image_size=32", "crop_size=32", "batch_size=4", "device=cpu")
PATIENCE_S = 240


class Shared:
    """The folder that all hosts share, with data in it; trainings are started on the first host."""

    def __init__(self, lan):
        self.lan, self.first = lan, lan[lan.names[0]]
        self.run = lan.folder / "run"
        self.log = lan.folder / "train.log"
        self.environ = {}
        source = lan.folder / "nih"
        made = ("make-sample-data", "--output", source, "--images", "400", "--size", "64")
        prepared = ("prepare-data", "--source", source, "--output", lan.folder / "data",
                    "--size", "64", "--workers", "1")  # fmt: skip
        for words in (made, prepared):
            line = [sys.executable, "-m", "chexnet", *map(str, words)]
            subprocess.run(line, check=True, cwd=PROJECT, capture_output=True)

    def start(self, hosts, *more, epochs):
        words = ["invoke", "train", "--data", "/run/lan/data", "--run", "/run/lan/run", "--hosts",
                 hosts, "--no-validate", *more]  # fmt: skip
        words += [w for text in (*SETTINGS, f"epochs={epochs}") for w in ("--set", text)]
        with self.log.open("a") as log:
            line = self.first.enter(["env", "-C", PROJECT, sys.executable, "-m", *words])
            return subprocess.Popen(line, env={**os.environ, **self.environ},
                                    stdin=subprocess.DEVNULL, stdout=log, stderr=log)  # fmt: skip

    def lines(self, kind=None):
        path = self.run / "metrics.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [one for one in map(json.loads, lines) if kind in (None, one["kind"])]

    @property
    def record(self):
        return json.loads((self.run / "record.json").read_text())

    def wait(self, training, *, lines):
        """Wait until a training has told of so many lines in all."""
        deadline = time.monotonic() + PATIENCE_S
        while len(self.lines()) < lines:
            assert training.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.1)

    def strays(self):
        """Return what still runs on the hosts, after the time that daemons need to leave."""
        deadline = time.monotonic() + 40
        while found := [line for name in self.lan.names for line in self.lan[name].strays]:
            if time.monotonic() > deadline:
                break
            time.sleep(0.2)
        return found


def test_training_over_unequal_hosts_stops_with_a_checkpoint_and_ends_on_others(make_lan, window):
    shared = Shared(make_lan("node1", "node2", "node3"))
    training = shared.start("node1:2,node2:1", epochs=2)
    shared.wait(training, lines=2)
    (ours,) = [
        n for n in shared.first.pids("invoke") if "mpirun" not in shared.first.processes()[n]
    ]
    os.kill(ours, signal.SIGTERM)
    assert training.wait(timeout=PATIENCE_S) == 75, shared.log.read_text()
    assert shared.record["status"] == "interrupted"
    assert shared.record["hosts"] == ["node1", "node1", "node2"]
    assert shared.strays() == []
    leftovers = [p for n in shared.lan.names for p in (shared.lan[n].own / "tmp").iterdir()]
    assert [p.name for p in leftovers if p.name.startswith("chexnet_")] == []

    told = shared.lines()[-1]["step"]
    # On other hosts, and in an image there.
    image, shared.environ = window(shared.lan)
    training = shared.start("node2:1,node3:1", "--resume", "--image", image, epochs=2)
    assert training.wait(timeout=PATIENCE_S) == 0, shared.log.read_text()
    assert shared.record["status"] == "finished"
    assert shared.record["hosts"] == ["node2", "node3"]
    assert shared.record["resumed_from"]
    assert [line["epoch"] for line in shared.lines("epoch")] == [1, 2]
    assert shared.lines()[-1]["step"] > told
    assert shared.strays() == []


@pytest.mark.parametrize("how", ["cut off", "killed"])
def test_a_host_that_is_lost_ends_the_run_named_and_it_goes_on_on_what_is_left(make_lan, how):
    shared = Shared(make_lan("node1", "node2", "node3"))
    training = shared.start("node1:1,node2:1", epochs=50)
    shared.wait(training, lines=1)
    node2 = shared.lan["node2"]
    if how == "cut off":
        node2.run("ip", "link", "set", "eth0", "down", check=True)
    else:
        node2.holder.kill()
    begin = time.monotonic()
    # Asked after 10 s of silence, and given up after four questions, 5 s apart.
    assert training.wait(timeout=60) == 1
    assert time.monotonic() - begin < 60
    said = shared.log.read_text()
    assert "node2" in said, said
    if how == "cut off":
        assert shared.strays() == []
        node2.run("ip", "link", "set", "eth0", "up", check=True)
    training = shared.start("node1:1,node3:1", "--resume", "--set", "epochs=50", epochs=50)
    told = len(shared.lines())
    shared.wait(training, lines=told + 2)
    training.send_signal(signal.SIGKILL)
