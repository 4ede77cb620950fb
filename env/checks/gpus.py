"""The GPUs that the checks of this theme look at, and the form that these checks share.

Knows which GPUs of a host are the job's: those that its processes are shown. A check then
judges one GPU; what several have in common becomes one finding, and one GPU that cannot be
read does not hide the others. Registers no check itself.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from env.checks.evidence import Evidence
from env.checks.registry import check
from env.facts import CannotTellError, Facts
from env.result import Finding, Status
from env.visible import Visible, resolve_visible

READS = ("gpu.nvml", "gpu.cuda", "gpu.visible", "gpu.device_files", "host.name")
_HIDDEN = 4  # NVML_ERROR_NO_PERMISSION: a GPU of somebody else's


@dataclass(frozen=True)
class Gpu:
    """One GPU of one host, as NVML described it.

    Attributes:
        host: the host's name, empty where it is not known.
        device: as ``gpu.nvml`` holds it.
        mine: whether CUDA_VISIBLE_DEVICES leaves it to the job.
    """

    host: str
    device: Mapping[str, Any]
    mine: bool

    def __str__(self) -> str:
        name = self.device.get("uuid") or self.device.get("pci") or "without a name"
        return f"GPU {self.device['index']} ({name})" + (f" on {self.host}" if self.host else "")

    @property
    def broken(self) -> bool:
        """Whether it answered nothing; ``gpu.lost`` speaks of those."""
        return "error" in self.device

    def value(self, key: str) -> Any:  # noqa: ANN401 - any JSON value
        """Return what it says, None where it does not have such a thing.

        Raises:
            CannotTellError: it refused to say.
        """
        problem = self.device.get("problems", {}).get(key)
        if problem is not None:
            raise CannotTellError(f"{self}: {key}: {problem['text']}")
        return self.device.get(key)

    def finding(self, status: Status, expected: str, found: str, fix: str = "") -> Finding:
        """Return a finding about it."""
        hosts = (self.host,) if self.host else ()
        return Finding(status, expected, f"{self}: {found}", where="NVML", fix=fix, hosts=hosts)


Judge = Callable[[Evidence, list[Gpu]], Iterable[Finding]]


def gpu_check(
    name: str, *, title: str, fix: str, reads: tuple[str, ...] = (),
    covers: tuple[str, ...] = (), required: bool = False,
) -> Callable[[Judge], Judge]:  # fmt: skip
    """Put a check of the job's GPUs into the registry; SKIP where the job wants none.

    Args:
        name: as of ``check``, like the rest.
        title: what it makes sure of.
        fix: what to do.
        reads: facts beyond those that tell which GPUs are the job's.
        covers: ids of known failures.
        required: whether not being able to tell stops a training.
    """

    def register(judge: Judge) -> Judge:
        @functools.wraps(judge)
        def run(evidence: Evidence) -> Iterator[Finding]:
            if not wanted(evidence):
                yield Finding(Status.SKIP, title, "the training uses no GPU")
                return
            gpus = [gpu for gpu in all_gpus(evidence) if gpu.mine and not gpu.broken]
            good = True
            for finding in _merged(judge(evidence, gpus)):
                good = False
                yield finding
            if good and not gpus:
                yield Finding(Status.SKIP, title, "no GPU of the job answers, see gpu.present")
            elif good:
                yield Finding(Status.PASS, title, f"{len(gpus)} GPUs are all right")

        check(name, title=title, reads=(*READS, *reads), fix=fix, covers=covers,
              required=required)(run)  # fmt: skip
        return judge

    return register


def each(gpus: Iterable[Gpu], judge: Callable[[Gpu], Iterable[Finding]]) -> Iterator[Finding]:
    """Judge one GPU after the other; those that cannot be read are named at the end.

    Raises:
        CannotTellError: at least one GPU could not be read.
    """
    unable = []
    for gpu in gpus:
        try:
            yield from judge(gpu)
        except CannotTellError as error:
            unable.append(str(error))
    if unable:
        raise CannotTellError("; ".join(unable))


def _merged(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Make one finding of those that differ in their GPU alone; raises last what was raised."""
    groups: dict[tuple[Status, str, str], list[Finding]] = defaultdict(list)
    unable: CannotTellError | None = None
    try:
        for finding in findings:
            groups[finding.status, finding.expected, finding.fix].append(finding)
    except CannotTellError as error:
        unable = error
    for (status, expected, fix), group in groups.items():
        hosts = dict.fromkeys(host for finding in group for host in finding.hosts)
        found = "; ".join(dict.fromkeys(finding.found for finding in group))
        ranks = sorted({rank for finding in group for rank in finding.ranks})
        yield Finding(status, expected, found, where=group[0].where, fix=fix, hosts=tuple(hosts),
                      ranks=tuple(ranks))  # fmt: skip
    if unable:
        raise unable


def wanted(evidence: Evidence) -> bool:
    """Return whether the GPUs of this machine matter.

    Where no stack says what the training wants, as in a prolog, they do if there are any.
    """
    if evidence.device == "auto" and evidence.stack_device is None:
        nvml = evidence.facts["gpu.nvml"].value or {}
        return bool(nvml.get("devices") or evidence.facts["gpu.device_files"].value)
    return evidence.wants_gpu


def devices(facts: Facts) -> list[dict[str, Any]]:
    """Return NVML's devices without those that belong to other jobs.

    Raises:
        CannotTellError: NVML could not be asked.
    """
    found = facts.value("gpu.nvml").get("devices", [])
    return [device for device in found if device.get("error_code") != _HIDDEN]


def all_gpus(evidence: Evidence) -> list[Gpu]:
    """Return every GPU of the host whose facts are judged, those of the job marked.

    Raises:
        CannotTellError: NVML could not be asked.
    """
    facts = evidence.facts
    here, mine = devices(facts), _named(facts)
    if facts["gpu.visible"].value is not None:  # each rank may be shown another
        for rank in _ranks_here(evidence):
            mine |= _named(rank) if rank["gpu.nvml"].value else set()
    host = str(facts["host.name"].value or "")
    return [Gpu(host, device, device.get("uuid", device["index"]) in mine) for device in here]


def _ranks_here(evidence: Evidence) -> list[Facts]:
    # Asked by each of the checks for each of the hosts, always of the same ranks.
    if not _grouped or _grouped[0][0] is not evidence.ranks:
        groups: dict[Any, list[Facts]] = defaultdict(list)
        for facts in evidence.ranks.values():
            groups[facts["host.name"].value].append(facts)
        _grouped[:] = [(evidence.ranks, groups)]
    return _grouped[0][1].get(evidence.facts["host.name"].value, [])


_grouped: list[tuple[Mapping[int, Facts], dict[Any, list[Facts]]]] = []


def _named(facts: Facts) -> set[str | int]:
    """Return the UUIDs that CUDA_VISIBLE_DEVICES leaves to a process.

    A lost GPU has none any more, and CUDA does not show it: its index has to do.
    """
    here, raw = devices(facts), facts["gpu.visible"].value
    entries = [entry.strip() for entry in (raw or "").split(",")]
    shown = set(resolve_visible(raw, here).indices)
    shown |= {
        d["index"] for d in here if "error" in d and (raw is None or str(d["index"]) in entries)
    }
    return {device.get("uuid", device["index"]) for device in here if device["index"] in shown}


def visible(facts: Facts) -> Visible:
    """Return what CUDA shows a process: by its own word where it could be asked.

    Raises:
        CannotTellError: NVML or the variable could not be read.
    """
    found = devices(facts)
    resolved = resolve_visible(facts.value("gpu.visible"), found)
    told = (facts["gpu.cuda"].value or {}).get("devices") or []
    names = {}
    for device in found:
        for part in (device, *(device.get("mig_devices") or [])):
            digits = part.get("uuid", "").removeprefix("GPU-").removeprefix("MIG-")
            names[digits.replace("-", "")] = (part.get("uuid"), device["index"])
    if not told or not all(name in names for name in told):
        return resolved
    uuids, indices = zip(*(names[name] for name in told), strict=True)
    return Visible(uuids, indices, resolved.problem, resolved.numbered)
