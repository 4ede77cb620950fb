"""Samples how busy the GPUs of this host are; runs as a child process beside a training.

Prints a line of JSON for each sample, ``{"gpus": [{"index", "uuid", "use", "memory_use"}]}`` with
shares of the time between 0 and 1, until it is ended or nobody reads. Opens no CUDA context. A
host without a driver ends it at once with exit code 3; what a GPU does not tell is None. Leaves
what the numbers mean to whoever started it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from env.errors import EXIT_CANNOT_TELL, EXIT_GOOD

INTERVAL_S = 0.2


def main(argv: list[str] | None = None) -> int:
    """Sample until the end."""
    parser = argparse.ArgumentParser(description="sample how busy the GPUs are")
    parser.add_argument("--interval-s", type=float, default=INTERVAL_S, metavar="S")
    options = parser.parse_args(argv)
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception as error:  # no binding, no library, no driver: the same to the reader
        print(f"no GPU to ask: {error}", file=sys.stderr)
        return EXIT_CANNOT_TELL
    try:
        while True:
            print(json.dumps({"gpus": sample_gpus(pynvml)}), flush=True)
            time.sleep(options.interval_s)
    except (BrokenPipeError, KeyboardInterrupt):
        return EXIT_GOOD


def sample_gpus(ml: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    """Return how busy each GPU was in the driver's last period (a sixth of a second to one).

    Args:
        ml: the module pynvml, initialised.
    """
    return [_sample(ml, index) for index in range(ml.nvmlDeviceGetCount())]


def _sample(ml: Any, index: int) -> dict[str, Any]:  # noqa: ANN401
    told: dict[str, Any] = {"index": index, "uuid": None, "use": None, "memory_use": None}
    try:
        gpu = ml.nvmlDeviceGetHandleByIndex(index)
        uuid = ml.nvmlDeviceGetUUID(gpu)
        told["uuid"] = uuid.decode() if isinstance(uuid, bytes) else uuid
        rates = ml.nvmlDeviceGetUtilizationRates(gpu)
        told |= {"use": rates.gpu / 100, "memory_use": rates.memory / 100}
    except ml.NVMLError as error:  # such as a GPU in MIG mode, which has no rates
        told["problem"] = str(error)
    return told


if __name__ == "__main__":
    sys.exit(main())
