"""The node against what its site expects of it. Leaves the file's format to ``env.site``."""

from __future__ import annotations

from env.checks.evidence import Evidence
from env.checks.registry import check
from env.facts import CannotTellError
from env.result import Finding, Status
from env.site import AT_LEAST, EQUAL, look_up


@check(
    "site.expectations",
    title="the node is as its site expects",
    required=False,
    reads=tuple(dict.fromkeys(key.partition("/")[0] for key in (*EQUAL, *AT_LEAST))),
    fix="mend the node, or correct the site file where the expectation is out of date",
)
def check_expectations(evidence: Evidence) -> Finding:
    """FAIL if a fact differs from the site file, or a number is below it; SKIP without one.

    A fact that is expected and cannot be read is UNKNOWN, unless another one already fails.
    """
    site = evidence.site
    if site is None:
        return Finding(Status.SKIP, "a node like the site's others", "no --site FILE")
    wrong, unread = [], []
    for key, wanted in (*site.equal.items(), *site.at_least.items()):
        try:
            found = look_up(evidence.facts, key)
        except CannotTellError as error:
            unread.append(str(error))
            continue
        if key in site.equal and found != wanted:
            wrong.append(f"{key} is {found!r}, expected {wanted!r}")
        if key not in site.equal and not (isinstance(found, int | float) and found >= wanted):
            wrong.append(f"{key} is {found!r}, expected at least {wanted}")
    expected = f"what {site.host or 'the site'} shows: {len(site.equal) + len(site.at_least)} facts"
    if wrong:
        return Finding(Status.FAIL, expected, "; ".join([*wrong, *unread]))
    if unread:
        raise CannotTellError("; ".join(unread))
    return Finding(Status.PASS, expected, "all of them")
