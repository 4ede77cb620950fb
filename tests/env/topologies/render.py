"""Machines of ``machines.toml`` as lstopo's XML and as the kernel's files.

    python tests/env/topologies/render.py     writes NAME.xml beside this file, for COMMITTED

The two forms come from one description and are read by two programs, which must agree. A test
holds the committed XML against this.
"""

import tomllib
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).parent
MACHINES = tomllib.loads((HERE / "machines.toml").read_text())
# Those that a reader may want to try: invoke plan-binding --topology FILE.
COMMITTED = ("dgx1", "dgx-a100", "c4140", "epyc-nps4", "laptop")


def cores_of(machine):
    """Yield (socket, node, cache, core, logical CPUs) of every core, socket after socket."""
    m = machine
    per_socket = m["nodes"] * m["caches"] * m["cores"]
    total = m["sockets"] * per_socket
    for n in range(total):
        socket, inside = divmod(n, per_socket)
        first = {
            "blocks": n,
            "alternate": inside * m["sockets"] + socket,
            "adjacent": n * m["threads"],
        }[m["numbering"]]
        step = 1 if m["numbering"] == "adjacent" else total
        cache = n // m["cores"]
        yield (
            socket,
            cache // m["caches"],
            cache,
            n,
            [first + t * step for t in range(m["threads"])],
        )


def address(bus):
    return f"0000:{bus}:00.0"


def listed(cpus):
    return ",".join(map(str, sorted(cpus)))


def numbers(text):
    ranges = [part.partition("-") for part in text.split(",")]
    return {n for first, _, last in ranges for n in range(int(first), int(last or first) + 1)}


def allowed_of(machine):
    every = {cpu for *_, cpus in cores_of(machine) for cpu in cpus}
    return numbers(machine["cpuset"]) if "cpuset" in machine else every


def _bitmap(members):
    value = sum(1 << n for n in members)
    words = []
    while True:
        words.insert(0, f"0x{value & 0xFFFFFFFF:08x}")
        value >>= 32
        if not value:
            return ",".join(words)


def _child(parent, kind, cpus=None, nodes=None, **attributes):
    # hwloc itself must be able to read it: it wants each set twice.
    sets = {}
    for name, members in (("cpuset", cpus), ("nodeset", nodes)):
        if members is not None:
            sets |= {name: _bitmap(members), f"complete_{name}": _bitmap(members)}
    values = {"type": kind, **attributes, **sets}
    return ElementTree.SubElement(parent, "object", {k: str(v) for k, v in values.items()})


def xml_of(machine):
    """Return what ``lstopo --of xml`` of hwloc 2 says, without what no plan needs."""
    cores = list(cores_of(machine))
    cpus = lambda keep: {cpu for c in cores if keep(c) for cpu in c[4]}  # noqa: E731
    nodes = lambda keep: {c[1] for c in cores if keep(c)}  # noqa: E731
    root = ElementTree.Element("topology", version="2.0")
    every = lambda c: True  # noqa: E731
    top = _child(root, "Machine", cpus(every), nodes(every), os_index=0,
                 allowed_cpuset=_bitmap(allowed_of(machine)),
                 allowed_nodeset=_bitmap(nodes(every)))  # fmt: skip
    places = {}
    for socket in sorted({c[0] for c in cores}):
        here = lambda c, socket=socket: c[0] == socket  # noqa: E731
        package = _child(top, "Package", cpus(here), nodes(here), os_index=socket)
        for node in sorted(nodes(here)):
            inside = lambda c, node=node: c[1] == node  # noqa: E731
            holder = package
            if machine["nodes"] > 1:
                holder = _child(package, "Group", cpus(inside), {node})
            places[node] = holder
            _child(holder, "NUMANode", cpus(inside), {node}, os_index=node)
            for cache in sorted({c[2] for c in cores if c[1] == node}):
                shared = lambda c, cache=cache: c[2] == cache  # noqa: E731
                l3 = _child(holder, "L3Cache", cpus(shared), {node}, cache_size=1, depth=3,
                            cache_linesize=64, cache_associativity=0, cache_type=0)  # fmt: skip
                for _, _, _, number, threads in (c for c in cores if c[2] == cache):
                    core = _child(l3, "Core", threads, {node}, os_index=number)
                    for cpu in threads:
                        _child(core, "PU", {cpu}, {node}, os_index=cpu)
    for bus, node in machine["gpus"].items():
        _gpu(places.get(node, top), bus, machine["model"])
    for n, element in enumerate(root.iter("object"), 1):
        element.set("gp_index", str(n))
    ElementTree.indent(root, " ")
    head = '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n'
    return head + ElementTree.tostring(root, encoding="unicode") + "\n"


def _gpu(place, bus, model):
    bridge = _child(place, "Bridge", bridge_type="0-1", depth=0,
                    bridge_pci=f"0000:[{bus}-{bus}]")  # fmt: skip
    device = _child(bridge, "PCIDev", pci_busid=address(bus), pci_link_speed="0.000000",
                    pci_type="0302 [10de:1db1] [0000:0000] a1")  # fmt: skip
    ElementTree.SubElement(device, "info", name="PCIDevice", value=model)


def write_kernel(machine, root, *, mask=None, driver=True):
    """Write the files under /proc and /sys that a kernel shows on such a machine."""
    files = {}
    cores = list(cores_of(machine))
    every = {cpu for *_, cpus in cores for cpu in cpus}
    system = "sys/devices/system"
    files[f"{system}/cpu/online"] = listed(every)
    for socket, _, cache, _, cpus in cores:
        shared = listed(cpu for c in cores if c[2] == cache for cpu in c[4])
        for cpu in cpus:
            folder = f"{system}/cpu/cpu{cpu}"
            files[f"{folder}/topology/physical_package_id"] = socket
            files[f"{folder}/topology/thread_siblings_list"] = listed(cpus)
            files[f"{folder}/cache/index3/shared_cpu_list"] = shared
    for node in {c[1] for c in cores}:
        held = listed(cpu for c in cores if c[1] == node for cpu in c[4])
        files[f"{system}/node/node{node}/cpulist"] = held
    allowed = allowed_of(machine)
    files["proc/self/cgroup"] = "0::/job"
    files["sys/fs/cgroup/job/cpuset.cpus.effective"] = listed(allowed)
    files["proc/self/status"] = f"Name:\tx\nCpus_allowed_list:\t{listed(mask or allowed)}\n"
    for n, (bus, node) in enumerate(machine["gpus"].items()):
        folder = f"sys/bus/pci/devices/{address(bus)}"
        files[f"{folder}/vendor"] = "0x10de"
        files[f"{folder}/class"] = "0x030200"
        files[f"{folder}/numa_node"] = node
        if driver:
            told = f"Model: \t\t {machine['model']}\nGPU UUID: \t GPU-{n:08x}-aaaa\n"
            files[f"proc/driver/nvidia/gpus/{address(bus)}/information"] = told
    for name, text in files.items():
        path = Path(root) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


if __name__ == "__main__":
    for name in COMMITTED:
        (HERE / f"{name}.xml").write_text(xml_of(MACHINES[name]))
