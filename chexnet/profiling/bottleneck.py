"""What limits a training, judged from measured times. Pure arithmetic.

Knows how the time of a step is shared out between films, computing, exchange and the fixed cost
of starting operations, at which share something limits, and what to do then. Leaves measuring to
``profile`` and showing to ``profile_text``.

A step is measured three ways: as it is, with one batch kept in memory, and with another batch
size. What is left out of the second is input; the exchange is measured alone; and what remains of
a step when the batch shrinks to nothing (a line through two batch sizes) is the fixed cost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from chexnet.training.speed import STEPS_PER_CALL

INPUT, COMMUNICATION, LAUNCH, COMPUTE = KINDS = (
    "input-bound", "communication-bound", "launch-bound", "compute-bound",
)  # fmt: skip
# From which share of a step on something limits it.
# Input: MLPerf Storage asks that accelerators are busy for 90 % of the time.
# Communication: below three quarters of the step, more ranks hardly pay.
# Launch: from here on half the batch takes more than 0.8 of the time.
LIMITS = {INPUT: 0.10, COMMUNICATION: 0.25, LAUNCH: 0.60}
# Below it, a step that is slower than with films in memory was not waiting for them: its input
# takes the cores that it computes on, which has to be plain to be told from noise.
_LEAST_WAIT = 0.03
_PLAIN = 0.30
MOST_STEPS = 3


@dataclass(frozen=True)
class Times:
    """Measured times of a step, medians over blocks of steps and means over ranks.

    Attributes:
        ranks: how many train together.
        batch_size: films of a rank in a step, those of all its batches.
        pipeline: what fed the steps, one of `chexnet.input.fitting.PIPELINES`.
        device: ``cpu`` or ``gpu``.
        precision: of the computation.
        xla: ``on`` or ``off``.
        steps_per_call: steps in one call of the compiled loop.
        accumulation_steps: batches of a rank in a step.
        compression: of what crosses, ``fp16`` or ``none``.
        batch_statistics: of batch normalisation, ``local`` or ``global``.
        threads: cores of a rank.
        step_s: of a step with films from the pipeline, s.
        wait_s: of that, spent waiting for films, on the rank that waits longest.
        memory_step_s: of a step with one batch kept in memory.
        exchange_s: of the exchange of gradients alone; 0 on one rank.
        exchange_mib: what crosses of the gradients of a rank, MiB.
        other_batch_size: films of the other batch.
        other_step_s: of a step with such a batch in memory.
        gpu_use: 0 .. 1, mean over the ranks' GPUs while they trained; None without any.
    """

    ranks: int
    batch_size: int
    pipeline: str
    device: str
    precision: str
    xla: str
    steps_per_call: int
    accumulation_steps: int
    compression: str
    batch_statistics: str
    threads: int
    step_s: float
    wait_s: float
    memory_step_s: float
    exchange_s: float
    exchange_mib: float
    other_batch_size: int
    other_step_s: float
    gpu_use: float | None = None

    @property
    def images_per_s(self) -> float:
        """Return the films of all ranks together."""
        return self.ranks * self.batch_size / self.step_s

    @property
    def crossing_statistics(self) -> bool:
        """Return whether batch normalisation exchanges within the step, which XLA refuses."""
        return self.batch_statistics == "global" and self.ranks > 1

    @property
    def may_compile(self) -> bool:
        """Return whether ``xla=on`` is a change, and one that is taken."""
        return self.xla != "on" and not self.crossing_statistics


@dataclass(frozen=True)
class Shares:
    """Where the time of a step goes; they add up to 1.

    Attributes:
        input: it would be saved if films were in memory.
        exchange: of gradients between ranks.
        fixed: what a step of no films would take: starting operations, one after the other.
        compute: the rest, which grows with the batch.
    """

    input: float
    exchange: float
    fixed: float
    compute: float


@dataclass(frozen=True)
class Verdict:
    """What limits a training.

    Attributes:
        kind: one of `KINDS`.
        reason: in one sentence, with its numbers.
        shares: where the time of a step goes.
        next_steps: what to do, the most useful first; at most three.
    """

    kind: str
    reason: str
    shares: Shares
    next_steps: tuple[str, ...]


def share_time(times: Times) -> Shares:
    """Return where the time of a step goes.

    The fixed cost is that of computing alone: a step in memory less the exchange, extended along
    the line through both batch sizes to a batch of none.
    """
    step = times.step_s
    lost = max(0.0, step - times.memory_step_s)
    if times.wait_s < _LEAST_WAIT * step and lost < _PLAIN * step:
        lost = 0.0  # noise: nothing was waited for
    left = step - lost
    exchange = min(times.exchange_s, left) if times.ranks > 1 else 0.0
    alone = max(times.memory_step_s - exchange, 0.0)
    other = max(times.other_step_s - exchange, 0.0)
    per_film = (other - alone) / (times.other_batch_size - times.batch_size)
    fixed = alone - max(per_film, 0.0) * times.batch_size
    fixed = min(max(fixed, 0.0), left - exchange)
    return Shares(lost / step, exchange / step, fixed / step, (left - exchange - fixed) / step)


def judge(times: Times) -> Verdict:
    """Return what limits a training: the largest share of those that reach their limit."""
    shares = share_time(times)
    known = {INPUT: shares.input, COMMUNICATION: shares.exchange}
    # Of computing alone: where films or ranks are waited for, that is told instead.
    alone = shares.fixed + shares.compute
    known[LAUNCH] = shares.fixed if alone and shares.fixed / alone >= LIMITS[LAUNCH] else 0.0
    limiting = [one for one, share in known.items() if share and share >= _limit(one, alone)]
    kind = max(limiting, key=lambda one: known[one]) if limiting else COMPUTE
    return Verdict(kind, _REASONS[kind](times, shares), shares, _advise(kind, times, shares))


def _limit(kind: str, alone: float) -> float:
    return LIMITS[kind] * alone if kind == LAUNCH else LIMITS[kind]


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms"


def _tell_input(times: Times, shares: Shares) -> str:
    return (
        f"a step takes {_ms(times.step_s)}, and {_ms(times.memory_step_s)} with the films in "
        f"memory: {shares.input:.0%} of it goes to input (waiting: {_ms(times.wait_s)})"
    )


def _tell_exchange(times: Times, shares: Shares) -> str:
    rate = times.exchange_mib / 1024 / times.exchange_s
    return (
        f"adding up {times.exchange_mib:.3g} MiB of gradients over {times.ranks} ranks takes "
        f"{_ms(times.exchange_s)} ({rate:.2g} GiB/s), {shares.exchange:.0%} of a step of "
        f"{_ms(times.step_s)}"
    )


def _tell_fixed(times: Times, shares: Shares) -> str:
    return (
        f"a step takes {_ms(times.memory_step_s)} for {times.batch_size} films and "
        f"{_ms(times.other_step_s)} for {times.other_batch_size}: {shares.fixed:.0%} of it does "
        "not grow with the batch"
    )


def _tell_compute(times: Times, shares: Shares) -> str:
    return (
        f"{shares.compute:.0%} of a step of {_ms(times.step_s)} is computing that grows with the "
        f"batch; input takes {shares.input:.0%}, the exchange {shares.exchange:.0%}, fixed costs "
        f"{shares.fixed:.0%}"
    )


_REASONS: dict[str, Callable[[Times, Shares], str]] = {
    INPUT: _tell_input,
    COMMUNICATION: _tell_exchange,
    LAUNCH: _tell_fixed,
    COMPUTE: _tell_compute,
}


def _advise(kind: str, times: Times, shares: Shares) -> tuple[str, ...]:
    """Return what helps against the verdict, then against the next largest shares."""
    by_share = sorted(
        ((shares.input, INPUT), (shares.exchange, COMMUNICATION), (shares.fixed, LAUNCH)),
        reverse=True,
    )
    order = [kind, *(one for share, one in by_share if one != kind and share >= 0.02)]
    if kind != COMPUTE:
        order.append(COMPUTE)
    first = _ADVICE[kind](times, shares)
    others = [_ADVICE[one](times, shares)[0] for one in order[1:]]
    # Two against what limits, one against what would limit next.
    advice = [*first[:2], *others[:1], *first[2:], *others[1:]]
    return tuple(advice[:MOST_STEPS])


def _faster(share: float) -> str:
    """Return what a step would gain without a share of its time."""
    return f"up to {1 / max(1 - share, 0.01):.1f} times the images/s"


def _advise_input(times: Times, shares: Shares) -> list[str]:
    by_pipeline = {
        "old": "set pipeline=new, or better prepare the data with --format fast",
        "new": "prepare the data with --format fast, which needs no decoding",
        "dali": "prepare the data with --format fast, which needs no decoding",
        "fast": "put the data on a local disk or in memory (/dev/shm)",
    }
    return [
        f"{by_pipeline[times.pipeline]}: {_faster(shares.input)}",
        f"give each rank more than its {times.threads} cores; each must feed "
        f"{times.batch_size / times.memory_step_s:.0f} films/s and feeds "
        f"{times.batch_size / times.step_s:.0f}",
        "measure what this machine can feed: invoke bench-pipeline",
    ]


def _advise_exchange(times: Times, shares: Shares) -> list[str]:
    advice = [
        f"--set accumulation_steps={4 * times.accumulation_steps} exchanges a quarter as often: "
        f"{_faster(0.75 * shares.exchange)} ({4 * times.ranks * times.batch_size} films a step)"
    ]
    if times.compression == "none":
        mib = times.exchange_mib
        advice.append(
            f"--set compression=fp16 halves what crosses: {mib / 2:.3g} MiB instead of {mib:.3g}"
        )
    advice.append("look for a rank that comes late or a slow network: timeline.json, "
                  "invoke bench-allreduce, invoke validate-env")  # fmt: skip
    return advice


def _advise_fixed(times: Times, shares: Shares) -> list[str]:
    batch = 4 * times.batch_size // times.accumulation_steps
    advice = [f"--set batch_size={batch}: fixed costs of {shares.fixed:.0%} of a step are shared "
              "by four times the films"]  # fmt: skip
    usual = STEPS_PER_CALL[times.device]
    if times.steps_per_call < usual:
        advice.append(f"--set steps_per_call={usual} instead of {times.steps_per_call}: "
                      "no return to Python between steps")  # fmt: skip
    if times.crossing_statistics:
        advice.append("--set batch_statistics=local: two small exchanges a layer less")
    if times.may_compile:
        advice.append("--set xla=on joins operations, so that fewer have to be started")
    if times.ranks > 1:
        advice.append("use fewer ranks, with more films each, for a network as small as this")
    return advice


def _advise_compute(times: Times, shares: Shares) -> list[str]:
    advice = []
    if times.device == "gpu":
        if not times.precision.startswith("mixed"):
            advice.append(f"--set precision=mixed_float16 instead of {times.precision}: "
                          "half the bytes, and tensor cores")  # fmt: skip
        if times.may_compile:
            advice.append("--set xla=on: fewer passes over the memory")
    more = 2 * times.ranks
    advice.append(
        f"{more} ranks instead of {times.ranks}: {1 - shares.exchange:.0%} of a step is not "
        f"exchange, so up to {2 * times.images_per_s:.3g} images/s (now {times.images_per_s:.3g})"
    )
    if times.device == "cpu":
        advice.append("a GPU: this training computes on CPUs")
        advice.append(f"more than {times.threads} cores a rank")
    advice.append("smaller films: --set crop_size or image_size; computing goes with their area")
    return advice


_ADVICE: dict[str, Callable[[Times, Shares], list[str]]] = {
    INPUT: _advise_input,
    COMMUNICATION: _advise_exchange,
    LAUNCH: _advise_fixed,
    COMPUTE: _advise_compute,
}
