"""The images themselves, built in earnest: what is in them, what is not, and that they run."""

import json
import os
import re
import shutil
import subprocess
import tarfile

import pytest

from containers.runtime import exec_command
from env.lock import load_lock, lock_path
from env.stack import PROJECT, load_stack
from recipes import layout
from recipes.blocks.project import ENVIRONMENT

pytestmark = pytest.mark.container
LOCK = load_lock(lock_path("cpu"))
COMPONENTS = load_stack("cpu").components
COMPILERS = {
    "gcc", "g++", "cc", "c++", "cc1", "cc1plus", "cpp", "clang", "gfortran", "as", "ld", "make",
    "cmake", "pip", "pip3", "mpicc", "mpicxx", "mpic++", "mpif90", "opal_wrapper",
}  # fmt: skip
ALLREDUCE = """
import sys, pathlib, tensorflow as tf, horovod.tensorflow as hvd
hvd.init()
total = hvd.allreduce(tf.constant([float(hvd.rank() + 1)] * 3), op=hvd.Sum)
text = f"{hvd.rank()} of {hvd.size()}: {total.numpy().tolist()}"
pathlib.Path(sys.argv[1], f"rank-{hvd.rank()}").write_text(text)
"""
IMPORTS = "import tensorflow, horovod.tensorflow; print('VERSION', tensorflow.__version__)"


def run(*argv, **kwargs):
    """Run a command from /, with nothing of the checkout in its environment."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        argv, cwd="/", capture_output=True, text=True, timeout=600,
        env=environment | kwargs.pop("env", {}), **kwargs,
    )  # fmt: skip
    assert done.returncode == 0, f"{argv}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def inside(sif, *argv, **kwargs):
    return run(*exec_command(sif, argv), **kwargs)


MPIRUN = ["mpirun", *(["--allow-run-as-root"] if os.geteuid() == 0 else []), "-np", "2",
          "--bind-to", "none", "--map-by", "slot:OVERSUBSCRIBE"]  # fmt: skip


def test_it_runs_from_any_folder_with_the_locked_versions(sif):
    assert f"VERSION {COMPONENTS['tensorflow']}" in inside(sif, "python", "-c", IMPORTS)
    assert "train" in inside(sif, "invoke", "--list")


@pytest.mark.slow
def test_it_runs_as_an_ordinary_user_too(sif, ordinary):
    command = [*ordinary, *exec_command(sif, ["python", "-c", IMPORTS + "; import env"])]
    assert f"VERSION {COMPONENTS['tensorflow']}" in run(*command)
    assert "train" in run(*ordinary, *exec_command(sif, ["invoke", "--list"]))


@pytest.mark.slow
@pytest.mark.parametrize("mpirun", ["the image's", "the host's"])
def test_two_ranks_meet_whoevers_mpirun_starts_them(sif, tmp_path, mpirun, same_mpi):
    program = ["python", "-c", ALLREDUCE, str(tmp_path)]
    binds = [(tmp_path, None)]
    if mpirun == "the image's":
        run(*exec_command(sif, [*MPIRUN, *program], binds=binds))
    elif same_mpi:
        run(*MPIRUN, *exec_command(sif, program, binds=binds))
    else:
        pytest.skip("Open MPI of another series here: tests/test_chain.py sees it refused")
    told = sorted(path.read_text() for path in tmp_path.iterdir())
    assert told == [f"{rank} of 2: [3.0, 3.0, 3.0]" for rank in range(2)]


def test_its_own_test_passes(sif):
    program = exec_command(sif, [])[0]
    privileges = [word for word in exec_command(sif, []) if word == "--no-privs"]
    run(program, "test", *privileges, str(sif))


def test_the_lock_inside_is_the_committed_one(sif):
    assert inside(sif, "cat", layout.LOCK) == lock_path("cpu").read_text(encoding="utf-8")
    assert inside(sif, "sh", "-c", "echo $CHEXNET_LOCK").strip() == layout.LOCK
    assert inside(sif, "cat", "/etc/invoke.yaml") == (f"tasks:\n  search_root: {layout.PROJECT}\n")


def check_labels(labels):
    prefix = "org.opencontainers.image."
    assert labels["chexnet.stack"] == "cpu"
    assert labels["chexnet.lock.sha256"] == LOCK.sha256
    assert labels[f"{prefix}title"] == "chexnet-cpu"
    assert labels[f"{prefix}source"]
    base = {"mmdebstrap:bookworm", load_stack("cpu").base.image}
    assert labels[f"{prefix}base.name"] in base
    assert re.fullmatch(r"unknown|[0-9a-f]{40}(-dirty)?", labels[f"{prefix}revision"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", labels[f"{prefix}created"])


def test_the_labels_say_what_it_is(sif):
    program = exec_command(sif, [])[0]
    told = json.loads(run(program, "inspect", "--json", "--labels", str(sif)))
    check_labels(told["data"]["attributes"]["labels"])


def check_files(paths):
    """Check what must not be in an image, given every path in it."""
    names = {path.rpartition("/")[2] for path in paths if "/bin/" in path or "/libexec/" in path}
    assert not names & COMPILERS
    assert not [name for name in names if re.search(r"(gcc|g\+\+|clang)-\d+$", name)]
    assert not [path for path in paths if "/cc1" in path]
    for folder in ("/root/.cache/pip", "/var/lib/apt/lists/d",
                   "/opt/chexnet/build", "/opt/chexnet/project/tests",
                   "/opt/chexnet/project/runs"):  # fmt: skip
        assert not [path for path in paths if path.startswith(folder)]
    assert not [path for path in paths if path.endswith((".deb", "host-ca.crt"))]
    for part in layout.PROJECT_PARTS:
        assert any(path.startswith(f"{layout.PROJECT}/{part}") for path in paths), part
    # The stock ignore file of Python projects lists env/; this one must have come along.
    assert f"{layout.PROJECT}/env/stacks.toml" in paths


@pytest.mark.parametrize(
    "path",
    ["/usr/bin/gcc", "/usr/bin/x86_64-linux-gnu-gcc-12", "/usr/libexec/gcc/x/12/cc1plus",
     "/opt/chexnet/venv/bin/pip", "/usr/bin/mpicc", "/root/.cache/pip/http/a", "/var/x.deb"],
)  # fmt: skip
def test_the_check_of_files_sees_what_should_not_be_there(path):
    fine = {f"{layout.PROJECT}/{part}" for part in layout.PROJECT_PARTS}
    fine |= {f"{layout.PROJECT}/env/stacks.toml", "/usr/bin/python3.11"}
    check_files(fine)
    with pytest.raises(AssertionError):
        check_files(fine | {path})


def test_nothing_that_only_builds_is_left(sif):
    paths = inside(sif, "find", "/", "-xdev", "-not", "-path", "/proc/*").splitlines()
    assert len(paths) > 10_000
    check_files(set(paths))


def test_it_holds_the_locked_packages_exactly_and_no_others(sif):
    told = inside(sif, "dpkg-query", "-W", "-f", "${Package} ${Version} ${Architecture}\\n")
    wanted = LOCK.system_group("base") + LOCK.system_group("run")
    assert sorted(told.split("\n")[:-1]) == sorted(
        f"{p.name} {p.version} {p.architecture}" for p in wanted
    )


def test_the_folder_it_was_built_from_has_left_no_trace(sif):
    assert inside(sif, "ls", "-A", "/mnt") == ""
    told = inside(sif, "sh", "-c", "cat /etc/apt/sources.list; ls /etc/apt/sources.list.d")
    assert not [line for line in told.splitlines() if not line.startswith("#")]
    definition = inside(sif, "cat", "/.singularity.d/Singularity")
    assert "From: base\n" in definition
    assert str(PROJECT) not in definition


def test_what_would_differ_in_another_build_is_not_in_it(sif):
    files = inside(sif, "find", "/var/log", "/var/cache", "-type", "f", "-size", "+0").splitlines()
    assert [path for path in files if not path.startswith("/var/cache/debconf/")] == []
    told = inside(sif, "sh", "-c", "cat /etc/machine-id 2>/dev/null || true").strip()
    assert told in {"", "uninitialized"}


def test_byte_code_goes_by_its_source_and_not_by_a_time(sif):
    """PEP 552: the second word of the file, bit 0."""
    program = (
        "import pathlib, sys\n"
        "for root in sys.argv[1:]:\n"
        "    for path in pathlib.Path(root).rglob('*.pyc'):\n"
        "        print(path.open('rb').read(8)[4] & 1)\n"
    )
    flags = inside(sif, "python", "-c", program, layout.VENV, "/usr/lib/python3.11").split()
    assert len(flags) > 1000
    assert set(flags) == {"1"}


def test_the_lent_ca_is_not_in_it(sif, ca_mark):
    places = ["/etc", "/mnt", "/opt/chexnet/project", "/usr/share", "/usr/local", "/var"]
    script = f"grep -rlsF '{ca_mark}' {' '.join(places)} | grep -v conftest.py"
    done = subprocess.run(exec_command(sif, ["sh", "-c", script]), capture_output=True, text=True)
    assert done.stdout == ""
    assert "ca-certificates.crt" in inside(sif, "ls", "/etc/ssl/certs/ca-certificates.crt")


@pytest.fixture(scope="module")
def archive(oci, ca_mark):
    """Return the configuration of the OCI archive and every path of all its layers."""
    with tarfile.open(oci) as outer:

        def blob(digest):
            return outer.extractfile(f"blobs/{digest.replace(':', '/')}")

        index = json.load(outer.extractfile("index.json"))
        manifest = json.load(blob(index["manifests"][0]["digest"]))
        config = json.load(blob(manifest["config"]["digest"]))
        paths, marked = set(), []
        for layer in manifest["layers"]:
            with tarfile.open(fileobj=blob(layer["digest"]), mode="r|*") as inner:
                for member in inner:
                    paths.add("/" + member.name.removeprefix("./"))
                    if member.isfile() and member.name.endswith((".crt", ".pem")):
                        content = inner.extractfile(member).read()
                        marked += [member.name] * (ca_mark.encode() in content)
    return config["config"], paths, marked


def test_the_archive_is_labelled_and_set_up_as_the_other(archive):
    config, _, _ = archive
    check_labels(config["Labels"])
    told = dict(item.split("=", 1) for item in config["Env"])
    assert told["PATH"].startswith(f"{layout.VENV}/bin:")
    for name in ENVIRONMENT.keys() - {"PATH"}:
        assert told[name] == ENVIRONMENT[name]


def test_no_layer_of_the_archive_holds_what_only_builds(archive):
    _, paths, marked = archive
    check_files(paths)
    assert marked == []


def test_the_archive_runs(oci):
    assert shutil.which("buildah"), "buildah runs a command in an archive without a daemon"
    # Low limits, which nobody is refused: newer releases would raise them by themselves.
    limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=32768:32768"]
    name = run("buildah", "from", *limits, f"oci-archive:{oci}").strip().splitlines()[-1]
    try:
        command = ["python", "-c", IMPORTS]
        text = run("buildah", "run", "--isolation=chroot", name, "--", *command)
        assert f"VERSION {COMPONENTS['tensorflow']}" in text
    finally:
        run("buildah", "rm", name)
