"""Run on two ranks by test_distributed.py: what fusion off gives, then a rank that does not come.

Usage: stall_program.py REPORT.json ABSENT
"""

import json
import sys
import time
from pathlib import Path

import rank_program

from chexnet import distributed
from chexnet.errors import UserError


def main():
    config = rank_program.load_config(
        settings=["stall_warning_s=2", "stall_shutdown_s=8", "fusion_threshold_mib=0"]
    )
    ranks = distributed.start(config)
    report = {"exchanges": rank_program.compare_exchanges(ranks.rank)}
    distributed.average_numbers([1.0], name="all come")
    path, absent = Path(sys.argv[1]), int(sys.argv[2])
    if ranks.rank == absent:
        time.sleep(60)
    try:
        distributed.average_numbers([1.0], name="stall")
    except UserError as error:
        report["error"] = [str(error), error.exit_code]
    path.write_text(json.dumps(report))
    sys.exit(7)


if __name__ == "__main__":
    main()
