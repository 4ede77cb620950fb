"""Bootstrap, with stand-ins for the distribution: no package is installed, nothing is built.

A folder of links to the few tools it needs is all of PATH, so a machine's own sudo,
apt-get or apptainer cannot take part.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from env.stack import PROJECT, load_stacks

SCRIPT = PROJECT / "env" / "bootstrap.sh"
TOOLS = tuple(
    """bash cat chmod cut dirname env flock getconf grep head id ln ls mkdir mv rm sed setpriv
    sh sha256sum sleep sort tail tee touch tr true uname wc""".split()  # noqa: SIM905 - shorter so
)
DEBIAN_12 = 'PRETTY_NAME="Debian 12"\nID=debian\nVERSION_ID="12"\n'


class Host:
    """A make-believe machine: its tools, its release, its folder for the environment."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o755)
        self.folder, self.bin, self.home = folder, folder / "bin", folder / "home"
        self.os_release = folder / "os-release"
        self.os_release.write_text(DEBIAN_12)
        for made in (self.bin, self.home):
            made.mkdir()
            made.chmod(0o777)
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool))
        self.stub("dpkg-query", "exit 1")

    def stub(self, name: str, body: str) -> Path:
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)
        return path

    @property
    def variables(self) -> dict[str, str]:
        return {
            "PATH": str(self.bin), "HOME": str(self.folder), "CHEXNET_HOME": str(self.home),
            "CHEXNET_OS_RELEASE": str(self.os_release), "CHEXNET_PYTHON": str(self.bin / "python3"),
            "CHEXNET_DEBIAN_MIRROR": "http://mirror.example/debian/",
        }  # fmt: skip

    def run(self, *argv: str, ordinary: bool = False, **more: str) -> subprocess.CompletedProcess:
        before = []
        if ordinary and os.geteuid() == 0:
            before = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        return subprocess.run(
            [*before, "bash", str(SCRIPT), *argv], env=self.variables | more, text=True,
            capture_output=True, stdin=subprocess.DEVNULL, cwd=self.folder, timeout=60,
        )  # fmt: skip

    def source(self, code: str, **more: str) -> subprocess.CompletedProcess:
        """Run functions of the scripts, with the host's stack already known."""
        text = f'set --; source "{SCRIPT}"; read_host; mkdir -p "$HOME_DIR"/{{logs,build}}; {code}'
        return subprocess.run(
            ["bash", "-c", text], env=self.variables | more, text=True, capture_output=True,
            stdin=subprocess.DEVNULL, cwd=self.folder, timeout=60,
        )  # fmt: skip

    def make_ready(self) -> Path:
        """Leave what a set-up that ended well leaves; return its virtual environment."""
        venv = self.home / "venvs" / "made"
        (venv / "bin").mkdir(parents=True)
        for name, body in (("python", "echo python"), ("invoke", 'echo "invoke $*"')):
            (venv / "bin" / name).write_text(f"#!/bin/bash\n{body}\n")
            (venv / "bin" / name).chmod(0o755)
        self.stub("apptainer", "echo apptainer")
        done = self.source('is_ready || true; echo "$READY_KEY"; package_state')
        key, *packages = done.stdout.splitlines()
        (self.home / "ready").mkdir(exist_ok=True)
        (self.home / "ready").chmod(0o777)
        (self.home / "ready" / key).write_text("\n".join([str(venv), "", *packages]) + "\n")
        return venv


@pytest.fixture
def host(tmp_path_factory):
    folder = tmp_path_factory.mktemp("host")
    for parent in (folder.parent, folder.parent.parent):
        parent.chmod(parent.stat().st_mode | 0o111)  # an ordinary user must get here
    return Host(folder)


def test_help_teaches(host):
    done = host.run("--help")
    assert done.returncode == 0
    for words in ("invoke demo", "CHEXNET_HOME", "Debian 12 or 13", "Exit codes"):
        assert words in done.stdout


def test_unknown_option(host):
    done = host.run("--hlep")
    assert done.returncode == 2
    assert "'--hlep'" in done.stderr


def test_shell_scripts_are_clean():
    scripts = [SCRIPT, *sorted((PROJECT / "env/bootstrap").glob("*.sh"))]
    scripts.append(PROJECT / "env/bootstrap/bin/invoke")
    done = subprocess.run(
        ["shellcheck", "-x", *map(str, scripts)], cwd=PROJECT, text=True, capture_output=True
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "text", ['PRETTY_NAME="Ubuntu 24.04"\nID=ubuntu\nVERSION_ID="24.04"\n',
             'PRETTY_NAME="Debian 11"\nID=debian\nVERSION_ID="11"\n', None],
)  # fmt: skip
def test_other_distributions_are_refused_by_name(host, text):
    host.os_release.unlink()
    if text:
        host.os_release.write_text(text)
    done = host.run("true")
    assert done.returncode == 2
    assert "expected: Debian 12 or 13" in done.stderr
    assert not text or text.split('"')[1] in done.stderr


def test_a_host_gets_the_stack_that_the_catalogue_has_for_its_release(host):
    for stack in load_stacks().values():
        if stack.device == "cpu":
            host.os_release.write_text(
                f"ID={stack.base.distribution}\nVERSION_ID={stack.base.release}\n"
            )
            assert host.source('echo "$STACK"').stdout.strip() == stack.name


def test_without_root_and_sudo_it_says_what_an_administrator_must_do(host):
    host.stub("apt-get", f"touch {host.home}/called")
    done = host.run("true", ordinary=True)
    assert done.returncode == 1
    assert "neither root nor sudo" in done.stderr
    fix = done.stderr.split("fix:")[1]
    for package in ("apt-get install --no-install-recommends", "libopenmpi-dev", "g++", "buildah"):
        assert package in fix
    assert not (host.home / "called").exists()


def test_sudo_installs_what_is_missing_and_a_wrong_python_is_named(host):
    log = host.home / "asked"
    host.stub("sudo", f'[[ $1 == -n ]] && shift; echo "sudo $*" >>{log}; exec "$@"')
    host.stub("dpkg", "exit 0")
    host.stub("apt-get", "exit 0")
    host.stub("python3", "echo 3.9")
    host.stub("dpkg-query", "echo 'installed libopenmpi-dev 4'; echo 'installed hwloc 2'; exit 1")
    done = host.run("true", ordinary=True)
    installed = log.read_text().split("install -y --no-install-recommends ")[1].split()
    assert "openmpi-bin" in installed
    assert "libopenmpi-dev" not in installed
    assert "hwloc-nox" not in installed  # hwloc does the same
    assert done.returncode == 2
    assert "expected: Python 3.11" in done.stderr
    assert "is Python 3.9" in done.stderr


def test_offline_says_what_is_needed_and_how_to_get_it(host):
    host.stub("sudo", '[[ $1 == -n ]] && shift; exec "$@"')
    host.stub("dpkg", "exit 0")
    host.stub("apt-get", "echo \"Could not resolve 'mirror.example'\"; exit 100")
    done = host.run("true", ordinary=True)
    assert done.returncode == 1
    assert "Could not resolve 'mirror.example'" in done.stderr  # the log's last lines
    for words in ("reaches no index", "https_proxy", "PIP_FIND_LINKS", "system.log"):
        assert words in done.stderr


def test_an_interrupted_dpkg_is_waited_for_and_then_ended(host):
    count = host.folder / "count"
    host.stub("sleep", "exit 0")
    host.stub("sudo", '[[ $1 == -n ]] && shift; exec "$@"')
    host.stub("dpkg", f'echo x >>{count}; [[ $(wc -l <{count}) -ge 3 ]] || '
              '{ echo "dpkg: error: database lock was locked" >&2; exit 2; }')  # fmt: skip
    assert host.source("finish_dpkg").returncode == 0
    assert count.read_text().count("x") == 3
    host.stub("dpkg", "echo broken package; exit 1")
    assert host.source("finish_dpkg").returncode == 1


def test_a_failed_step_shows_its_last_lines_and_names_its_log(host):
    work = "work() { echo first; false; echo never; }"
    done = host.source(f'{work}; run_logged "$HOME_DIR/logs/x.log" work "a thing"')
    assert done.returncode == 1
    assert "first" in done.stderr
    assert "never" not in done.stderr
    assert f"log: {host.home}/logs/x.log" in done.stderr


def test_certificate_trouble_is_told_from_no_network(host):
    log = host.folder / "log"
    log.write_text(
        "SSLError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed, Max retries"
    )
    assert "SSL_CERT_FILE" in host.source(f"advice {log}").stdout


def test_a_warm_run_does_nothing_but_run_the_command(host):
    venv = host.make_ready()
    before = sorted(host.home.rglob("*"))
    done = host.run("bash", "-c", 'echo "$PWD"; echo "$PATH"; echo "$PYTHONPATH"; umask; exit 7')
    assert done.returncode == 7
    assert done.stderr == ""
    folder, path, pythonpath, umask = done.stdout.splitlines()
    assert folder == str(host.folder)
    assert path.split(":")[1] == str(venv / "bin")
    assert pythonpath == str(PROJECT)
    assert int(umask, 8) == int(subprocess.check_output(["sh", "-c", "umask"], text=True), 8)
    assert sorted(host.home.rglob("*")) == before


def test_without_a_command_it_says_where_things_are(host):
    venv = host.make_ready()
    done = host.run()
    assert done.returncode == 0
    assert str(venv) in done.stdout
    assert str(host.bin / "apptainer") in done.stdout


def test_a_command_that_is_not_there(host):
    host.make_ready()
    done = host.run("no-such-command")
    assert done.returncode == 2
    assert "'no-such-command'" in done.stderr


def test_invoke_finds_the_project_from_any_folder(host):
    host.make_ready()
    assert host.run("invoke", "demo", "--x").stdout == f"invoke --search-root {PROJECT} demo --x\n"


def test_an_upgraded_system_package_ends_being_warm(host):
    host.stub("dpkg-query", "echo 'installed libopenmpi-dev 4.1-1'")
    host.make_ready()
    assert host.run("true").returncode == 0
    host.stub("dpkg-query", "echo 'installed libopenmpi-dev 4.1-2'")
    done = host.run("true", ordinary=True)
    assert done.returncode == 1
    assert "setting up stack" in done.stderr


def test_a_second_set_up_waits_for_the_first(host):
    with (host.home / "lock").open("w") as lock:
        (host.home / "lock").chmod(0o666)
        fcntl.flock(lock, fcntl.LOCK_EX)
        child = subprocess.Popen(
            ["bash", str(SCRIPT), "python"], env=host.variables, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        said = child.stderr.readline()
        assert "another set-up is running" in said
        host.make_ready()
        assert child.poll() is None
    out, _ = child.communicate(timeout=30)
    assert (child.returncode, out) == (0, "python\n")


def test_an_unwritable_folder(host):
    (host.home / "file").write_text("")
    done = host.run("true", CHEXNET_HOME=str(host.home / "file" / "below"))
    assert done.returncode == 1
    assert "set CHEXNET_HOME to another folder" in done.stderr


# Stands in for `python3 -s -m venv FOLDER`: a python whose pip ends with a given status.
MAKE_VENV = (
    'mkdir -p "$4/bin"; printf "#!/bin/sh\\nexit {}\\n" >"$4/bin/python"; chmod +x "$4/bin/python"'
)


def test_half_a_virtual_environment_is_made_anew(host):
    venv = host.home / "venvs" / "half"
    (venv / "left-over").mkdir(parents=True)
    host.stub("python3", MAKE_VENV.format(0))
    done = host.source(f"VENV={venv}; install_python_packages")
    assert done.returncode == 0, done.stderr
    assert not (venv / "left-over").exists()
    assert (venv / ".packages").exists()


def test_a_failed_install_leaves_no_stamp(host):
    venv = host.home / "venvs" / "half"
    host.stub("python3", MAKE_VENV.format(3))
    done = host.source(f"VENV={venv}; install_python_packages")
    assert done.returncode == 3
    assert not (venv / ".packages").exists()


# --- the key of Horovod's wheel -------------------------------------------------------


class Build:
    """A copy of the project's parts that decide the wheel, on a host with compilers."""

    def __init__(self, folder: Path) -> None:
        self.host = host = Host(folder)
        self.project = folder / "project"
        (self.project / "env" / "edits").mkdir(parents=True)
        for path in PROJECT.glob("env/*.py"):
            shutil.copy(path, self.project / "env")
        for path in PROJECT.glob("env/edits/*.toml"):
            shutil.copy(path, self.project / "env" / "edits")
        self.lock = self.project / "lock.json"
        shutil.copy(PROJECT / "containers/cpu/stack.lock.json", self.lock)
        host.stub("mpicxx", "echo Open MPI 4.0.1")
        host.stub("g++", "echo g++ 12.0")
        real = shutil.which("python3", path="/usr/bin:/usr/local/bin") or shutil.which("python3")
        host.stub("python3", f'if [[ $1 == -c ]]; then echo python A; else exec {real} "$@"; fi')

    def key(self) -> str:
        done = self.host.source(
            f"PROJECT={self.project}; LOCK={self.lock}; horovod_inputs",
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.replace(str(self.host.bin), "BIN")  # where a compiler lies counts

    def change(self, path: Path, old: str, new: str) -> None:
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new, 1))


@pytest.fixture
def build(tmp_path):
    return Build(tmp_path)


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """Return what the key is of where nothing is changed."""
    return Build(tmp_path_factory.mktemp("unchanged")).key()


def test_the_wheels_key_is_the_same_in_another_folder(build, before):
    assert build.key() == before


CHANGES = {
    "a flag": ("lock", '"HOROVOD_WITH_GLOO": "1"', '"HOROVOD_WITH_GLOO": "0"'),
    "the source's hash": ("lock", "92a43f5a", "92a43f5b"),
    "CMake's version": ("lock", '"version": "3.31.10"', '"version": "3.31.11"'),
    "setuptools' version": ("lock", '"version": "79.0.1"', '"version": "79.0.2"'),
    "an edit rule": ("rules", "xla_mpi_ops", "xla_mpi_opz"),
    "the editor": ("editor", "SCHEMA_VERSION = 1", "SCHEMA_VERSION = 1 "),
    "OpenMPI": ("mpicxx", "4.0.1", "4.0.2"),
    "the compiler": ("g++", "12.0", "12.1"),
    "Python": ("python3", "python A", "python B"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_wheels_key_changes_with(build, before, change):
    where, old, new = CHANGES[change]
    paths = {
        "lock": build.lock,
        "rules": build.project / "env/edits/horovod-0.28.1.toml",
        "editor": build.project / "env/source_edits.py",
    }
    build.change(paths.get(where, build.host.bin / where), old, new)
    assert build.key() != before


@pytest.mark.parametrize(("field", "value"), [("version", "2.21.9"), ("sha256", ["0" * 64])])
@pytest.mark.parametrize("name", ["tensorflow-cpu", "wheel"])
def test_the_wheels_key_changes_with_a_locked_package(build, before, name, field, value):
    lock = json.loads(build.lock.read_text())
    package = next(package for package in lock["python"] if package["name"] == name)
    package[field] = value
    build.lock.write_text(json.dumps(lock))
    assert build.key() != before


def test_the_wheels_key_leaves_out_what_the_build_does_not_see(build, before):
    build.change(build.lock, '"numactl"', '"other"')
    assert build.key() == before


def test_no_key_without_a_compiler(build):
    (build.host.bin / "mpicxx").unlink()
    done = build.host.source(
        f"PROJECT={build.project}; LOCK={build.lock}; HOME_DIR={build.host.home}; "
        "ensure_python_packages"
    )
    assert done.returncode == 1
    assert "Horovod's build inputs" in done.stderr


# --- Apptainer ------------------------------------------------------------------------


def test_an_engine_on_path_is_used(host):
    host.stub("singularity", "exit 0")
    host.stub("apt-get", "exit 9")
    done = host.source('ensure_apptainer; echo "bin=[$CONTAINER_BIN]"')
    assert done.stdout == "bin=[]\n"


def test_apptainer_comes_through_the_signed_index(host):
    log = host.home / "asked"
    host.stub("apt-get", f'echo "$*" >>{log}; cat "{host.home}/work/apt/sources.list" >>{log}')
    assert host.source(f"fetch_from_sid {host.home}/work apptainer").returncode == 0
    said = log.read_text()
    assert "signed-by=/usr/share/keyrings/debian-archive-keyring.gpg" in said
    assert "download apptainer" in said
    for word in ("trusted=yes", "AllowUnauthenticated", "AllowInsecure", "Check-Valid-Until"):
        assert word not in said


def test_the_mirror_is_the_host_s_own(host):
    lines = "main http://site.example/debian-security/\nmain http://site.example/debian/\n"
    host.stub("apt-get", f"printf '{lines}'")
    done = host.source("CHEXNET_DEBIAN_MIRROR= debian_mirror")
    assert done.stdout == "http://site.example/debian/\n"
    host.stub("apt-get", "true")
    done = host.source("CHEXNET_DEBIAN_MIRROR= debian_mirror || echo none")
    assert done.stdout == "none\n"
    assert "set CHEXNET_DEBIAN_MIRROR" in done.stderr


def test_an_expired_index_is_taken_second_and_said_aloud(host):
    host.stub("apt-get", '[[ "$*" == *Check-Valid-Until=false* ]] || exit 100')
    done = host.source(f"fetch_from_sid {host.home}/work apptainer")
    assert done.returncode == 0
    assert "without the index's expiry date" in done.stdout
    host.stub("apt-get", "exit 100")
    assert host.source(f"fetch_from_sid {host.home}/work apptainer").returncode == 100


def test_a_moved_apptainer_and_its_starter_find_their_files(host):
    """The command looks beside its bin, the starter below lib (tried with 1.4.5)."""
    host.stub("apt-get", 'touch "$PWD/apptainer_1_amd64.deb"')
    host.stub(
        "dpkg-deb",
        'cd "$3" 2>/dev/null || { mkdir -p "$3"; cd "$3"; }; '
        "mkdir -p etc/apptainer usr/bin usr/lib/x86_64-linux-gnu/apptainer/bin; "
        "echo 'root default capabilities = full' >etc/apptainer/apptainer.conf; "
        "printf '#!/bin/sh\\necho 1\\n' >usr/bin/apptainer; chmod +x usr/bin/apptainer",
    )
    done = host.source("APPTAINER=$HOME_DIR/apptainer/x; strictly install_apptainer; exit $STATUS")
    assert done.returncode == 0, done.stderr
    prefix = host.home / "apptainer/x/usr"
    for place in ("etc/apptainer/apptainer.conf", "var/lib/apptainer/mnt/session"):
        assert (prefix / place).exists()
        assert (prefix / "lib" / place).samefile(prefix / place)
    assert (prefix / "bin/singularity").resolve() == prefix / "bin/apptainer"
    assert (host.home / "apptainer/x/.complete").exists()


def test_capabilities_are_limited_only_where_the_host_lacks_one(host):
    conf = host.folder / "apptainer.conf"
    held = int(re.search(r"CapBnd:\s*(\w+)", Path("/proc/self/status").read_text())[1], 16)
    conf.write_text("root default capabilities = full\nother = 1\n")
    assert host.source(f"limit_capabilities {conf}").returncode == 0
    wanted = "full" if held >> 24 & 1 else "no"
    assert conf.read_text() == f"root default capabilities = {wanted}\nother = 1\n"
