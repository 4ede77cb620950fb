"""TensorFlow is imported without words, and Keras without what it does not need."""

import os
import subprocess
import sys
from pathlib import Path

from chexnet.synthetic import make_sample_data
from env.stack import PROJECT

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


def test_commands_that_import_it_late_are_as_quiet(tmp_path):
    make_sample_data(tmp_path / "films", num_images=20, size_px=32)
    environ = {key: value for key, value in os.environ.items() if not key.startswith("TF_")}

    def errors_of(*words):
        line = [sys.executable, "-m", "invoke", "--search-root", str(PROJECT), *words]
        done = subprocess.run(
            line, capture_output=True, text=True, check=True, cwd=tmp_path, env=environ
        )
        return [text for text in done.stderr.splitlines() if not text.startswith("20/20 films")]

    prepare = ("prepare-data", "--source", "films", "--output", "data", "--size", "32")
    assert errors_of(*prepare, "--format", "encoded") == []
    assert errors_of("verify-data", "data") == []
    for path in (tmp_path / "data").iterdir():
        if path.suffix != ".tfrecord":
            path.unlink()
    assert [text for text in errors_of("adopt-records", "data") if "record files" not in text] == []
