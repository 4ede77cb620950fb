"""What a driver leaves on disk, read from made-up roots: its releases, libraries, bridges."""

import struct

import pytest

from env.facts import Facts
from env.probes.driver import probe_driver
from env.probes.loader import find_libraries
from env.probes.pci import probe_pci


@pytest.fixture
def root(tmp_path):
    """An empty root; returns a writer of files, and of links where the text begins with ->."""

    def write(**files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(text, bytes):
                path.write_bytes(text)
            elif text.startswith("->"):
                path.symlink_to(text[2:])
            else:
                path.write_text(text)
        return tmp_path

    return write


def probe(root, **environ):
    return Facts(probe_driver(root, environ=environ))


def test_nothing_of_a_driver(tmp_path):
    facts = probe(tmp_path)
    assert facts.value("driver.kernel") is None
    assert facts.value("driver.gpus") == {}
    assert facts.value("driver.libraries") == []
    assert facts.value("driver.apptainer_libs") is None
    assert facts.value("driver.pci") == {"gpus": {}, "switches": 0, "iommu": {}}
    assert "modules" in facts["driver.modules"].origin
    assert facts["driver.modules"].problem


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19\n", "535.104.05"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  x", "570.86.10"),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  590.44  x", "590.44"),
    ],
)  # fmt: skip
def test_the_release_of_the_module(root, text, release):
    assert probe(root(**{"proc/driver/nvidia/version": text})).value("driver.kernel") == release


def test_the_release_where_proc_is_masked(root):
    facts = probe(root(**{"sys/module/nvidia/version": "550.54.15\n"}))
    assert facts.value("driver.kernel") == "550.54.15"
    facts = probe(root(**{"proc/driver/nvidia/version": "\x00\x1b[2J"}))
    assert facts["driver.kernel"].problem == "no release in it"


def test_modules_by_their_names(root):
    lines = "nvidia_uvm 1 0 - Live\nnvidia 2 1 nvidia_uvm, Live\nnvme 1 0 - Live\nnouveau 1 0 -\n"
    facts = probe(root(**{"proc/modules": lines}))
    assert facts.value("driver.modules") == ["nouveau", "nvidia", "nvidia_uvm"]


def test_libraries_in_the_order_of_the_loader(root):
    conf = "# none\ninclude /etc/ld.so.conf.d/*.conf\ninclude ld.so.conf\n/opt/c\n"
    place = root(
        **{
            "opt/a/libcuda.so.535.1.2": "x",
            "opt/a/libcuda.so.1": "->libcuda.so.535.1.2",
            "etc/ld.so.conf": conf,
            "etc/ld.so.conf.d/b.conf": "/opt/b # ours\n",
            "opt/b/libcuda.so.1": "x",
            "opt/c/libnvidia-ml.so.1": "x",
            "usr/lib/libcuda.so.1": "x",
            "usr/lib64": "->lib",
        }
    )
    found = probe(place, LD_LIBRARY_PATH="/none:/opt/a:").value("driver.libraries")
    assert [(one["path"], one["release"]) for one in found] == [
        ("/opt/a/libcuda.so.1", "535.1.2"), ("/opt/b/libcuda.so.1", None),
        ("/opt/c/libnvidia-ml.so.1", None), ("/usr/lib64/libcuda.so.1", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("usr/local/cuda/lib64/stubs/libcuda.so.1", "stub"),
        ("usr/local/cuda-12.4/compat/libcuda.so.1", "compat"),
        ("opt/plain/libcuda.so.1", ""),
        (".singularity.d/libs/libcuda.so.1", "injected"),
    ],
)
def test_what_kind_a_library_is(root, path, kind):
    place = root(**{path: "x"})
    found = probe(place, LD_LIBRARY_PATH="/" + path.rpartition("/")[0]).value("driver.libraries")
    assert [one["kind"] for one in found] == [kind]


def test_a_library_behind_a_link_into_compat(root):
    place = root(**{"cuda/compat/libcuda.so.550.1": "x",
                    "opt/libcuda.so.1": "->../cuda/compat/libcuda.so.550.1"})  # fmt: skip
    found = probe(place, LD_LIBRARY_PATH="/opt").value("driver.libraries")
    assert [(one["kind"], one["release"]) for one in found] == [("compat", "550.1")]


def test_a_mounted_library_has_the_release_of_its_source(root):
    line = "36 35 98:0 /host/libcuda.so.550.54.15 /usr/lib/libcuda.so.1 ro - ext4 /dev/root rw\n"
    place = root(**{"usr/lib/libcuda.so.1": "x", "proc/self/mountinfo": f"short line\n{line}"})
    found = probe(place).value("driver.libraries")
    assert [(one["kind"], one["release"]) for one in found] == [("injected", "550.54.15")]


def test_roots_that_bite_their_tails(root):
    place = root(**{
        "opt/libcuda.so.1": "->libcuda.so.1", "a": "->b", "b": "->a",
        "etc/ld.so.conf": "->ld.so.conf", "proc/driver/nvidia/version": "->version",
        "proc/driver/nvidia/gpus/0000:01:00.0/information": "->information",
        "sys/bus/pci/devices/0000:01:00.0/vendor": "->vendor",
        ".singularity.d/libs/libx.so": "->libx.so",
    })  # fmt: skip
    facts = probe(place, LD_LIBRARY_PATH="/opt:/a:/b:\x1b[2J")
    assert facts.value("driver.libraries") == []
    assert facts["driver.kernel"].problem
    assert facts.value("driver.gpus") == {"0000:01:00.0": {"minor": None, "uuid": None}}
    assert facts.value("driver.glibc")["needed"] == {}


def test_a_name_with_a_zero_in_it(tmp_path):
    environ = {"LD_LIBRARY_PATH": "/opt/\0x"}
    assert list(find_libraries(["libcuda.so.1"], root=tmp_path, environ=environ)) == []


def test_the_newest_c_library_that_is_asked_for(root):
    place = root(**{
        ".singularity.d/libs/libcuda.so.1": b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.9\0",
        ".singularity.d/libs/libGL.so.1": b"\0GLIBC_PRIVATE\0",
    })  # fmt: skip
    facts = probe(place)
    assert facts.value("driver.glibc")["needed"] == {"libcuda.so.1": "2.34"}
    assert facts.value("driver.apptainer_libs") == ["libGL.so.1", "libcuda.so.1"]


def config(*capabilities):
    """A bridge's configuration space with extended capabilities: (id, control) each."""
    data = bytearray(4096)
    for number, (identifier, control) in enumerate(capabilities):
        place = 0x100 + 0x40 * number
        following = place + 0x40 if number + 1 < len(capabilities) else 0
        struct.pack_into("<IHH", data, place, identifier | 1 << 16 | following << 20, 0, control)
    return bytes(data)


def bridge(data):
    where = "sys/bus/pci/devices/0000:00:01.0"
    return {f"{where}/class": "0x060400\n", f"{where}/vendor": "0x8086\n", f"{where}/config": data}


@pytest.mark.parametrize(
    ("data", "redirecting"),
    [
        (config((0x0001, 0), (0x000D, 0b0001_1101)), ["0000:00:01.0"]),
        (config((0x000D, 0b0000_0100)), ["0000:00:01.0"]),
        (config((0x000D, 0b0000_0001)), []),
        (config((0x0001, 0xFFFF)), []),
        (config(), []),
        (b"\xff" * 4096, []),
        (b"\0" * 64, None),  # what an ordinary user is shown
    ],
)
def test_bridges_that_redirect_peer_traffic(root, data, redirecting):
    facts = Facts(probe_pci(root(**bridge(data))))
    assert facts.value("driver.iommu")["redirecting"] == redirecting


def test_capabilities_that_form_a_ring(root):
    data = bytearray(config((0x0001, 0)))
    struct.pack_into("<I", data, 0x100, 0x0001 | 1 << 16 | 0x100 << 20)
    facts = Facts(probe_pci(root(**bridge(bytes(data)))))
    assert facts.value("driver.iommu")["redirecting"] == []


def test_gpus_and_switches_on_the_bus(root):
    bus = "sys/bus/pci/devices"
    place = root(**{
        f"{bus}/0000:01:00.0/vendor": "0x10de\n", f"{bus}/0000:01:00.0/class": "0x030200\n",
        f"{bus}/0000:01:00.0/driver": "->../../drivers/nvidia", "sys/bus/pci/drivers/nvidia/x": "",
        f"{bus}/0000:01:00.0/iommu_group/type": "identity\n",
        f"{bus}/0000:02:00.0/vendor": "0x10de\n", f"{bus}/0000:02:00.0/class": "0x030000\n",
        f"{bus}/0000:03:00.0/vendor": "0x10de\n", f"{bus}/0000:03:00.0/class": "0x068000\n",
        f"{bus}/0000:04:00.0/vendor": "0x1002\n", f"{bus}/0000:04:00.0/class": "0x030000\n",
        f"{bus}/0000:05:00.0/vendor": "0x10de\n", f"{bus}/0000:05:00.0/class": "0x040300\n",
        "proc/cmdline": "ro intel_iommu=on quiet\n", "sys/class/iommu/dmar0/x": "",
    })  # fmt: skip
    facts = Facts(probe_pci(place))
    assert facts.value("driver.pci") == {
        "gpus": {"0000:01:00.0": "nvidia", "0000:02:00.0": None}, "switches": 1,
        "iommu": {"0000:01:00.0": "identity"},
    }  # fmt: skip
    assert facts.value("driver.iommu") == {
        "units": 1, "cmdline": ["intel_iommu=on"], "redirecting": [],
    }  # fmt: skip
