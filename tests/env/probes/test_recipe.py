"""Definitions as people write them, and those of this project."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from env.definition import parse_definition
from env.facts import Fact
from env.probes.python import probe_python
from env.probes.recipe import probe_recipe
from env.result import Status
from env.stack import PROJECT

OLD = """\
Bootstrap: docker
From: nvidia/cuda:11.6.1-cudnn8-devel-ubuntu20.04

%post
    # apt-get install commented-out
    apt-key adv --fetch-keys https://x.nvidia.com/compute/cuda/repos/x/7fa2af80.pub
    apt-get update && apt-get install -y -o Dpkg::Use-Pty=0 \\
        libnccl2 libcudnn8=8.4.0.27-1+cuda11.6 ./local.deb $EXTRA
    pip install tensorflow numpy==1.23 "keras<3" -r more.txt
    pip3 install horovod[tensorflow]
"""


def test_what_a_definition_says():
    told = parse_definition(OLD)
    assert told.bases == ("nvidia/cuda:11.6.1-cudnn8-devel-ubuntu20.04",)
    assert told.unpinned == ("libnccl2", "horovod[tensorflow]")
    assert len(told.old_keys) == 2
    staged = "FROM --platform=x a@sha256:1 AS one\nFROM one AS two\nFROM scratch\nfrom b:2\n"
    assert parse_definition(staged).bases == ("a@sha256:1", "b:2")


@given(st.text())
def test_no_text_breaks_the_parser(text):
    parse_definition(text)
    parse_definition(f"RUN apt-get install -y {text}\nFROM {text}")


@pytest.mark.parametrize("stack", ["cpu", "cuda12"])
def test_our_own_definitions_would_make_the_same_image_again(tmp_path, verdict, stack):
    (tmp_path / ".singularity.d").mkdir()
    text = (PROJECT / "containers" / stack / "Singularity.def").read_text()
    (tmp_path / ".singularity.d/Singularity").write_text(text)
    assert verdict("recipe.repeats", probe_recipe(tmp_path)).status is Status.PASS


def test_an_image_that_would_not(tmp_path, verdict):
    assert verdict("recipe.repeats", probe_recipe(tmp_path)).status is Status.SKIP
    (tmp_path / ".singularity.d").mkdir()
    (tmp_path / ".singularity.d/Singularity").write_text(OLD)
    result = verdict("recipe.repeats", probe_recipe(tmp_path))
    assert (result.status, "11.6.1" in result.found) == (Status.FAIL, True)


def test_a_program_with_horovods_wrapper(tmp_path, verdict):
    (tmp_path / "a.py").write_text("import horovod.keras as hvd\n# DistributedOptimizer\n"
                                   "opt = hvd.DistributedOptimizer(None)\n")  # fmt: skip
    (tmp_path / "broken.py").write_text("def (\x00")
    facts = probe_python(environ={}, path=[], program=tmp_path)
    assert facts["python.wrappers"].value == [f"{tmp_path}/a.py:3"]
    installed = {name: {"version": v, "location": "x"} for name, v in
                 {"keras": "3.15.1", "horovod": "0.28.1"}.items()}  # fmt: skip
    facts |= {"packages.installed": Fact(installed, "x")}
    assert verdict("horovod.wrapper", facts).status is Status.FAIL


def test_our_own_program_does_without_it(verdict, healthy):
    assert verdict("horovod.wrapper", healthy[1]).status is Status.PASS
