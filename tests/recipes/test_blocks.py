"""The building blocks: what each does in the first stage and what reaches the second."""

import re
import subprocess
import sys
from dataclasses import replace

import hpccm
import pytest
from hpccm.common import container_type

from env.lock import Lock, PythonPackage, SystemPackage
from env.stack import PROJECT
from recipes import layout
from recipes.blocks import network
from recipes.blocks.horovod import Horovod
from recipes.blocks.network import mount_packages
from recipes.blocks.project import IMAGE_CHECKS, Project
from recipes.blocks.system import SystemPackages
from recipes.blocks.tensorflow import TensorFlow

DIGEST = "ab" * 32
LOCK = Lock(
    stack="tiny",
    stack_sha256="0" * 64,
    components={"horovod": "9.8.7", "tensorflow": "6.5"},
    base={"image": "example.org/base:1"},
    sources={"horovod-9.8.7.tar.gz": DIGEST},
    edits={"path": "env/edits/h.toml", "sha256": "1" * 64},
    flags={"HOROVOD_WITH_MPI": "1", "CMAKE_X": "a"},
    system={"build": ("g++", "make"), "run": ("openmpi-bin", "python3")},
    system_packages=tuple(
        SystemPackage(name, version, "amd64", "9" * 64, 1, f"debian/{name}.deb", groups)
        for name, version, groups in (
            ("g++", "4:12.2-3", ("build",)),
            ("libc6", "2.36", ("base",)),
            ("libmpi", "4.1", ("build", "run")),
            ("openmpi-bin", "4.1", ("run",)),
        )
    ),
    python=(
        PythonPackage("cmake", "3", ("c" * 64,), ("build",)),
        PythonPackage("packaging", "1", ("d" * 64,), ("build", "run")),
        PythonPackage("tensorflow-x", "6.5", ("e" * 64,), ("run",)),
        PythonPackage("pytest", "9", ("f" * 64,), ("develop",)),
    ),
)


@pytest.fixture(params=["docker", "singularity"])
def format(request, monkeypatch):
    kinds = {"docker": container_type.DOCKER, "singularity": container_type.SINGULARITY}
    monkeypatch.setattr(hpccm.config, "g_ctype", kinds[request.param])
    monkeypatch.setattr(hpccm.config, "g_singularity_version", hpccm.config.Version("3.2"))
    return request.param


def test_system_packages_of_the_two_stages_differ_and_nothing_else_stays(format):
    block = SystemPackages(lock=LOCK)
    for text, names in (
        (str(block), ["g++=4:12.2-3", "libmpi=4.1"]),
        (block.runtime(), ["libmpi=4.1", "openmpi-bin=4.1"]),
    ):
        lines = "".join(f" \\\n        {name}" for name in names)
        assert f"$apt install -y --no-install-recommends{lines}" in text
        assert "libc6" not in text
        assert "apt-get clean" in text
        # One step: what a later layer removes still lies in the one below.
        assert text.count("RUN " if format == "docker" else "%post") == 1
    assert "opal_wrapper" in block.runtime()


def test_packages_that_cannot_be_locked_are_installed_by_name(format):
    block = SystemPackages(lock=replace(LOCK, system_packages=()))
    assert re.search(r"--no-install-recommends \\\n +g\+\+ \\\n +make\b", str(block))
    assert re.search(r"recommends \\\n +openmpi-bin \\\n +python3\b", block.runtime())


def test_a_step_that_installs_asks_a_folder_of_packages_alone_where_there_is_one(format, tmp_path):
    """The shell judges: the lines before the installing one, with the folder in its place."""
    text = str(SystemPackages(lock=LOCK)) + str(TensorFlow(lock=LOCK))
    lines = re.findall(r"if \[ -[sd] \S*/mnt/packages.*?fi", text)
    assert len(lines) == 3
    for there in (True, False):
        place = tmp_path / str(there)
        if there:
            (place / "wheels").mkdir(parents=True)
            (place / "sources.list").write_text("deb")
        script = "\n".join(line.replace("/mnt/packages", str(place)) for line in lines)
        done = subprocess.run(
            ["sh", "-c", f'{script}\necho "$apt"; echo "$PIP_NO_INDEX $PIP_FIND_LINKS"'],
            env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        apt, pip = done.stdout.splitlines()
        if there:
            assert f"SourceList={place}/sources.list" in apt
            assert "SourceParts=/dev/null" in apt
            assert pip == f"1 {place}/wheels {place}/sources"
        else:
            assert (apt, pip.strip()) == ("apt-get", "")


def test_what_an_installation_notes_for_itself_goes(format):
    for text in (str(SystemPackages(lock=LOCK)), SystemPackages(lock=LOCK).runtime()):
        assert "export SOURCE_DATE_EPOCH=315532800 PYTHONHASHSEED=0" in text
        for note in ("/var/lib/apt/lists/*", "/var/cache/ldconfig/aux-cache", "/var/log/dpkg.log"):
            assert note in text.partition("rm -rf")[2]


def test_a_dockerfile_sees_the_folder_of_packages_only_when_asked():
    text = f"RUN {network._CA_MOUNT} apt-get update\nRUN echo no network\n"
    assert mount_packages(text).splitlines() == [
        f"RUN {network._CA_MOUNT} --mount=type=bind,source=packages,target=/mnt/packages"
        " apt-get update",
        "RUN echo no network",
    ]


def test_tensorflow_installs_the_lock_by_hash_and_its_runtime_is_the_environment(format):
    block = TensorFlow(lock=LOCK)
    install = next(line for line in str(block).splitlines() if "pip install" in line)
    for option in ("--require-hashes", "--no-cache-dir", "--only-binary=:all:"):
        assert option in install
    assert f"containers/tiny/stack.lock.json {layout.BUILD}/containers/tiny" in str(block)
    copied = {
        "docker": f"COPY --from=build {layout.VENV} {layout.VENV}",
        "singularity": f"%files from build\n    {layout.VENV} {layout.VENV}",
    }
    assert copied[format] in block.runtime(_from="build")


def test_horovod_is_checked_edited_and_compiled_in_that_order(format):
    text = str(Horovod(lock=LOCK))
    order = [
        f"horovod==9.8.7 --hash=sha256:{DIGEST}",
        "--require-hashes -r source.txt",
        f"echo '{DIGEST}  horovod-9.8.7.tar.gz' | sha256sum -c -",
        "env.source_edits --rules env/edits/h.toml --source horovod-9.8.7",
        "CMAKE_X=a HOROVOD_WITH_MPI=1 pip install --no-cache-dir --no-deps --no-build-isolation",
        "pip uninstall -y cmake pip",
    ]
    places = [text.find(part) for part in order]
    assert -1 not in places
    assert places == sorted(places)


def test_horovods_runtime_is_the_proof_that_it_loads(format):
    runtime = Horovod(lock=LOCK).runtime(_from="build")
    assert "import tensorflow, horovod, horovod.tensorflow" in runtime
    assert "COPY" not in runtime
    assert "%files" not in runtime


def test_the_host_ca_is_a_mount_and_no_step_copies_it(format):
    for block in (TensorFlow(lock=LOCK), Horovod(lock=LOCK)):
        text = str(block)
        assert f"if [ -s {layout.HOST_CA} ]" in text
        assert ("--mount=type=secret,id=host-ca" in text) == (format == "docker")
        assert not re.search(rf"(COPY|ADD|cp|mv) .*{layout.HOST_CA}", text)


def test_the_project_block_gives_a_health_check_labels_and_settings(format):
    text = str(Project(lock=LOCK))
    assert "search_root: /opt/chexnet/project" in text
    assert LOCK.sha256 in text
    assert "PYTHONNOUSERSITE=1" in text
    health = {"docker": "HEALTHCHECK ", "singularity": "%test\n"}
    assert health[format] in text
    assert f"{layout.VENV}/bin/python -m env --only python.version," in text
    assert "org.opencontainers.image.title" in text
    for part in layout.PROJECT_PARTS:
        assert f"{part} {layout.PROJECT}/{part}" in text
    assert "runs" not in layout.PROJECT_PARTS
    assert "tests" not in layout.PROJECT_PARTS


def test_the_image_tests_itself_with_checks_there_are():
    listed = subprocess.run(
        [sys.executable, "-m", "env", "--list"], cwd=PROJECT, capture_output=True, text=True,
        check=True,
    ).stdout  # fmt: skip
    known = {line.split()[0] for line in listed.splitlines() if line.strip()}
    assert set(IMAGE_CHECKS) <= known


def test_what_is_installed_to_build_and_not_to_run_is_removed_and_no_more(format):
    line = next(li for li in str(Horovod(lock=LOCK)).splitlines() if "uninstall" in li)
    assert line.partition("-y")[2].partition("&&")[0].split() == ["cmake", "pip"]
