"""Recorded lstopo XML: the same machine as the kernel's files show, or a clear refusal."""

import contextlib
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from env.errors import UserError
from env.lstopo import load_lstopo, parse_lstopo
from env.probes.topology import probe_topology

FOLDER = Path(__file__).parent / "topologies"
RENDER = runpy.run_path(str(FOLDER / "render.py"))
MACHINES, xml_of = RENDER["MACHINES"], RENDER["xml_of"]

# hwloc 1: sockets below their memory node, caches with a depth, no version.
OLD = """<?xml version="1.0"?><topology><object type="Machine" os_index="0" cpuset="0x0000000f"
allowed_cpuset="0x0000000f"><info name="HostName" value="old1"/>
<object type="NUMANode" os_index="0" cpuset="0x00000003" nodeset="0x1">
<object type="Socket" os_index="0" cpuset="0x00000003"><object type="Cache" depth="3"
cpuset="0x00000003"><object type="Core" os_index="0" cpuset="0x00000003">
<object type="PU" os_index="0" cpuset="0x1"/><object type="PU" os_index="1" cpuset="0x2"/>
</object></object></object><object type="Bridge" bridge_type="0-1"><object type="PCIDev"
pci_busid="0000:05:00.0" pci_type="0302 [10de:1021] [10de:097d] a1"><object type="OSDev">
<info name="NVIDIAUUID" value="GPU-77"/><info name="GPUModel" value="Tesla"/></object></object>
<object type="PCIDev" pci_busid="0000:06:00.0" pci_type="0200 [15b3:1003] [0:0] 00"/>
</object></object><object type="NUMANode" os_index="1" cpuset="0x0000000c" nodeset="0x2">
<object type="Socket" os_index="1" cpuset="0x0000000c"><object type="Core" os_index="0"
cpuset="0x0000000c"><object type="PU" os_index="2" cpuset="0x4"/>
<object type="PU" os_index="3" cpuset="0x8"/></object></object></object></object></topology>"""


@pytest.mark.parametrize("name", MACHINES)
def test_it_is_the_machine_that_the_kernel_shows(tmp_path, name):
    RENDER["write_kernel"](MACHINES[name], tmp_path)
    kernel = probe_topology(tmp_path, environ={})
    recorded = parse_lstopo(xml_of(MACHINES[name]), host="x")
    assert recorded.cores == kernel.cores
    assert (recorded.allowed, recorded.cpuset) == (kernel.allowed, kernel.cpuset)
    one_node = len({core.node for core in kernel.cores}) == 1
    for seen, told in zip(recorded.gpus, kernel.gpus, strict=True):
        # The XML hangs a GPU without a place at the machine, which may have a single node.
        assert (seen.pci, seen.node) == (told.pci, 0 if one_node else told.node)


@pytest.mark.parametrize("name", RENDER["COMMITTED"])
def test_the_committed_files_are_what_render_writes(name):
    assert (FOLDER / f"{name}.xml").read_text() == xml_of(MACHINES[name])


@pytest.mark.parametrize("name", ["dgx-a100", "laptop"])
def test_hwloc_itself_reads_our_machines(name):
    lstopo = shutil.which("lstopo") or shutil.which("lstopo-no-graphics")
    if lstopo is None:
        pytest.skip("no lstopo on PATH")
    xml = FOLDER / f"{name}.xml"
    done = subprocess.run(
        [lstopo, "-i", str(xml), "--of", "console"], capture_output=True, text=True
    )
    m = MACHINES[name]
    cores = m["sockets"] * m["nodes"] * m["caches"] * m["cores"]
    assert (done.stdout.count("Core L#"), done.stdout.count("PU L#")) == (cores, 2 * cores)
    assert done.stdout.count("NUMANode") == m["sockets"] * m["nodes"]


def test_this_machine_as_lstopo_records_it(tmp_path):
    lstopo = shutil.which("lstopo") or shutil.which("lstopo-no-graphics")
    if lstopo is None:
        pytest.skip("no lstopo on PATH")
    done = subprocess.run([lstopo, "--of", "xml"], capture_output=True, text=True, check=True)
    recorded, live = parse_lstopo(done.stdout, host="x"), probe_topology()
    assert [core.cpus for core in recorded.cores] == [core.cpus for core in live.dealt]
    assert [core.socket for core in recorded.cores] == [core.socket for core in live.dealt]


def test_the_xml_of_hwloc_1():
    topology = parse_lstopo(OLD, host="x")
    assert topology.host == "old1"
    assert [(c.cpus, c.socket, c.node) for c in topology.cores] == [((0, 1), 0, 0), ((2, 3), 1, 1)]
    (gpu,) = topology.gpus
    assert (gpu.pci, gpu.node, gpu.uuid, gpu.model) == ("0000:05:00.0", 0, "GPU-77", "Tesla")


def test_memory_without_cores_is_no_place_for_ranks():
    # Fast memory beside the socket's own: two nodes for the same cores.
    fast = '<object type="NUMANode" os_index="0" cpuset="0x00000003" nodeset="0x5">'
    text = OLD.replace(
        '<object type="NUMANode" os_index="0" cpuset="0x00000003" nodeset="0x1">', fast
    )
    topology = parse_lstopo(text, host="x")
    assert {core.node for core in topology.cores} == {0, 1}
    assert topology.gpus[0].node == 0


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "no XML"),
        ("<topology>", "no XML"),
        ("<svg/>", "no <topology>"),
        ("<topology/>", "no <topology>"),
        ('<topology><object type="Machine"/></topology>', "no processors"),
        ('<!DOCTYPE t [<!ENTITY a "b">]><topology/>', "entities"),
        (OLD.replace('os_index="1" cpuset="0x2"', 'os_index="x" cpuset="0x2"'), "invalid literal"),
        (OLD.replace("0x0000000f", "0xf...f"), "invalid literal"),
    ],
)
def test_what_is_no_such_file_is_refused(tmp_path, text, found):
    path = tmp_path / "machine.xml"
    path.write_text(text)
    with pytest.raises(UserError, match=found) as caught:
        load_lstopo(path)
    assert str(path) in caught.value.found
    assert "lstopo --of xml" in caught.value.fix


def test_a_missing_file_and_one_that_is_no_text_are_named(tmp_path):
    with pytest.raises(UserError, match=r"nowhere\.xml"):
        load_lstopo(tmp_path / "nowhere.xml")
    (tmp_path / "binary.xml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"binary\.xml"):
        load_lstopo(tmp_path / "binary.xml")


@given(st.text(), st.integers(0, len(OLD)), st.integers(0, 40))
def test_damage_is_an_error_of_its_own_or_none(noise, at, cut):
    with contextlib.suppress(ValueError):
        parse_lstopo(OLD[:at] + noise + OLD[at + cut :], host="x")


def test_neither_depth_nor_a_huge_bitmap_stops_it():
    deep = OLD.replace(
        "</object></topology>", "<object>" * 5000 + "</object>" * 5001 + "</topology>"
    )
    assert len(parse_lstopo(deep, host="x").gpus) == 1
    with pytest.raises(ValueError, match="bitmap"):
        parse_lstopo(OLD.replace("0x00000003", "0x" + "f" * 100_000), host="x")
