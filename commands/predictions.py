"""A trained network at work: films predicted, the network exported.

Each task parses, calls one function, prints and returns an exit code. No logic.
Imports lazily, so that ``invoke --list`` loads neither hpccm nor TensorFlow.
"""

from __future__ import annotations

from pathlib import Path

from invoke import Context

from commands.command import at_least, command, enterable, required


@command(
    iterable=["input"],
    help={
        "run": "a run folder",
        "input": "a film (PNG, JPEG, DICOM), or a folder with all below it; repeatable",
        "output": "a folder for predictions.csv and predictions.json",
        "heatmap": "a folder for overlays, FILE__FINDING.png",
        "method": "of the heat maps: cam, the paper's, or gradcam",
        "findings": "of each film, to draw, and to show of several: all, NAME,NAME or 'top N'",
        "batch-size": "films of one pass",
        "checkpoint": "best (by validation), last, or a file",
        "device": "auto takes a GPU where there is one; gpu; cpu",
        "json": "print the JSON document instead of a table",
        "force": "write over earlier results",
        "image": "predict inside this image",
        "dry-run": "print the command line and run nothing",
    },
)
def predict(
    c: Context,
    run: str = "",
    input: list[str] | None = None,
    output: str = "",
    heatmap: str = "",
    method: str = "cam",
    findings: str = "top 3",
    batch_size: int = 32,
    checkpoint: str = "best",
    device: str = "auto",
    json: bool = False,
    force: bool = False,
    image: str = "",
    dry_run: bool = False,
) -> int:
    """Predict the findings of your films, with heat maps. Not for clinical use."""
    from containers.evaluate import find_checkpoint
    from containers.program import run_program

    inputs = [Path(one) for one in input or ()]
    required(run=run, input=" ".join(input or ()))
    at_least(1, batch_size=batch_size)
    folders = {"--output": output, "--heatmap": heatmap}
    written = {option: Path(folder) for option, folder in folders.items() if folder}
    named, places = find_checkpoint(checkpoint)
    options = [
        *["--run", Path(run)],
        *[word for one in inputs for word in ("--input", one)],
        *[word for pair in written.items() for word in pair],
        *["--method", method, "--findings", findings, "--batch-size", str(batch_size)],
        *["--checkpoint", named, "--device", device],
        *(["--json"] if json else []),
        *(["--force"] if force else []),
    ]
    return run_program(
        "predict",
        options,
        image=enterable(image),
        reads=[Path(run), *inputs, *places],
        # The program makes the folders themselves, once nothing is wrong with what it was given.
        writes=[folder.parent for folder in written.values()],
        dry_run=dry_run,
    )


@command(
    help={
        "run": "a run folder",
        "output": "a new folder for the SavedModel and model_card.json",
        "checkpoint": "best (by validation), last, or a file",
        "no-calibration": "leave the run's calibration out, where it has one",
        "force": "replace an earlier export",
        "image": "export inside this image",
        "dry-run": "print the command line and run nothing",
    },
)
def export(
    c: Context,
    run: str = "",
    output: str = "",
    checkpoint: str = "best",
    no_calibration: bool = False,
    force: bool = False,
    image: str = "",
    dry_run: bool = False,
) -> int:
    """Write a run's network as a TensorFlow SavedModel that needs nothing of this project."""
    from containers.evaluate import find_checkpoint
    from containers.program import run_program

    required(run=run, output=output)
    named, places = find_checkpoint(checkpoint)
    options = [
        *["--run", Path(run), "--output", Path(output), "--checkpoint", named],
        *(["--no-calibration"] if no_calibration else []),
        *(["--force"] if force else []),
    ]
    return run_program(
        "export",
        options,
        image=enterable(image),
        reads=[Path(run), *places],
        writes=[Path(output).parent],
        dry_run=dry_run,
    )
