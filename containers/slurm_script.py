"""Renders a Slurm job that proves its nodes, trains, and goes on after preemption and lost nodes.

Knows sbatch's options, Slurm's signals, and how each value is quoted so that no shell and no
option parser ever takes it apart. Leaves starting ranks inside the job to ``containers.launchers``
and submitting to ``containers.slurm_status``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from containers.weights import weights_folders
from env.errors import UserError
from env.stack import PROJECT

# sbatch reads its own lines by rules of its own: what stands there is plain or refused.
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:,@%/+=-]*\Z")
_TIME = re.compile(r"\d+(:\d\d){0,2}\Z|\d+-\d+(:\d\d){0,2}\Z")
_MEMORY = re.compile(r"\d+[KMGT]?\Z")
_ARRAY = re.compile(r"[1-9]\d*(,[1-9]\d*)*\Z")
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
# Enough for a step, a checkpoint of a large network and the launcher's end.
SIGNAL_S = 120
DEFAULT_TIME, DEFAULT_RESTARTS = "24:00:00", 10
PROGRAM = (f"{PROJECT}/env/bootstrap.sh", "invoke")


@dataclass(frozen=True)
class JobRequest:
    """What the user asked of ``slurm-script``.

    Attributes:
        data: a prepared data folder that every node sees.
        run: the run folder, on a file system that every node sees.
        nodes: hosts.
        gpus_per_node: GPUs and ranks of each; 0 trains on the CPUs.
        ranks_per_node: without GPUs, the ranks of each node; 0 for one.
        image: what the ranks run in, None for the environment of this checkout.
        cpus_per_gpu: cores of a rank.
        mem: memory of a node in Slurm's words; "0" for all of it.
        time: the time limit in Slurm's words.
        partition: where to queue; "" for the site's default.
        account: who pays; "" for the user's default.
        array: numbers of ranks, each an array task of its own; "" for one run with all.
        config: a configuration file.
        settings: configuration keys as ``key=value``.
        max_restarts: how often the job may be requeued.
        program: what calls this project's tasks on a node.
    """

    data: Path
    run: Path
    nodes: int = 1
    gpus_per_node: int = 0
    ranks_per_node: int = 0
    image: str = ""
    cpus_per_gpu: int = 4
    mem: str = "0"
    time: str = DEFAULT_TIME
    partition: str = ""
    account: str = ""
    array: str = ""
    config: Path | None = None
    settings: tuple[str, ...] = ()
    max_restarts: int = DEFAULT_RESTARTS
    program: tuple[str, ...] = PROGRAM

    @property
    def ranks_on_each(self) -> int:
        """Return the ranks of a node: one for each GPU."""
        return self.gpus_per_node or self.ranks_per_node or 1


def render_script(request: JobRequest, *, command: str = "invoke slurm-script …") -> str:
    """Return the text of the job, for sbatch and for who reads and edits it.

    Args:
        request: what was asked for.
        command: the command line that asks for it, told in the text.

    Raises:
        UserError: a value that cannot stand in a script, or that Slurm would not understand.
    """
    _refuse(request)
    words = {
        "what": _what(request),
        "command": " ".join(command.encode(errors="replace").decode().split()),
        "options": _options(request),
        "values": _values(request),
        "validate": _lines(_validation(request)).replace("\n", "\n  "),
        "train": _lines(_training(request)),
    }
    # Not str.format: values may hold braces. One pass, so that no value is looked at again.
    return re.sub(r"@(\w+)@", lambda match: words[match[1]], _SCRIPT)


def read_program(text: str) -> tuple[str, ...]:
    """Return the words of ``--program``, which a shell would read alike; `PROGRAM` for "".

    Raises:
        UserError: a quote is not closed.
    """
    try:
        return tuple(shlex.split(text)) or PROGRAM
    except ValueError as error:
        raise UserError("--program in words that a shell reads", found=f"{text!r}: {error}",
                        fix="close the quotes") from error  # fmt: skip


def _what(request: JobRequest) -> str:
    each, s = request.ranks_on_each, "s" if request.ranks_on_each > 1 else ""
    nodes = f"{request.nodes} node{'s' if request.nodes > 1 else ''}"
    return f"{nodes}, {each} {f'GPU{s} in' if request.gpus_per_node else f'rank{s} on'} each"


def _options(request: JobRequest) -> str:
    """Return sbatch's lines."""
    each = request.ranks_on_each
    options: dict[str, object] = {
        "job-name": job_name(request.run),
        "nodes": request.nodes,
        "ntasks-per-node": each,
        "cpus-per-task": request.cpus_per_gpu,
        **({"gpus-per-node": request.gpus_per_node} if request.gpus_per_node else {}),
        "mem": request.mem,
        "time": request.time,
        "signal": f"B:USR1@{SIGNAL_S}",
    }
    lines = [f"#SBATCH --{name}={value}" for name, value in options.items()]
    lines += ["#SBATCH --requeue", "#SBATCH --open-mode=append", "#SBATCH --output=chexnet-%j.out"]
    if request.array:
        lines.append(f"#SBATCH --array={request.array}%1")
    for name in ("partition", "account"):
        value = getattr(request, name)
        lines.append(f"#SBATCH --{name}={value}" if value else f"##SBATCH --{name}=NAME")
    return "\n".join(lines)


def job_name(run: Path) -> str:
    """Return the name of a run's job."""
    return f"chexnet-{_NOT_IN_A_NAME.sub('-', run.name)[:40]}"


def _values(request: JobRequest) -> str:
    """Return the lines that name what the script works on, each value quoted."""
    named = {"data": request.data, "run": request.run, "max_restarts": request.max_restarts}
    lines = [f"{name}={shlex.quote(str(value))}" for name, value in named.items()]
    lines.append(f"invoke=({shlex.join(request.program)})")
    if request.array:
        lines += [
            "# Each task of the array trains with so many ranks, in a folder of its own.",
            "run=$run/ranks-$SLURM_ARRAY_TASK_ID",
            "hosts=slurm:$SLURM_ARRAY_TASK_ID",
        ]
    else:
        lines.append("hosts=slurm")
    return "\n".join(lines)


def _validation(request: JobRequest) -> list[str]:
    """Return the words of the first step, quoted."""
    device = "gpu" if request.gpus_per_node else "cpu"
    # The run folder is made by now, here: a node that sees it shares it.
    seen = [*([request.config] if request.config else []),
            *weights_folders(request.config, request.settings)]  # fmt: skip
    needed = ['--see "$data" --see "$run"', *(f"--see {shlex.quote(str(one))}" for one in seen)]
    files = ['--failed-hosts "$failed"', '--json "$run/environment.json"']
    return [f'validate-env --hosts "$hosts" --device {device}', *_image(request), *needed,
            *files]  # fmt: skip


def _training(request: JobRequest) -> list[str]:
    """Return the words of the second step, quoted."""
    words = ['train --hosts "$hosts" --no-validate --resume', '--data "$data" --run "$run"']
    words += _image(request)
    if request.config:
        words.append(f"--config {shlex.quote(str(request.config))}")
    settings = list(request.settings)
    if not request.gpus_per_node and not any(text.startswith("device=") for text in settings):
        settings.append("device=cpu")
    return words + [f"--set {shlex.quote(text)}" for text in settings]


def _image(request: JobRequest) -> list[str]:
    return [f"--image {shlex.quote(request.image)}"] if request.image else []


def _lines(words: Sequence[str]) -> str:
    """Return a step's command over several lines, of words that are quoted."""
    return " \\\n  ".join((f'step "${{invoke[@]}}" {words[0]}', *words[1:]))


def _refuse(request: JobRequest) -> None:
    """Refuse what must not or cannot stand in the script."""
    texts = {"--data": str(request.data), "--run": str(request.run), "--image": request.image,
             "--config": str(request.config or "")}  # fmt: skip
    texts |= {f"--set {n}": text for n, text in enumerate(request.settings, start=1)}
    texts |= {f"the program's word {n}": text for n, text in enumerate(request.program, start=1)}
    for name, text in texts.items():
        if any(sign in text for sign in "\n\r\0") or not _is_text(text):
            raise UserError(f"{name} in one line of text", found=repr(text),
                            fix="rename it: a batch script is read line by line")  # fmt: skip
    forms: Mapping[str, tuple[re.Pattern[str], str]] = {
        "partition": (_PLAIN, "a name"), "account": (_PLAIN, "a name"),
        "time": (_TIME, "e.g. 24:00:00 or 2-12:00:00"), "mem": (_MEMORY, "e.g. 64G, or 0 for all"),
        "array": (_ARRAY, "numbers of ranks, e.g. 1,2,4"),
    }  # fmt: skip
    for name, (form, example) in forms.items():
        value = getattr(request, name)
        if not form.match(value) and (value or name in ("time", "mem")):
            raise UserError(f"--{name}: {example}", found=repr(value), fix="correct it")
    if request.gpus_per_node and request.ranks_per_node:
        raise UserError("--gpus-per-node, a rank for each, or --ranks-per-node", found="both",
                        fix="leave one of them out")  # fmt: skip
    most = request.nodes * request.ranks_on_each
    if request.array and max(map(int, request.array.split(","))) > most:
        raise UserError(
            f"--array of numbers up to {most}, the ranks of {request.nodes} nodes",
            found=request.array, fix="ask for more --nodes, or for fewer ranks",
        )  # fmt: skip


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a file name of other bytes, which no UTF-8 file can hold
        return False
    return True


_SCRIPT = r"""#!/bin/bash
# Trains CheXNet on @what@.
# Made by: @command@
# It is yours to edit. Submit it with `invoke submit FILE` (or sbatch FILE), look after it with
# `invoke status --run DIR`. More: docs/slurm.md
#
# What a site often wants otherwise: partition, account, time, memory (0: all of a node's).
# A line that begins with two # is off.
@options@

# What it works on. Every node sees these paths, this checkout and the image at the same place.
@values@

restart=${SLURM_RESTART_COUNT:-0}
# One task of an array has a name of its own: the number of the last one is that of them all.
job=$SLURM_JOB_ID
[ -z "${SLURM_ARRAY_JOB_ID:-}" ] || job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
mkdir -p -- "$run" || exit 1
exec >>"$run/slurm-$SLURM_JOB_ID-$restart.log" 2>&1
echo "job $SLURM_JOB_ID, start $restart, on $SLURM_JOB_NODELIST, $(date)"
failed=$(mktemp) || exit 1
trap 'rm -f -- "$failed"' EXIT

# Slurm sends USR1 to this script some time before the limit (--signal above), and to a job that is
# preempted, where the site has SlurmctldParameters=preempt_send_user_signal. The command that runs
# is told to stop: training writes a checkpoint and leaves, and the job is queued again. TERM alone
# is of somebody who wants its end (scancel): it is not queued again.
stopped=0 announced=0 child= early=
stop() {
  stopped=$((stopped + 1))
  if [ -n "$child" ]; then kill -TERM "$child" 2>/dev/null; else early=1; fi
}
trap 'announced=1; stop' USR1
trap stop TERM

# Runs a command so that a signal is seen at once; leaves its exit code in $code.
step() {
  local before
  "$@" & child=$!
  [ -z "$early" ] || kill -TERM "$child" 2>/dev/null
  while :; do
    before=$stopped
    wait "$child"; code=$?
    [ "$stopped" = "$before" ] && break
  done
  child=
}

# Queues this job again, without the nodes of $1; it goes on from the last checkpoint.
again() {
  local before
  if [ "$restart" -ge "$max_restarts" ]; then
    echo "not queued again: this was start $restart, and max_restarts is $max_restarts"
    exit "$code"
  fi
  trap '' USR1 TERM  # requeueing ends this script; the nodes to leave out are told after that
  before=$(scontrol show job --oneliner "$job" |
    sed -n 's/.* ExcNodeList=\([^ ]*\).*/\1/p')
  [ "$before" = "(null)" ] && before=
  scontrol requeue "$job" || exit 1
  if [ -n "$1" ]; then
    scontrol update JobId="$job" ExcNodeList="${before:+$before,}$1"
  fi
  exit 0
}

# Ends a job that a signal stopped.
leave() {
  if [ "$announced" != 0 ]; then
    echo "stopped: queueing again"
    again ""
  fi
  [ "$code" != 0 ] || code=143
  echo "ended by TERM: not queued again"
  exit "$code"
}

prove() {
  : >"$failed"
  @validate@
}

# Queues the job again without the nodes that failed, if there are some to leave out.
leave_out() {
  local nodes names total=${SLURM_JOB_NUM_NODES:-1}
  nodes=$(cat -- "$failed")
  [ -n "$nodes" ] || return 0
  IFS=, read -ra names <<<"$nodes"
  if [ "$total" -gt 1 ] && [ "${#names[@]}" -ge "$total" ]; then
    echo "all $total nodes failed: $nodes; not queued again, since others would fail alike"
    return 0
  fi
  echo "nodes that failed: $nodes"
  again "$nodes"
}

# 1. Prove the nodes. Those that fail are left out when the job is queued again.
prove
[ "$stopped" = 0 ] || leave
if [ "$code" != 0 ]; then
  leave_out
  exit "$code"
fi

# 2. Train, from the last checkpoint if there is one. 75 says: stopped, with a checkpoint.
@train@
if [ "$code" != 0 ] && [ "$stopped" != 0 ]; then
  leave
elif [ "$code" = 75 ]; then
  echo "stopped: queueing again"
  again ""
elif [ "$code" = 1 ]; then
  # A node that was lost meanwhile fails its proof now.
  echo "training failed: looking at the nodes once more"
  prove
  if [ "$code" != 0 ] && [ "$stopped" = 0 ]; then leave_out; fi
  code=1
fi
exit "$code"
"""
