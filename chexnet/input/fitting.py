"""Which pipeline reads which prepared data, and what a configuration asks of the data.

Knows the names of the pipelines and the format that each reads. Leaves what they do to
`pipeline`. Quick to import: a configuration is checked without TensorFlow.
"""

from __future__ import annotations

from importlib.util import find_spec

from chexnet.errors import UserError, unknown_name
from chexnet.records import Dataset

MOST_INPUT_WAIT = 0.05  # of the time; more is told, with advice

# The best pipeline for a format comes last.
FORMATS_READ: dict[str, str] = {
    "old": "encoded", "dali": "encoded", "new": "encoded", "fast": "fast",
}  # fmt: skip
PIPELINES: tuple[str, ...] = tuple(FORMATS_READ)


def best_pipeline(dataset: Dataset) -> str:
    """Return the pipeline to read a data set with."""
    return pipelines_here(dataset.format)[-1]


def pipelines_here(format: str) -> list[str]:
    """Return the pipelines that read a format and whose packages are installed, slowest first."""
    names = [name for name, read in FORMATS_READ.items() if read == format]
    return [name for name in names if name != "dali" or _has_dali()]


def _has_dali() -> bool:
    try:
        return find_spec("nvidia.dali") is not None
    except ModuleNotFoundError:  # not even its parent
        return False


def check_pipeline(name: str, *, dataset: Dataset) -> None:
    """Raise where a pipeline cannot read a data set.

    Raises:
        UserError: the pipeline is unknown, or reads another format.
    """
    if name not in PIPELINES:
        raise unknown_name("pipeline", name, known=PIPELINES)
    if FORMATS_READ[name] != dataset.format:
        fits = [other for other in PIPELINES if FORMATS_READ[other] == dataset.format]
        raise UserError(
            f"data of format {FORMATS_READ[name]} for pipeline={name}",
            found=f"{dataset.root} is of format {dataset.format}",
            fix=f"use pipeline={' or '.join(fits)}, or prepare the data with --format "
            f"{FORMATS_READ[name]}",
        )
    if name not in pipelines_here(dataset.format):
        raise no_dali("not in this environment")


def no_dali(found: str) -> UserError:
    """Return the error for a missing DALI, which is in no stack."""
    return UserError(
        "NVIDIA DALI, for pipeline=dali",
        found=found,
        fix="install it beside the environment (docs/pipeline.md), or use pipeline=new; "
        "data of --format fast needs no decoder at all",
    )


def check_crop(crop_px: int, *, dataset: Dataset) -> int:
    """Return the height and width of what is cut out of each film; all of it for 0.

    Raises:
        UserError: a crop larger than the films.
    """
    if crop_px > dataset.image_size:
        raise UserError(
            f"a crop_size of at most {dataset.image_size} px, the films of {dataset.root}",
            found=str(crop_px),
            fix="lower crop_size, or prepare the data with a larger --size",
        )
    return crop_px or dataset.image_size


def advise_on_wait(fraction: float, pipeline: str) -> str:
    """Return what to do about steps that wait for films.

    Args:
        fraction: of the time that was spent waiting, 0 to 1.
        pipeline: which one feeds the steps.
    """
    remedy = {
        "old": "use pipeline=new, or better prepare the data with --format fast",
        "dali": "prepare the data with --format fast, which needs no decoding",
        "new": "prepare the data with --format fast, which needs no decoding",
        "fast": "give each rank more cores, or put the data on local disks",
    }[pipeline]
    return (
        f"input: steps waited {fraction:.0%} of the time for films; {remedy}; "
        "invoke bench-pipeline tells what this machine can feed"
    )
