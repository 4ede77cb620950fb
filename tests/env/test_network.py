"""Which networks hosts share: never one that only looks shared."""

import pytest

from env.network import Route, is_host_only, packet_sizes, shared_route, twins


def interface(name, *addresses, up=True, loopback=False):
    return {"name": name, "up": up, "loopback": loopback, "addresses": list(addresses)}


LO = interface("lo", "127.0.0.1/8", "::1/128", loopback=True)
DOCKER = interface("docker0", "172.17.0.1/16")


def host(number, *more, name="eth0"):
    return [LO, DOCKER, interface(name, f"10.0.0.{number}/24", "fe80::1/64"), *more]


def test_the_common_network_without_docker_and_loopback():
    assert shared_route({"a": host(1), "b": host(2)}) == Route(("10.0.0.0/24",), ("eth0",))


def test_names_may_differ_where_the_network_is_one():
    route = shared_route({"a": host(1), "b": host(2, name="ens3")})
    assert route == Route(("10.0.0.0/24",), ("eth0", "ens3"))


def test_two_networks_and_one_that_only_one_host_has():
    fast = [interface("ib0", f"192.168.5.{n}/24") for n in (1, 2)]
    only = interface("eth1", "10.9.9.9/16")
    route = shared_route({"a": host(1, fast[0], only), "b": host(2, fast[1])})
    assert route == Route(("10.0.0.0/24", "192.168.5.0/24"), ("eth0", "ib0"))


@pytest.mark.parametrize(
    "second",
    [
        [LO, DOCKER, interface("eth0", "10.0.1.2/24")],  # another subnet
        [LO, DOCKER, interface("eth0", "10.0.0.1/24")],  # the very same address
        [LO, DOCKER, interface("eth0", "10.0.0.2/24", up=False)],
        [LO, DOCKER],
    ],
)
def test_no_common_network(second):
    assert shared_route({"a": host(1), "b": second}) is None


def test_sizes_of_packets_by_network():
    slow = [host(n, interface("eth1", f"10.9.0.{n}/24") | {"mtu": size})
            for n, size in ((1, 9000), (2, 1500))]  # fmt: skip
    for entries in slow:
        entries[2]["mtu"] = 1500
    assert packet_sizes({"a": slow[0], "b": slow[1]}) == {
        "10.0.0.0/24": {1500: ["a eth0", "b eth0"]},
        "10.9.0.0/24": {9000: ["a eth1"], 1500: ["b eth1"]},
    }
    assert packet_sizes({"a": host(1), "b": [LO]}) == {}


def test_an_address_on_two_hosts():
    assert twins({"a": host(1), "b": host(1), "c": host(3)}) == {"10.0.0.1": ("a", "b")}
    assert twins({"a": host(1), "b": host(2)}) == {}  # docker0's does not count


@pytest.mark.parametrize(
    "name",
    [
        "docker0",
        "br-0123456789ab",
        "virbr0",
        "veth12ab",
        "cni0",
        "nerdctl0",
        "weave",
        "cilium_host",
    ],
)
def test_interfaces_that_lead_nowhere(name):
    assert is_host_only(name)


@pytest.mark.parametrize("name", ["eth0", "eno1", "ib0", "bond0", "br0", "enp0s31f6", "br-data"])
def test_interfaces_that_may_lead_somewhere(name):
    assert not is_host_only(name)
