"""What redirects a run without any package's file changing: one thing planted at a time."""

import re
import subprocess

import pytest

from containers.redirects import find_redirects
from env.facts import CannotTellError, Fact, Facts
from env.lock import load_lock, lock_path
from env.stack import load_stack
from recipes.render import render_definition

DEBIAN, NGC = load_lock(lock_path("cuda12")), load_lock(lock_path("ngc12"))
MPI = "/usr/local/pmix/lib\n/usr/local/ucx/lib\n/usr/local/openmpi/lib\n"
# As they are in images that were built; the last folder is of an engine's making.
CLEAN = {
    "invoke": "tasks:\n  search_root: /opt/chexnet/project\n",
    "venv": "home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.13.5\n"
    "executable = /usr/bin/python3.13\ncommand = /usr/bin/python3 -m venv /opt/chexnet/venv\n",
    "scripts": [
        "01-base.sh", "10-docker2singularity.sh", "90-environment.sh", "91-environment.sh",
        "94-appsbase.sh", "95-apps.sh", "99-base.sh", "99-runtimevars.sh",
    ],
    "linker": {},
}  # fmt: skip


def find(*, lock=DEBIAN, **changes):
    told = {f"inventory.{k}": Fact(v, f"of {k}") for k, v in (CLEAN | changes).items()}
    return find_redirects(Facts(told), lock=lock)[1]


def test_what_builds_write_is_no_difference():
    assert find() == []
    assert find(scripts=[]) == []  # an OCI image
    assert find(linker={"/etc/ld.so.conf.d/nvcr-123.conf": "/usr/lib64\n"}) == []
    ngc = {"/etc/ld.so.conf.d/mpi.conf": MPI, "/etc/ld.so.conf.d/nvidia.conf": "/usr/local/cuda\n"}
    assert find(lock=NGC, linker=ngc) == []


@pytest.mark.parametrize("stack", ["cpu", "cuda12", "ngc12"])
def test_the_definitions_write_what_is_expected(stack):
    text = render_definition(load_stack(stack), format="singularity")
    (line,) = (one for one in text.splitlines() if one.endswith("> /etc/invoke.yaml"))
    command = line.replace("/etc/invoke.yaml", "/dev/stdout")
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout == CLEAN["invoke"]
    second = text.rpartition("BootStrap:")[2]
    lists = re.findall(r"(printf.*)> /etc/ld.so.conf.d/mpi.conf", second)
    assert len(lists) == second.count("/etc/ld.so.conf.d") == (stack == "ngc12")
    for command in lists:
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
        assert done.stdout == MPI


@pytest.mark.parametrize(
    ("changes", "found", "where"),
    [
        ({"invoke": "tasks:\n  search_root: /tmp/evil\n"}, "/tmp/evil", "of invoke"),
        ({"invoke": None}, "no such file", "of invoke"),
        ({"venv": CLEAN["venv"].replace("false", "true")}, "packages = true", "of venv"),
        ({"venv": "home = /usr/bin\n"}, "none", "of venv"),
        ({"venv": CLEAN["venv"] + "Include-System-Site-Packages=true\n"}, "false, true", "of venv"),
        ({"venv": CLEAN["venv"].replace("= /usr/bin\n", "= /tmp/evil\n")}, "/tmp/evil", "of venv"),
        ({"scripts": [*CLEAN["scripts"], "99-evil.sh"]}, "99-evil.sh", "of scripts/99-evil.sh"),
        ({"scripts": ["90-environment.sh.sh"]}, "90-e", "of scripts/90-environment.sh.sh"),
        ({"linker": {"/etc/ld.so.conf.d/evil.conf": "/tmp/evil\n"}}, "/tmp/evil",
         "/etc/ld.so.conf.d/evil.conf"),
        ({"lock": NGC, "linker": {"/etc/ld.so.conf.d/mpi.conf": f"/tmp/evil\n{MPI}"}}, "/tmp/evil",
         "/etc/ld.so.conf.d/mpi.conf"),
        ({"lock": NGC}, "no such file", "/etc/ld.so.conf.d/mpi.conf"),
    ],
)  # fmt: skip
def test_what_was_planted_is_one_difference(changes, found, where):
    ((_, told, there),) = find(**changes)
    assert found in told
    assert there == where


def test_no_settings_of_the_virtual_environment_at_all_are_two():
    assert [found for _, found, _ in find(venv=None)] == ["none", "none"]


@pytest.mark.parametrize("name", CLEAN)
def test_what_could_not_be_read_is_no_pass(name):
    facts = {f"inventory.{k}": Fact(v, k) for k, v in CLEAN.items()}
    facts[f"inventory.{name}"] = Fact(None, name, problem="it is on fire")
    with pytest.raises(CannotTellError, match="on fire"):
        find_redirects(Facts(facts), lock=DEBIAN)
