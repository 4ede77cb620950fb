"""The verb ``report``: the page of one run, or of several side by side.

Knows its options. Leaves the work to ``report`` and ``report_compare``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from chexnet.errors import UserError


def add_report_verbs(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the program's parser."""
    report = verbs.add_parser(
        "report",
        help="write the page that shows a run, or several runs side by side",
        description="Write report.html into the run folder: scores with intervals, curves, "
        "calibration, learning, throughput, heat maps, data, machine, and the commands to do it "
        "again, in one file that asks no one for anything; and plots/*.png for slides "
        "beside it. "
        "What the run has not left yet is said to be missing.",
    )
    report.add_argument("--run", type=Path, metavar="DIR", help="the run folder")
    report.add_argument(
        "--compare", type=Path, nargs="+", metavar="DIR", help="two or more run folders instead"
    )
    report.add_argument(
        "--output", type=Path, metavar="FILE",
        help="where the page goes (default of one run: report.html in its folder)",
    )  # fmt: skip
    report.set_defaults(work=_report)


def _report(arguments: argparse.Namespace) -> None:
    run, several, output = arguments.run, arguments.compare, arguments.output
    if bool(run) == bool(several):
        raise UserError("--run DIR, or --compare DIR DIR ...",
                        found="both" if run else "neither", fix="give one of them")  # fmt: skip
    if run:
        from chexnet.pages.report import write_report

        page = write_report(run, output=output)
    else:
        from chexnet.pages.report_compare import write_comparison

        if output is None:
            raise UserError("--output FILE with --compare", found="nothing",
                            fix="say where the page goes, e.g. --output compare.html")  # fmt: skip
        page = write_comparison(several, output=output)
    print(f"wrote {page} ({page.stat().st_size / 1000:.0f} kB)")
