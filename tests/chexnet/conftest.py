"""Made-up data, and programs on real ranks."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATIENCE_S = 20


@dataclass(frozen=True)
class Outcome:
    """How a program ended and what it said."""

    code: int
    out: str
    err: str


def clean_environment() -> dict[str, str]:
    # Without what an outer launcher left, so that the tests can run under one.
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMIX_", "PMI_"))}
    return kept | {
        "PYTHONPATH": str(ROOT),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        # Ranks that wait leave the core to those that compute.
        "OMPI_MCA_mpi_yield_when_idle": "1",
    }


@pytest.fixture
def environment():
    """Return the variables that programs of these tests are started with."""
    return clean_environment()


def command_line(ranks: int, words: list) -> list[str]:
    launcher = ["mpirun", "-np", str(ranks), "--oversubscribe", "--bind-to", "none"]
    return [*(launcher if ranks else []), sys.executable, *(str(word) for word in words)]


@pytest.fixture(scope="session")
def launch():
    """Return a function that runs Python on some ranks; 0 means without a launcher."""

    def run(*words, ranks: int = 0) -> Outcome:
        done = subprocess.run(
            command_line(ranks, list(words)),
            capture_output=True,
            text=True,
            timeout=300,
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="session")
def joined():
    """Make this process the only rank, and keep that to itself.

    What MPI tells the C environment alone, a child would inherit: an mpirun then ends silently.
    """
    from chexnet import distributed

    distributed.start()
    told = subprocess.run(["env", "-0"], capture_output=True, check=True).stdout
    names = {item.partition(b"=")[0].decode() for item in told.split(b"\0") if item}
    for name in names - os.environ.keys():
        os.unsetenv(name)


class Ended(subprocess.Popen):
    """A program in a session of its own that a test which fails leaves nothing of."""

    def __exit__(self, *why) -> None:
        # A launcher ends its ranks, which have groups of their own, at SIGTERM alone.
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.poll() is None:
                os.killpg(self.pid, number)
                with suppress(subprocess.TimeoutExpired):
                    self.wait(timeout=PATIENCE_S)
        super().__exit__(*why)


@pytest.fixture(scope="session")
def start():
    """Return a function that starts the program on some ranks and does not wait for it."""

    def begin(*words, ranks: int = 0) -> subprocess.Popen:
        return Ended(
            command_line(ranks, ["-m", "chexnet", *words]),
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    return begin


@pytest.fixture(scope="session")
def chexnet(launch):
    """Return a function that runs the program, on some ranks."""

    def run(*words, ranks: int = 0) -> Outcome:
        return launch("-m", "chexnet", *words, ranks=ranks)

    return run


@pytest.fixture(scope="session")
def small_data(tmp_path_factory) -> Path:
    """Return a folder of 300 prepared films of 32 px."""
    from chexnet.prepare import prepare_data
    from chexnet.synthetic import make_sample_data

    folder = tmp_path_factory.mktemp("small")
    make_sample_data(folder / "nih", num_images=300, size_px=32, seed=3)
    prepare_data(folder / "nih", output=folder / "data", size_px=32, format="encoded")
    return folder / "data"


@pytest.fixture(scope="session")
def fast_data(small_data) -> Path:
    """Return a folder of the same 300 films in the format fast."""
    from chexnet.prepare import prepare_data

    folder = small_data.parent / "fast"
    prepare_data(small_data.parent / "nih", output=folder, size_px=32, format="fast")
    return folder


@pytest.fixture(scope="session")
def known_run(tmp_path_factory) -> Path:
    """Return a run folder of a tiny network with weights of chance: the middle 32 px of 40.

    Nothing was trained: it is for what comes after, where any weights do.
    """
    import keras

    from chexnet.checkpoint import Description, save_checkpoint
    from chexnet.config import load_config, render_config
    from chexnet.labels import FINDINGS
    from chexnet.model import build_model
    from chexnet.networks.weights import NORMALISATION

    run = tmp_path_factory.mktemp("known") / "run"
    run.mkdir()
    settings = ["preset=demo", "model=tiny", "crop_size=32", "device=cpu"]
    config = load_config(None, settings=settings)
    (run / "config.json").write_text(render_config(config))
    keras.utils.set_random_seed(7)
    model = build_model("tiny", input_size=32, image_size=32)
    description = Description(
        epoch=2, step=20, model="tiny", data_size=40, input_size=32, image_size=32,
        precision="float32", findings=FINDINGS, normalisation=NORMALISATION,
        config_sha256=config.sha256, validation_auroc=0.6,
    )  # fmt: skip
    save_checkpoint(
        run / "checkpoints", description=description, model=model.variables, optimizer=[]
    )
    return run
