"""TensorFlow is imported without words, and Keras without what it does not need."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
from chexnet.quiet import quiet_import
with quiet_import():
    import keras
print(sorted({"sklearn", "matplotlib", "keras"} & set(sys.modules)))
import sklearn, matplotlib.figure
print("there")
"""


def test_keras_comes_alone_and_the_others_can_be_imported_after():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.stdout == "['keras']\nthere\n"
    assert done.stderr == ""
