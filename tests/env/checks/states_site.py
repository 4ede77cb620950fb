"""States of the check that holds a node against its site."""

import runpy
from pathlib import Path

from env.result import Status
from env.site import Site

evidence = runpy.run_path(str(Path(__file__).with_name("states.py")))["evidence"]
LIKE_IT = Site("good1", {"host.machine": "x86_64"}, {"host.open_files": 1}, {})
OTHER = Site("good1", {"host.machine": "aarch64"}, {"host.open_files": 1}, {})
MORE = Site("good1", {}, {"host.open_files": 10**9}, {})

STATES = {
    "site.expectations": (
        [
            (Status.FAIL, "'x86_64', expected 'aarch64'", evidence(site=OTHER)),
            (Status.FAIL, "at least 1000000000", evidence(site=MORE)),
            (Status.SKIP, "--site", evidence()),
        ],
        evidence(lost=["host.machine"], site=LIKE_IT),
    ),
}
PASSES = {"site.expectations": [evidence(site=LIKE_IT)]}
