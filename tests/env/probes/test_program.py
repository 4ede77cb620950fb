"""A training program that starts devices while it is imported, tried in the real child."""

import os

import pytest

from env.facts import Facts
from env.probes.frameworks import probe_frameworks
from env.result import Status

# Enough of TensorFlow for a program that computes nothing.
TENSORFLOW = """
__version__ = "2.21.0"
class sysconfig:
    get_build_info = staticmethod(lambda: {"is_cuda_build": False})
class config:
    class threading:
        get_intra_op_parallelism_threads = staticmethod(lambda: 0)
        set_intra_op_parallelism_threads = staticmethod(lambda number: None)
"""
DEVICES = {
    "tensorflow__python": "",
    "tensorflow__python__client": "from . import device_lib\n",
    "tensorflow__python__client__device_lib": "list_local_devices = lambda *a: ['CPU']\n",
}


def early(fakes, verdict, program, **changes):
    environ = fakes(tensorflow=TENSORFLOW, **DEVICES, chexnet="", chexnet__train=program, **changes)
    return verdict("program.early", Facts(probe_frameworks(environ=environ)))


def test_the_real_program_computes_nothing(healthy, verdict):
    assert verdict("program.early", healthy[1]).status is Status.PASS


def test_a_program_that_computes_with_the_real_tensorflow(real_environ, tmp_path, verdict):
    (tmp_path / "chexnet").mkdir()
    (tmp_path / "chexnet/__init__.py").touch()
    (tmp_path / "chexnet/train.py").write_text(
        "import tensorflow as tf\nSCALE = tf.constant(2.0)\n"
    )
    paths = os.pathsep.join([str(tmp_path), real_environ["PYTHONPATH"]])
    facts = Facts(probe_frameworks(environ={**real_environ, "PYTHONPATH": paths}))
    result = verdict("program.early", facts)
    assert result.status is Status.FAIL, result
    assert "cannot be modified after initialization" in result.found
    assert facts.value("frameworks.tensorflow")["version"]


def test_a_program_that_lists_the_devices(fakes, verdict):
    code = "from tensorflow.python.client import device_lib\n"
    result = early(fakes, verdict, code)
    assert result.status is Status.PASS, result
    result = early(fakes, verdict, code + "device_lib.list_local_devices()\n")
    assert (result.status, "list_local_devices()" in result.found) == (Status.FAIL, True)


def test_a_program_that_cannot_be_imported(fakes, verdict):
    result = early(fakes, verdict, "raise ImportError('no such module')")
    assert (result.status, "no such module" in result.found) == (Status.UNKNOWN, True)


def test_a_program_that_dies_takes_nothing_else_with_it(fakes, verdict):
    result = early(fakes, verdict, "import os\nos.abort()\n")
    assert (result.status, "SIGABRT" in result.found) == (Status.UNKNOWN, True)


@pytest.mark.parametrize(
    ("flags", "status"),
    [({"XLA_FLAGS": "--xla_no_such_flag=1"}, Status.FAIL),
     ({"XLA_FLAGS": "--xla_cpu_enable_fast_math=false", "CUDA_VISIBLE_DEVICES": "0"}, Status.PASS),
     ({}, Status.PASS)],
)  # fmt: skip
def test_flags_that_xla_reads_at_its_first_use(fakes, verdict, flags, status):
    # As the real one: it aborts for a flag that it does not know, and would take GPUs.
    code = """
import os, sys
def constant(value):
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "-1"
    return value
def function(run, jit_compile):
    if "no_such" in os.environ.get("XLA_FLAGS", ""):
        print("F0000 flags.cc:1] Unknown flag in XLA_FLAGS", file=sys.stderr, flush=True)
        os.abort()
    return run
"""
    changes = {"tensorflow": TENSORFLOW + code, "chexnet": "", "chexnet__train": ""}
    environ = {**fakes(**DEVICES, **changes), **flags}
    facts = Facts(probe_frameworks(environ=environ))
    result = verdict("program.xla", facts)
    assert (result.status, "Unknown flag" in result.found) == (status, status is Status.FAIL)
    # What was told before it died still counts.
    assert verdict("program.early", facts).status is Status.PASS
