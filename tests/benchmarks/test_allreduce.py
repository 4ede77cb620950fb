"""The exchange benchmark: its command lines and its arithmetic."""

import json
from pathlib import Path

import pytest

from benchmarks.allreduce import PLAIN, describe, render_command, run_benchmark
from benchmarks.record import render_results
from env.errors import UserError


def test_transport_is_chosen_before_the_program():
    line = render_command("TCP", ranks=2, rounds=3, output=Path("o.json"))
    at = line.index("btl")
    assert line[at - 4 : at + 2] == ["--mca", "pml", "ob1", "--mca", "btl", "self,tcp"]
    assert line.count("--bind-to") == 1
    assert line[line.index("-np") + 1] == "2"
    assert at < line.index("benchmarks.allreduce_rank")


def test_ratios_compare_medians_of_one_launch():
    grouped = {PLAIN: [10.0, 30.0, 20.0], "grouped": [22.0, 26.0, 90.0]}
    flat = {PLAIN: [5.0], "flat": [10.0]}
    slower = {PLAIN: [40.0], "grouped": [44.0]}
    results, ratios = describe(
        {
            ("TCP", "default"): {"grouped": grouped, "flat": flat},
            ("TCP", "fusion off"): {"grouped": slower},
        }
    )
    assert ratios == {
        f"TCP, default, grouped / {PLAIN}": 1.3,
        f"TCP, default, flat / {PLAIN}": 2.0,
        f"TCP, fusion off, grouped / {PLAIN}": 1.1,
    }
    assert [r["value"] for r in results] == [26.0, 10.0, 44.0]
    assert [r["plain_ms"] for r in results] == [20.0, 5.0, 40.0]
    assert results[0]["fastest"] == 22.0
    assert {r["unit"] for r in results} == {"ms"}


@pytest.mark.parametrize(("ranks", "rounds"), [(1, 5), (100_000, 5), (2, 0)])
def test_what_cannot_be_timed_is_refused(tmp_path, ranks, rounds):
    with pytest.raises(UserError) as caught:
        run_benchmark(tmp_path / "o.json", ranks=ranks, rounds=rounds)
    assert caught.value.exit_code == 2
    assert not (tmp_path / "o.json").exists()


def test_what_was_measured_is_printed_too(tmp_path):
    record = tmp_path / "sums.json"
    results = [{"name": "a", "value": 1234.56, "unit": "ms"}]
    record.write_text(json.dumps({"results": results, "ratios": {"a / plain": 1.25}}))
    assert render_results(record).splitlines() == [
        "a            1,234.6 ms",
        "a / plain       1.25",
        f"wrote {record}",
    ]
