"""The launched phase over real hosts: it passes, and what was planted is seen and named."""

import os
import shutil
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.mpi

PROJECT = Path(__file__).resolve().parents[2]

LAUNCHED = "launch.ended,ranks.reported,ranks.alike,hosts.network,hosts.names,binding.plan"


def found(results, name):
    """Return what a check found, its worst first."""
    return " / ".join(result["found"] for result in results[name])


def test_three_hosts_join_and_pass(make_lan, validate):
    lan = make_lan("node1", "node2", "node3")
    code, results, text = validate(
        lan["node1"],
        "--hosts",
        "node1:1,node2:1,node3:2",
        "--only",
        f"{LAUNCHED},mpi.size,memory.shm",
    )
    assert code == 0, text
    assert {r["status"] for all_of in results.values() for r in all_of} == {"PASS"}, text
    assert "checks of node1, node2, node3" in text
    assert found(results, "mpi.size") == "Horovod sees 4 on every rank"
    assert [lan[name].strays for name in lan.names] == [[], [], []]


def test_what_differs_between_hosts_is_seen_and_named(make_lan, validate):
    lan = make_lan("node1", "node2", "node3", shm={"node3": "32m"})
    node2 = lan["node2"]
    # Another release of a package and another build of MPI, at the very same paths.
    metadata = next(
        Path(sys.prefix, "lib").glob("python3*/site-packages/rich-*.dist-info/METADATA")
    )
    node2.plant("Metadata-Version: 2.1\nName: rich\nVersion: 9.9.9\n", str(metadata))
    library = os.path.realpath("/usr/lib/x86_64-linux-gnu/libmpi.so.40")
    shutil.copyfile(library, node2.own / "libmpi")
    with (node2.own / "libmpi").open("ab") as file:
        file.write(b"another build")
    node2.bind(node2.own / "libmpi", library)
    # A name that leads to itself alone, and an interface of another name.
    hosts = node2.own / "hosts"
    hosts.write_text(hosts.read_text().replace(node2.address, "127.0.1.1"))
    for words in ("set eth0 down", "set eth0 name ens9", "set ens9 up"):
        node2.run("ip", "link", *words.split(), check=True)
    lan["node3"].run("ip", "link", "set", "eth0", "mtu", "1400", check=True)
    code, results, text = validate(
        lan["node1"], "--hosts", "node1:1,node2:1,node3:2",
        "--only", f"{LAUNCHED},mpi.size,memory.shm", environ={"NCCL_SOCKET_IFNAME": "eth0"},
    )  # fmt: skip
    assert code == 1, text
    alike = found(results, "ranks.alike")
    assert "the packages of rank 1 (rich: 9.9.9" in alike
    assert f"the libraries in the process of rank 1 ({library}" in alike
    assert {host for result in results["ranks.alike"] for host in result["hosts"]} == {"node2"}
    assert "NCCL_SOCKET_IFNAME=eth0: node2 has lo, ens9" in found(results, "hosts.network")
    assert "1400 bytes on node3 eth0" in found(results, "hosts.network")
    assert "node2 calls itself 127.0.1.1" in found(results, "hosts.names")
    bad = [result for result in results["memory.shm"] if result["status"] == "FAIL"]
    assert [(result["hosts"], "0.03 GiB" in result["found"]) for result in bad] == [
        (["node3"], True)
    ]
    assert results["mpi.size"][0]["status"] == "PASS"


def test_a_fault_of_all_hosts_is_told_of_all_by_the_names_that_lead_to_them(make_lan, validate):
    """The first one is not left out alone, one after the other, when all would fail alike."""
    lan = make_lan("node1", "node2", "node3")
    metadata = next(
        Path(sys.prefix, "lib").glob("python3*/site-packages/numpy-*.dist-info/METADATA")
    )
    for name in lan.names:
        lan[name].run("hostname", f"{name}.cluster.local", check=True)
    for name in ("node1", "node3"):
        lan[name].plant("Metadata-Version: 2.1\nName: numpy\nVersion: 1.2.3\n", str(metadata))
    code, results, text = validate(
        lan["node1"], "--hosts", "node1:1,node2:1,node3:1", "--failed-hosts", "/tmp/failed",
        "--only", "python.packages,mpi.size,ranks.alike",
    )  # fmt: skip
    assert code == 1, text
    assert (lan["node1"].own / "tmp/failed").read_text() == "node1,node3\n", text
    # Nobody joined, and the odd one was not blamed, which here is the good one.
    assert list(results) == ["python.packages"]


def test_a_host_with_another_python(make_lan, validate):
    lan = make_lan("node1", "node2")
    shutil.copy(sys.executable, lan["node2"].own / "python")
    lan["node2"].plant('#!/bin/sh\nexec /run/lan/node2/python "$@"\n', sys.executable)
    code, results, text = validate(
        lan["node1"], "--hosts", "node1:1,node2:1", "--timeout", "60",
        "--only", "ranks.alike,ranks.reported",
    )  # fmt: skip
    assert code == 1, text
    alike = found(results, "ranks.alike")
    assert "the interpreter of rank 1 (/run/lan/node2/python" in alike
    assert "the packages of rank 1" in alike


@pytest.mark.parametrize(
    ("trouble", "words"),
    [("daemon", "Open MPI's daemon"), ("python", "is not there on every host"),
     ("link", "host node2 does not answer to ssh"), ("name", "the name node2 leads to no address"),
     ("key", "Permission denied")],
)  # fmt: skip
def test_a_host_that_cannot_be_used_is_named_with_the_launchers_words(
    make_lan, validate, trouble, words
):
    lan = make_lan("node1", "node2")
    node2 = lan["node2"]
    if trouble == "daemon":
        lan.stop_sshd(node2)
        lan.start_sshd(node2, "-o", "SetEnv=PATH=/nowhere")
    elif trouble == "python":
        node2.run("mount", "-t", "tmpfs", "tmpfs", str(Path(sys.executable).parent), check=True)
    elif trouble == "key":
        node2.plant("ssh-ed25519 AAAA another\n", "/run/lan/key.pub", mode=0o644)
    elif trouble == "link":
        node2.run("ip", "link", "set", "eth0", "down", check=True)
    else:
        # Looked up here it is found; ssh asks later.
        stub = lan["node1"].own / "ssh"
        stub.write_text('#!/bin/sh\necho "ssh: Could not resolve hostname node2: '
                        'Name or service not known" >&2\nexit 255\n')  # fmt: skip
        stub.chmod(0o755)
        lan["node1"].bind(stub, "/usr/bin/ssh")
    code, results, text = validate(
        lan["node1"], "--hosts", "node1:1,node2:1", "--timeout", "30",
        "--failed-hosts", "/tmp/failed",
    )  # fmt: skip
    assert code == 1, text
    assert (lan["node1"].own / "tmp/failed").read_text() == "node2\n"  # what a job leaves out
    assert words in found(results, "launch.ended"), text
    assert "rank 1 on node2 did not report" in found(results, "ranks.reported")
    assert all(result["fix"] for result in results["launch.ended"])
    assert [lan[name].strays for name in lan.names] == [[], []]


def test_an_image_that_one_host_lacks_is_named(make_lan, validate):
    """On node1 Apptainer is played, so that no image has to be built; node2's words are its own."""
    apptainer = shutil.which("apptainer")
    if not apptainer:
        pytest.skip("no Apptainer")
    lan = make_lan("node1", "node2")
    (lan["node1"].own / "tmp/x.sif").write_bytes(b"hsqs")
    enter = '#!/bin/sh\nwhile [ "$1" != /tmp/x.sif ]; do shift; done\nshift\nexec "$@"\n'
    lan["node1"].plant(enter, os.path.realpath(apptainer))
    code, results, text = validate(
        lan["node1"], "--hosts", "node1:1,node2:1", "--image", "/tmp/x.sif", "--timeout", "100"
    )
    assert code == 1, text
    assert "no end within" not in text
    assert found(results, "ranks.reported") == "rank 1 on node2 did not report"
    assert "lstat /tmp/x.sif: no such file or directory" in found(results, "launch.ended")


@pytest.mark.slow
def test_mpirun_inside_an_image_reaches_other_hosts_through_an_agent(make_lan, window):
    """The agent is what a site gives: this one enters the same image on the other side."""
    lan = make_lan("node1", "node2")
    image, environ = window(lan)
    enter = [shutil.which("apptainer"), "exec", "--no-privs", "--bind", "/run/lan", image]
    agent = lan.folder / "agent"
    line = f"{' '.join(enter)} sh -c '$*'"  # Open MPI gives a line for a shell
    agent.write_text(f'#!/bin/sh\nhost=$1; shift\nexec ssh "$host" "{line}"\n')
    agent.chmod(0o755)
    only = ["--only", "launch.ended,ranks.reported,hosts.network", "--timeout", "40"]
    inside = [sys.executable, "-m", "invoke", "--search-root", str(PROJECT), "validate-env",
              "--hosts", "node1:1,node2:1", *only]  # fmt: skip
    given = {**os.environ, **environ, "APPTAINERENV_OMPI_MCA_plm_rsh_agent": "/run/lan/agent"}
    done = lan["node1"].run(*enter, *inside, environ=given, cwd="/tmp", timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 checks of node1, node2" in done.stdout
    assert ": 3 PASS" in done.stdout


def test_a_host_that_hangs_is_named_in_time_and_nothing_is_left_running(make_lan, validate):
    lan = make_lan("node1", "node2")
    lan["node2"].plant("#!/bin/sh\nsleep 1000\n", sys.executable)
    code, results, text = validate(lan["node1"], "--hosts", "node1:1,node2:1", "--timeout", "6")
    assert code == 1, text
    assert "no end within 6 s" in found(results, "launch.ended")
    assert found(results, "ranks.reported") == "rank 1 on node2 did not report"
    deadline = time.monotonic() + 20
    while any(lan[name].strays for name in lan.names) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert [lan[name].strays for name in lan.names] == [[], []]


def test_a_folder_that_one_host_lacks(make_lan, validate):
    lan = make_lan("node1", "node2")
    lan["node1"].run("mkdir", "/tmp/data", check=True)
    code, results, text = validate(
        lan["node1"], "--hosts", "node1:1,node2:1", "--only", "ranks.paths", "--see", "/tmp/data",
        "--see", "/run/lan", "--failed-hosts", "/tmp/failed",
    )  # fmt: skip
    assert code == 1, text
    assert found(results, "ranks.paths") == "rank 1 on node2 does not see it"
    assert results["ranks.paths"][0]["where"] == "/tmp/data"
    assert (lan["node1"].own / "tmp/failed").read_text() == "node2\n"
