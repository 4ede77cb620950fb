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
def films(tmp_path_factory):
    folder = tmp_path_factory.mktemp("films") / "nih"
    run(*HERE, "make-sample-data", "--output", str(folder), "--images", "90", "--size", "32")
    return folder


@pytest.fixture(scope="module")
def data(films, tmp_path_factory):
    folder = tmp_path_factory.mktemp("records") / "data"
    run(
        *HERE, "prepare-data", "--source", str(films), "--output", str(folder), "--size", "32",
        "--format", "encoded",
    )  # fmt: skip
    return folder


def check_run(folder, *, ranks):
    """Check what a training of one epoch and an evaluation leave behind."""
    assert {path.name for path in folder.iterdir()} >= RUN_FILES | {"evaluation.json"}
    loaded = {
        name: json.loads((folder / f"{name}.json").read_text())
        for name in ("config", "environment", "record", "evaluation")
    }
    for name in ("config", "record", "evaluation"):
        (path,) = (PROJECT / "chexnet").rglob(f"{name}.schema.json")
        schema = json.loads(path.read_text())
        jsonschema.validate(loaded[name], schema)
    report = json.loads((PROJECT / "env" / "report.schema.json").read_text())
    jsonschema.validate(loaded["environment"], report)
    statuses = {result["id"]: result["status"] for result in loaded["environment"]["results"]}
    assert statuses["mpi.size"] == statuses["binding.plan"] == "PASS"
    assert loaded["record"]["status"] == "finished"
    assert loaded["record"]["ranks"] == ranks
    assert loaded["evaluation"]["split"] == "test"
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["epoch"] == 1
    return loaded


def test_two_ranks_here(data, tmp_path):
    folder = tmp_path / "runs" / "one"
    said = run(*HERE, "train", "--data", str(data), "--run", str(folder), "--ranks", "2", *SMALL)
    assert "checks of" in said
    run(*HERE, "evaluate", "--run", str(folder))
    check_run(folder, ranks=2)
    again = run(
        *HERE, "train", "--data", str(data), "--run", str(folder), "--ranks", "2", *SMALL, code=2
    )
    assert "--resume" in again


def test_a_stopped_training_says_so_and_keeps_its_configuration(data, tmp_path):
    folder = tmp_path / "run"
    words = ["train", "--data", str(data), "--run", str(folder), "--ranks", "2", "--no-validate"]
    endless = [*SMALL, "--set", "epochs=100000"]
    said = tmp_path / "said"
    with (
        said.open("w") as file,
        subprocess.Popen(
            [*HERE, *words, *endless], cwd="/", stdout=file, stderr=file, env=dict(os.environ)
        ) as started,
    ):
        deadline = time.monotonic() + 120
        while not list(folder.glob("checkpoints/epoch-*.npz")):
            assert time.monotonic() < deadline
            assert started.poll() is None, said.read_text()
            time.sleep(0.1)
        started.terminate()
        assert started.wait(timeout=60) == 75, said.read_text()
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


def test_a_damaged_record_file_is_named(data, tmp_path):
    copy = tmp_path / "data"
    shutil.copytree(data, copy)
    shard = min(copy.glob("train-*"))
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 0xFF
    shard.write_bytes(content)
    said = run(
        *HERE, "train", "--data", str(copy), "--run", str(tmp_path / "run"), "--no-validate",
        *SMALL, code=1,
    )  # fmt: skip
    assert shard.name in said


@pytest.mark.container
def test_two_ranks_inside_the_image_with_the_checkout_absent(sif, data, tmp_path):
    folder = tmp_path / "run"
    words = ["train", "--data", str(data), "--run", str(folder), "--ranks", "2", *SMALL]
    binds = [(data, None), (tmp_path, None)]
    run(*exec_command(sif, ["invoke", *words], binds=binds))
    run(*exec_command(sif, ["invoke", "evaluate", "--run", str(folder)], binds=binds))
    loaded = check_run(folder, ranks=2)
    assert loaded["record"]["lock_sha256"]
    assert loaded["record"]["git_revision"]


@pytest.fixture
def open_folder():
    """A folder that everybody may enter and write to; pytest's own is closed to others."""
    with tempfile.TemporaryDirectory(prefix="chexnet-test-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        yield folder


@pytest.mark.container
def test_an_ordinary_user_trains_inside_the_image(sif, data, open_folder, ordinary):
    records, folder = open_folder / "data", open_folder / "run"
    shutil.copytree(data, records)
    words = ["train", "--data", str(records), "--run", str(folder), "--ranks", "2", *SMALL]
    for line in (words, ["evaluate", "--run", str(folder)]):
        command = exec_command(sif, ["invoke", *line], binds=[(open_folder, None)])
        run(*ordinary, *(word for word in command if word != "--no-privs"), HOME="/")
    check_run(folder, ranks=2)


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


def test_the_demo_goes_on_where_it_stopped(tmp_path):
    words = ["demo", "--output", str(tmp_path / "demo"), "--images", "60", "--epochs", "1"]
    said = run(*HERE, *words)
    assert "mean AUROC" in said
    again = run(*HERE, *words)
    assert again.count("done before") == 5
    assert "report.html" in said
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
