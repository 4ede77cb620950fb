"""Packages, seen without an import: stub dist-info folders and copied Horovod trees."""

import json
import shutil
import sys
import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest

from env.facts import Facts
from env.lock import PythonPackage
from env.names import normal_name
from env.probes.packages import probe_packages
from env.result import Status

SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


def add_package(folder, name, version, *, module=None):
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    if module:
        (folder / module).mkdir(exist_ok=True)
        (folder / module / "__init__.py").touch()


@pytest.fixture
def horovod_tree(tmp_path):
    """A copy of the installed Horovod's telling files, without the compiled code."""
    source = Path(next(Path(p) for p in sys.path if (Path(p) / "horovod/metadata.json").exists()))
    target = tmp_path / "site"
    (target / "horovod/tensorflow").mkdir(parents=True)
    for name in ("__init__.py", "metadata.json"):
        shutil.copy(source / "horovod" / name, target / "horovod" / name)
    for extension in (source / "horovod/tensorflow").glob("mpi_lib*.so"):
        (target / "horovod/tensorflow" / extension.name).touch()
    built = json.loads((target / "horovod/metadata.json").read_text())["tensorflow"]
    add_package(target, "tensorflow-cpu", built)
    return target


def probe(*folders, **environ):
    return Facts(probe_packages(environ=environ, path=[str(folder) for folder in folders]))


def test_names_are_compared_as_pypi_does():
    assert normal_name("Tensor_flow.CPU") == "tensor-flow-cpu"


def test_the_first_copy_on_the_path_counts(tmp_path):
    add_package(tmp_path / "a", "numpy", "1.26.4", module="numpy")
    add_package(tmp_path / "b", "numpy", "2.4.6", module="numpy")
    facts = probe(tmp_path / "a", tmp_path / "b")
    assert facts.value("packages.installed")["numpy"]["version"] == "1.26.4"
    origin = str(tmp_path / "a/numpy/__init__.py")
    assert facts.value("packages.modules") == {
        "tensorflow": None, "keras": None, "horovod": None, "numpy": origin,
    }  # fmt: skip


def test_this_python_against_the_lock(lock, verdict):
    facts = Facts(probe_packages())
    assert verdict("python.version", facts, lock=lock).status is Status.PASS
    other = replace(lock, components={**lock.components, "python": "3.10"})
    result = verdict("python.version", facts, lock=other)
    assert (result.status, result.where) == (Status.FAIL, sys.executable)
    assert verdict("python.version", facts).status is Status.UNKNOWN


def test_a_package_of_another_version(lock, verdict, tmp_path):
    facts = Facts(probe_packages())
    assert verdict("python.packages", facts, lock=lock).status is Status.PASS
    add_package(tmp_path, "numpy", "1.0.0")
    result = verdict("python.packages", probe(tmp_path, *sys.path), lock=lock)
    assert result.status is Status.FAIL
    assert f"numpy: 1.0.0 in {tmp_path}" in result.found


def test_a_package_that_is_missing(lock, verdict):
    more = (*lock.python, PythonPackage("no-such-package", "1.0", (), ("run",)),
            PythonPackage("only-to-develop", "1.0", (), ("develop",)))  # fmt: skip
    result = verdict("python.packages", probe_packages(), lock=replace(lock, python=more))
    assert result.found == "no-such-package: not installed, locked 1.0"


def test_a_foreign_pythonpath_for_real(run_env, tmp_path):
    add_package(tmp_path, "keras", "2.15.0", module="keras")
    done = run_env("--only", "python.shadowed", "--json", "-", PYTHONPATH=str(tmp_path))
    (result,) = json.loads(done.stdout)["results"]
    assert (done.returncode, result["status"]) == (1, "FAIL")
    assert f"keras from {tmp_path}" in result["found"]
    assert result["where"] == str(tmp_path)


def test_the_user_site(verdict, tmp_path, monkeypatch):
    monkeypatch.setattr("site.getusersitepackages", lambda: str(tmp_path))
    add_package(tmp_path, "pandas", "2.0")
    facts = probe(*sys.path, tmp_path)
    container = {**facts, **Facts({"host.container": facts["packages.executable"]})}
    assert verdict("python.shadowed", container).status is Status.WARN
    add_package(tmp_path, "numpy", "1.0", module="numpy")
    facts = {**container, **probe(tmp_path, *sys.path)}
    assert verdict("python.shadowed", facts).status is Status.FAIL


def test_nothing_is_shadowed_here(healthy, verdict, lock):
    assert verdict("python.shadowed", healthy[1], lock=lock).status is Status.PASS


def test_horovod_of_another_python(horovod_tree, verdict):
    assert verdict("horovod.extension", probe(horovod_tree)).status is Status.PASS
    (extension,) = (horovod_tree / "horovod/tensorflow").glob("mpi_lib*.so")
    extension.rename(extension.with_name("mpi_lib.cpython-38-x86_64-linux-gnu.so"))
    result = verdict("horovod.extension", probe(horovod_tree))
    assert (result.status, result.expected) == (Status.FAIL, f"mpi_lib*{SUFFIX}")
    assert "cpython-38" in result.found


def test_horovod_of_another_tensorflow(horovod_tree, verdict):
    assert verdict("rules.packages", probe(horovod_tree)).status is Status.PASS
    (horovod_tree / "horovod/metadata.json").write_text('{"tensorflow": "2.4.1"}')
    add_package(horovod_tree, "horovod", "0.28.1")
    result = verdict("rules.packages", probe(horovod_tree))
    assert result.status is Status.FAIL
    assert "horovod_tensorflow 2.4.1" in result.found
    assert "--no-build-isolation" in result.fix
    (horovod_tree / "horovod/metadata.json").write_text("{")
    assert verdict("rules.packages", probe(horovod_tree)).status is Status.UNKNOWN


def test_no_horovod_at_all(tmp_path, verdict):
    result = verdict("horovod.extension", probe(tmp_path))
    assert result.status is Status.UNKNOWN
    assert "horovod is not installed" in result.found
