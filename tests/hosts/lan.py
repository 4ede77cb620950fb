"""Several "hosts" on this machine: namespaces of their own, joined by a bridge, each with an sshd.

Every host has its own name, network, processes, shared memory, /tmp and /run, and its own
/etc/hosts. All of it ends with the processes that hold the namespaces: there is nothing
to take down in this machine's own network.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
TOOLS = ("setpriv", "unshare", "nsenter", "ip", "sshd", "ssh", "ssh-keygen", "mpirun")
PREFIX = "10.77.0."
INSIDE = "/run/lan"  # where every host sees the folder that they share
READY_TIMEOUT_S = 20
_WITH_US = ("setpriv", "--pdeathsig", "KILL")  # a killed test leaves no host behind

_SSHD = """\
Port 22
HostKey {inside}/key
AuthorizedKeysFile {inside}/key.pub
StrictModes no
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
PidFile none
UseDNS no
MaxStartups 100
"""
_SSH = """\
Host *
  IdentityFile {inside}/key
  IdentitiesOnly yes
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  GlobalKnownHostsFile /dev/null
  LogLevel ERROR
  BatchMode yes
"""
_START = """\
set -e
hostname "$NAME"
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir -p /run/sshd /run/lock /run/lan
mount --bind "$SHARED" /run/lan
mount -t tmpfs -o "size=$SHM" tmpfs /dev/shm
mount --bind "$OWN/boot_id" /proc/sys/kernel/random/boot_id
mount --bind "$OWN/hosts" /etc/hosts
mount --bind "$OWN/shadow" /etc/shadow
mount --bind /run/lan/ssh_config /etc/ssh/ssh_config
case $PROJECT in /tmp/*) # a checkout below /tmp stays where the commands look for it
  mkdir -p "$OWN$PROJECT"
  mount --bind "$PROJECT" "$OWN$PROJECT" ;;
esac
mount --rbind "$OWN/tmp" /tmp
ip link set lo up
touch "/run/lan/$NAME/ready"
exec sleep infinity
"""


def missing_tools() -> list[str]:
    """Return what of the tools is not on PATH; more than that, only root may do this."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    return [name for name in TOOLS if not shutil.which(name, path=path)]


@dataclass
class Host:
    """One of the hosts.

    Attributes:
        name: its host name.
        number: the last part of its address.
        own: its folder on this machine.
        holder: the process that holds its namespaces.
        pid: of the first process inside, as this machine counts.
        servers: what runs on it.
    """

    name: str
    number: int
    own: Path
    holder: subprocess.Popen
    pid: int = 0
    servers: list[subprocess.Popen] = field(default_factory=list)

    @property
    def address(self) -> str:
        """Its address on eth0."""
        return f"{PREFIX}{self.number}"

    def enter(self, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs a command on this host."""
        return [
            "nsenter",
            "--target",
            str(self.pid),
            "--all",
            "--root",
            "--wd=/",
            "--",
            *map(str, argv),
        ]

    def run(
        self,
        *argv: object,
        environ: Mapping[str, str] | None = None,
        cwd: object = None,
        timeout: float = 60,
        check: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on this host and return how it ended, with what it printed.

        Without ``environ`` it gets what Python knows of this process's. A library that joined
        MPI here has told the C environment of it, and an mpirun that inherits that ends silently.
        """
        words = list(map(str, argv))
        if cwd:
            words = ["env", "-C", str(cwd), *words]
        return subprocess.run(
            self.enter(words), env=environ or dict(os.environ), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=timeout, check=check, errors="replace",
        )  # fmt: skip

    def processes(self) -> dict[int, str]:
        """Return the command lines of what runs on it, but for the process that holds it."""
        mine = Path(f"/proc/{self.pid}/ns/pid").readlink()
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if (folder / "ns/pid").readlink() == mine:
                    line = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                    found[int(folder.name)] = line.decode(errors="replace").strip()
            except OSError:
                continue
        return {pid: line for pid, line in found.items() if line and pid != self.pid}

    def pids(self, word: str) -> list[int]:
        """Return the processes on it that have a word in their command line."""
        return [pid for pid, line in self.processes().items() if word in line]

    @property
    def strays(self) -> list[str]:
        """What runs on it besides its servers."""
        servers = ("sshd", "munged", "slurmctld", "slurmd")
        lines = self.processes().values()
        return [line for line in lines if not any(name in line for name in servers)]

    def plant(self, text: str, path: str, *, mode: int = 0o755) -> None:
        """Put a file of this text in the place of one on this host alone."""
        planted = self.own / f"planted-{path.replace('/', '_')}"
        planted.write_text(text)
        planted.chmod(mode)
        self.bind(planted, path)

    def bind(self, source: Path, path: str) -> None:
        """Put a file or folder of the shared folder in the place of another on this host."""
        inside = f"{INSIDE}/{source.relative_to(self.own.parent)}"
        self.run("mount", "--bind", inside, path, check=True)


class Lan:
    """Hosts on one bridge; use as a context."""

    def __init__(self, folder: Path, *names: str, shm: Mapping[str, str] | None = None) -> None:
        """Name the hosts; ``shm`` gives some another size of shared memory than 2g."""
        self.folder = folder
        self.names = names
        self.shm = dict(shm or {})
        self.hosts: dict[str, Host] = {}
        self._switch: subprocess.Popen | None = None

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    def __enter__(self) -> Lan:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        holders = [host.holder for host in self.hosts.values()]
        for process in (*holders, *([self._switch] if self._switch else [])):
            process.send_signal(signal.SIGKILL)  # --kill-child takes all inside along
            process.wait(timeout=READY_TIMEOUT_S)
        for host in self.hosts.values():
            for server in host.servers:
                server.wait(timeout=READY_TIMEOUT_S)

    def _start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        key = self.folder / "key"
        keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)]
        subprocess.run(keygen, check=True)
        (self.folder / "ssh_config").write_text(_SSH.format(inside=INSIDE))
        (self.folder / "sshd_config").write_text(_SSHD.format(inside=INSIDE))
        self._switch = subprocess.Popen(
            [*_WITH_US, "unshare", "--net", "--fork", "--kill-child", "sleep", "infinity"]
        )
        self._wait(lambda: _child(self._switch.pid))
        switch = _child(self._switch.pid)
        _in_net(switch, "ip link add lan0 type bridge", "ip link set lan0 up")
        for number, name in enumerate(self.names, start=1):
            self.hosts[name] = self._start_host(name, number)
        for host in self.hosts.values():
            self._wait((host.own / "ready").exists)
            host.pid = _child(host.holder.pid)
            _in_net(
                switch,
                f"ip link add p{host.number} type veth peer name eth0 netns {host.pid}",
                f"ip link set p{host.number} master lan0 up",
            )
            _in_net(host.pid, f"ip addr add {host.address}/24 dev eth0", "ip link set eth0 up")
            self.start_sshd(host)

    def _start_host(self, name: str, number: int) -> Host:
        own = self.folder / name
        (own / "tmp").mkdir(parents=True)
        (own / "tmp").chmod(0o1777)
        lines = ["127.0.0.1 localhost"]
        lines += [f"{PREFIX}{n} {other}" for n, other in enumerate(self.names, start=1)]
        (own / "hosts").write_text("\n".join(lines) + "\n")
        (own / "boot_id").write_text(f"{uuid.uuid4()}\n")
        shadow = own / "shadow"
        shadow.write_text("root:*:19000:0:99999:7:::\nsshd:!:19000::::::\n")
        shadow.chmod(0o600)
        environ = {
            **os.environ, "NAME": name, "OWN": str(own), "SHARED": str(self.folder),
            "PROJECT": str(PROJECT),
            "SHM": self.shm.get(name, "2g"), "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
        }  # fmt: skip
        line = [*_WITH_US, "unshare", "--net", "--uts", "--mount", "--ipc", "--pid", "--mount-proc",
                "--fork", "--kill-child", "sh", "-c", _START]  # fmt: skip
        with (own / "log").open("w") as log:
            holder = subprocess.Popen(line, env=environ, stdin=subprocess.DEVNULL,
                                      stdout=log, stderr=log)  # fmt: skip
        return Host(name, number, own, holder)

    def stop_sshd(self, host: Host) -> None:
        """Stop a host's sshd."""
        for pid in host.pids("sshd"):
            os.kill(pid, signal.SIGKILL)
        for server in host.servers:
            server.wait(timeout=READY_TIMEOUT_S)
        host.servers.clear()

    def start_sshd(self, host: Host, *options: str) -> None:
        """Start a host's sshd and wait until it answers."""
        sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
        config = f"{INSIDE}/sshd_config"
        # From an environment of its own: what a login gets must not come from the tests'.
        clean = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        with (host.own / "sshd.log").open("w") as log:
            argv = host.enter([sshd, "-D", "-e", "-f", config, *options])
            host.servers.append(
                subprocess.Popen(argv, env=clean, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )
        self._wait(lambda: "listening" in (host.own / "sshd.log").read_text())

    def _wait(self, ready) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not ready():
            if time.monotonic() > deadline:
                logs = {path.name: path.read_text() for path in self.folder.rglob("*log")}
                raise RuntimeError(f"the hosts did not start: {logs}")
            time.sleep(0.02)


def _child(pid: int) -> int:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0
    return int(children[0]) if children else 0


def _in_net(pid: int, *lines: str) -> None:
    for line in lines:
        subprocess.run(["nsenter", "--target", str(pid), "--net", "--", *line.split()], check=True)
