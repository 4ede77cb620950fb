"""The launcher on PATH: stub mpirun programs with the banners of each family."""

from dataclasses import replace

import pytest

from env.facts import Facts
from env.probes.mpi import probe_mpi
from env.result import Status


def stub(folder, text, *, name="mpirun"):
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def probe(environ, **options):
    return Facts(probe_mpi(environ=environ, **options))


def test_the_real_launcher(healthy, verdict, lock):
    facts = healthy[1]
    assert verdict("mpi.launcher", facts).status is Status.PASS
    assert verdict("mpi.version", facts, lock=lock).status is Status.PASS
    other = replace(lock, components={**lock.components, "openmpi": "9.9.9"})
    assert verdict("mpi.version", facts, lock=other).status is Status.FAIL


@pytest.mark.parametrize(
    ("lines", "family"),
    [("echo 'HYDRA build details:'; echo '    Version:       4.0.2'", "MPICH"),
     ("echo 'Intel(R) MPI Library for Linux* OS, Version 2021.8'", "Intel MPI"),
     ("echo 'slurmstepd wrapper'", "an unknown MPI")],
)  # fmt: skip
def test_other_families(tmp_path, verdict, lines, family):
    facts = probe(stub(tmp_path / "bin", lines))
    result = verdict("mpi.launcher", facts)
    assert (result.status, result.found.split(":")[0]) == (Status.FAIL, family)
    assert result.where == str(tmp_path / "bin/mpirun")


@pytest.mark.parametrize(
    "banner", ["mpirun (Open MPI) 4.1.4", "mpirun (OpenRTE) 5.0.7", "prterun (PRRTE) 3.0"]
)
def test_the_names_of_open_mpi(tmp_path, verdict, banner):
    facts = probe(stub(tmp_path / "bin", f"echo '{banner}'"))
    assert verdict("mpi.launcher", facts).status is Status.PASS


def test_the_version_of_hydra_is_read(tmp_path):
    lines = "echo 'HYDRA build details:'; echo '    Version:       4.0.2'"
    banner = probe(stub(tmp_path / "bin", lines)).value("mpi.banner")
    assert banner == "HYDRA build details: Version:       4.0.2"


def test_no_launcher(tmp_path, verdict):
    result = verdict("mpi.launcher", probe({"PATH": str(tmp_path)}))
    assert (result.status, result.where) == (Status.FAIL, "PATH")


@pytest.mark.parametrize("lines", ["sleep 60", "exit 3", "kill -SEGV $$"])
def test_a_launcher_that_does_not_answer(tmp_path, verdict, lines):
    facts = probe(stub(tmp_path / "bin", lines), timeout_s=1)
    assert verdict("mpi.launcher", facts).status is Status.UNKNOWN


def test_ompi_info_says_where_it_is_installed(tmp_path):
    environ = stub(tmp_path / "bin", "echo 'mpirun (Open MPI) 4.1.4'")
    assert probe(environ).value("mpi.prefix") == str(tmp_path)
    stub(tmp_path / "bin", "echo path:prefix:/opt/ompi", name="ompi_info")
    assert probe(environ).value("mpi.prefix") == "/opt/ompi"


def test_another_installation_of_the_same_version(tmp_path, verdict, healthy):
    banner = healthy[1].value("mpi.banner")
    facts = {**healthy[1], **probe(stub(tmp_path / "bin", f"echo '{banner}'"))}
    result = verdict("mpi.library", facts)
    assert (result.status, result.expected) == (Status.WARN, f"libmpi under {tmp_path}")


def test_an_outer_launcher_does_not_reach_mpirun(tmp_path):
    environ = stub(tmp_path / "bin", 'echo "mpirun (Open MPI) ${OMPI_COMM_WORLD_SIZE:-alone}"')
    facts = probe({**environ, "OMPI_COMM_WORLD_SIZE": "4"})
    assert facts.value("mpi.banner") == "mpirun (Open MPI) alone"
