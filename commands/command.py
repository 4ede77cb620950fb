"""What every task shares: mistakes told without a traceback, help, options.

Knows how a function becomes an Invoke task. Leaves the tasks to the modules beside it.
"""

from __future__ import annotations

import functools
import os
import re
import signal
import sys
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from invoke import Argument, Exit, Program, Task, task
from invoke.parser.parser import ParseMachine

from chexnet.files import NO_ROOM
from env.errors import UserError
from env.stack import PROJECT

UNSAID = -1  # of an option that takes a number: Invoke infers its type from a default

HOSTS_HELP = "where the ranks run: NAME:RANKS,… in this order; slurm for those of the Slurm job"
LAUNCHER_HELP = (
    "auto, local (one rank), mpirun, srun or horovodrun; auto takes srun for --hosts inside a "
    "Slurm job, else mpirun"
)


class _Help(Argument):
    """``--help`` of a task with operands, for the first of which Invoke would take it."""

    def __init__(self, name: str) -> None:
        super().__init__(name="help", kind=bool, default=False, help="show this page")
        self._task = name

    def set_value(self, value: Any, cast: bool = True) -> None:
        """Print the page and leave; the parser calls this as soon as it sees the word."""
        Program().run(["invoke", "--search-root", str(PROJECT), "--help", self._task])


class _Number(Argument):
    """An option that takes a number: another word is told like any mistake."""

    def set_value(self, value: Any, cast: bool = True) -> None:
        """Take the value as the parser reads it."""
        try:
            super().set_value(value, cast)
        except ValueError as error:
            found = f"--{self.name.replace('_', '-')} {value!r}"
            what = "a whole number" if self.kind is int else "a number"
            raise _exit(what, found, "give it in digits; see --help") from error


class _Several(Argument):
    """An option that takes every word up to the next option: ``--compare A B C``."""

    def __init__(self, names: tuple[str, ...], *, help: str | None, attr_name: str | None) -> None:
        super().__init__(names=names, kind=list, optional=True, help=help, attr_name=attr_name)

    @property
    def raw_value(self) -> None:
        """Say that nothing was given yet, so that the parser goes on giving words."""
        return None

    @raw_value.setter
    def raw_value(self, value: Any) -> None:
        """Leave the words to `set_value`."""

    def set_value(self, value: Any, cast: bool = True) -> None:
        """Take one more word; the parser says True where the words end."""
        if value is not True:
            super().set_value(value, cast)


class _Task(Task):
    several: tuple[str, ...] = ()

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """Return the task's own arguments."""
        return [
            _Several(one.names, help=one.help, attr_name=one.attr_name)
            if one.name in self.several
            else _told(one)
            for one in super().get_arguments(ignore_unknown_help)
        ]


def _told(one: Argument) -> Argument:
    if one.kind not in (int, float):
        return one
    return _Number(names=one.names, kind=one.kind, default=one.default, help=one.help,
                   attr_name=one.attr_name)  # fmt: skip


class _TaskWithOperands(_Task):
    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """Return the task's own arguments, and its help."""
        return [*super().get_arguments(ignore_unknown_help), _Help(self.name.replace("_", "-"))]


def command(
    operands: tuple[str, ...] = (), several: tuple[str, ...] = (), **options: Any
) -> Callable[[Callable[..., int | None]], Any]:
    """Make an Invoke task whose user errors print without a traceback.

    The function's return value is the exit code; None means 0. A task takes named options,
    and operands without a name only where they are listed. Options in ``several`` take every
    word up to the next option.
    """

    def decorate(function: Callable[..., int | None]) -> Any:
        @functools.wraps(function)
        def body(*args: Any, **kwargs: Any) -> None:
            kwargs.pop("help", None)
            _fill_standard_files()
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
                if error.errno in NO_ROOM:
                    fix = "make room there, then run the command again"
                    raise _exit("room on the disk", found, fix, code=1) from error
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
        made = task(klass=kind, positional=operands, auto_shortflags=False, **options)(body)
        made.several = several
        return made

    return decorate


def _exit(expected: str, found: str, fix: str, *, code: int = 2) -> Exit:
    return Exit(str(UserError(expected, found=found, fix=fix)), code=code)


def _fill_standard_files() -> None:
    """Open what was closed before the start, lest a file of ours take its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            handle = os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
            os.set_inheritable(handle, True)
            setattr(sys, name, os.fdopen(handle, "w" if number else "r", closefd=False))


def refuse_words(machine: ParseMachine, message: str) -> NoReturn:
    """Tell what Invoke's parser does not take like any mistake; it would exit with 1 by itself.

    Args:
        machine: the parser, at the word.
        message: what Invoke says of it.

    Raises:
        Exit: always.
    """
    name = machine.context.name if machine.context else None
    said = re.sub(r"<Argument: ([\w-]+).*?>", lambda match: f"--{match[1]}", message)
    word = re.search(r"'([^']+)' is!", said)
    known = [*machine.context.flags, *machine.contexts] if machine.context else machine.contexts
    close = get_close_matches(word[1], known, n=1) if word else []
    fix = f"invoke {name} --help" if name else "invoke --list"
    raise _exit(f"words that invoke {name} takes" if name else "a task of invoke --list", said,
                f"write {close[0]}; see {fix}" if close else f"see {fix}")  # fmt: skip


def required(**values: str | None) -> None:
    """Refuse a command whose options without a default were left out."""
    missing = [f"--{name.replace('_', '-')}" for name, value in values.items() if not value]
    if missing:
        raise UserError(f"{' and '.join(missing)}", found="nothing", fix="add it; see --help")


def one_of(**values: object) -> None:
    """Refuse a command that was asked several questions: it would answer the first alone."""
    said = [f"--{name}" for name, value in values.items() if value]
    if len(said) > 1:
        raise UserError(f"one of {', '.join(f'--{name}' for name in values)}",
                        found=" and ".join(said), fix="run it once for each")  # fmt: skip


def at_least(least: int, **values: int) -> None:
    """Refuse numbers that are too small."""
    for name, value in values.items():
        if value < least:
            option = name.replace("_", "-")
            raise UserError(f"--{option} of {least} or more", found=str(value), fix="see --help")


def said(number: int) -> int | None:
    """Return a number that was given, None for one that was left out."""
    return None if number == UNSAID else number


def enterable(image: str) -> Path | None:
    """Return the path of an image that commands can run in, None for none.

    Raises:
        UserError: it is no such image.
    """
    # Imported only here: what looks into images needs hpccm, which images do not hold.
    if not image:
        return None
    from containers.image import need_enterable

    return need_enterable(Path(image))


def optional_path(value: str | None) -> Path | None:
    """Return a path that was given, None for one that was left out."""
    return Path(value) if value else None
