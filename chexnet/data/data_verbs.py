"""The verbs about films: making, preparing, inspecting and verifying them.

Knows their options. Leaves the work to the modules of each.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from chexnet.errors import EXIT_FAILED, UserError, name_some
from chexnet.quiet import quiet_import


def add_data_verbs(verbs: argparse._SubParsersAction) -> None:
    """Add these verbs to the program's parser."""
    for add in (_add_sample, _add_prepare, _add_adopt, _add_inspect, _add_verify):
        add(verbs)


def _add_sample(verbs: argparse._SubParsersAction) -> None:
    sample = verbs.add_parser(
        "make-sample-data",
        help="write made-up films in the layout of NIH's files",
        description="Write made-up films with planted findings, in the layout of NIH's files.",
    )
    sample.add_argument("--output", type=Path, required=True, metavar="DIR")
    sample.add_argument("--images", type=int, default=4000, metavar="N", help="default 4000")
    sample.add_argument("--size", type=int, default=64, metavar="PX", help="default 64")
    sample.add_argument("--seed", type=int, default=0, metavar="K", help="default 0")
    sample.add_argument(
        "--random-labels", action="store_true", help="labels that the films do not tell"
    )
    sample.set_defaults(work=_make_sample_data)


def _add_prepare(verbs: argparse._SubParsersAction) -> None:
    prepare = verbs.add_parser(
        "prepare-data",
        help="turn NIH's files into records",
        description="Turn NIH's files (images/, Data_Entry_2017*.csv, lists) into record files.",
    )
    prepare.add_argument("--source", type=Path, required=True, metavar="DIR")
    prepare.add_argument("--output", type=Path, required=True, metavar="DIR")
    prepare.add_argument(
        "--split",
        default="official",
        metavar="NAME",
        help="official (default), patient, or lists: those of --lists",
    )
    prepare.add_argument("--size", type=int, default=256, metavar="PX", help="default 256")
    prepare.add_argument(
        "--format", default="fast", metavar="NAME",
        help="fast (default): grey bytes, for pipeline fast; encoded: PNG in TFRecord",
    )  # fmt: skip
    prepare.add_argument(
        "--max-bad", type=int, metavar="N",
        help="leave out at most N films whose image cannot be read (default: 1 in 100)",
    )  # fmt: skip
    prepare.add_argument("--workers", type=int, metavar="N", help="default: a core each")
    prepare.add_argument(
        "--lists", type=Path, metavar="DIR", help="train.txt, validation.txt and test.txt"
    )
    prepare.add_argument("--seed", type=int, default=0, metavar="K", help="of the patient split")
    prepare.set_defaults(work=_prepare_data)


def _add_adopt(verbs: argparse._SubParsersAction) -> None:
    adopt = verbs.add_parser(
        "adopt-records",
        help="describe TFRecord files that others made, to train on them as they lie",
        description="Describe train-*, validation-* and test-* TFRecord files whose records hold "
        "image/encoded, image/label (14 int64) and image/filename, as the public Dell data does. "
        "Writes dataset.json and the tables of films beside them.",
    )
    adopt.add_argument("folder", type=Path, metavar="DIR")
    adopt.set_defaults(work=_adopt_records)


def _adopt_records(arguments: argparse.Namespace) -> None:
    with quiet_import():
        from chexnet.data.adoption import adopt_records
    dataset = adopt_records(arguments.folder)
    counts = ", ".join(f"{s.num_examples} {name}" for name, s in dataset.splits.items())
    print(f"{dataset.root}: {counts} films of {dataset.image_size} px")


def _add_inspect(verbs: argparse._SubParsersAction) -> None:
    inspect = verbs.add_parser(
        "inspect-data",
        help="count what is in a folder of films, and say what is odd",
        description="Count films by finding, side and view in NIH's files as downloaded or in "
        "prepared data; name missing, odd and unreadable images. Exits 1 where prepare-data "
        "--split official would stop, as far as the images' headers tell (--decode: for certain).",
    )
    inspect.add_argument("folder", type=Path, metavar="DIR")
    inspect.add_argument("--json", type=Path, metavar="FILE", help="write all of it as JSON too")
    inspect.add_argument(
        "--picture", type=Path, metavar="FILE", help="draw counts and which findings come together"
    )
    images = inspect.add_mutually_exclusive_group()
    images.add_argument("--no-images", action="store_true", help="do not open the images")
    images.add_argument("--decode", action="store_true",
                        help="read all of each image as prepare-data does, not its header alone; "
                        "takes as long")  # fmt: skip
    inspect.add_argument("--workers", type=int, metavar="N", help="default: a core each")
    inspect.set_defaults(work=_inspect_data)


def _add_verify(verbs: argparse._SubParsersAction) -> None:
    verify = verbs.add_parser(
        "verify-data",
        help="check every file of prepared data",
        description="Compare every file of prepared data with its hash, every label with the "
        "table of films, and with --source the pixels of a sample with the source.",
    )
    verify.add_argument("folder", type=Path, metavar="DIR")
    verify.add_argument("--source", type=Path, metavar="DIR", help="NIH's files")
    verify.add_argument("--sample", type=int, default=100, metavar="N",
                        help="films of each side to compare (default %(default)s)")  # fmt: skip
    verify.set_defaults(work=_verify_data)


def _inspect_data(arguments: argparse.Namespace) -> None:
    from rich.console import Console

    from chexnet.data.inspection import inspect_data, render_inspection
    from chexnet.data.inspection_picture import check_picture, draw_inspection
    from chexnet.data.inspection_text import print_inspection
    from chexnet.files import make_folder_of, write_text

    if arguments.picture:
        check_picture(arguments.picture)
    for path in filter(None, (arguments.json, arguments.picture)):
        make_folder_of(path)
    found = inspect_data(
        arguments.folder, look_at_images=not arguments.no_images, decode=arguments.decode,
        workers=arguments.workers,
    )  # fmt: skip
    if arguments.json:
        write_text(arguments.json, text=render_inspection(found))
    if arguments.picture:
        draw_inspection(found, output=arguments.picture)
        print(f"drew {arguments.picture}", file=sys.stderr)
    print_inspection(found, console=Console())
    if found.wrong:
        raise UserError(
            f"films that can be prepared in {arguments.folder}",
            found=name_some(found.wrong),
            fix="see the lines that begin with wrong:",
            exit_code=EXIT_FAILED,
        )


def _verify_data(arguments: argparse.Namespace) -> None:
    with quiet_import():
        from chexnet.data.verification import require_whole
    require_whole(arguments.folder, source=arguments.source, sample=arguments.sample)
    print(f"{arguments.folder}: as it was written")


def _make_sample_data(arguments: argparse.Namespace) -> None:
    from chexnet.synthetic import make_sample_data

    make_sample_data(
        arguments.output,
        num_images=arguments.images,
        size_px=arguments.size,
        seed=arguments.seed,
        random_labels=arguments.random_labels,
    )


def _prepare_data(arguments: argparse.Namespace) -> None:
    with quiet_import():
        from chexnet.prepare import prepare_data
    prepare_data(
        arguments.source,
        output=arguments.output,
        split=arguments.split,
        size_px=arguments.size,
        format=arguments.format,
        workers=arguments.workers,
        seed=arguments.seed,
        lists=arguments.lists,
        max_bad=arguments.max_bad,
    )
