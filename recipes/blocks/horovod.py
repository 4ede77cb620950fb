"""Horovod, compiled against exactly the TensorFlow and MPI of the image.

Knows the steps of its build and what to remove afterwards. Leaves versions, hashes
and flags to the lock, and the edits to the source to ``env.source_edits``.
"""

from __future__ import annotations

from hpccm.building_blocks.base import bb_base
from hpccm.primitives import comment, shell

from env.lock import Lock
from recipes.blocks.cuda import build_variables, link_lines
from recipes.blocks.network import shell_with_network
from recipes.layout import BUILD, VENV


class Horovod(bb_base):
    """Horovod from its source archive, edited, with MPI and TensorFlow only; with NCCL for GPUs.

    Args:
        lock: names the archive with its hash, the edit rules and the build's variables.
    """

    def __init__(self, *, lock: Lock) -> None:
        super().__init__()
        self._gpu = bool(lock.gpus)
        archive = next(name for name in lock.sources if name.startswith("horovod-"))
        digest = lock.sources[archive]
        source = archive.removesuffix(".tar.gz")
        variables = sorted({**lock.flags, **build_variables(lock)}.items())
        flags = " ".join(f"{name}={value}" for name, value in variables)
        before, after = link_lines(lock)
        self += comment("Horovod, compiled against that TensorFlow and this MPI", reformat=False)
        self += shell_with_network([
            f"cd {BUILD}",
            f"export PATH={VENV}/bin:$PATH",
            # A hash in the requirement makes pip check before it unpacks or runs anything.
            f"echo 'horovod=={lock.components['horovod']} --hash=sha256:{digest}' > source.txt",
            "pip download --no-cache-dir --no-deps --no-binary=:all: --no-build-isolation"
            " --require-hashes -r source.txt",
            f"echo '{digest}  {archive}' | sha256sum -c -",
            f"tar -xzf {archive}",
            f"python -m env.source_edits --rules {lock.edits['path']} --source {source}",
            *before,
            # pip would reuse a wheel compiled against another TensorFlow from its cache,
            # and say nothing.
            f"{flags} pip install --no-cache-dir --no-deps --no-build-isolation ./{source}",
            *after,
            *_removals(lock),
        ])  # fmt: skip

    def runtime(self, _from: str = "0") -> str:
        """Return the proof that it loads with the second stage's libraries alone.

        There is nothing to copy: it lies in the virtual environment.
        """
        heading = comment("Horovod must load with this stage's libraries", reformat=False)
        return "\n".join(map(str, (heading, shell(commands=[_load_command(gpu=self._gpu)]))))


def _load_command(*, gpu: bool) -> str:
    """Return the shell line that loads TensorFlow and Horovod's library and says versions."""
    parts = "hvd.mpi_built() and hvd.nccl_built()" if gpu else "hvd.mpi_built()"
    program = (
        f"import tensorflow, horovod, horovod.tensorflow as hvd; assert {parts}; "
        "print(tensorflow.__version__, horovod.__version__)"
    )
    return f"TF_CPP_MIN_LOG_LEVEL=2 {VENV}/bin/python -c '{program}'"


def _removals(lock: Lock) -> tuple[str, ...]:
    """Return the lines that take out what only the build needed, pip itself last."""
    only_build = sorted(
        package.name
        for package in lock.python
        if "build" in package.groups and "run" not in package.groups
    )
    library = f"{VENV}/lib/python*/site-packages"
    return (
        f"find {library}/horovod -name '*.so' -exec strip --strip-unneeded {{}} +",
        # TensorFlow's headers: half of all files, and only a compiler reads them.
        f"rm -rf {library}/tensorflow/include",
        f"pip uninstall -y {' '.join(only_build)} pip",
        f"cd / && rm -rf {BUILD}",
    )
