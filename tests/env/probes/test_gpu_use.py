"""The sampler of GPUs, against a stand-in for the driver's binding."""

import json
import subprocess
import sys
from types import SimpleNamespace

from env.probes.gpu_use import sample_gpus
from env.stack import PROJECT


class Binding:
    """Stands for pynvml on a host with two GPUs, of which the second is in MIG mode."""

    class NVMLError(Exception):
        pass

    def nvmlDeviceGetCount(self):
        return 2

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetUUID(self, gpu):
        return f"GPU-{gpu}".encode()

    def nvmlDeviceGetUtilizationRates(self, gpu):
        if gpu == 1:
            raise self.NVMLError("Not Supported")
        return SimpleNamespace(gpu=87, memory=31)


def test_use_is_a_share_and_what_is_not_told_is_none():
    one, other = sample_gpus(Binding())
    assert one == {"index": 0, "uuid": "GPU-0", "use": 0.87, "memory_use": 0.31}
    assert (other["use"], other["problem"]) == (None, "Not Supported")


def test_without_a_driver_it_ends_at_once_and_says_so(tmp_path):
    # A module of that name that has no driver behind it, wherever the tests run.
    (tmp_path / "pynvml.py").write_text("def nvmlInit():\n    raise OSError('no driver')\n")
    code = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(PROJECT)!r}]\n"
        "from env.probes.gpu_use import main\nsys.exit(main([]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "")
    assert "no GPU to ask: no driver" in done.stderr


def test_samples_are_lines_of_json_until_nobody_reads(tmp_path):
    (tmp_path / "pynvml.py").write_text(
        "class NVMLError(Exception): pass\n"
        "def nvmlInit(): pass\n"
        "def nvmlDeviceGetCount(): return 0\n"
    )
    code = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(PROJECT)!r}]\n"
        "from env.probes.gpu_use import main\nsys.exit(main(['--interval-s', '0.01']))"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert json.loads(child.stdout.readline()) == {"gpus": []}
    child.stdout.close()
    assert child.wait(30) == 0
