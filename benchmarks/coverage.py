"""How many of the known failures the checks detect, by family and by how tests bring them about.

Counts what `tests/env/test_coverage.py` demands; the test prints the same number.

    python -m benchmarks.coverage --output FILE.json
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from benchmarks.record import write_record
from env.checks.registry import known_checks
from env.checks.table import detected_by
from env.failures import load_failures


def count_coverage() -> list[dict[str, object]]:
    """Return the counts as results of a record."""
    failures, found = load_failures(), detected_by()
    seen = [name for name in failures if found[name]]
    all_of = Counter(name.partition("-")[0] for name in failures)
    of_family = Counter(name.partition("-")[0] for name in seen)
    ways = Counter(failures[name].tried for name in seen)
    results: list[dict[str, object]] = [
        {"name": "known failures", "value": len(failures), "unit": "failures"},
        {"name": "detected", "value": len(seen), "unit": "failures"},
        {"name": "checks", "value": len(known_checks()), "unit": "checks"},
    ]
    results += [
        {"name": f"detected: {family}", "value": of_family[family], "of": number,
         "unit": "failures"}
        for family, number in all_of.items()
    ]  # fmt: skip
    return results + [
        {"name": f"tried {way}", "value": number, "unit": "failures"}
        for way, number in ways.items()
    ]


def main() -> None:
    """Count and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, metavar="FILE.json")
    arguments = parser.parse_args()
    results = count_coverage()
    values = {str(result["name"]): result["value"] for result in results}
    write_record(
        arguments.output,
        command=["python", "-m", "benchmarks.coverage", "--output", str(arguments.output)],
        packages=[],
        results=results,
        ratios={"detected": values["detected"] / values["known failures"]},
    )


if __name__ == "__main__":
    main()
