"""The project's commands: parse, call one function, print, exit code. No logic.

Imports lazily, so that ``invoke --list`` loads neither hpccm nor TensorFlow.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from invoke import Argument, Context, Exit, Program, Task, task

from env.errors import UserError


class _Help(Argument):
    """``--help`` of a task with operands, for the first of which Invoke would take it."""

    def __init__(self, name: str) -> None:
        super().__init__(name="help", kind=bool, default=False, help="show this page")
        self._task = name

    def set_value(self, value: Any, cast: bool = True) -> None:
        """Print the page and leave; the parser calls this as soon as it sees the word."""
        root = str(Path(__file__).parent)
        Program().run(["invoke", "--search-root", root, "--help", self._task])


class _Number(Argument):
    """An option that takes a number: another word is told like any mistake."""

    def set_value(self, value: Any, cast: bool = True) -> None:
        """Take the value as the parser reads it."""
        try:
            super().set_value(value, cast)
        except ValueError as error:
            found = f"--{self.name} {value!r}"
            raise _exit("a whole number", found, "give it in digits; see --help") from error


class _Task(Task):
    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """Return the task's own arguments."""
        return [_told(one) for one in super().get_arguments(ignore_unknown_help)]


def _told(one: Argument) -> Argument:
    if one.kind is not int:
        return one
    return _Number(names=one.names, kind=int, default=one.default, help=one.help,
                   attr_name=one.attr_name)  # fmt: skip


class _TaskWithOperands(_Task):
    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """Return the task's own arguments, and its help."""
        return [*super().get_arguments(ignore_unknown_help), _Help(self.name.replace("_", "-"))]


def command(
    operands: tuple[str, ...] = (), **options: Any
) -> Callable[[Callable[..., int | None]], Any]:
    """Make an Invoke task whose user errors print without a traceback.

    The function's return value is the exit code; None means 0. A task takes named options,
    and operands without a name only where they are listed.
    """

    def decorate(function: Callable[..., int | None]) -> Any:
        @functools.wraps(function)
        def body(*args: Any, **kwargs: Any) -> None:
            kwargs.pop("help", None)
            try:
                code = function(*args, **kwargs) or 0
                sys.stdout.flush()  # so that a reader who has gone is met here
            except ModuleNotFoundError as error:
                fix = "run it from a checkout: env/bootstrap.sh invoke …"
                raise _exit(f"the package {error.name}", "not in this environment", fix) from error
            except BrokenPipeError as error:  # such as `| head`, which has read enough
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                raise Exit(code=128 + signal.SIGPIPE) from error
            except OSError as error:
                found = f"{error.filename or 'a file'}: {error.strerror or error}"
                fix = "correct the path, or its permissions"
                raise _exit("a file or folder that can be used", found, fix) from error
            except Exception as error:
                # chexnet has an error class of its own, of the same shape.
                if not hasattr(error, "exit_code"):
                    raise
                raise Exit(str(error), code=error.exit_code) from error
            except KeyboardInterrupt as error:
                raise Exit("interrupted; run the same command again to go on", code=1) from error
            if code:
                raise Exit(code=code)

        kind = _TaskWithOperands if operands else _Task
        return task(klass=kind, positional=operands, auto_shortflags=False, **options)(body)

    return decorate


def _exit(expected: str, found: str, fix: str) -> Exit:
    return Exit(str(UserError(expected, found=found, fix=fix)), code=2)


def _required(**values: str | None) -> None:
    """Refuse a command whose options without a default were left out."""
    missing = [f"--{name.replace('_', '-')}" for name, value in values.items() if not value]
    if missing:
        raise UserError(f"{' and '.join(missing)}", found="nothing", fix="add it; see --help")


def _one_of(**values: object) -> None:
    """Refuse a command that was asked several questions: it would answer the first alone."""
    said = [f"--{name}" for name, value in values.items() if value]
    if len(said) > 1:
        raise UserError(f"one of {', '.join(f'--{name}' for name in values)}",
                        found=" and ".join(said), fix="run it once for each")  # fmt: skip


def _at_least(least: int, **values: int) -> None:
    """Refuse numbers that are too small."""
    for name, value in values.items():
        if value < least:
            raise UserError(f"--{name} of {least} or more", found=str(value), fix="see --help")


UNSAID = -1  # of an option that takes a number: Invoke infers its type from a default


def _said(number: int) -> int | None:
    return None if number == UNSAID else number


HOSTS_HELP = "where the ranks run: NAME:RANKS,… in this order; slurm for those of the Slurm job"
LAUNCHER_HELP = "auto, mpirun or srun; auto takes srun for --hosts inside a Slurm job"


def _enterable(image: str) -> Path | None:
    # Imported only here: what looks into images needs hpccm, which images do not hold.
    if not image:
        return None
    from containers.image import need_enterable

    return need_enterable(Path(image))


def _path(value: str | None) -> Path | None:
    return Path(value) if value else None


@command(
    help={
        "json": "print JSON instead of a table",
        "check": "hold every stack against every rule of compatibility",
        "explain": "a stack: why its versions fit each other, with the sources",
        "solve": "versions that must go together, e.g. 'tensorflow=2.18 driver=535'",
        "markdown": "write docs/stacks.md and the table of docs/choose-a-stack.md anew",
    }
)
def stacks(
    c: Context,
    json: bool = False,
    check: bool = False,
    explain: str = "",
    solve: str = "",
    markdown: bool = False,
) -> int:
    """List the stacks of the catalogue: which versions go together."""
    from containers import compatibility
    from containers.pages import write_pages
    from containers.stacks import print_stacks, render_stacks
    from env.stack import load_stacks

    _one_of(check=check, explain=explain, solve=solve, markdown=markdown)
    if check:
        return compatibility.check_stacks(as_json=json)
    if explain:
        return compatibility.explain_stack(explain, as_json=json)
    if solve:
        return compatibility.solve_versions(solve, as_json=json)
    if markdown:
        for path in write_pages():
            print(path)
        return 0
    catalogue = load_stacks()
    print(render_stacks(catalogue)) if json else print_stacks(catalogue)
    return 0


@command(
    help={
        "stack": "a stack of the catalogue (invoke stacks)",
        "output": "write there instead of containers/STACK/stack.lock.json",
    }
)
def lock(c: Context, stack: str = "", output: str = "") -> None:
    """Resolve a stack to exact, hashed packages; write lock, definitions and pages anew."""
    from containers.lock import write_lock
    from containers.pages import write_pages
    from recipes.render import write_definitions

    _required(stack=stack)
    written = [write_lock(stack, output=_path(output))]
    for path in written if output else [*written, *write_definitions(), *write_pages()]:
        print(path)


@command(help={"stack": "a stack of the catalogue", "format": "singularity or docker"})
def recipe(c: Context, stack: str = "", format: str = "") -> None:
    """Print the definition of an image: a Singularity.def or a Dockerfile."""
    from env.stack import load_stack
    from recipes.render import render_definition

    _required(stack=stack, format=format)
    print(render_definition(load_stack(stack), format=format), end="")


@command(
    help={
        "stack": "a stack of the catalogue",
        "output": "a folder; what it holds of the lock already is not fetched again",
    }
)
def fetch_packages(c: Context, stack: str = "", output: str = "") -> None:
    """Save every package, wheel and source of a stack's lock, to build without a network.

    On a connected machine: invoke fetch-packages --stack cpu --output DIR. Carry DIR over;
    there: invoke build-image --stack cpu --format singularity --packages DIR. Keep it: the
    distribution's archive drops old versions, the folder builds the same image years later.
    """
    from containers.packages import save_packages
    from env.stack import load_stack

    _required(stack=stack, output=output)
    save_packages(load_stack(stack), folder=Path(output))


@command(
    help={
        "stack": "a stack of the catalogue",
        "format": "singularity makes a .sif file, docker an OCI archive (.tar)",
        "engine": "apptainer, singularity, docker, podman or buildah; by default the first found",
        "output": "the file to make; by default chexnet-STACK.sif or .tar here",
        "base": "registry, local (mmdebstrap), or auto: local where no registry answers",
        "packages": "a folder saved by fetch-packages: build from it, without a network",
        "allow-drift": "where the archive has no longer what the lock names, take what it has, "
        "and say so in the image's labels",
        "force": "replace an image that is there",
        "json": "also write what was made, its size and the seconds of each step there",
        "dry-run": "print the command lines and run nothing",
    }
)
def build_image(
    c: Context,
    stack: str = "",
    format: str = "",
    engine: str = "",
    output: str = "",
    base: str = "auto",
    packages: str = "",
    allow_drift: bool = False,
    force: bool = False,
    json: str = "",
    dry_run: bool = False,
) -> None:
    """Build an image of a stack: invoke build-image --stack cpu --format singularity.

    Every package is the lock's, held to its hash. If the distribution has replaced one by a
    newer, the build stops and lists them: renew the lock (invoke lock --stack S), build
    from a folder saved before (--packages DIR), or take what there is (--allow-drift).
    """
    from containers.build import build_image as build
    from containers.build import render_result
    from env.atomic import write_text
    from env.stack import load_stack

    _required(stack=stack, format=format)
    result = build(
        load_stack(stack),
        format=format,
        engine=engine or None,
        output=_path(output),
        base=base,
        packages=_path(packages),
        allow_drift=allow_drift,
        force=force,
        dry_run=dry_run,
    )
    if json and result is not None:
        write_text(Path(json), render_result(result))


@command(
    operands=("image",),
    help={
        "image": "a .sif file, a root folder, an OCI archive, or a name in an engine's store",
        "lock": "hold it against this lock; by default the committed one of the image's stack",
        "signed": "an image that nobody has signed differs too",
        "key": "the signer's public key, a PEM file; by default Apptainer's keyring",
        "json": "print JSON instead of text",
    },
)
def verify_image(
    c: Context,
    image: str | None = None,
    lock: str = "",
    signed: bool = False,
    key: str = "",
    json: bool = False,
) -> int:
    """Hold what is really inside an image against its lock: invoke verify-image IMAGE."""
    from containers.verify import print_verification, verify_image

    done = verify_image(str(image), lock=_path(lock), signed=signed, key=_path(key))
    return print_verification(done, as_json=json)


@command(
    operands=("image",),
    help={
        "image": "a .sif file",
        "new-key": "first make a key pair, for 'Your Name <you@example.org>'",
        "key": "a private key, a PEM file; by default Apptainer's keyring",
        "dry-run": "print the command lines and run nothing",
    },
)
def sign_image(
    c: Context,
    image: str | None = None,
    new_key: str = "",
    key: str = "",
    dry_run: bool = False,
) -> int:
    """Sign a .sif file, so that verify-image says who vouches for it: invoke sign-image IMAGE."""
    from containers.sign import sign_image as sign

    return sign(str(image), key=_path(key), new_key=new_key, dry_run=dry_run)


@command(
    operands=("a", "b"),
    help={
        "a": "a .sif file, a root folder or an OCI archive",
        "b": "another, of the same kind or not",
        "json": "write every difference there",
    },
)
def compare_images(c: Context, a: str | None = None, b: str | None = None, json: str = "") -> int:
    """Say how two images differ, file by file: invoke compare-images A B. Exit 1: they do."""
    from containers.compare import compare_images, print_comparison

    return print_comparison(compare_images(str(a), str(b)), json=_path(json))


@command(operands=("image",), help={"image": "an image; see verify-image"})
def sbom(c: Context, image: str | None = None) -> None:
    """Print the bill of materials that an image carries, in CycloneDX: invoke sbom IMAGE."""
    from containers.verify import print_sbom

    print_sbom(str(image))


@command(
    help={
        "ranks": "processes to launch and judge together; by default one, or all of --hosts",
        "hosts": HOSTS_HELP,
        "launcher": LAUNCHER_HELP,
        "timeout": "seconds after which a launch is given up",
        "allreduce": "also sum so many MiB over the ranks, and time it",
        "image": "validate inside this image",
        "stack": "hold the machine against this stack's lock; by default the image's or host's",
        "device": "auto, cpu or gpu: what training will ask for",
        "only": "comma-separated ids of the checks to run",
        "skip": "comma-separated ids of the checks to leave out",
        "silence": "ID=REASON: tell a known and accepted bad verdict as INFO; may be repeated",
        "explain": "say what this check reads, how it judges and what to do; run nothing",
        "json": "also write the report there",
        "junit": "also write it there as JUnit XML",
        "failed-hosts": "write the failing hosts there, for srun --exclude",
        "site": "hold the machine against this file of what a site expects",
        "record-site": "write such a file of this machine, which is known to be good",
        "fail-fast": "stop at the first failure",
        "oversubscribe": "allow more ranks than cores",
        "dry-run": "print the command lines and run nothing",
    },
    iterable=["silence"],
)
def validate_env(
    c: Context,
    ranks: int = UNSAID,
    hosts: str = "",
    launcher: str = "auto",
    timeout: int = 300,
    allreduce: int = 0,
    image: str = "",
    stack: str = "",
    device: str = "auto",
    only: str = "",
    skip: str = "",
    silence: list[str] | None = None,
    explain: str = "",
    json: str = "",
    junit: str = "",
    failed_hosts: str = "",
    site: str = "",
    record_site: str = "",
    fail_fast: bool = False,
    oversubscribe: bool = False,
    dry_run: bool = False,
) -> int:
    """Prove this machine: versions, MPI, binding, GPUs, memory; each failure with its fix."""
    from containers.hosts import parse_hosts
    from containers.job import Job
    from containers.preflight import Validation, validate

    if explain:
        from env.cli import main

        return main(["--explain", explain])
    given = {"--stack": stack, "--only": only, "--skip": skip}
    options = [token for name, value in given.items() if value for token in (name, value)]
    options += [token for value in silence or () for token in ("--silence", value)]
    outputs = {
        "--json": json, "--junit": junit, "--failed-hosts": failed_hosts,
        "--record-site": record_site,
    }  # fmt: skip
    _at_least(1, timeout=timeout)
    _at_least(0, allreduce=allreduce)
    validation = Validation(
        Job(_said(ranks), parse_hosts(hosts), launcher, oversubscribe, timeout_s=timeout),
        image=_enterable(image),
        device=device,
        outputs={option: Path(file) for option, file in outputs.items() if file},
        expectations=_path(site),
        options=(*options, "--fail-fast") if fail_fast else tuple(options),
        allreduce_mib=allreduce,
    )
    return validate(validation, dry_run=dry_run)


@command(
    help={
        "ranks": "processes on this machine; by default one a GPU, or one a memory node",
        "topology": "plan for the machine that lstopo --of xml recorded there",
        "device": "auto, cpu (leave the GPUs out) or gpu (there must be some)",
        "json": "also write the plan there; - prints it alone",
        "svg": "also draw sockets, cores, GPUs and ranks there",
    }
)
def plan_binding(
    c: Context,
    ranks: int = 0,
    topology: str = "",
    device: str = "auto",
    json: str = "",
    svg: str = "",
) -> None:
    """Show which cores, memory node and GPU each rank gets: table, picture, JSON."""
    from containers.binding import Request, show_plan

    show_plan(Request(ranks, _path(topology), device, json=_path(json), svg=_path(svg)))


@command(
    operands=("folder",),
    help={
        "folder": "NIH's files as downloaded, or prepared data",
        "json": "write all of it there as JSON too",
        "no-images": "do not open the images",
    },
)
def inspect_data(
    c: Context, folder: str | None = None, json: str = "", no_images: bool = False
) -> int:
    """Count films by finding, side and view, and say what is odd: invoke inspect-data DIR."""
    from chexnet.__main__ import main

    options = ["--json", json] if json else []
    return main(["inspect-data", str(folder), *options, *(["--no-images"] if no_images else [])])


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
    return main(["verify-data", str(folder), *options, "--sample", str(sample)])


@command(operands=("folder",), help={"folder": "holds train-*, validation-* and test-* files"})
def adopt_records(c: Context, folder: str | None = None) -> int:
    """Describe TFRecord files that others made, to train on them: invoke adopt-records DIR."""
    from chexnet.__main__ import main

    return main(["adopt-records", str(folder)])


@command(
    help={
        "data": "a prepared data folder; again for another format",
        "output": "the record, a JSON file",
        "batch-size": "images in a batch",
        "crop": "px cut out of each film; 0 for all of it",
        "rounds": "how often each case is measured",
        "gpu-rate": "images/s that one of your GPUs computes",
    },
    iterable=["data"],
)
def bench_pipeline(
    c: Context,
    data: list[str] | None = None,
    output: str = "",
    batch_size: int = 32,
    crop: int = 0,
    rounds: int = 3,
    gpu_rate: float = 700.0,
) -> None:
    """Measure what input this machine can feed, and say what stops it from more."""
    from benchmarks.pipeline import run_benchmark

    _required(data=" ".join(data or ()), output=output)
    run_benchmark(
        [Path(folder) for folder in data or ()], output=Path(output), batch_size=batch_size,
        crop=crop, rounds=rounds, gpu_rate=gpu_rate,
    )  # fmt: skip


@command(
    help={
        "output": "the record, a JSON file",
        "ranks": "processes on this machine",
        "rounds": "how often each mapping trains; the median counts",
        "images": "made-up films to train on",
    }
)
def bench_binding(
    c: Context, output: str = "", ranks: int = 2, rounds: int = 3, images: int = 2000
) -> None:
    """Compare --map-by socket, core, slot, none and the plan on a real short training."""
    from benchmarks.binding import run_benchmark

    _required(output=output)
    run_benchmark(Path(output), ranks=ranks, rounds=rounds, num_images=images)


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

    _required(output=output)
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
        "max-bad": "films that may be left out because unreadable; -1: 1 in 100",
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
    max_bad: int = -1,
    force: bool = False,
) -> None:
    """Turn a folder in NIH's layout into records that training reads fast."""
    from chexnet.quiet import quiet_import

    _required(source=source, output=output)
    with quiet_import():
        from chexnet.prepare import prepare_data as prepare
    prepare(
        Path(source),
        output=Path(output),
        split=split,
        lists=_path(lists),
        size_px=size,
        format=format,
        workers=workers or None,
        seed=seed,
        max_bad=None if max_bad < 0 else max_bad,
        force=force,
    )


@command(
    iterable=["set"],
    help={
        "data": "a folder made by prepare-data",
        "run": "a new run folder, or with --resume an old one",
        "ranks": "processes: one for each GPU, or for a share of the cores; all of --hosts",
        "hosts": HOSTS_HELP,
        "launcher": LAUNCHER_HELP,
        "timeout": "seconds after which a launch of the validation is given up",
        "image": "train inside this image",
        "resume": "go on from the last checkpoint",
        "config": "a configuration file (TOML or JSON)",
        "set": "KEY=VALUE, repeatable: one configuration key",
        "no-validate": "do not prove the machine first",
        "oversubscribe": "allow more ranks than cores",
        "dry-run": "print the command lines and run nothing",
    },
)
def train(
    c: Context,
    data: str = "",
    run: str = "",
    ranks: int = UNSAID,
    hosts: str = "",
    launcher: str = "auto",
    timeout: int = 300,
    image: str = "",
    resume: bool = False,
    config: str = "",
    set: list[str] | None = None,
    no_validate: bool = False,
    oversubscribe: bool = False,
    dry_run: bool = False,
) -> int:
    """Prove the machine, then train CheXNet on it with Horovod."""
    from containers.hosts import parse_hosts
    from containers.job import Job
    from containers.train import Training
    from containers.train import train as start

    _required(data=data, run=run)
    _at_least(1, timeout=timeout)
    training = Training(
        Path(data),
        Path(run),
        Job(_said(ranks), parse_hosts(hosts), launcher, oversubscribe, timeout_s=timeout),
        image=_enterable(image),
        config=_path(config),
        settings=tuple(set or ()),
        resume=resume,
        validate=not no_validate,
    )
    return start(training, dry_run=dry_run)


@command(
    help={
        "run": "a run folder",
        "split": "test, validation or train",
        "data": "prepared data, if not the run's own",
        "image": "evaluate inside this image",
        "dry-run": "print the command line and run nothing",
    }
)
def evaluate(
    c: Context,
    run: str = "",
    split: str = "test",
    data: str = "",
    image: str = "",
    dry_run: bool = False,
) -> int:
    """Score a run's best checkpoint: AUROC of each finding, and their mean."""
    from containers.train import evaluate as score

    _required(run=run)
    return score(Path(run), split=split, data=_path(data), image=_path(image), dry_run=dry_run)


@command(
    help={
        "output": "where everything goes; a demo that was interrupted goes on there",
        "ranks": "processes to train with",
        "images": "sample films to make",
        "epochs": "0: as many as the demo preset says",
        "dry-run": "print the command lines and run nothing",
    }
)
def demo(
    c: Context,
    output: str = "runs/demo",
    ranks: int = 2,
    images: int = 4000,
    epochs: int = 0,
    dry_run: bool = False,
) -> int:
    """Show the whole chain on made-up films: sample data, validate, train, evaluate."""
    from containers.demo import run_demo

    return run_demo(Path(output), ranks=ranks, num_images=images, epochs=epochs, dry_run=dry_run)
