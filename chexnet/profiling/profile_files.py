"""The folder that a profile leaves: verdict and times, a picture, a timeline, a trace.

Knows its files and the order of a profile: measure, judge, then look once more with what slows
things down. Leaves the times to ``profile`` and the verdict to ``bottleneck``.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import horovod.tensorflow as hvd
import tensorflow as tf

from chexnet import distributed
from chexnet.config import TrainConfig
from chexnet.distributed import Ranks
from chexnet.profiling.bottleneck import Verdict, judge
from chexnet.profiling.profile import BLOCKS, Bench, Measured
from chexnet.profiling.profile_folder import make_folder
from chexnet.profiling.profile_picture import draw_shares
from chexnet.profiling.profile_text import print_profile
from chexnet.progress import Reporter
from chexnet.records import Dataset, load_dataset, named_damage
from chexnet.run import fit_config, settle_config, write_text
from chexnet.training.run_record import list_versions, now

SCHEMA_VERSION = 1
PROFILE, PICTURE, TIMELINE, TRACE = "profile.json", "profile.png", "timeline.json", "trace"
TRACED_CALLS = 3
DYNAMIC = "DYNAMIC"


def profile(
    data: Path, *, folder: Path, config: TrainConfig, steps: int = 200, plan: Path | None = None,
    command: Sequence[str] = (),
) -> Verdict:  # fmt: skip
    """Take some hundred steps and say what limits them; every rank calls this.

    Args:
        data: folder of prepared data.
        folder: where to leave the files; new or empty.
        config: what would be trained; nothing is kept of the weights.
        steps: about so many of each kind: with films from the pipeline, in memory, other batch.
        plan: the binding plan, for the number of this rank's GPU.
        command: the command line, for the record.

    Raises:
        UserError: wrong data, folder or configuration.
    """
    # Read when Horovod starts: the timeline is begun later, when nothing is timed any more. Where
    # the user has one written all along, that stays.
    os.environ.setdefault("HOROVOD_TIMELINE", DYNAMIC)
    ranks = distributed.start(config)
    device = distributed.select_device(config.device, ranks=ranks, plan=plan)
    dataset = load_dataset(data)
    # The time of a step is the same with any weights; published ones need not be here.
    config = dataclasses.replace(fit_config(config, dataset=dataset), weights="none")
    config = settle_config(config, device=device)
    distributed.on_first(lambda: make_folder(folder), name="folder")
    with Reporter(enabled=ranks.is_first, total_steps=BLOCKS, work="building") as reporter:
        reporter.say(
            f"{config.model}, {config.image_size} px, batch {config.batch_size}, "
            f"ranks: {ranks.size} ({device}), pipeline {config.pipeline}"
        )
        with named_damage(dataset):
            bench = Bench(dataset, config=config, device=device, ranks=ranks, reporter=reporter)
            measured = bench.measure(steps=steps)
            reporter.show(BLOCKS, work="tracing")
            files = _trace(bench, folder=folder, ranks=ranks)
    verdict = judge(measured.times)
    if ranks.is_first:
        _write(folder, verdict=verdict, measured=measured, config=config, dataset=dataset,
               files=files, command=command)  # fmt: skip
        print_profile(measured.times, verdict=verdict, say=reporter.say)
        reporter.say(f"wrote {folder / PROFILE}, {PICTURE} and {', '.join(files['kept'])}")
    return verdict


def _trace(bench: Bench, *, folder: Path, ranks: Ranks) -> dict[str, Any]:
    """Take a few more steps under Horovod's timeline and TensorFlow's profiler.

    Returns:
        ``kept``: the files that came of it; ``problems``: why one did not.
    """
    files: dict[str, Any] = {"kept": [], "problems": []}
    if ranks.size > 1 and os.environ["HOROVOD_TIMELINE"] == DYNAMIC:
        hvd.start_timeline(str((folder / TIMELINE).resolve()))
        bench.take_steps(TRACED_CALLS)
        hvd.stop_timeline()
        files["kept"].append(TIMELINE)

    def try_it(work: Callable[[], object]) -> bool:
        try:
            work()
        except Exception as error:  # such as a GPU's profiler without permission
            files["problems"].append(f"{TRACE}: {error}")
            return False
        return True

    start = partial(tf.profiler.experimental.start, str(folder / TRACE))
    tracing = ranks.is_first and try_it(start)
    bench.take_steps(TRACED_CALLS)
    if tracing and try_it(tf.profiler.experimental.stop):
        files["kept"].append(TRACE)
    return files


def _write(
    folder: Path, *, verdict: Verdict, measured: Measured, config: TrainConfig, dataset: Dataset,
    files: Mapping[str, Any], command: Sequence[str],
) -> None:  # fmt: skip
    """Write ``profile.json`` and the picture; rank 0 only."""
    values = {
        "schema_version": SCHEMA_VERSION,
        "command": list(command),
        "written": now(),
        "data": str(dataset.root.resolve()),
        "data_sha256": dataset.sha256,
        "config": dataclasses.asdict(config),
        "versions": list_versions(),
        "verdict": dataclasses.asdict(verdict),
        "times": dataclasses.asdict(measured.times),
        "images_per_s": measured.times.images_per_s,
        "by_rank": measured.by_rank,
        "gpus": measured.gpus,
        "gpu_problem": measured.gpu_problem,
        "startup_s": measured.startup_s,
        "files": files,
    }
    write_text(folder / PROFILE, text=json.dumps(values, indent=1) + "\n")
    draw_shares(folder / PICTURE, times=measured.times, verdict=verdict)
