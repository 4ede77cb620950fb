"""What env's tests share: a verdict on probed facts, fake frameworks, one real observation."""

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from containers.launchers import find_launcher
from env.checks.evidence import Evidence
from env.checks.registry import find_check, run_check
from env.facts import Facts, load_facts
from env.lock import PythonPackage, make_lock, render_lock
from env.names import normal_name
from env.probes.child import without_launcher
from env.stack import load_stack
from env.validate import host_stack

PROJECT = Path(__file__).resolve().parents[2]
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@pytest.fixture(scope="session")
def verdict():
    """Judge probed facts by one check: ``verdict("id", facts, num_ranks=2)``."""

    def judge(name, facts=None, **settings):
        return run_check(find_check(name), Evidence(facts=Facts(facts), **settings))

    return judge


@pytest.fixture(scope="session")
def lock():
    """The lock of this very environment, whatever is installed in it."""
    stack = load_stack(host_stack() or "cpu")
    wanted = (*stack.python.wheels.values(), *stack.python.run)
    names = {normal_name(name.partition("[")[0]) for name in wanted}
    python = tuple(
        PythonPackage(normal_name(p.metadata["Name"]), p.version, (), ("run",))
        for p in importlib.metadata.distributions()
        if normal_name(p.metadata["Name"]) in names
    )
    return make_lock(stack, python=python)


@pytest.fixture(scope="session")
def open_mpi_4():
    """For what has been tried with Open MPI 4 alone."""
    if (series := find_launcher(remote=True).series) != 4:
        pytest.xfail(f"tried with Open MPI 4, not with {series}")


@pytest.fixture(scope="session")
def real_environ():
    """This environment outside any launcher, with the project on PYTHONPATH.

    Whatever tests ran before in this process: importing chexnet sets TensorFlow's log level.
    """
    variables = {**without_launcher(os.environ), **AS_ROOT, "PYTHONPATH": str(PROJECT)}
    ours = ("CHEXNET_LOCK", "TF_CPP_MIN_LOG_LEVEL")
    return {key: value for key, value in variables.items() if key not in ours}


@pytest.fixture(scope="session")
def run_env(real_environ):
    """Run ``python -m env …`` as a user does: in a child, from the project's folder."""

    def run(*argv, prefix=(), timeout=300, **environ):
        variables = {**real_environ, **environ}
        return subprocess.run(
            [*prefix, sys.executable, "-m", "env", *map(str, argv)],
            cwd=PROJECT, env=variables, capture_output=True, text=True, timeout=timeout,
        )  # fmt: skip

    return run


@pytest.fixture(scope="session")
def healthy(tmp_path_factory, lock, run_env):
    """One real observation of this machine: the finished process, its facts and its report."""
    folder = tmp_path_factory.mktemp("healthy")
    (folder / "lock.json").write_text(render_lock(lock))
    files = {"lock": folder / "lock.json", "facts": folder / "facts.json"}
    report = folder / "report.json"
    done = run_env("--lock", files["lock"], "--save-facts", files["facts"], "--json", report)
    return done, load_facts(files["facts"]), json.loads(report.read_text())


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory):
    """Return a stand-in for Horovod's library, compiled from fake_horovod.c."""
    source = Path(__file__).with_name("probes") / "fake_horovod.c"
    library = tmp_path_factory.mktemp("horovod") / "mpi_lib.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


@pytest.fixture
def fakes(tmp_path, fake_library):
    """Write stand-ins for tensorflow, keras and horovod; returns an environment with them.

    The real probe then imports them in the real child, in a tenth of a second.
    """
    good = {
        "tensorflow": "__version__ = '2.21.0'\nclass sysconfig:\n"
        "    get_build_info = staticmethod(lambda: {'is_cuda_build': False})\n",
        "keras": "__version__ = '3.15.1'\n",
        "numpy": "__version__ = '2.4.6'\n",
        "horovod": "__version__ = '0.28.1'\n",
        "horovod/tensorflow": "import os\nmpi_built = lambda: True\ngloo_built = lambda: True\n"
        "nccl_built = lambda: 0\n",
    }

    def write(environ=None, **changes):
        for name, code in (good | {k.replace("__", "/"): v for k, v in changes.items()}).items():
            package = tmp_path / "fakes" / name / "__init__.py"
            package.parent.mkdir(parents=True, exist_ok=True)
            package.write_text(code)
        library = tmp_path / "fakes/horovod/tensorflow/mpi_lib.so"
        if not library.exists():
            library.symlink_to(fake_library)
        paths = os.pathsep.join([str(tmp_path / "fakes"), str(PROJECT)])
        variables = {**without_launcher(os.environ), **AS_ROOT, "PYTHONPATH": paths}
        return {**variables, "PYTHONDONTWRITEBYTECODE": "1", **(environ or {})}

    return write
