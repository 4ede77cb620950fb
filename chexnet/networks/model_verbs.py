"""The verbs about networks and runs: their weights, the presets, what two runs differ in.

Knows their options. Leaves the work to the modules of each.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from chexnet.config import load_config, render_config
from chexnet.errors import UserError
from chexnet.networks.weights import PUBLISHED, WEIGHTS_VARIABLE, weights_folder
from chexnet.quiet import quiet_import


def add_model_verbs(verbs: argparse._SubParsersAction) -> None:
    """Add these verbs to the program's parser."""
    for add in (_add_fetch, _add_presets, _add_compare, _add_profile):
        add(verbs)


def _add_fetch(verbs: argparse._SubParsersAction) -> None:
    fetch = verbs.add_parser(
        "fetch-weights",
        help="put ImageNet weights where weights=imagenet looks for them",
        description="Fetch the ImageNet weights that Keras publishes for a network, check their "
        f"hash, and put them where trainings look: ${WEIGHTS_VARIABLE}, else Keras' own cache "
        "(~/.keras/models). What came before an interruption is gone on with. Where there is no "
        "network: fetch the file elsewhere and give it with --from.",
    )
    fetch.add_argument(
        "--model", required=True, metavar="NAME", help=f"one of {', '.join(PUBLISHED)}"
    )
    fetch.add_argument(
        "--from", dest="source", default="", metavar="FILE-OR-URL",
        help="a file that was brought here, or a mirror's address (default: Keras' own)",
    )  # fmt: skip
    fetch.add_argument("--output", type=Path, metavar="DIR", help="another folder to put it")
    fetch.set_defaults(work=_fetch_weights)


def _add_presets(verbs: argparse._SubParsersAction) -> None:
    presets = verbs.add_parser(
        "presets",
        help="show the training presets side by side",
        description="Show every preset: what it is for, what to expect of it and from where, "
        "and the values of its keys.",
    )
    presets.add_argument("--json", action="store_true", help="print all of it as JSON")
    presets.add_argument(
        "--markdown", type=Path, metavar="FILE", help="write them as a page of documentation"
    )
    presets.set_defaults(work=_show_presets)


def _add_compare(verbs: argparse._SubParsersAction) -> None:
    compare = verbs.add_parser(
        "compare",
        help="say what two runs differ in",
        description="Compare two run folders: configuration, data, versions, lock, hosts and "
        "ranks, the verdicts of the environment's checks, throughput, results, losses. Files that "
        "a run lacks are named, and the rest is compared.",
    )
    compare.add_argument("one", type=Path, metavar="RUN", help="a run folder")
    compare.add_argument("other", type=Path, metavar="RUN", help="another")
    compare.add_argument("--json", action="store_true", help="print all of it as JSON")
    compare.set_defaults(work=_compare)


def _add_profile(verbs: argparse._SubParsersAction) -> None:
    profile = verbs.add_parser(
        "profile",
        help="say what limits a training: input, communication, starting operations, computing",
        description="Take some hundred steps of a training and measure where their time goes. "
        "Leaves profile.json, profile.png, Horovod's timeline.json and TensorFlow's trace/; "
        "nothing is trained. A launcher starts the same line on every rank.",
    )
    add = profile.add_argument
    add("--data", type=Path, required=True, metavar="DIR", help="prepared data")
    add("--output", type=Path, required=True, metavar="DIR", help="a new folder for the files")
    add("--steps", type=int, default=200, metavar="N",
        help="about so many of each kind (default %(default)s)")  # fmt: skip
    add("--config", type=Path, metavar="FILE", help="TOML or JSON file of keys and values")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="may be repeated")
    add("--plan", type=Path, metavar="FILE", help="binding plan of the launcher")
    add("--check", action="store_true",
        help="only look whether data, configuration and folder fit; print keys")  # fmt: skip
    profile.set_defaults(work=_profile)


def _fetch_weights(arguments: argparse.Namespace) -> None:
    from chexnet.networks.fetching import fetch_weights

    path = fetch_weights(arguments.model, source=arguments.source, folder=arguments.output)
    usual = path.parent == weights_folder()
    print(f"{path}: whole, as Keras publishes it")
    print(f"train with --set weights={'imagenet' if usual else path}")


def _show_presets(arguments: argparse.Namespace) -> None:
    from rich.console import Console

    from chexnet.networks.preset import load_presets, presets_as_json, print_presets, render_page
    from chexnet.run import write_text

    presets = load_presets()
    if arguments.markdown:
        write_text(arguments.markdown, text=render_page(presets))
        print(f"wrote {arguments.markdown}")
    elif arguments.json:
        print(json.dumps(presets_as_json(presets), indent=1))
    else:
        print_presets(presets, console=Console())


def _compare(arguments: argparse.Namespace) -> None:
    from rich.console import Console

    from chexnet.results.compare import compare_runs
    from chexnet.results.compare_text import comparison_as_json, print_comparison

    comparison = compare_runs(arguments.one, arguments.other)
    if arguments.json:
        print(json.dumps(comparison_as_json(comparison), indent=1))
    else:
        print_comparison(comparison, console=Console())


def _profile(arguments: argparse.Namespace) -> None:
    if arguments.steps < 1:
        raise UserError("--steps of 1 or more", found=str(arguments.steps), fix="see --help")
    config = load_config(arguments.config, settings=arguments.set)
    if arguments.check:
        from chexnet.profiling.profile_folder import check_folder
        from chexnet.records import load_dataset
        from chexnet.run import fit_config

        check_folder(arguments.output)
        print(render_config(fit_config(config, dataset=load_dataset(arguments.data))), end="")
        return
    with quiet_import():
        from chexnet.profiling.profile_files import profile
    profile(
        arguments.data, folder=arguments.output, config=config, steps=arguments.steps,
        plan=arguments.plan, command=tuple(sys.argv),
    )  # fmt: skip
