"""The command line of the training program: ``python -m chexnet VERB``.

Knows the verbs, their options, and how an error becomes a message and an exit code.
Leaves the work to the modules. A launcher starts the same line on every rank; alone, it
is one rank.
"""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from chexnet import __version__
from chexnet.data.data_verbs import add_data_verbs
from chexnet.errors import EXIT_FAILED, EXIT_GOOD, EXIT_REQUEUE, UserError
from chexnet.networks.model_verbs import add_model_verbs
from chexnet.pages.report_verbs import add_report_verbs
from chexnet.prediction.predict_verbs import add_predict_verbs
from chexnet.results.result_verbs import add_result_verbs
from chexnet.training.ending import end_now
from chexnet.training.train_verbs import add_train_verbs

# How many ranks there are and which this is, before Horovod is there to ask.
RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "HOROVOD_RANK", "SLURM_PROCID")
# Of a file that is open: the error does not name it.
_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# What a shell says of a program that SIGPIPE ended.
EXIT_PIPE = 128 + signal.SIGPIPE
SIZE_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "HOROVOD_SIZE", "SLURM_NTASKS")


def main(words: Sequence[str] | None = None) -> int:
    """Run a verb and return the exit code of the program.

    Args:
        words: the command line without the program's name; the process's by default.
    """
    arguments = make_parser().parse_args(words)
    try:
        arguments.work(arguments)
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as error:
        # Rich ends the program where the reader has gone.
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        return _end_quietly()
    except (Exception, KeyboardInterrupt) as error:
        message, code = _explain(error)
        training = arguments.run if arguments.verb == "train" else None
        return _stop(message, code=code, training=training)
    return EXIT_GOOD


def _explain(error: BaseException) -> tuple[str, int]:
    """Return what to print of the error that is being handled, and the exit code."""
    if isinstance(error, UserError):
        return str(error), error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return "stopped by ctrl-C", EXIT_FAILED
    if isinstance(error, OSError) and (error.filename or error.errno in _OF_THE_DISK):
        message = UserError(
            "files and folders that can be read and written",
            found=f"{error.filename2 or error.filename or 'a file'}: {error.strerror}",
            fix="correct the path, its rights or the room on its disk, and run the command again",
        )
        return str(message), EXIT_FAILED
    return traceback.format_exc().rstrip(), EXIT_FAILED


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m chexnet",
        description="Train CheXNet on chest films, on one or many ranks.",
        epilog="First make-sample-data or NIH's files, then prepare-data, train, evaluate. "
        "Several ranks: mpirun -np 2 python -m chexnet train ...",
    )
    parser.add_argument("--version", action="version", version=__version__)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    add_train_verbs(verbs)
    add_result_verbs(verbs)
    add_data_verbs(verbs)
    add_model_verbs(verbs)
    add_predict_verbs(verbs)
    add_report_verbs(verbs)
    return parser


def _stop(message: str, *, code: int, training: Path | None) -> int:
    """Print why the program stops, once for all ranks, and return the exit code.

    With several ranks the process ends here and at once: the launcher then ends the
    others, which may be waiting for this one in an allreduce. Most errors are met by all
    ranks; rank 0 tells them, and another rank speaks only if it is still there a moment
    later, because rank 0 did not meet the error.
    """
    rank = _read_number(RANK_VARIABLES, default=0)
    if _read_number(SIZE_VARIABLES, default=1) == 1:
        print(message, file=sys.stderr)
        return code
    if code == EXIT_REQUEUE:
        # All stop together and rank 0 says why: the launcher, which asks the others to end once
        # one has, must not end them with another code.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if rank:
            time.sleep(0.5)
            end_now(code)
    if rank:
        time.sleep(2)
        # Rank 0 waits for this one in an allreduce and cannot write any more.
        if training and code == EXIT_FAILED:  # not where it was refused: the run is another's
            _record_end(training, message)
        message = f"rank {rank}: {message}"
    print(message, file=sys.stderr)
    end_now(code)


def _end_quietly() -> int:
    """End as programs do whose reader has gone, `head` for one: without a word."""
    if _read_number(SIZE_VARIABLES, default=1) > 1:
        end_now(EXIT_PIPE)
    # Else Python complains of it once more at the end.
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_PIPE


def _record_end(run: Path, message: str) -> None:
    """Say in the record of a run why it stopped, unless rank 0 has."""
    from chexnet.training.run_record import FAILED, end_record

    with suppress(OSError, UserError):
        end_record(run, status=FAILED, error=message)


def _read_number(variables: Sequence[str], *, default: int) -> int:
    values = (os.environ.get(name, "") for name in variables)
    return next((int(value) for value in values if value.isdigit()), default)


if __name__ == "__main__":
    sys.exit(main())
