"""The chain as a user goes it: films, records, gate, two ranks, scores; here and in images."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jsonschema
import pytest

from containers.runtime import exec_command
from env.stack import PROJECT

SMALL = [
    "--set", "preset=demo", "--set", "model=tiny", "--set", "epochs=1", "--set", "batch_size=8",
]  # fmt: skip
HERE = [sys.executable, "-m", "invoke", "--search-root", str(PROJECT)]
RUN_FILES = {"config.json", "environment.json", "record.json", "metrics.jsonl", "checkpoints"}

pytestmark = pytest.mark.mpi


def run(*argv, code=0, **environ):
    """Run a command from /, with nothing of the checkout in its environment."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        argv, cwd="/", capture_output=True, text=True, timeout=900, stdin=subprocess.DEVNULL,
        env=kept | environ,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert done.returncode == code, said
    assert "Traceback" not in said
    return said


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Return the words of a demo of one epoch, its folder, and what it said."""
    folder = tmp_path_factory.mktemp("chain") / "demo"
    words = ["demo", "--output", str(folder), "--images", "60", "--epochs", "1"]
    return words, folder, run(*HERE, *words)


@pytest.fixture(scope="module")
def data(demo):
    return demo[1] / "data"


@pytest.fixture(scope="module")
def encoded(demo, tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoded") / "data"
    run(
        *HERE, "prepare-data", "--source", str(demo[1] / "films"), "--output", str(folder),
        "--size", "32", "--format", "encoded",
    )  # fmt: skip
    return folder


def load(folder, name):
    """Return a file of a run, which keeps to its schema."""
    loaded = json.loads((folder / f"{name}.json").read_text())
    (schema,) = (PROJECT / "chexnet").rglob(f"{name}.schema.json")
    jsonschema.validate(loaded, json.loads(schema.read_text()))
    return loaded


def check_run(folder, *, ranks):
    """Check what a training of one epoch leaves behind; return its record."""
    assert {path.name for path in folder.iterdir()} >= RUN_FILES
    load(folder, "config")
    report = json.loads((folder / "environment.json").read_text())
    schema = json.loads((PROJECT / "env" / "report.schema.json").read_text())
    jsonschema.validate(report, schema)
    statuses = {result["id"]: result["status"] for result in report["results"]}
    assert statuses["mpi.size"] == statuses["binding.plan"] == "PASS"
    record = load(folder, "record")
    assert record["status"] == "finished"
    assert record["ranks"] == ranks
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["epoch"] == 1
    return record


def test_two_ranks_here(demo, data):
    _, folder, said = demo
    assert "checks of" in said
    assert "mean AUROC" in said
    assert "report.html" in said
    check_run(folder / "run", ranks=2)
    assert load(folder / "run", "evaluation")["split"] == "test"
    words = ["train", "--data", str(data), "--run", str(folder / "run"), "--ranks", "2", *SMALL]
    assert "--resume" in run(*HERE, *words, code=2)


def test_a_stopped_training_says_so_and_keeps_its_configuration(encoded, tmp_path, open_folder):
    folder = tmp_path / "run"
    words = ["train", "--data", str(encoded), "--run", str(folder), "--ranks", "2", "--no-validate"]
    endless = [*SMALL, "--set", "epochs=100000"]
    said = tmp_path / "said"
    with (
        said.open("w") as file,
        subprocess.Popen(
            [*HERE, *words, *endless],
            cwd="/",
            stdout=file,
            stderr=file,
            env=os.environ | {"TMPDIR": str(open_folder)},
        ) as started,
    ):
        deadline = time.monotonic() + 120
        while not list(folder.glob("checkpoints/epoch-*.npz")):
            assert time.monotonic() < deadline
            assert started.poll() is None, said.read_text()
            time.sleep(0.1)
        started.terminate()
        assert started.wait(timeout=60) == 75, said.read_text()
    last = said.read_text().splitlines()[-1]  # not mpirun's, which tell of an error
    assert last == f"stopped: {folder}; continue with --resume"
    assert not list(open_folder.glob("__autograph_generated_file*.py"))
    record = json.loads((folder / "record.json").read_text())
    assert record["status"] == "interrupted"
    done = record["results"].get("epoch", 0)  # it may be stopped while it validates first
    more = [*SMALL, "--set", f"epochs={done + 1}"]
    other = run(*HERE, *words, *more, "--resume", code=2)
    assert "epochs" in other  # another configuration is another run


def test_a_failed_check_refuses_to_train(data, tmp_path):
    shadow = tmp_path / "site" / "six-0.0.1.dist-info"
    shadow.mkdir(parents=True)
    (shadow / "METADATA").write_text("Metadata-Version: 2.1\nName: six\nVersion: 0.0.1\n")
    folder = tmp_path / "run"
    said = run(
        *HERE, "train", "--data", str(data), "--run", str(folder), *SMALL, code=1,
        PYTHONPATH=str(shadow.parent),
    )  # fmt: skip
    assert "FAIL" in said
    assert "six" in said
    assert not folder.exists()


def test_a_damaged_record_file_is_named(encoded, tmp_path):
    folder = tmp_path / "data"
    shutil.copytree(encoded, folder)
    shard = min(folder.glob("train-*"))
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 0xFF
    shard.write_bytes(content)
    said = run(
        *HERE, "train", "--data", str(folder), "--run", str(tmp_path / "run"), "--no-validate",
        *SMALL, code=1,
    )  # fmt: skip
    assert shard.name in said


@pytest.fixture
def open_folder():
    """A folder that everybody may enter and write to; pytest's own is closed to others."""
    with tempfile.TemporaryDirectory(prefix="chexnet-test-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        yield folder


@pytest.mark.container
def test_an_ordinary_user_trains_inside_the_image_with_the_checkout_absent(
    sif, data, open_folder, ordinary
):
    records, folder = open_folder / "data", open_folder / "run"
    shutil.copytree(data, records)
    words = ["train", "--data", str(records), "--run", str(folder), "--ranks", "2", *SMALL]
    command = exec_command(sif, ["invoke", *words], binds=[(open_folder, None)])
    run(*ordinary, *(word for word in command if word != "--no-privs"), HOME="/")
    record = check_run(folder, ranks=2)
    assert record["lock_sha256"]
    assert record["git_revision"]


@pytest.mark.container
def test_the_host_s_launcher_starts_each_rank_in_the_image(sif, data, tmp_path, same_mpi):
    folder = tmp_path / "run"
    words = ["--data", str(data), "--run", str(folder), "--ranks", "2", "--image", str(sif), *SMALL]
    said = run(*HERE, "train", *words, code=0 if same_mpi else 1)
    if not same_mpi:  # then it must be refused, by the check that sees it
        assert "FAIL    mpi.size" in said
        assert not folder.exists()
        return
    run(*HERE, "evaluate", "--run", str(folder), "--image", str(sif))
    check_run(folder, ranks=2)
    assert load(folder, "evaluation")["split"] == "test"


def test_the_demo_goes_on_where_it_stopped(demo):
    words = demo[0]
    again = run(*HERE, *words)
    assert again.count("done before") == 5
    other = run(*HERE, *words[:-1], "2", code=2)
    assert "--output" in other


@pytest.mark.slow
def test_the_demo_learns_and_is_recorded():
    record = PROJECT / "benchmarks" / "results" / "demo-cpu.json"
    command = [sys.executable, "-m", "benchmarks.demo", "--output", str(record)]
    subprocess.run(command, cwd=PROJECT, check=True, stdin=subprocess.DEVNULL)
    results = {row["name"]: row["value"] for row in json.loads(record.read_text())["results"]}
    assert results["mean AUROC"] >= 0.95
    scores = [value for name, value in results.items() if name.startswith("AUROC ")]
    assert len(scores) == 14
    assert min(scores) >= 0.85
