"""The verb `train`.

Knows its options, which configuration is meant, and that signals count from the first moment.
Leaves training to ``train``.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from chexnet.config import (
    DEFAULT_PRESET,
    KEYS,
    TrainConfig,
    list_presets,
    load_config,
    render_config,
)
from chexnet.quiet import quiet_import
from chexnet.signals import StopSignal


def add_train_verbs(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the program's parser."""
    train = verbs.add_parser(
        "train",
        help="train a network on prepared data",
        description="Train a network and leave a run folder: config.json, record.json, "
        "metrics.jsonl, checkpoints/. SIGUSR1, SIGTERM and ctrl-C write a checkpoint and exit "
        "with code 75; --resume goes on from there.",
        epilog=f"presets (--set preset=NAME): {', '.join(list_presets())}; the default is "
        f"{DEFAULT_PRESET}. keys: {', '.join(KEYS)}.",
    )
    train.add_argument("--data", type=Path, required=True, metavar="DIR", help="prepared data")
    train.add_argument("--run", type=Path, required=True, metavar="DIR", help="the run folder")
    train.add_argument(
        "--resume", action="store_true", help="go on from the newest checkpoint of --run"
    )
    train.add_argument(
        "--config", type=Path, metavar="FILE", help="TOML or JSON file of keys and values"
    )
    train.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="may be repeated"
    )
    train.add_argument(
        "--environment", type=Path, metavar="FILE", help="validation report to keep with the run"
    )
    train.add_argument("--plan", type=Path, metavar="FILE", help="binding plan of the launcher")
    train.add_argument(
        "--check",
        action="store_true",
        help="only look whether data, configuration and run folder fit; print the configuration",
    )
    train.set_defaults(work=_train)


def _train(arguments: argparse.Namespace) -> None:
    config = _choose_config(arguments)
    if arguments.check:
        _check(arguments, config)
        return
    begun = time.perf_counter()
    # Before the seconds that TensorFlow takes to import: a scheduler may stop the job then too.
    with StopSignal() as stop:
        with quiet_import():
            from chexnet.train import train
        train(
            arguments.data,
            folder=arguments.run,
            config=config,
            resume=arguments.resume,
            environment=arguments.environment,
            plan=arguments.plan,
            command=tuple(sys.argv),
            import_s=time.perf_counter() - begun,
            stop=stop,
        )


def _check(arguments: argparse.Namespace, config: TrainConfig) -> None:
    """Say whether a training could begin, in a moment: nothing here needs TensorFlow."""
    from chexnet.checkpoint import list_checkpoints
    from chexnet.networks.weights import find_weights
    from chexnet.records import load_dataset
    from chexnet.run import CHECKPOINTS, check_folder, fit_config

    # A run that goes on has its weights in its checkpoints.
    if not (arguments.resume and list_checkpoints(arguments.run / CHECKPOINTS)):
        find_weights(config.model, config.weights)
    dataset = load_dataset(arguments.data)
    config = fit_config(config, dataset=dataset)
    check_folder(arguments.run, config=config, data_sha256=dataset.sha256, resume=arguments.resume)
    print(render_config(config), end="")


def _choose_config(arguments: argparse.Namespace) -> TrainConfig:
    """Return the configuration; that of the run where --resume stands alone."""
    from chexnet.run import CONFIG, load_run_config

    given = arguments.config or arguments.set
    if arguments.resume and not given and (arguments.run / CONFIG).exists():
        return load_run_config(arguments.run)
    return load_config(arguments.config, settings=arguments.set)
