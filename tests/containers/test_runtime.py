"""Engines: exact command lines, which is found, what is refused. Stubs stand for them all."""

from dataclasses import replace
from pathlib import Path

import pytest

from containers import runtime
from containers.runtime import ENGINES, BuildRequest, exec_command, find_engine, has_capability
from env.errors import UserError

BARE = BuildRequest(
    Path("/w/def"), Path("/w/ctx"), Path("/o/img"), Path("/w"), tag="chexnet:cpu",
    lent=Path("/w/lent"), packages=Path("/w/packages"), epoch=86400,
)  # fmt: skip
FULL = replace(BARE, labels={"b": "2 3", "a": "1"}, lends_ca=True)
LABELS = ["--label", "a=1", "--label", "b=2 3"]
SECRET = ["--secret", "id=host-ca,src=/w/lent/host-ca.crt"]
FILE = ["--file", "/w/def", "--tag", "chexnet:cpu"]
ENV = [
    "env",
    "SOURCE_DATE_EPOCH=86400",
    "APPTAINER_TMPDIR=/w",
    "SINGULARITY_TMPDIR=/w",
    "APPTAINER_MKSQUASHFS_ARGS=-Xcompression-level 1",
]
BIND = ["--bind", "/w/lent:/mnt:ro", "--bind", "/w/packages:/mnt/packages:ro"]
LIMITS = ["--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096"]
CHROOT = ["--isolation=chroot", "--network=host", "--layers", "--force-rm", "--format=docker"]


@pytest.fixture
def path(tmp_path, monkeypatch):
    """Put named stubs, and nothing else, on PATH."""

    def put(*names, exit_code=0):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        for name in names:
            stub = folder / name
            stub.write_text(f"#!/bin/sh\nexit {exit_code}\n")
            stub.chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))

    put()
    return put


@pytest.fixture
def user(monkeypatch):
    """Choose who runs: root with every capability, half a root, or an ordinary user."""

    def be(kind):
        monkeypatch.setattr(runtime.os, "geteuid", lambda: 1000 if kind == "user" else 0)
        monkeypatch.setattr(runtime, "has_capability", lambda _bit: kind == "root")
        monkeypatch.setattr(runtime.resource, "getrlimit", lambda _limit: (512, 4096))

    return be


@pytest.mark.parametrize(
    ("name", "who", "request_", "expected"),
    [
        (
            "apptainer", "root", BARE,
            [[*ENV, "apptainer", "build", "--force", *BIND, "/o/img", "/w/def"]],
        ),
        (
            "apptainer", "half", BARE,
            [[*ENV, "apptainer", "build", "--force", "--fakeroot", *BIND, "/o/img", "/w/def"]],
        ),
        (
            "singularity", "user", FULL,
            [[*ENV, "singularity", "build", "--force", "--fakeroot", *BIND, "/o/img", "/w/def"]],
        ),
        (
            "docker", "user", FULL,
            [["env", "DOCKER_BUILDKIT=1", "docker", "build", *FILE, *LABELS, *SECRET, "/w/ctx"],
             ["docker", "save", "--output", "/o/img", "chexnet:cpu"]],
        ),
        (
            "docker", "user", BARE,
            [["env", "DOCKER_BUILDKIT=1", "docker", "build", *FILE, "/w/ctx"],
             ["docker", "save", "--output", "/o/img", "chexnet:cpu"]],
        ),
        (
            "podman", "user", FULL,
            [["podman", "build", *CHROOT, *LIMITS, *FILE, *LABELS, *SECRET, "/w/ctx"],
             ["podman", "save", "--format", "oci-archive", "--output", "/o/img", "chexnet:cpu"]],
        ),
        (
            "buildah", "user", FULL,
            [["buildah", "bud", *CHROOT, *LIMITS, *FILE, *LABELS, *SECRET, "/w/ctx"],
             ["buildah", "push", "chexnet:cpu", "oci-archive:/o/img:chexnet:cpu"]],
        ),
        (
            "buildah", "root", BARE,
            [["buildah", "bud", *CHROOT, *FILE, "/w/ctx"],
             ["buildah", "push", "chexnet:cpu", "oci-archive:/o/img:chexnet:cpu"]],
        ),
    ],
)  # fmt: skip
def test_build_commands(name, who, request_, expected, user):
    user(who)
    assert ENGINES[name].build_commands(request_) == expected


def test_a_sandbox_is_asked_for(user):
    user("root")
    request = replace(BARE, output=Path("/o/folder"), sandbox=True)
    assert ENGINES["apptainer"].build_commands(request) == [
        [*ENV, "apptainer", "build", "--force", "--sandbox", *BIND, "/o/folder", "/w/def"]
    ]


BINDS = [(Path("/data"), None), (Path("/a"), Path("/b"))]
MOUNTS = ["--bind", "/data:/data", "--bind", "/a:/b"]
VOLUMES = ["--volume", "/data:/data", "--volume", "/a:/b"]
RUN = ["run", "--rm", "--network", "host", "--ipc", "host"]


@pytest.mark.parametrize(
    ("engines", "who", "binds", "expected"),
    [
        (["apptainer", "singularity"], "user", BINDS, ["apptainer", "exec", *MOUNTS]),
        (["singularity"], "user", [], ["singularity", "exec"]),
        (["apptainer"], "half", BINDS, ["apptainer", "exec", "--no-privs", *MOUNTS]),
        (["apptainer"], "root", [], ["apptainer", "exec"]),
    ],
)
def test_a_file_is_entered_with_apptainer(engines, who, binds, expected, path, user, tmp_path):
    path(*engines)
    user(who)
    image = tmp_path / "x.sif"
    image.touch()
    assert exec_command(image, ["python", "-m", "env"], binds=binds) == [
        *expected, str(image), "python", "-m", "env",
    ]  # fmt: skip


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_a_name_is_entered_with_docker_or_podman(engine, path, tmp_path, monkeypatch):
    path(engine)
    monkeypatch.chdir(tmp_path)
    assert exec_command("chexnet:cpu", ["id"], binds=BINDS) == [
        engine, *RUN, *VOLUMES, "--workdir", str(tmp_path), "chexnet:cpu", "id",
    ]  # fmt: skip
    assert exec_command("chexnet:cpu", ["id"])[-4:] == ["--workdir", "/", "chexnet:cpu", "id"]


def test_the_environment_is_not_cleaned_since_mpirun_speaks_through_it(path, user, tmp_path):
    path("apptainer")
    user("user")
    assert "--cleanenv" not in exec_command(tmp_path, ["true"])


@pytest.mark.parametrize(
    ("present", "format", "first"),
    [
        (["singularity", "apptainer"], "singularity", "apptainer"),
        (["singularity", "docker"], "singularity", "singularity"),
        (["buildah", "podman", "docker"], "docker", "docker"),
        (["buildah", "podman"], "docker", "podman"),
        (["buildah", "apptainer"], "docker", "buildah"),
    ],
)
def test_the_first_engine_on_path_is_taken(present, format, first, path):
    path(*present)
    assert find_engine(format=format).name == first


def test_docker_without_a_daemon_is_passed_over(path):
    path("docker", exit_code=1)
    path("buildah")
    assert find_engine(format="docker").name == "buildah"
    with pytest.raises(UserError, match="answering"):
        find_engine(format="docker", name="docker")


@pytest.mark.parametrize(
    ("name", "format", "present", "words"),
    [
        ("rkt", "docker", ["docker"], ["'rkt'", "apptainer, buildah, docker, podman, singularity"]),
        ("docker", "singularity", ["docker"], ["'docker', for docker", "apptainer, singularity"]),
        ("apptainer", "singularity", [], ["apptainer on PATH", "env/bootstrap.sh"]),
        ("buildah", "docker", ["docker"], ["buildah on PATH", "apt-get install buildah"]),
        (None, "singularity", ["docker"], ["none of apptainer, singularity", "env/bootstrap.sh"]),
        (None, "docker", [], ["none of docker, podman, buildah", "apt-get install buildah"]),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_way_out(name, format, present, words, path):
    path(*present)
    with pytest.raises(UserError) as caught:
        find_engine(format=format, name=name)
    assert caught.value.exit_code == 2
    for word in words:
        assert word in str(caught.value)


def test_an_archive_has_to_be_loaded_first(path):
    path("podman")
    with pytest.raises(UserError, match="podman load --input a"):
        exec_command(Path("a.tar"), ["true"])


def test_buildah_does_not_run_images(path):
    path("buildah")
    with pytest.raises(UserError, match="only builds"):
        exec_command("chexnet:cpu", ["true"])


def test_an_image_that_is_not_there_is_refused(path, tmp_path):
    path("apptainer")
    with pytest.raises(UserError, match="invoke build-image"):
        exec_command(tmp_path / "absent.sif", ["true"])


@pytest.mark.parametrize(
    ("effective", "bit", "expected"),
    [
        ("000001ffffffffff", 24, True),
        ("00000000fe000000", 24, False),
        ("0000000001000000", 24, True),
    ],
)
def test_capabilities_are_read_from_the_effective_set(effective, bit, expected, tmp_path):
    status = tmp_path / "status"
    status.write_text(f"Name:\tx\nCapPrm:\tffffffffffffffff\nCapEff:\t{effective}\n")
    assert has_capability(1 << bit, status=status) is expected


def test_a_status_without_the_set_grants_nothing(tmp_path):
    status = tmp_path / "status"
    status.write_text("Name:\tx\n")
    assert has_capability(1, status=status) is False
