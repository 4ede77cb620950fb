"""TensorFlow and every other wheel of the lock, in one virtual environment.

Knows how to install exactly what the lock names, each file held to its hash.
Leaves Horovod, which is compiled against it, to its own block.
"""

from __future__ import annotations

from hpccm.building_blocks.base import bb_base
from hpccm.primitives import comment, copy

from env.lock import Lock
from recipes.blocks.network import shell_with_network
from recipes.layout import BUILD, VENV, build_sources, lock_source

_WRITE_REQUIREMENTS = (
    "from pathlib import Path; from env.lock import load_lock, render_requirements; "
    'lock = load_lock(Path(\\"{lock}\\")); '
    '[Path(f\\"{{group}}.txt\\").write_text(render_requirements(lock, group=group))'
    ' for group in (\\"build\\", \\"run\\")]'
)


class TensorFlow(bb_base):
    """The virtual environment with the lock's wheels.

    Args:
        lock: names TensorFlow's wheel and every other with version and hashes.
    """

    def __init__(self, *, lock: Lock) -> None:
        super().__init__()
        self += comment("TensorFlow and the other wheels of the lock", reformat=False)
        self += copy(files={source: f"{BUILD}/{source}" for source in build_sources(lock)})
        program = _WRITE_REQUIREMENTS.format(lock=lock_source(lock))
        pip = f"{VENV}/bin/pip install --no-cache-dir --disable-pip-version-check"
        self += shell_with_network([
            f"cd {BUILD}",
            f'python3 -c "{program}"',
            f"python3 -m venv {VENV}",
            f"{pip} --require-hashes --only-binary=:all: -r run.txt -r build.txt",
        ])  # fmt: skip

    def runtime(self, _from: str = "0") -> str:
        """Return the copy of the virtual environment; Horovod is in it by then.

        It works at the same path because both stages have the same Python.
        """
        heading = comment("The virtual environment, compiled and complete", reformat=False)
        return "\n".join(map(str, (heading, copy(_from=_from, src=VENV, dest=VENV))))
