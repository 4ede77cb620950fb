"""What `benchmarks.loop` trains: a network, films on disk, and the loop around the step.

Knows how to set a run up without the program around it. Leaves timing to `loop`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import keras
import tensorflow as tf

from chexnet import distributed
from chexnet.config import TrainConfig, load_config
from chexnet.distributed import Ranks
from chexnet.labels import FINDINGS
from chexnet.model import build_model
from chexnet.prepare import prepare_data
from chexnet.records import load_dataset
from chexnet.run import fit_config, settle_config
from chexnet.signals import StopSignal
from chexnet.synthetic import make_sample_data
from chexnet.training.epochs import Steps
from chexnet.training.job import Job, make_job
from chexnet.training.journal import Journal
from chexnet.training.position import Position
from chexnet.training.saving import CheckpointWriter
from chexnet.training.step import Trainer

SIZE_PX = 64


@dataclass
class Bench:
    """A run that has been set up.

    Attributes:
        job: the run.
        trainer: takes its steps.
        position: how far the loop has come.
    """

    job: Job
    trainer: Trainer
    position: Position

    def loop(self) -> None:
        """Take the steps of an epoch in the loop that training uses.

        Left out is what training does once an epoch: validation and its checkpoint.
        """
        job = self.job
        with Journal(job.folder, enabled=True, first_step=0) as journal:
            writer = CheckpointWriter(job.checkpoints, enabled=True)
            steps = Steps(job, self.trainer, position=self.position, seen={}, writer=writer,
                          journal=journal, startup={})  # fmt: skip
            self.position = steps.run().close_epoch()

    def bare(self) -> None:
        """Take as many compiled steps, all on the same blank films in memory, nothing around."""
        config = self.job.config
        shape = [1, 1, config.batch_size]
        images = tf.zeros([*shape, config.crop_size, config.crop_size, 1], tf.uint8)
        labels, rates = tf.zeros([*shape, len(FINDINGS)]), tf.constant([1e-4])
        losses = None
        for _ in range(self.job.steps):
            losses = self.trainer._call(images, labels, rates)
        losses.numpy()  # until the last has been computed


def configure(model: str, *, batch_size: int) -> TrainConfig:
    """Return the configuration that is measured: that of the demo, on CPUs."""
    settings = [f"model={model}", f"batch_size={batch_size}", "preset=demo", "device=cpu"]
    return load_config(settings=settings)


def make_films(folder: Path, *, num_images: int) -> Path:
    """Make sample films and prepare them; return the folder of the data."""
    make_sample_data(folder / "nih", num_images=num_images, size_px=SIZE_PX, seed=0)
    prepare_data(folder / "nih", output=folder / "data", size_px=SIZE_PX, format="fast")
    return folder / "data"


def join(config: TrainConfig) -> Ranks:
    """Join the other ranks and take the device; once in a process."""
    ranks = distributed.start(config)
    distributed.select_device("cpu", ranks=ranks)
    return ranks


def set_up(data: Path, *, folder: Path, config: TrainConfig, ranks: Ranks, steps: int) -> Bench:
    """Return a run whose epoch has so many steps, nothing compiled yet.

    Args:
        data: prepared films.
        folder: takes the run.
        config: what to train.
        ranks: from `join`.
        steps: of an epoch; the stream of films begins anew as often as need be.
    """
    dataset = load_dataset(data)
    asked = fit_config(config, dataset=dataset)
    job = make_job(
        folder, config=settle_config(asked, device="cpu"), asked=asked, dataset=dataset,
        ranks=ranks, stop=StopSignal(),
    )  # fmt: skip
    job = replace(job, steps=steps)
    folder.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(0)
    model = build_model(
        config.model, input_size=SIZE_PX, image_size=SIZE_PX, weights="none",
        batch_statistics=config.batch_statistics, batch_norm_momentum=config.batch_norm_momentum,
        precision=job.config.precision,
    )  # fmt: skip
    bench = Bench(job, Trainer(model, config=job.config), Position())
    distributed.broadcast_state(bench.trainer.variables)
    return bench
