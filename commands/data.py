"""Films: made up, inspected, prepared, verified.

Each task parses, calls one function, prints and returns an exit code. No logic.
Imports lazily, so that ``invoke --list`` loads neither hpccm nor TensorFlow.
"""

from __future__ import annotations

from pathlib import Path

from invoke import Context

from commands.command import UNSAID, command, optional_path, required, said


@command(
    operands=("folder",),
    help={
        "folder": "NIH's files as downloaded, or prepared data",
        "json": "write all of it there as JSON too",
        "picture": "draw counts and which findings come together there: a .png, .svg or .pdf",
        "no-images": "do not open the images",
        "decode": "read all of each image as prepare-data does, not its header alone",
    },
)
def inspect_data(
    c: Context,
    folder: str | None = None,
    json: str = "",
    picture: str = "",
    no_images: bool = False,
    decode: bool = False,
) -> int:
    """Count films by finding, side and view, and say what is odd: invoke inspect-data DIR."""
    from chexnet.__main__ import main

    given = {"--json": json, "--picture": picture}
    options = [token for name, value in given.items() if value for token in (name, value)]
    flags = {"--no-images": no_images, "--decode": decode}
    options += [name for name, value in flags.items() if value]
    return main(["inspect-data", str(folder), *options])


@command(
    operands=("folder",),
    help={
        "folder": "prepared data",
        "source": "NIH's files: a sample of films is made again and compared",
        "sample": "films of each side to compare",
    },
)
def verify_data(c: Context, folder: str | None = None, source: str = "", sample: int = 100) -> int:
    """Compare every file of prepared data with what was written: invoke verify-data DIR."""
    from chexnet.__main__ import main

    options = ["--source", source] if source else []
    return main(["verify-data", str(folder), *options, f"--sample={sample}"])


@command(operands=("folder",), help={"folder": "holds train-*, validation-* and test-* files"})
def adopt_records(c: Context, folder: str | None = None) -> int:
    """Describe TFRecord files that others made, to train on them: invoke adopt-records DIR."""
    from chexnet.__main__ import main

    return main(["adopt-records", str(folder)])


@command(
    help={
        "output": "a new folder",
        "images": "number of films",
        "size": "edge of a film, pixels",
        "seed": "another seed gives other films",
        "random-labels": "shuffle the labels, so that nothing can be learnt: AUROC must be 0.5",
        "force": "replace what is there",
    }
)
def make_sample_data(
    c: Context,
    output: str = "",
    images: int = 4000,
    size: int = 64,
    seed: int = 0,
    random_labels: bool = False,
    force: bool = False,
) -> None:
    """Make films with planted findings, in the layout of NIH ChestX-ray14."""
    from chexnet.synthetic import make_sample_data as make

    required(output=output)
    make(
        Path(output),
        num_images=images,
        size_px=size,
        seed=seed,
        random_labels=random_labels,
        force=force,
    )


@command(
    help={
        "source": "a folder in NIH's layout: images/, Data_Entry_2017*.csv, the two lists",
        "output": "a new folder for the records and dataset.json",
        "split": "official (NIH's lists), patient (70/10/20 by patient) or lists (yours)",
        "lists": "for --split lists: a folder with train.txt, validation.txt and test.txt",
        "size": "edge of a stored film, pixels",
        "format": "fast (grey bytes, mapped into memory) or encoded (PNG in TFRecord)",
        "workers": "processes; by default one for each core",
        "seed": "of the division by patient and of the films' order",
        "max-bad": "films that may be left out because unreadable; by default 1 in 100",
        "force": "replace what is there",
    }
)
def prepare_data(
    c: Context,
    source: str = "",
    output: str = "",
    split: str = "official",
    lists: str = "",
    size: int = 256,
    format: str = "fast",
    workers: int = 0,
    seed: int = 0,
    max_bad: int = UNSAID,
    force: bool = False,
) -> None:
    """Turn a folder in NIH's layout into records that training reads fast."""
    from chexnet.quiet import quiet_import

    required(source=source, output=output)
    with quiet_import():
        from chexnet.prepare import prepare_data as prepare
    prepare(
        Path(source),
        output=Path(output),
        split=split,
        lists=optional_path(lists),
        size_px=size,
        format=format,
        workers=workers or None,
        seed=seed,
        max_bad=said(max_bad),
        force=force,
    )
