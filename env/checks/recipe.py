"""The definition an image was made from: whether it would make the same image again."""

from __future__ import annotations

import re
from collections.abc import Iterator

from env.checks.evidence import Evidence
from env.checks.registry import check
from env.definition import parse_definition
from env.result import Finding, Status

# Tags of nvidia/cuda that were withdrawn from its registry (its policy removes what is no longer
# supported; horovod/horovod pull request 3977 met the first).
_WITHDRAWN = re.compile(r"nvidia/cuda:(\d|10\.\d|11\.0|11\.[1-5]|11\.6\.[01])([.-]|$)")
_MANY = 8


@check(
    "recipe.repeats",
    title="the image can be made again as it is",
    covers=("REP-01", "REP-02", "REP-03"),
    reads=("recipe.text",),
    fix="name bases by digest (…@sha256:…), packages with their versions, NVIDIA's archive with "
    "cuda-keyring; or take the definitions of this project: invoke recipe",
    required=False,
)
def check_repeats(evidence: Evidence) -> Iterator[Finding]:
    """FAIL if a base was withdrawn; WARN if what is built depends on the day.

    That is a base by its tag with packages by name alone, or an archive whose key was exchanged.
    SKIP where this is no image that holds its definition.
    """
    text, where = evidence.facts.value("recipe.text"), evidence.facts["recipe.text"].origin
    expected = "bases by digest, or every package with its version"
    if text is None:
        yield Finding(Status.SKIP, expected, "no definition here")
        return
    definition = parse_definition(text)
    for base in definition.bases:
        if _WITHDRAWN.search(base):
            found = f"{base} was withdrawn from its registry"
            yield Finding(Status.FAIL, "a base that can be had", found, where=where)
    for line in definition.old_keys:
        found = f"{line}: NVIDIA's archive is signed with another key"
        yield Finding(Status.WARN, "the archive's present key", found, where=where)
    if definition.unpinned:
        names = ", ".join(definition.unpinned[:_MANY])
        more = len(definition.unpinned) - _MANY
        found = f"{names}{f' and {more} more' if more > 0 else ''} in whatever version there is"
        tags = [base for base in definition.bases if "@sha256:" not in base]
        found += f", on {', '.join(tags)}" if tags else ""
        yield Finding(Status.WARN, expected, found, where=where)
