"""A Slurm of our own over the hosts of a lan: munge and slurmd on each, slurmctld on the first."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import time
from collections.abc import Mapping
from typing import Any

TOOLS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol")
INSIDE = "/run/lan"
READY_TIMEOUT_S = 40

_CONF = """\
ClusterName=chexnet
SlurmctldHost={first}
AuthType=auth/munge
SlurmUser=root
StateSaveLocation=/run/slurm/state
SlurmdSpoolDir=/run/slurm/d
SlurmctldPidFile=/run/slurm/ctld.pid
SlurmdPidFile=/run/slurm/d.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
KillWait=5
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP{limits}
{more}
"""


def missing_tools() -> list[str]:
    """Return what of the tools is not on PATH."""
    return [name for name in TOOLS if not _find(name)]


def _find(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


class Slurm:
    """A cluster; ends with its lan."""

    def __init__(self, lan: Any, *, limits: str = "", more: str = "") -> None:
        """Take the hosts of a running lan; its first becomes the controller.

        ``limits`` are added to the partition, ``more`` are lines of the configuration.
        """
        self.lan = lan
        self.limits, self.more = limits, more
        self.first = lan[lan.names[0]]

    def start(self) -> Slurm:
        """Start every daemon and wait until all nodes are idle."""
        self._configure()
        for host in self.lan.hosts.values():
            host.run("mkdir", "-p", "/run/munge", "/run/slurm/state", "/run/slurm/d", check=True)
            files = ("key", "seed", "log")
            places = (f"{INSIDE}/munge.key", "/run/munge/seed", "/run/munge/log")
            options = [f"--{n}-file={place}" for n, place in zip(files, places, strict=True)]
            self._daemon(host, "munged", "--foreground", "--force", *options)
        for host in self.lan.hosts.values():
            self._wait(lambda host=host: host.run("munge", "-n").returncode == 0)
        self._daemon(self.first, "slurmctld", "-D")
        for host in self.lan.hosts.values():
            self._daemon(host, "slurmd", "-D", "-N", host.name)
        self._wait(self._idle)
        return self

    def run(self, *argv: object, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command of Slurm's on the first host."""
        return self.first.run(*argv, **{"environ": self.environ(), "timeout": 120, **options})

    def environ(self, **more: str) -> Mapping[str, str]:
        """Return the environment in which commands find this cluster."""
        return {**os.environ, "SLURM_CONF": f"{INSIDE}/slurm.conf", **more}

    def batch(self, script: str, *options: str, timeout: float = 90) -> tuple[int, str]:
        """Run a batch script to its end; return its exit code and what it printed.

        The script says itself when it is done: ``sbatch --wait`` asks only now and then.
        """
        out, code = self.lan.folder / "out", self.lan.folder / "code"
        for path in (out, code):
            path.unlink(missing_ok=True)
        lines = f"({script}\n)\necho $? > {INSIDE}/.code\nmv {INSIDE}/.code {INSIDE}/code\n"
        (self.lan.folder / "job.sh").write_text(f"#!/bin/sh\n{lines}")
        self.run("sbatch", "--output", f"{INSIDE}/out", "--chdir=/", *options, f"{INSIDE}/job.sh",
                 check=True)  # fmt: skip
        self._wait(code.exists, timeout)
        self._wait(self._idle)  # the next one must not queue behind it
        return int(code.read_text()), out.read_text(errors="replace")

    def _configure(self) -> None:
        cores = os.cpu_count()
        lines = (
            f"NodeName={host.name} NodeAddr={host.address} CPUs={cores} State=UNKNOWN"
            for host in self.lan.hosts.values()
        )
        conf = _CONF.format(
            first=f"{self.first.name}({self.first.address})", nodes="\n".join(lines),
            limits=self.limits, more=self.more,
        )  # fmt: skip
        (self.lan.folder / "slurm.conf").write_text(conf)
        said = subprocess.run([_find("slurmd"), "-V"], capture_output=True, text=True, check=True)
        if tuple(map(int, re.findall(r"\d+", said.stdout)[:2])) >= (23, 11):
            (self.lan.folder / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
        key = self.lan.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)

    def _daemon(self, host: Any, name: str, *options: str) -> None:
        program = _find(name)
        environ = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "SLURM_CONF": f"{INSIDE}/slurm.conf"}
        with (host.own / f"{name}.log").open("w") as log:
            argv = host.enter([program, *options])
            server = subprocess.Popen(
                argv, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        host.servers.append(server)

    def _idle(self) -> bool:
        done = self.run("sinfo", "--noheader", "--partition=all", "--format=%D %t")
        return done.stdout.split() == [str(len(self.lan.names)), "idle"]

    def _wait(self, ready: Any, timeout: float = READY_TIMEOUT_S) -> None:
        deadline = time.monotonic() + timeout
        while not ready():
            if time.monotonic() > deadline:
                logs = {path.name: path.read_text() for path in self.lan.folder.rglob("*.log")}
                raise RuntimeError(f"Slurm did not get there: {logs}")
            time.sleep(0.1)
