"""The bill of materials: whole, valid, and the same bytes for the same image."""

import hashlib
import json
import subprocess
import sys
import uuid

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from containers.sbom import main, render_sbom
from env.lock import load_lock, lock_path
from env.probes.distributions import Distribution
from env.probes.dpkg import SystemPackage
from env.stack import PROJECT

LOCK = load_lock(lock_path("cpu"))
SYSTEM = [
    SystemPackage("zlib1g", "1:1.2.13", "amd64", "zlib", ("Zlib",)),
    SystemPackage("libopenmpi3", "4.1.4-3+b1", "amd64", "openmpi", ("BSD-3-clause", "GPL-2+")),
]
A = "a" * 64


def distributions(folder):
    library = folder / "mpi_lib.so"
    library.write_bytes(b"machine code")
    files = ((str(library), ""), (f"{folder}/horovod/__init__.py", A))
    numpy = LOCK.version("numpy")
    return [
        Distribution("numpy", numpy, "/v", "BSD-3-Clause", ((f"{folder}/n.py", A),)),
        Distribution("horovod", LOCK.components["horovod"], "/v", "Apache Software License", files),
        Distribution("keras", "0.1", "/v", "", ()),
    ]


def render(folder, *, system=SYSTEM, turned=1, revision="abc"):
    return render_sbom(
        LOCK, system=system[::turned], python=distributions(folder)[::turned],
        project={"env/x.py": A, "tasks.py": A}, revision=revision,
    )  # fmt: skip


def component(bill, name):
    (found,) = [one for one in bill["components"] if one["name"] == name]
    return found


def properties(one):
    return {item["name"]: item["value"] for item in one["properties"]}


def test_it_is_valid_cyclonedx(tmp_path):
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(render(tmp_path))
    assert error is None


def test_the_validator_sees_a_breach(tmp_path):
    bill = json.loads(render(tmp_path))
    bill["components"][0]["colour"] = "red"
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bill)) is not None


def test_it_names_every_part_of_the_image(tmp_path):
    bill = json.loads(render(tmp_path))
    names = {one["name"] for one in bill["components"]}
    assert names == {"zlib1g", "libopenmpi3", "numpy", "horovod", "keras", "chexnet"}
    whole = bill["metadata"]["component"]
    assert (whole["type"], whole["name"]) == ("container", "chexnet-cpu")
    assert properties(whole) == {
        "chexnet:stack": "cpu", "chexnet:stack:sha256": LOCK.stack_sha256,
        "chexnet:lock:sha256": LOCK.sha256, "chexnet:base": "debian 12",
    }  # fmt: skip


def test_a_package_of_the_distribution(tmp_path):
    one = component(json.loads(render(tmp_path)), "libopenmpi3")
    assert one["purl"] == "pkg:deb/debian/libopenmpi3@4.1.4-3%2Bb1?arch=amd64&distro=debian-12"
    assert [item["license"]["name"] for item in one["licenses"]] == ["BSD-3-clause", "GPL-2+"]
    assert properties(one) == {"chexnet:source": "openmpi"}


def test_a_python_package_carries_the_hashes_of_the_lock(tmp_path):
    bill = json.loads(render(tmp_path))
    one = component(bill, "numpy")
    assert one["purl"] == f"pkg:pypi/numpy@{LOCK.version('numpy')}"
    locked = next(p for p in LOCK.python if p.name == "numpy").sha256
    assert {item["content"] for item in one["hashes"]} == set(locked)
    assert one["licenses"] == [{"license": {"id": "BSD-3-Clause"}}]
    # Another version than the locked one: the lock's hashes are not its hashes.
    assert "hashes" not in component(bill, "keras")


def test_horovod_with_how_it_was_compiled(tmp_path):
    one = component(json.loads(render(tmp_path)), "horovod")
    (source,) = LOCK.sources.values()
    assert [item["content"] for item in one["hashes"]] == [source]
    told = properties(one)
    assert told["chexnet:flag:HOROVOD_WITH_MPI"] == "1"
    assert told["chexnet:edits:sha256"] == LOCK.edits["sha256"]
    assert told["chexnet:against:tensorflow"] == LOCK.components["tensorflow"]
    (library,) = one["components"]
    digest = hashlib.sha256(b"machine code").hexdigest()
    assert library["name"].endswith("/mpi_lib.so")
    assert library["hashes"] == [{"alg": "SHA-256", "content": digest}]


def test_the_project_with_its_files(tmp_path):
    one = component(json.loads(render(tmp_path)), "chexnet")
    assert one["version"] == "abc"
    files = {file["name"]: file["hashes"][0]["content"] for file in one["components"]}
    assert files == {f"/opt/chexnet/project/{name}": A for name in ("env/x.py", "tasks.py")}


def test_the_same_image_gives_the_same_bytes_in_whatever_order(tmp_path):
    assert render(tmp_path) == render(tmp_path, turned=-1)


def test_the_time_of_the_build_is_not_in_it(tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert "timestamp" not in json.loads(render(tmp_path))["metadata"]


def test_another_image_gives_another_serial_number(tmp_path):
    told = [json.loads(render(tmp_path, revision=r))["serialNumber"] for r in ("abc", "abd")]
    assert told[0] != told[1]
    assert all(uuid.UUID(one).version == 5 for one in told)


def test_it_does_not_depend_on_hash_seeds():
    program = (
        "import sys; from containers.sbom import render_sbom; from env.lock import *; "
        "from env.probes.dpkg import SystemPackage as S; "
        "print(render_sbom(load_lock(lock_path('cpu')), system=[S(str(n), '1', 'all', 's',"
        " ('b', 'a')) for n in range(9)], python=[], project={}, revision='r'))"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", program], cwd=PROJECT, env={"PYTHONHASHSEED": seed},
            capture_output=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(texts) == 1


def test_outside_of_an_image_it_says_what_is_missing(tmp_path, capsys):
    assert main(["--lock", str(tmp_path / "none"), "--output", str(tmp_path / "out")]) == 2
    assert "a lock file" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["--help", "--what"])
def test_its_command_line(name, capsys):
    with pytest.raises(SystemExit) as caught:
        main([name])
    assert caught.value.code == (0 if name == "--help" else 2)
