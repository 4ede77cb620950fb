"""Folders that a run writes to: there, writable, with room, and of a usable kind.

Thresholds are stated where they are used, with their reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from env.checks.evidence import Evidence
from env.checks.registry import check
from env.result import Finding, Status

MIB = 2**20
# Open MPI 4 keeps 4 MiB and more of each rank in its session folder where /dev/shm is not used,
# PMIx another few; a crash with a bus error is what too little of it looks like.
SESSION_RANK_BYTES = 16 * MIB
TEMPORARY_BYTES = 64 * MIB
# An image of this project takes 1 to 2 GB unpacked, a GPU image 8: where it must be unpacked.
UNPACK_WARN_BYTES, UNPACK_FAIL_BYTES = 8192 * MIB, 512 * MIB
FEW_INODES = 1000
# A Unix socket's path has 107 bytes (unix(7)); what Python's processes and older PMIx add to the
# folder takes about 40.
LONGEST_BASE = 107 - 40
SESSION, UNPACK, CACHE, HOME = (
    "MPI's session files",
    "the image's unpacking",
    "the image cache",
    "the home",
)


@check(
    "storage.temporary",
    title="temporary folders take the files of MPI and Python",
    covers=("MPI-05", "MPI-15"),
    reads=("storage.places",),
    fix="point TMPDIR at a folder of this node's own disk or memory with room and a short path "
    "(in a container: bind it); PMIX_MCA_gds=hash where PMIx's shared files are what fails",
)
def check_temporary(evidence: Evidence) -> Iterator[Finding]:
    """FAIL if a folder is missing, cannot be written to, or has no room for the ranks' files.

    WARN if it has less than twice that, few free inodes, a path too long for sockets, or
    lies on a file system that another machine serves.
    """
    seen = set()
    for place in _used_for(evidence, SESSION, "temporary files"):
        if place["path"] in seen:
            continue
        seen.add(place["path"])
        ranks = evidence.ranks_a_host if place["use"] == SESSION else 1
        needed = max(TEMPORARY_BYTES, SESSION_RANK_BYTES * ranks)
        yield from _judge_folder(place, needed)
        if place["use"] != SESSION or place["problem"]:
            continue
        length = len(place["path"].encode())
        if length > LONGEST_BASE:
            found = f"{place['path']}: {length} bytes"
            yield Finding(Status.WARN, f"a path of at most {LONGEST_BASE} bytes", found,
                          where=place["variable"])  # fmt: skip
        if place["remote"]:
            found = f"{place['path']} is {place['type']}"
            yield Finding(Status.WARN, "a file system of this node", found, where=place["variable"])


@check(
    "storage.home",
    title="the home is there, and can be written to",
    reads=("storage.places",),
    fix="set HOME to a folder that exists; nothing of this project needs to write there, but "
    "Keras, "
    "CUDA and Apptainer keep files in it",
    required=False,
)
def check_home(evidence: Evidence) -> Finding:
    """WARN if HOME names nothing, or is full; INFO if it cannot be written to at all.

    Without HOME nothing is looked for there: PASS.
    """
    places = list(_used_for(evidence, HOME))
    expected = "a home with room"
    if not places:
        return Finding(Status.PASS, expected, "HOME is not set", where="HOME")
    (place,) = places
    for finding in _judge_folder(place, MIB):
        read_only = place.get("writable") in ("no permission", "read-only")
        status = Status.INFO if read_only else Status.WARN
        return Finding(status, expected, finding.found, where="HOME")
    return Finding(Status.PASS, expected, place["path"], where="HOME")


@check(
    "storage.unpacking",
    title="Apptainer has room where it unpacks and caches images",
    covers=("CON-18",),
    reads=("storage.places", "container.programs", "host.container"),
    fix="set APPTAINER_TMPDIR and APPTAINER_CACHEDIR to a folder with room for twice the image",
    required=False,
)
def check_unpacking(evidence: Evidence) -> Iterator[Finding]:
    """FAIL below 512 MiB, WARN below 8 GiB; only where Apptainer is on PATH.

    A small default /tmp counts as a WARN only: an image that is mounted needs none of it.
    """
    programs = evidence.facts.value("container.programs")
    if not programs.get("apptainer") or evidence.facts.value("host.container") == "apptainer":
        return
    for place in _used_for(evidence, UNPACK, CACHE):
        chosen = place["variable"].startswith(("APPTAINER_", "SINGULARITY_"))
        if place["problem"] or place["writable"] != "yes":
            text = f"{place['path']}: {place['problem'] or place['writable']}"
            status = Status.FAIL if chosen else Status.WARN
            if place["use"] == CACHE and place["problem"] == "No such file or directory":
                continue  # Apptainer makes it
            yield Finding(status, f"a folder for {place['use']}", text, where=place["variable"])
        elif place["free"] < UNPACK_WARN_BYTES:
            bad = place["free"] < UNPACK_FAIL_BYTES
            status = Status.FAIL if bad and chosen else Status.WARN
            yield Finding(status, f"{UNPACK_WARN_BYTES // MIB} MiB for {place['use']}",
                          _room(place), where=place["variable"])  # fmt: skip


@check(
    "storage.folder",
    title="the process runs in the folder that it was started in",
    covers=("CON-14",),
    reads=("storage.folder", "host.container"),
    fix="bind the folder into the container (--bind DIR, --pwd DIR), or start from one that it has",
    required=False,
)
def check_folder(evidence: Evidence) -> Finding:
    """FAIL if the current folder is gone, or a container put the process elsewhere.

    WARN if the folder that a Slurm job was submitted from is not in the container, or if outside
    containers the shell's folder is gone.
    """
    place = evidence.facts.value("storage.folder")
    told = place["told"]
    expected = f"to be in {told or 'a folder that exists'}"
    if place["folder"] is None:
        return Finding(Status.FAIL, expected, "the current folder no longer exists", where="PWD")
    inside = evidence.facts.value("host.container")
    # The two may differ where a program changed its folder, but both are there.
    if not place["told_there"]:
        found = f"{place['folder']}: {told} is not in this container"
        found = found if inside else f"{place['folder']}: there is no {told}"
        status = Status.FAIL if inside else Status.WARN
        return Finding(status, expected, found, where="PWD")
    if inside and not place["submitted_there"]:
        found = f"{place['submitted']} is not in this container"
        return Finding(Status.WARN, "the folder that the job was submitted from", found,
                       where="SLURM_SUBMIT_DIR")  # fmt: skip
    return Finding(Status.PASS, expected, place["folder"])


def _used_for(evidence: Evidence, *uses: str) -> Iterator[Mapping[str, Any]]:
    return (p for p in evidence.facts.value("storage.places") if p["use"] in uses)


def _judge_folder(place: Mapping[str, Any], needed: int) -> Iterator[Finding]:
    """Yield what is wrong with a folder that must take some bytes; nothing if it is good."""
    expected = f"a folder for {place['use']} with {needed // MIB} MiB free"
    where = place["variable"]
    if place["problem"]:
        yield Finding(Status.FAIL, expected, f"{place['path']}: {place['problem']}", where=where)
    elif place["writable"] != "yes":
        yield Finding(Status.FAIL, expected, f"{place['path']}: {place['writable']}", where=where)
    elif place["free"] < 2 * needed:
        status = Status.FAIL if place["free"] < needed else Status.WARN
        yield Finding(status, expected, _room(place), where=where)
    elif place["inodes_free"] is not None and place["inodes_free"] < FEW_INODES:
        found = f"{place['path']}: room for {place['inodes_free']} more files"
        yield Finding(Status.WARN, expected, found, where=where)


def _room(place: Mapping[str, Any]) -> str:
    return f"{place['path']}: {place['free'] / MIB:.0f} MiB free of {place['total'] / MIB:.0f}"
