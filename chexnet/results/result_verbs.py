"""The verb that evaluates a run.

Knows its options. Leaves the work to ``evaluate``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from chexnet.quiet import quiet_import
from chexnet.results.calibration import METHODS
from chexnet.results.intervals import LEVEL, RESAMPLES, Bootstrap


def add_result_verbs(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the program's parser."""
    evaluate = verbs.add_parser(
        "evaluate",
        help="score a checkpoint of a run",
        description="Score a checkpoint of a run on every film of one side of the data: AUROC and "
        "average precision of each finding with intervals by patient, calibration, thresholds "
        "chosen on validation, agreement with boxes. Writes evaluation.json (of test) or "
        "evaluation-SPLIT.json, predictions-SPLIT.csv and, of test, plots/gallery-*.png into "
        "the run folder; of other data than the run's, with their hash in the name and no "
        "gallery. A score on validation chose the checkpoint, and is no result.",
        epilog="Several ranks share the films and give the same numbers: "
        "mpirun -np 2 python -m chexnet evaluate --run DIR",
    )
    _add_what(evaluate)
    _add_how(evaluate)
    evaluate.set_defaults(work=_evaluate)


def _add_what(evaluate: argparse.ArgumentParser) -> None:
    evaluate.add_argument("--run", type=Path, required=True, metavar="DIR", help="the run folder")
    evaluate.add_argument(
        "--split", default="test", metavar="NAME", help="train, validation or test (default)"
    )
    evaluate.add_argument(
        "--data", type=Path, metavar="DIR", help="prepared data, if not the run's own"
    )
    evaluate.add_argument(
        "--checkpoint", default="best", metavar="WHICH",
        help="best by validation AUROC (default), last, or a file",
    )  # fmt: skip
    evaluate.add_argument(
        "--boxes", type=Path, metavar="FILE",
        help="NIH's BBox_List_2017.csv, to compare heat maps with (default: in the data folder)",
    )  # fmt: skip
    evaluate.add_argument(
        "--beside", default="", metavar="WORK",
        help="a published result to show beside; refused where it is on other films "
        "(default: those on the same films)",
    )  # fmt: skip


def _add_how(evaluate: argparse.ArgumentParser) -> None:
    evaluate.add_argument(
        "--calibrate", choices=METHODS, metavar="METHOD",
        help="fit probabilities on validation films and keep that beside the checkpoint, for "
        "predict too: temperature, platt, or none, the network's own (default: what is kept)",
    )  # fmt: skip
    evaluate.add_argument(
        "--resamples", type=_count, default=RESAMPLES, metavar="N",
        help=f"draws of patients for intervals of {LEVEL * 100:.0f} %%; 0 for none "
        "(default %(default)s)",
    )  # fmt: skip
    evaluate.add_argument(
        "--seed", type=_count, default=0, metavar="K", help="of those draws (default %(default)s)"
    )
    evaluate.add_argument(
        "--method", default="cam", choices=("cam", "gradcam"), metavar="NAME",
        help="of the heat maps: cam (default) or gradcam",
    )  # fmt: skip
    evaluate.add_argument(
        "--gallery", action=argparse.BooleanOptionalAction,
        help="draw heat maps, or none; they take the place of earlier ones (default: of test)",
    )  # fmt: skip
    evaluate.add_argument("--json", action="store_true", help="print evaluation.json, no tables")
    evaluate.add_argument(
        "--device", choices=("auto", "gpu", "cpu"), metavar="NAME",
        help="auto takes a GPU where there is one; gpu; cpu (default: as the run was trained)",
    )  # fmt: skip
    evaluate.add_argument("--plan", type=Path, metavar="FILE", help="binding plan of the launcher")


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{number} is below 0")
    return number


def _evaluate(arguments: argparse.Namespace) -> None:
    from chexnet.run import load_run_config

    load_run_config(arguments.run)  # before the seconds that TensorFlow takes to import
    with quiet_import():
        from chexnet.evaluate import Request, evaluate
    evaluate(
        arguments.run,
        request=Request(
            split=arguments.split,
            data=arguments.data,
            checkpoint=arguments.checkpoint,
            calibrate=arguments.calibrate,
            bootstrap=Bootstrap(resamples=arguments.resamples, seed=arguments.seed),
            boxes=arguments.boxes,
            method=arguments.method,
            gallery=arguments.gallery,
            beside=arguments.beside,
            as_json=arguments.json,
            plan=arguments.plan,
            device=arguments.device,
        ),
    )
