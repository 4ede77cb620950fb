"""States of the checks of the launch, of the ranks' paths and of the network between hosts."""
# ruff: noqa: E501 - one state a line

import runpy
from pathlib import Path

from env.result import Status
from env.site import Site

TABLE = runpy.run_path(str(Path(__file__).with_name("states.py")))
evidence = TABLE["evidence"]
FAIL, WARN, SKIP = Status.FAIL, Status.WARN, Status.SKIP
INCLUDE = "OMPI_MCA_btl_tcp_if_include"
OF_LAUNCH = {"launcher.end": "exit code 0", "launcher.words": "", "launcher.timed_out": False}


def ended(end="exit code 1", words="", *, timed_out=False, **more):
    return evidence(
        {"launcher.end": end, "launcher.words": words, "launcher.timed_out": timed_out}, **more
    )


def interface(name, *addresses, mtu=1500):
    return {"name": name, "up": True, "loopback": name == "lo", "addresses": list(addresses),
            "mtu": 65536 if name == "lo" else mtu}  # fmt: skip


def host(number, *more, name="eth0", settings=None, own=None, **changes):
    """A rank of node ``number``; the two ranks of the healthy machine get a host each."""
    interfaces = [interface("lo", "127.0.0.1/8"), interface(name, f"10.0.0.{number}/24"), *more]
    return {
        "host.name": f"node{number}",
        "host.boot_id": f"b{number}",
        "network.interfaces": interfaces,
        "network.own_name": [f"10.0.0.{number}"] if own is None else own,
        "launch.settings": settings or {},
    } | changes


def two(first=None, second=None, **more):
    return evidence(ranks=(first or host(1), second or host(2)), **more)


DOCKER = interface("docker0", "172.17.0.1/16")
NCCL = {"settings": {"NCCL_SOCKET_IFNAME": "eth0"}}
MPI = {"settings": {INCLUDE: "10.0.0.0/24"}}
EXCLUDE = "OMPI_MCA_btl_tcp_if_exclude"
OUT = {"settings": {EXCLUDE: "lo"}}
IN_A_FILE = {
    "settings.assigned": [
        {"name": EXCLUDE, "value": "lo,docker0", "origin": "/home/u/.openmpi/mca-params.conf"}
    ]
}
SUMS = {"rank.allreduce": {"mib": 16, "wrong": 0, "seconds": 0.01, "gb_s": 1.5}}
SITE = Site("good1", {}, {}, {"allreduce_gb_s": 2.0})
PATHS = {"rank.paths": {"/data": True}}
JUMBO = {
    "network.interfaces": [
        interface("lo", "127.0.0.1/8"),
        interface("eth0", "10.0.0.1/24", mtu=9000),
    ]
}
# Two networks of different sizes, each with one size on both hosts.
FAST = [interface("ib0", f"10.1.0.{n}/24", mtu=4092) for n in (1, 2)]

STATES = {
    "launch.ended": (
        [
            (FAIL, "exit code 1: what is this", ended(words="----\nwhat is this\n", ranks=({}, None))),
            (FAIL, "no answer within 5 s: it said nothing", ended("no answer within 5 s", timed_out=True)),
            (FAIL, "does not find Open MPI's daemon orted", ended(words="bash: line 1: orted: command not found", ranks=({}, None))),
            (FAIL, "host node2 does not answer", ended(words="ssh: connect to host node2 port 22: No route to host", ranks=({}, None))),
            (FAIL, "the name node9 leads to no address", ended(words="ssh: Could not resolve hostname node9: Name or service not known", ranks=({}, None))),
            (FAIL, "without a PMI", ended(words='The application appears to have been direct launched using "srun",', ranks=({}, None))),
            (FAIL, "counts fewer places", ended(words="There are not enough slots available in the system", ranks=(None, None))),
            (WARN, "exit code 1: late trouble", ended(words="late trouble")),
            (SKIP, "nobody wrote down", evidence()),
        ],
        evidence(OF_LAUNCH, lost=["launcher.words"]),
    ),
    "ranks.paths": (
        [(FAIL, "rank 1 on node1 does not see it", evidence(ranks=(PATHS, {"rank.paths": {"/data": False}})))],
        evidence(ranks=(PATHS, {}), lost=["rank.paths"]),
    ),
    "ranks.allreduce": (
        [
            (SKIP, "not asked for", evidence()),
            (FAIL, "rank 1: 3 wrong sums", evidence(ranks=(SUMS, {"rank.allreduce": {"mib": 16, "wrong": 3, "gb_s": 9.0}}))),
            (FAIL, "1.50 GB/s", evidence(ranks=(SUMS, SUMS), site=SITE)),
            (FAIL, "died by SIGSEGV", evidence(ranks=(SUMS, {"rank.allreduce": {"error": "died by SIGSEGV"}}))),
        ],
        evidence(ranks=(SUMS, SUMS), lost=["rank.allreduce"]),
    ),
    "hosts.network": (
        [
            (FAIL, "10.0.0.1 is on node1 and on node2", two(second=host(1) | {"host.name": "node2", "host.boot_id": "b2"})),
            (FAIL, "NCCL_SOCKET_IFNAME=eth0: node2 has lo, ens3", two(host(1, **NCCL), host(2, name="ens3", **NCCL))),
            (FAIL, f"{INCLUDE}=eth9", two(*(host(n, settings={INCLUDE: "eth9"}) for n in (1, 2)))),
            (FAIL, "docker0 lead nowhere", two(host(1, DOCKER), host(2, DOCKER))),
            (FAIL, "exclude=lo lets in docker0 of node1", two(host(1, DOCKER, **OUT), host(2, **OUT))),
            (FAIL, "exclude=docker0 lets in lo of node1", two(*(host(n, settings={EXCLUDE: "docker0"}) for n in (1, 2)))),
            (WARN, "^lo lets in docker0 of node1; docker0 of node2", two(*(host(n, DOCKER, settings={"NCCL_SOCKET_IFNAME": "^lo", INCLUDE: "eth0"}) for n in (1, 2)))),
            (FAIL, "^eth,lo: node1 has", two(*(host(n, DOCKER, settings={"NCCL_SOCKET_IFNAME": "^eth,lo", INCLUDE: "eth0"}) for n in (1, 2)))),
            (FAIL, "include=lo: node1 has", two(*(host(n, settings={INCLUDE: "lo"}) for n in (1, 2)))),
            (WARN, "9000 bytes on node1 eth0; 1500 bytes on node2 eth0", two(host(1, **JUMBO))),
            (WARN, "no network is on all", two(second=host(2, **{"network.interfaces": [interface("eth0", "10.0.1.2/24")]}))),
        ],
        two(lost=["network.interfaces"]),
    ),
    "hosts.names": (
        [
            (FAIL, "node2 calls itself 127.0.1.1", two(second=host(2, own=["127.0.1.1"]))),
            (FAIL, "node2 calls itself a name without address", two(second=host(2, own=[]))),
        ],
        two(lost=["network.own_name"]),
    ),
}  # fmt: skip
PASSES = {
    "launch.ended": [evidence(OF_LAUNCH)],
    "ranks.paths": [evidence(ranks=(PATHS, PATHS))],
    "ranks.allreduce": [
        evidence(ranks=(SUMS, SUMS)),
        evidence(ranks=(SUMS,), num_ranks=1, site=SITE),  # alone there is no network to be slow
    ],
    "hosts.network": [
        two(),
        two(host(1, FAST[0]), host(2, FAST[1])),
        two(host(1, DOCKER, **MPI), host(2, DOCKER, **MPI)),
        two(host(1, **NCCL), host(2, **NCCL)),
        two(*(host(n, settings={"NCCL_SOCKET_IFNAME": "=eth0:5000"}) for n in (1, 2))),
        evidence(IN_A_FILE, ranks=(host(1, DOCKER), host(2, DOCKER))),
        evidence(ranks=(host(1), host(1))),
    ],
    "hosts.names": [two(), two(second=host(2, own=["127.0.1.1", "10.0.0.2"])), evidence(ranks=(host(1, own=["127.0.1.1"]),) * 2)],
}  # fmt: skip
