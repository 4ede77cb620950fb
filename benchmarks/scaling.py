"""What more ranks bring: the article's third figure, measured on this machine or cluster.

Every number of ranks trains the same network behind `old`, `new` and `fast`, with the films a
rank takes in a step held the same (weak scaling), and every rank has the same cores whatever
their number: the largest number's share. Started by the launcher that training uses. Beside it,
where a record of `benchmarks.stand_in` is given, stands the series with a stand-in device, which
tells what the cores of one machine cannot.

    invoke bench-scaling --output FILE.json [--ranks 1,2] [--data DIR …]
"""

from __future__ import annotations

import json
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.record import write_record
from benchmarks.scaling_rank import INPUTS, SYNTHETIC
from containers.hosts import HostSlots, take_ranks
from containers.job import Job, refuse_misfit
from containers.launch import Site, launch_command, project_environ, run_command
from containers.launchers import Launch
from containers.preflight import prepare_launch
from containers.process import stoppable
from containers.ranks import end_launcher
from env.atomic import write_text
from env.binding import render_plan
from env.errors import EXIT_FAILED, UserError, unknown_name

PACKAGES = ("tensorflow-cpu", "tensorflow", "keras", "horovod")
# Made up where no data is given: px as the article's, and more films a rank than the 500 that the
# shuffle buffer of `old` takes in before it gives a batch.
FILMS, SIZE = 1500, 256
# Said of every result without GPUs, in the record and on the picture.
CORES = "the cores are the limit: a core that decodes does not compute"
LONGEST_S = 1800


@dataclass(frozen=True)
class Series:
    """What is measured.

    Attributes:
        ranks: how many, ascending.
        inputs: some of ``INPUTS``.
        data: prepared folders, one a format.
        hosts: where the ranks run; none for this machine.
        model: the network.
        batch_size: films of one rank.
        crop: px cut out of each film; 0 for all of it. A small one leaves a core that computes
            and reads the time to read, so that the input shows.
        device: ``auto``, ``cpu`` or ``gpu``.
        steps: timed in each round of each case.
        repeats: rounds.
    """

    ranks: tuple[int, ...]
    inputs: tuple[str, ...] = INPUTS
    data: tuple[Path, ...] = ()
    hosts: tuple[HostSlots, ...] = ()
    model: str = "tiny"
    batch_size: int = 32
    crop: int = 64
    device: str = "auto"
    steps: int = 20
    repeats: int = 3


def parse_ranks(text: str) -> tuple[int, ...]:
    """Return numbers of ranks, ascending, from ``1,2,4``.

    Raises:
        UserError: something else.
    """
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and int(word) > 0 for word in words):
        raise UserError("numbers of ranks, such as 1,2,4", found=repr(text), fix="correct --ranks")
    return tuple(sorted({int(word) for word in words}))


def parse_inputs(text: str) -> tuple[str, ...]:
    """Return kinds of input from ``synthetic,cached``.

    Raises:
        UserError: an unknown kind; the known ones are listed.
    """
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    for word in words:
        if word not in INPUTS:
            raise unknown_name("kind of input", word, known=INPUTS)
    return words


def cut_launch(launch: Launch, ranks: int) -> Launch:
    """Return the launch of the first ranks of a plan, each with what it had."""
    plan = replace(launch.plan, ranks=launch.plan.ranks[:ranks])
    hosts = take_ranks(launch.hosts, ranks=ranks) if launch.hosts else ()
    return replace(launch, plan=plan, hosts=hosts)


def rank_command(series: Series, *, plan: Path, output: Path) -> list[str]:
    """Return what every rank runs."""
    command = ["python", "-m", "benchmarks.scaling_rank"]
    command += [word for folder in series.data for word in ("--data", str(folder.resolve()))]
    command += ["--inputs", *series.inputs, "--model", series.model]
    command += ["--batch-size", str(series.batch_size), "--crop", str(series.crop)]
    command += ["--device", series.device, "--steps", str(series.steps)]
    return [
        *command,
        "--repeats",
        str(series.repeats),
        "--plan",
        str(plan),
        "--output",
        str(output),
    ]


def measure_series(series: Series, *, folder: Path, dry_run: bool = False) -> dict[int, Any]:
    """Launch every number of ranks and return what each found; nothing with ``dry_run``.

    Args:
        series: what is measured.
        folder: takes plans and what the ranks find; every host must see it.
        dry_run: print the command lines, run nothing.

    Raises:
        UserError: the ranks do not fit, or a launch failed.
    """
    job = Job(max(series.ranks), series.hosts)
    launch, code = prepare_launch(job, site=Site(), folder=folder, device=series.device,
                                  dry_run=dry_run)  # fmt: skip
    if launch is None:
        raise UserError("hosts that answer", found=f"exit code {code}, see above",
                        fix="prove them first: invoke validate-env --hosts …",
                        exit_code=EXIT_FAILED)  # fmt: skip
    found = {}
    for ranks in series.ranks:
        cut, output = cut_launch(launch, ranks), folder / f"found-{ranks}.json"
        plan = folder / f"plan-{ranks}.json"
        line = launch_command(cut, command=rank_command(series, plan=plan, output=output),
                              site=Site())  # fmt: skip
        if dry_run:
            run_command(line, dry_run=True)
            continue
        for path, text in {plan: render_plan(cut.plan), **cut.files()}.items():
            write_text(path, text)
        print(f"{ranks} ranks …", file=sys.stderr, flush=True)
        _run(line)
        found[ranks] = json.loads(output.read_text(encoding="utf-8"))
        found[ranks]["cores_per_rank"] = cut.plan.cores_per_rank
    return found


def _run(line: Sequence[str]) -> None:
    environ = {**project_environ(), "TF_CPP_MIN_LOG_LEVEL": "3"}
    child = subprocess.Popen(line, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, start_new_session=True)  # fmt: skip
    try:
        said = child.communicate(timeout=LONGEST_S)[1]
        code = str(child.returncode)
    except subprocess.TimeoutExpired as error:
        code, said = f"none after {LONGEST_S} s", error.stderr or b""
    finally:
        end_launcher(child)
    if code != "0":
        last = "\n".join(said.decode(errors="replace").splitlines()[-15:])
        raise UserError(
            "ranks that end well", found=f"exit code {code} of {shlex.join(line)}\n{last}",
            fix="prove the machine first: invoke validate-env", exit_code=EXIT_FAILED,
        )  # fmt: skip


def describe_series(found: Mapping[int, Any], *, series: Series) -> list[dict[str, object]]:
    """Return one result for each case and number of ranks: the median, with its spread."""
    results = []
    for ranks, one in found.items():
        cases = dict.fromkeys((row["pipeline"], row["input"]) for row in one["rounds"])
        for pipeline, kind in cases:
            mine = [r for r in one["rounds"] if (r["pipeline"], r["input"]) == (pipeline, kind)]
            rates = [row["images_per_s"] for row in mine]
            label = kind if kind == SYNTHETIC else f"{pipeline}, {kind}"
            results.append({
                "name": f"{label}, {ranks} rank{'s' * (ranks > 1)}",
                "value": round(statistics.median(rates), 1), "unit": "images/s",
                "slowest": round(min(rates), 1), "fastest": round(max(rates), 1),
                "rounds": len(rates), "pipeline": pipeline, "input": kind, "ranks": ranks,
                "batch": series.batch_size, "model": series.model, "crop_px": series.crop,
                "device": one["device"], "note": CORES if one["device"] == "cpu" else "",
                "cores_per_rank": one["cores_per_rank"], "steps": mine[0]["steps"],
                "input_wait_fraction": round(
                    statistics.median(row["input_wait_fraction"] for row in mine), 4),
            })  # fmt: skip
    return results


def compare_series(results: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return efficiencies: each rate over so many times that of the fewest ranks of its case."""
    ratios = {}
    for one in results:
        base = min((r for r in results if _case(r) == _case(one)), key=lambda r: r["ranks"])
        if one is not base:
            ideal = base["value"] / base["ranks"] * one["ranks"]
            ratios[f"scaling efficiency: {one['name']}"] = round(one["value"] / ideal, 4)
    return ratios


def _case(result: Mapping[str, Any]) -> tuple[str, str]:
    return result["pipeline"], result["input"]


def run_benchmark(
    series: Series, *, output: Path, picture: Path | None = None, stand_in: Path | None = None,
    dry_run: bool = False,
) -> None:  # fmt: skip
    """Measure, write the record, draw the picture and print the table.

    Args:
        series: what is measured; without data, made-up films are prepared in both formats.
        output: the record.
        picture: a ``.png`` or ``.svg`` file to draw.
        stand_in: a record of `benchmarks.stand_in`, for the picture alone.
        dry_run: print the command lines, run nothing.

    Raises:
        UserError: as `measure_series`; no record where ``stand_in`` is.
    """
    beside = _load_results(stand_in) if stand_in else []
    refuse_misfit(Job(max(series.ranks), series.hosts))  # before films are made for minutes
    # Hosts that are not this one see the folder of the record, not /tmp.
    place = output.resolve().parent if series.hosts else None
    if place and not dry_run:
        place.mkdir(parents=True, exist_ok=True)
    where = place if place and place.is_dir() else None
    with (
        stoppable(),
        tempfile.TemporaryDirectory(prefix="chexnet_scaling_", dir=where) as name,
    ):
        folder, fed = Path(name), series
        if not series.data:
            made = folder if dry_run else make_data(folder)
            fed = replace(series, data=(made / "encoded", made / "fast"))
        found = measure_series(fed, folder=folder, dry_run=dry_run)
    if dry_run:
        return
    results = describe_series(found, series=series)
    ratios = compare_series(results)
    files = {"--output": output, "--picture": picture, "--stand-in": stand_in}
    write_record(output, command=command_of(series, files=files), packages=PACKAGES,
                 results=results, ratios=ratios)  # fmt: skip
    if picture:
        from benchmarks.figures import draw_series
        from containers.scaling_figure import write_figure

        write_figure(draw_series(results, stand_in=beside), picture)
    print(render_results(results, ratios=ratios))


def render_results(results: Sequence[Mapping[str, Any]], *, ratios: Mapping[str, float]) -> str:
    """Return the table that is printed."""
    lines = []
    for one in results:
        share = ratios.get(f"scaling efficiency: {one['name']}")
        told = f"efficiency {share:.0%}" if share is not None else ""
        lines.append(
            f"{one['name']:<26} {one['value']:>9,.1f} images/s  ({one['slowest']:,.1f} to "
            f"{one['fastest']:,.1f})  waits {one['input_wait_fraction']:>4.0%}  {told}".rstrip()
        )
    cores = results[0]["cores_per_rank"]
    lines.append(f"{cores} core{'s' * (cores != 1)} a rank; {results[0]['note']}".rstrip("; "))
    return "\n".join(lines)


def make_data(folder: Path) -> Path:
    """Write made-up films, prepared in both formats, and return their folder."""
    program = [sys.executable, "-m", "chexnet"]
    size = ["--images", str(FILMS), "--size", str(SIZE)]
    _run([*program, "make-sample-data", "--output", str(folder / "films"), *size])
    for form in ("encoded", "fast"):
        paths = ["--source", str(folder / "films"), "--output", str(folder / form)]
        _run([*program, "prepare-data", *paths, "--size", str(SIZE), "--format", form])
    return folder


def _load_results(path: Path) -> list[dict[str, Any]]:
    try:
        return list(json.loads(path.read_text(encoding="utf-8"))["results"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError("a record of benchmarks.stand_in", found=f"{path}: {error!r}",
                        fix="correct --stand-in, or leave it out") from error  # fmt: skip


def command_of(series: Series, *, files: Mapping[str, Path | None]) -> list[str]:
    """Return the command line that measures a series again; ``files`` by their options."""
    options: dict[str, object] = {
        "--ranks": ",".join(map(str, series.ranks)), "--input": ",".join(series.inputs),
        "--hosts": ",".join(f"{host.name}:{host.ranks}" for host in series.hosts),
        "--model": series.model, "--batch-size": series.batch_size, "--crop": series.crop,
        "--device": series.device, "--steps": series.steps, "--repeats": series.repeats, **files,
    }  # fmt: skip
    given = [(name, value) for name, value in options.items() if value not in ("", None)]
    given += [("--data", folder) for folder in series.data]
    return ["invoke", "bench-scaling", *(str(word) for pair in given for word in pair)]
