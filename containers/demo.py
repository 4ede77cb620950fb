"""The main job on a bare machine: sample data, validation, two ranks, evaluation, report.

Knows the order of the steps and what each leaves behind. Every step is a command
line that a user could type; leaves the work to the programs those start.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from containers.evaluate import Evaluation, evaluate
from containers.job import Job
from containers.launch import Site, run_command
from containers.program import run_program
from containers.train import Training, train
from env.errors import EXIT_FAILED, EXIT_GOOD, UserError

SCHEMA_VERSION = 1
# Small enough for ten minutes on two cores, and enough films for every finding.
IMAGES = 4000
IMAGE_SIZE_PX = 64


@dataclass(frozen=True)
class Step:
    """One step of the demo.

    Attributes:
        name: what it is called in the table.
        leaves: the file that tells whether it was done.
        work: does it and returns an exit code.
        is_done: whether that file says so; a file that is there does, by default.
    """

    name: str
    leaves: Path
    work: Callable[[], int]
    is_done: Callable[[Path], bool] = Path.exists


def run_demo(
    output: Path,
    *,
    ranks: int = 2,
    num_images: int = IMAGES,
    epochs: int = 0,
    dry_run: bool = False,
) -> int:
    """Run the demo, going on where an earlier one stopped.

    Args:
        output: takes films, data, the run and ``demo.json``.
        ranks: processes to train with.
        num_images: sample films to make.
        epochs: 0 for as many as the ``demo`` preset says.
        dry_run: print the command lines and run nothing.

    Returns:
        The exit code of the step that failed, or 0.

    Raises:
        UserError: ``output`` is a folder that a demo did not make.
    """
    mark = output / "demo.json"
    settings = {"ranks": ranks, "num_images": num_images, "epochs": epochs}
    steps = _steps(output, dry_run=dry_run, **settings)
    if dry_run:
        for step in steps:
            step.work()
        return EXIT_GOOD
    _claim(output, mark=mark, settings=settings)
    seconds: dict[str, float] = _load(mark).get("seconds", {})
    for number, step in enumerate(steps, start=1):
        if step.is_done(step.leaves):
            print(f"[{number}/{len(steps)}] {step.name}: done before ({step.leaves})", flush=True)
            continue
        print(f"[{number}/{len(steps)}] {step.name} …", flush=True)
        started = time.monotonic()
        code = step.work()
        # What every attempt took counts: a training goes on where it stopped.
        took = time.monotonic() - started + seconds.get(step.name, 0)
        _save(mark, settings=settings, seconds=seconds | {step.name: round(took, 1)})
        seconds = _load(mark)["seconds"]
        if code != EXIT_GOOD or not step.is_done(step.leaves):
            print(f"{step.name} did not end well (exit code {code}); the same command goes on")
            return code or EXIT_FAILED
    _print_summary(output, steps=steps, seconds=seconds)
    return EXIT_GOOD


def _steps(
    output: Path, *, ranks: int, num_images: int, epochs: int, dry_run: bool
) -> tuple[Step, ...]:
    films, data, run = output / "films", output / "data", output / "run"
    boxes = films / "BBox_List_2017.csv"  # where the findings were planted
    program = Site().enter(["python", "-m", "chexnet"])
    sample = [*program, "make-sample-data", "--output", str(films), "--images", str(num_images)]
    sample += ["--size", str(IMAGE_SIZE_PX)]
    prepare = [*program, "prepare-data", "--source", str(films), "--output", str(data)]
    prepare += ["--size", str(IMAGE_SIZE_PX)]
    training = Training(
        data,
        run,
        job=Job(ranks),
        settings=("preset=demo", *([f"epochs={epochs}"] if epochs else [])),
        resume=(run / "config.json").exists(),
    )
    return (
        Step("sample data", films / "test_list.txt", lambda: run_command(sample, dry_run=dry_run)),
        Step("prepare data", data / "dataset.json", lambda: run_command(prepare, dry_run=dry_run)),
        Step(
            "validate and train",
            run / "record.json",
            lambda: train(training, dry_run=dry_run),
            _is_finished,
        ),
        Step(
            "evaluate",
            run / "evaluation.json",
            lambda: evaluate(Evaluation(run, boxes=boxes), dry_run=dry_run),
        ),
        Step(
            "report",
            run / "report.html",
            lambda: run_program("report", ["--run", run], reads=(run,), dry_run=dry_run),
        ),
    )


def _is_finished(record: Path) -> bool:
    return _load(record).get("status") == "finished"


def _claim(output: Path, *, mark: Path, settings: dict[str, int]) -> None:
    """Refuse a folder of somebody else's, or of a demo with other settings."""
    found = _load(mark).get("settings", settings)
    foreign = output.exists() and any(output.iterdir()) and not mark.exists()
    if foreign or found != settings:
        raise UserError(
            "a new folder, or one of a demo with the same settings",
            found=f"{output} holds {'something else' if foreign else f'a demo with {found}'}",
            fix="give another folder with --output, or remove that one",
        )
    output.mkdir(parents=True, exist_ok=True)
    if not mark.exists():
        _save(mark, settings=settings, seconds={})


def _load(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _save(mark: Path, *, settings: dict[str, int], seconds: dict[str, float]) -> None:
    text = {"schema_version": SCHEMA_VERSION, "settings": settings, "seconds": seconds}
    partial = mark.with_suffix(".partial")
    partial.write_text(json.dumps(text, indent=1) + "\n", encoding="utf-8")
    partial.replace(mark)


def _print_summary(output: Path, *, steps: tuple[Step, ...], seconds: dict[str, float]) -> None:
    scores = _load(output / "run" / "evaluation.json")
    record = _load(output / "run" / "record.json")
    report = _load(output / "run" / "environment.json")
    page = output / "run" / "report.html"
    passed = sum(result["status"] == "PASS" for result in report["results"])
    mean = "undefined" if scores["mean_auroc"] is None else f"{scores['mean_auroc']:.3f}"
    said = {
        "sample data": "films with planted findings, in NIH's layout",
        "prepare data": "record files and their description",
        "validate and train": f"{passed} checks passed; {record['ranks']} ranks, "
        f"{record['throughput']['images_per_s']:.0f} images/s",
        "evaluate": f"mean AUROC {mean} on {scores['num_examples']} films of {scores['split']}",
        "report": f"all of it on one page, {page.stat().st_size / 1000:.0f} kB",
    }
    table = Table("step", "seconds", "what happened", "where", title="The demo")
    for step in steps:
        where = step.leaves.relative_to(output)
        # Nothing is known of a step that was interrupted after its work and before its note.
        took = f"{seconds[step.name]:.0f}" if step.name in seconds else "-"
        table.add_row(step.name, f"{took}", said[step.name], str(where))
    console = Console()
    console.print(table)
    print(f"everything lies in {output}; together {sum(seconds.values()):.0f} s")
    print(f"open {page} in a browser")
