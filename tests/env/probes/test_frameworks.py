"""What imports load: one real child, and stand-ins that fail in the ways real ones do."""

import subprocess
from dataclasses import replace

import pytest

from env.facts import Facts
from env.probes.frameworks import probe_frameworks
from env.result import Status

DIE = "import os, signal\nos.kill(os.getpid(), signal.SIGILL)\n"


def probe(environ, **options):
    return Facts(probe_frameworks(environ=environ, **options))


def build_library(folder, *, name="libmpi.so.40", text="MPICH Version: 4.0.2"):
    """Compile a library that calls itself an MPI."""
    folder.mkdir(parents=True)
    (folder / "x.c").write_text(
        "#include <string.h>\nint MPI_Get_library_version(char *t, int *n)"
        f'{{ strcpy(t, "{text}"); *n = strlen(t); return 0; }}\n'
    )
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", folder / name, folder / "x.c"], check=True)
    return folder / name


def test_the_real_imports_pass(healthy, verdict, lock):
    facts = healthy[1]
    for name in ("tensorflow.import", "tensorflow.loaded", "horovod.import"):
        assert verdict(name, facts, lock=lock).status is Status.PASS, name
    assert verdict("horovod.mpi", facts).status is Status.PASS
    assert verdict("libraries.duplicates", facts).status is Status.PASS
    assert verdict("mpi.library", facts).status is Status.PASS
    assert facts.value("frameworks.mpi_library")["text"].startswith("Open MPI")


def test_the_real_cpu_build_has_no_nccl(healthy, verdict):
    result = verdict("horovod.nccl", healthy[1], stack_device="gpu")
    assert (result.status, result.found) == (Status.FAIL, "no NCCL")


def test_another_loaded_version(healthy, verdict, lock):
    older = replace(lock, components={**lock.components, "tensorflow": "2.15.1"})
    result = verdict("tensorflow.loaded", healthy[1], lock=older)
    assert result.status is Status.FAIL
    assert "tensorflow 2.15.1" in result.expected


def test_stand_ins_are_loaded_by_the_real_child(fakes):
    facts = probe(fakes())
    assert facts.value("frameworks.tensorflow")["keras"] == "3.15.1"
    assert facts.value("frameworks.horovod")["mpi"] is True
    assert facts.value("frameworks.mpi_library") is None


def test_an_illegal_instruction_is_named(fakes, verdict):
    facts = probe(fakes(tensorflow=DIE))
    result = verdict("tensorflow.import", facts)
    assert result.status is Status.FAIL
    assert "died by SIGILL" in result.found
    assert "for this CPU" in result.fix
    later = verdict("horovod.import", facts)
    assert (later.status, "tensorflow failed" in later.found) == (Status.UNKNOWN, True)


def test_an_import_error_keeps_its_words(fakes, verdict):
    facts = probe(fakes(tensorflow="raise TypeError('Descriptors cannot be created directly')"))
    result = verdict("tensorflow.import", facts)
    assert result.found == "TypeError: Descriptors cannot be created directly"


def test_an_import_without_end_is_unknown(fakes, verdict):
    facts = probe(fakes(tensorflow="import time\ntime.sleep(60)"), timeout_s=1)
    result = verdict("tensorflow.import", facts)
    assert (result.status, "no answer within 1 s" in result.found) == (Status.UNKNOWN, True)


def test_an_interpreter_that_is_not_there(fakes, verdict):
    facts = probe(fakes(), python="/no/python")
    assert verdict("tensorflow.import", facts).status is Status.UNKNOWN


@pytest.mark.parametrize(
    ("words", "meaning"),
    [("mpi_lib.so: undefined symbol: _ZN10tensorflow", "another TensorFlow"),
     ("version `GLIBCXX_3.4.99' not found", "an older libstdc++"),
     ("Extension horovod.tensorflow has not been built", "never compiled")],
)  # fmt: skip
def test_horovod_fails_to_load(fakes, verdict, words, meaning):
    facts = probe(fakes(horovod__tensorflow=f"raise ImportError({words!r})"))
    result = verdict("horovod.import", facts)
    assert result.status is Status.FAIL
    assert words in result.found
    assert meaning in result.found


def test_horovod_without_mpi(fakes, verdict):
    code = "mpi_built = lambda: False\ngloo_built = lambda: True\nnccl_built = lambda: 0\n"
    facts = probe(fakes(horovod__tensorflow=code))
    result = verdict("horovod.mpi", facts)
    assert (result.status, result.found) == (Status.FAIL, "built with gloo")


def test_another_mpi_than_the_launcher(fakes, verdict, healthy, tmp_path):
    library = build_library(tmp_path / "mpich")
    code = f"import ctypes\nctypes.CDLL({str(library)!r})\nmpi_built = gloo_built = lambda: True\n"
    facts = probe(fakes(horovod__tensorflow=code + "nccl_built = lambda: 0\n"))
    assert facts.value("frameworks.mpi_library")["text"] == "MPICH Version: 4.0.2"
    result = verdict("mpi.library", {**healthy[1], **facts})
    assert result.status is Status.FAIL
    assert "libmpi is MPICH" in result.found
    assert str(library) in result.where


def test_two_copies_of_one_library(fakes, verdict, tmp_path):
    files = [str(build_library(tmp_path / name)) for name in ("one", "two")]
    load = f"import ctypes\n[ctypes.CDLL(file) for file in {files}]\n"
    facts = probe(fakes(keras=load + "__version__ = '3'\n"))
    result = verdict("libraries.duplicates", facts)
    assert (result.status, result.found) == (Status.FAIL, f"libmpi: {files[0]} and {files[1]}")


def test_other_versions_are_loaded_than_locked(fakes, verdict, lock):
    facts = probe(fakes(numpy="__version__ = '1.0.0'"))
    assert "numpy 1.0.0" in verdict("tensorflow.loaded", facts, lock=lock).found


def test_an_outer_launcher_does_not_reach_the_child(fakes):
    code = "import os\n__version__ = os.environ.get('OMPI_COMM_WORLD_SIZE', 'alone')\n"
    facts = probe(fakes({"OMPI_COMM_WORLD_SIZE": "4"}, keras=code))
    assert facts.value("frameworks.tensorflow")["keras"] == "alone"
