"""The verbs that use a trained network: predict films, export the network.

Knows their options. Leaves the work to the modules of each.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from chexnet.errors import UserError
from chexnet.prediction.choice import DEFAULT, parse_choice
from chexnet.quiet import quiet_import


def add_predict_verbs(verbs: argparse._SubParsersAction) -> None:
    """Add these verbs to the program's parser."""
    for add in (_add_predict, _add_export):
        add(verbs)


def _add_predict(verbs: argparse._SubParsersAction) -> None:
    predict = verbs.add_parser(
        "predict",
        help="probabilities and heat maps of your films",
        description="Predict the 14 findings of PNG, JPEG and DICOM films with a run's network. "
        "Files that are no chest film are refused or marked; the rest is done. Not for clinical "
        "use.",
    )
    predict.add_argument("--run", type=Path, required=True, metavar="DIR", help="the run folder")
    predict.add_argument(
        "--input", type=Path, action="append", required=True, metavar="FILE-or-DIR",
        help="a film, or a folder that is searched with all below it; may be repeated",
    )  # fmt: skip
    predict.add_argument(
        "--output", type=Path, metavar="DIR", help="write predictions.csv and predictions.json"
    )
    predict.add_argument(
        "--heatmap", type=Path, metavar="DIR", help="write overlays, FILE__FINDING.png"
    )
    predict.add_argument(
        "--method", default="cam", metavar="NAME", help="of the heat maps: cam (default), gradcam"
    )
    predict.add_argument(
        "--findings", default=DEFAULT, metavar="WHICH",
        help=f"to draw, and to show of several films: all, NAME,NAME or top N (default {DEFAULT})",
    )  # fmt: skip
    predict.add_argument(
        "--batch-size", type=int, default=32, metavar="N", help="films of one pass (default 32)"
    )
    predict.add_argument(
        "--checkpoint", default="best", metavar="NAME", help="best (default), last, or a file"
    )
    predict.add_argument(
        "--device", default="auto", metavar="NAME",
        help="auto (default) takes a GPU where there is one; gpu; cpu",
    )  # fmt: skip
    predict.add_argument("--json", action="store_true", help="print the JSON document, no table")
    predict.add_argument(
        "--force", action="store_true", help="put results in the place of earlier ones"
    )
    predict.set_defaults(work=_predict)


def _add_export(verbs: argparse._SubParsersAction) -> None:
    export = verbs.add_parser(
        "export",
        help="write a run's network as a TensorFlow SavedModel",
        description="Write the network of a run as a SavedModel that needs TensorFlow alone, "
        "with model_card.json beside it, and compare its outputs with the checkpoint's.",
    )
    export.add_argument("--run", type=Path, required=True, metavar="DIR", help="the run folder")
    export.add_argument("--output", type=Path, required=True, metavar="DIR", help="a new folder")
    export.add_argument(
        "--checkpoint", default="best", metavar="NAME", help="best (default), last, or a file"
    )
    export.add_argument(
        "--no-calibration", action="store_true",
        help="leave the run's calibration out, where it has one",
    )  # fmt: skip
    export.add_argument("--force", action="store_true", help="replace an earlier export")
    export.set_defaults(work=_export)


def _predict(arguments: argparse.Namespace) -> None:
    # All that can be wrong is looked at before the seconds that TensorFlow takes.
    from chexnet.prediction.inputs import find_inputs
    from chexnet.prediction.prediction_files import check_free
    from chexnet.run import load_run_config

    choice = parse_choice(arguments.findings)
    if arguments.batch_size < 1:
        raise UserError(
            "--batch-size of 1 or more", found=str(arguments.batch_size), fix="32 suits most"
        )
    load_run_config(arguments.run)
    inputs = find_inputs(arguments.input)
    check_free(arguments.output, heatmap=arguments.heatmap, force=arguments.force)
    with quiet_import():
        from chexnet.predict import Options, predict
        from chexnet.prediction.prediction_text import require_all, show_outcome
    options = Options(
        output=arguments.output, heatmap=arguments.heatmap, method=arguments.method, choice=choice,
        batch_size=arguments.batch_size, checkpoint=arguments.checkpoint, device=arguments.device,
    )  # fmt: skip
    sys.stdout.reconfigure(errors="backslashreplace")  # a file's name may be no text
    stream = sys.stdout if arguments.json else None
    try:
        outcome = predict(arguments.run, inputs=inputs, options=options, stream=stream)
    except BrokenPipeError:  # such as `| head`, which has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    if not arguments.json:
        from rich.console import Console

        show_outcome(outcome, options=options, console=Console(highlight=False))
    require_all(outcome, options=options)


def _export(arguments: argparse.Namespace) -> None:
    from chexnet.run import load_run_config

    load_run_config(arguments.run)
    with quiet_import():
        from chexnet.prediction.export import export_run
    card = export_run(
        arguments.run, output=arguments.output, checkpoint=arguments.checkpoint,
        calibrated=not arguments.no_calibration, force=arguments.force,
    )  # fmt: skip
    check = card["check"]
    print(
        f"{arguments.output}: SavedModel and model_card.json; on {check['films']} films its "
        f"probabilities differ from the checkpoint's by at most {check['largest_difference']:.1e}"
    )
    print(f"{card['calibration']['said']} {card['note']}.")
