"""What of a training that was killed again and again counts as a fault."""

import dataclasses
import json

import pytest

from benchmarks import kills
from benchmarks.kills import ALL, ASKED, RANK, Kill

NAMED = Kill(RANK, 1, 3, 1, 0.5, 0, 80, "found:    rank 1 ended: process 7 on here")
GOOD = [NAMED, Kill(ALL, None, 5, -9, 0.1, 0, 160, None),
        Kill(ASKED, None, 8, 75, 0.4, 1, 0, "stopped")]  # fmt: skip


@pytest.mark.parametrize(
    ("ends", "differences", "code"),
    [
        (GOOD, [], 0),
        (GOOD, ["variable 3"], 1),
        (GOOD[::-1], [], 1),  # a checkpoint less than before
        ([*GOOD[:2], dataclasses.replace(GOOD[2], code=1)], [], 1),
        ([dataclasses.replace(NAMED, error="found:    rank 0 ended: process 7"), *GOOD[1:]], [], 1),
        ([dataclasses.replace(NAMED, error=None), *GOOD[1:]], [], 1),
    ],
)
def test_each_promise_that_was_not_kept_is_a_failure(
    tmp_path, monkeypatch, ends, differences, code
):
    monkeypatch.setattr(kills, "launcher", lambda ranks: lambda words: None)
    monkeypatch.setattr(kills, "finish", lambda child, *, run: None)
    monkeypatch.setattr(kills, "survive", lambda program, **_: ends)
    monkeypatch.setattr(kills, "compare", lambda run, *, alone: differences)
    output = tmp_path / "kills.json"
    monkeypatch.setattr("sys.argv", ["kills", "--data", "d", "--output", str(output)])
    assert kills.main() == code
    results = json.loads(output.read_text())["results"]
    assert sum(one["value"] for one in results[:4]) == code
