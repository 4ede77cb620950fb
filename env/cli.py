"""The command line of ``python -m env``: parse, observe, judge, print, exit code.

Knows the options and their help. Leaves all work to ``env.validate``, ``env.report``
and ``env.probes.rank``.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from env.atomic import write_text
from env.binding import load_plan
from env.checks.evidence import Evidence
from env.checks.registry import find_check, known_checks
from env.checks.table import render_table
from env.errors import UserError
from env.facts import Fact, Facts, load_facts, render_facts
from env.junit import render_junit
from env.launched import plan_look
from env.pack import write_pack
from env.probes.frameworks import IMPORT_TIMEOUT_S
from env.probes.rank import observe_rank
from env.records import load_launch, load_records, print_record, record_path
from env.report import Report, print_text, render_json
from env.site import load_site, record_site, render_site
from env.symptoms import render_symptoms
from env.validate import (
    PROBES,
    collect_static,
    count_ranks,
    device_of,
    find_lock,
    judge,
    select_checks,
)

_VALIDATE = """\
Say whether this machine can train: observe it, hold it against the lock, tell.

Without --records one process on this host is judged (the static phase). With it, the
records that the ranks of a launch left are judged as well (the launched phase).
"""
_EXAMPLES = """\
examples:
  python -m env                                    this host, against its stack's lock
  python -m env --only mpi.library,mpi.version     two checks; no others are made
  python -m env --list                             the checks
  python -m env --explain mpi.library              what a check reads and how to cure it
  mpirun -np 2 python -m env rank --records DIR    each rank writes what it sees
  python -m env --records DIR --ranks 2            ... and all of it is judged
  python -m env --node --failed-hosts FILE         a node before a job, as a prolog does
  python -m env pack                               env.pyz, for nodes that have only Python

exit codes: 0 good, 1 a check failed, 2 wrong use, 3 a required check could not tell
"""
_RANK = """\
Say what this process sees: in DIR/rank-NNNNN.json, or in lines of its output. A launcher starts
it once a rank; all of them join once through Horovod, in a child with a time limit.
"""
_PACK = """\
Write one file that validates a node which has Python 3.11 or later and nothing else:
python3 env.pyz --node. It takes the options of python -m env.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        if argv[:1] == ["rank"]:
            return _rank(argv[1:])
        if argv[:1] == ["pack"]:
            return _pack(argv[1:])
        return _validate(argv[1:] if argv[:1] == ["validate"] else argv)
    except UserError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _silence(text: str) -> tuple[str, str]:
    name, _, reason = text.partition("=")
    if not reason.strip():
        fix = "say why it is accepted, e.g. 'memory.shm=one rank a host'"
        raise UserError("--silence ID=REASON, with a reason", found=repr(text), fix=fix)
    find_check(name.strip())
    return name.strip(), reason.strip()


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"at least 1, not {number}")
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m env [validate]", description=_VALIDATE, epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    # fmt: off
    add("--ranks", type=_at_least_one, metavar="N",
        help="ranks the training will have (default: the plan's, else the records', else 1)")
    add("--stack", metavar="S", help="hold the machine against this stack of env/stacks.toml")
    add("--lock", type=Path, metavar="FILE",
        help="the lock (default: $CHEXNET_LOCK, the image's, else that of the host's stack)")
    add("--plan", type=Path, metavar="FILE", help="the binding plan that the ranks should follow")
    add("--records", type=Path, metavar="DIR", help="judge the rank records of this folder as well")
    add("--static", action="store_true", help="the static phase alone, on every host of --records")
    add("--save-facts", type=Path, metavar="FILE", help="keep what the static phase observed")
    add("--facts", type=Path, metavar="FILE", help="judge facts kept so, instead of observing anew")
    add("--device", choices=("auto", "cpu", "gpu"), default="auto",
        help="what will compute; auto follows the stack, and a GPU stack without GPU fails")
    add("--only", type=_names, default=[], metavar="ID,…", help="run these checks alone")
    add("--skip", type=_names, default=[], metavar="ID,…", help="leave these checks out")
    add("--node", action="store_true",
        help="judge the bare node alone: no Python packages, TensorFlow, Horovod or MPI")
    add("--silence", type=_silence, action="append", default=[], metavar="ID=REASON",
        help="tell a known and accepted bad verdict as INFO; may be repeated")
    add("--site", type=Path, metavar="FILE", help="hold the machine against this site's nodes")
    add("--record-site", type=Path, metavar="FILE",
        help="write down what other nodes should show like this one, which is known to be good")
    add("--quiet-pass", action="store_true", help="print FAIL, UNKNOWN and WARN only, or nothing")
    add("--fail-fast", action="store_true", help="stop after the first FAIL")
    add("--json", metavar="FILE", help="write the report as JSON; - prints it instead of the text")
    add("--junit", type=Path, metavar="FILE", help="write the report as JUnit XML as well")
    add("--failed-hosts", type=Path, metavar="FILE",
        help="write the names of failing hosts, joined by commas, for srun --exclude")
    add("--list", action="store_true", help="list the checks and stop")
    add("--table", action="store_true", help="print the page docs/checks.md and stop")
    add("--symptoms", action="store_true", help="print the page docs/troubleshooting.md and stop")
    add("--explain", metavar="ID", help="say what a check reads, how it judges, what to do; stop")
    # fmt: on
    return parser


def _validate(argv: list[str]) -> int:
    args = _parser().parse_args(argv)
    if args.list or args.explain or args.table or args.symptoms:
        page = render_table() if args.table else render_symptoms() if args.symptoms else _list()
        _say(f"{_explain(args.explain) if args.explain else page}\n")
        return 0
    checks, skipped = select_checks(
        only=args.only, skip=args.skip, launched=args.records is not None and not args.static,
        later=args.save_facts is not None or args.static, node=args.node,
    )  # fmt: skip
    _, lock = find_lock(lock=args.lock, stack=args.stack)
    plan = load_plan(args.plan) if args.plan else None
    ranks = load_records(args.records) if args.records else {}
    facts = load_facts(args.facts) if args.facts else collect_static(checks)
    facts |= load_launch(args.records) if args.records else {}
    if args.save_facts:
        _write(args.save_facts, render_facts(facts))
    if args.record_site:
        _write(args.record_site, render_site(record_site(facts)))
    # A bare node is not there for the stack that happens to fit its distribution.
    named = args.stack or args.lock or not args.node
    stack_device = device_of(lock) if named else None
    evidence = Evidence(
        facts=facts,
        num_ranks=args.ranks or (len(plan.ranks) if plan else count_ranks(ranks)),
        ranks=ranks, lock=lock, plan=plan, device=args.device, stack_device=stack_device,
        site=load_site(args.site) if args.site else None,
    )  # fmt: skip
    report = judge(
        evidence, checks=checks, skipped=skipped, silenced=dict(args.silence),
        fail_fast=args.fail_fast,
    )  # fmt: skip
    _write_forms(report, args)
    if args.json == "-":
        _say(render_json(report))
    else:
        _say(partial(print_text, report, only_bad=args.quiet_pass))
    return report.exit_code


def _write_forms(report: Report, args: argparse.Namespace) -> None:
    """Write the report in every form that was asked for, in files."""
    if args.json and args.json != "-":
        _write(Path(args.json), render_json(report))
    if args.junit:
        _write(args.junit, render_junit(report))
    if args.failed_hosts:
        _write(args.failed_hosts, ",".join(report.failed_hosts) + "\n")


def _rank(argv: list[str]) -> int:
    args = _rank_parser().parse_args(argv)
    checks, _ = select_checks(only=args.only, skip=args.skip, launched=not args.static, later=True)
    look = plan_look(
        checks, probes=PROBES, only=args.probes, of_host=args.hosts_but is not None,
        except_boot=args.hosts_but, paths=args.see, allreduce_mib=args.allreduce,
        timeout_s=args.time_limit,
    )  # fmt: skip
    try:
        path, lock = find_lock(lock=args.lock, stack=None)
        sha256 = Fact(lock.sha256 if lock else None, str(path))
    except UserError as error:  # the other ranks wait for this one: report, do not stop
        sha256 = Fact(None, str(args.lock), problem=error.found)
    facts = Facts()
    for part in observe_rank(look, lock_sha256=sha256):
        facts |= part
        if args.records is None:
            print_record(part, write=_write_bytes)
        else:
            _write(record_path(args.records, rank=facts["launch.rank"].value), render_facts(facts))
    return 0


def _rank_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m env rank", description=_RANK)
    add = parser.add_argument
    # fmt: off
    add("--records", type=Path, metavar="DIR",
        help="a folder that all ranks share; without it the record is printed, in lines that "
             "whoever launched the ranks collects")
    add("--lock", type=Path, metavar="FILE", help="the lock this rank should have before it")
    add("--only", type=_names, default=[], metavar="ID,…", help="observe for these checks alone")
    add("--skip", type=_names, default=[], metavar="ID,…", help="do not observe for these checks")
    add("--probes", type=_names, metavar="NAME,…",
        help="observe with these probes whatever the checks read, and join nobody")
    add("--hosts-but", metavar="BOOT_ID",
        help="observe on each host what the static phase does, but on that of this boot id")
    add("--static", action="store_true",
        help="observe for the static phase alone, and join nobody")
    add("--see", type=Path, action="append", default=[], metavar="PATH",
        help="say whether this file or folder is there; may be repeated")
    add("--allreduce", type=int, default=0, metavar="MIB",
        help="sum so many MiB over the ranks, and time it")
    add("--time-limit", type=float, default=IMPORT_TIMEOUT_S, metavar="SECONDS",
        help="how long to wait for the other ranks (default %(default)g)")
    # fmt: on
    return parser


def _pack(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m env pack", description=_PACK)
    parser.add_argument("--output", type=Path, default=Path("env.pyz"), metavar="FILE",
                        help="the file to write (default: %(default)s)")  # fmt: skip
    args = parser.parse_args(argv)
    write_pack(args.output)
    _say(f"{args.output}\n")
    return 0


def _list() -> str:
    checks = known_checks().values()
    width = max(len(one.id) for one in checks)
    return "\n".join(f"{one.id:<{width}}  {one.phase:<8}  {one.title}" for one in checks)


def _explain(name: str) -> str:
    one = find_check(name)
    need = "must be able to tell" if one.required else "UNKNOWN does not stop a training"
    return (
        f"{one.id}: {one.title}\n\nphase:    {one.phase}; {need}\nreads:    {', '.join(one.reads)}"
        f"\n\n{one.verdicts}\n\nUNKNOWN if a fact could not be read.\n\nfix:      {one.fix}"
    )


def _say(what: str | Callable[..., None]) -> None:
    """Print a text, or what writes to a ``stream``; whoever has gone (``| head``) has read enough.

    Raises:
        UserError: standard output takes no more. A closed one is nobody's, and gets nothing.
    """
    if sys.stdout is None:
        return
    try:
        if callable(what):
            what(stream=sys.stdout)
        else:
            sys.stdout.write(what)
        sys.stdout.flush()
    except OSError as error:
        # What is still in the buffer must not be tried again when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise _full_output(error) from error


def _write_bytes(data: bytes) -> None:
    try:
        os.write(1, data)
    except OSError as error:
        raise _full_output(error) from error


def _full_output(error: OSError) -> UserError:
    fix = "redirect it to a file system with room, or to /dev/null; --json FILE writes a file"
    return UserError("a standard output to print to", found=error.strerror or repr(error), fix=fix)


def _write(path: Path, text: str) -> None:
    try:
        write_text(path, text)
    except OSError as error:
        fix = "name a file in a folder you may write to"
        raise UserError("a place to write to", found=f"{path}: {error}", fix=fix) from error
