"""Open MPI's own word: stub tools on PATH with the lines of real ones, and the real one misled."""

import json
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from env.facts import Fact, Facts
from env.probes.mpi import parse_info, probe_mpi
from env.probes.rdma import probe_rdma
from env.probes.settings import probe_settings
from env.result import Status

# Lines as ompi_info --all --parsable of 4.1 writes them.
INFO = """\
path:prefix:{root}
path:pkgdatadir:/share/openmpi
config:cli: '--prefix=/opt/ompi' '--enable-mpirun-prefix-by-default'
option:threads:"posix (MPI_THREAD_MULTIPLE: yes, OPAL support: yes, OMPI progress: no)"
mca:opal:base:param:opal_built_with_cuda_support:value:false
mca:btl:openib:version:"mca:2.1.0"
mca:btl:openib:version:"component:4.1.4"
mca:btl:tcp:version:"component:4.1.4"
mca:btl:tcp:param:btl_tcp_if_include:value:
mca:mca:base:param:mca_param_files:synonym_of:name:mca_base_param_files
"""


@pytest.fixture
def tools(tmp_path):
    """Write stub tools; returns their facts, with those of settings and RDMA devices."""

    def probe(banner="mpirun (Open MPI) 4.1.4", info=INFO, stderr="", files=(), **environ):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        (tmp_path / "info.txt").write_text(info.format(root=tmp_path))
        (tmp_path / "err.txt").write_text(stderr)
        said = f"cat {tmp_path}/info.txt; cat {tmp_path}/err.txt >&2"
        stubs = {"mpirun": f"echo '{banner}'", "ompi_info": said, **dict(files)}
        for name, line in stubs.items():
            (folder / name).write_text(f"#!/bin/sh\n{line}\n")
            (folder / name).chmod(0o755)
        environ = {"PATH": f"{folder}:/usr/bin:/bin", **environ}
        probes = (probe_mpi, probe_settings, probe_rdma)
        told = [one(tmp_path, environ=environ) for one in probes]
        return Facts(told[0] | told[1] | told[2])

    return probe


def test_what_ompi_info_tells(tools, tmp_path):
    facts = tools()
    assert facts.value("mpi.parameters") == [
        "btl_tcp_if_include", "mca_param_files", "opal_built_with_cuda_support",
    ]  # fmt: skip
    assert facts.value("mpi.components") == {"btl": ["openib", "tcp"]}
    assert (facts.value("mpi.threads"), facts.value("mpi.cuda")) == (True, False)
    assert "prefix-by-default" in facts.value("mpi.configured")
    assert facts.value("mpi.prefix") == str(tmp_path)
    assert facts.value("mpi.data") == {"folder": "/share/openmpi", "helps": False}


@given(st.text())
def test_no_text_breaks_the_parser(text):
    assert set(parse_info(text)) == set(parse_info(""))
    assert parse_info(INFO + text)["threads"] is True


def test_open_mpi_that_was_moved(tools, verdict, tmp_path):
    result = verdict("mpi.installation", tools(OPAL_PREFIX="/nowhere"))
    assert (result.status, result.where) == (Status.FAIL, "OPAL_PREFIX=/nowhere")
    (tmp_path / "share/openmpi").mkdir(parents=True)
    (tmp_path / "share/openmpi/help-mpi-api.txt").touch()
    assert verdict("mpi.installation", tools()).status is Status.PASS


def test_the_real_open_mpi_misled(run_env, tmp_path):
    done = run_env("--only", "mpi.installation", "--json", "-", OPAL_PREFIX=str(tmp_path))
    (result,) = json.loads(done.stdout)["results"]
    assert (done.returncode, result["status"]) == (1, "FAIL")
    assert result["where"] == f"OPAL_PREFIX={tmp_path}"


@pytest.mark.usefixtures("open_mpi_4")
@pytest.mark.parametrize("name", ["OPAL_PKGLIBDIR", "OPAL_LIBDIR"])
def test_the_real_open_mpi_without_its_components(run_env, real_environ, name):
    started = subprocess.run(["mpirun", "-np", "1", "true"], env=real_environ | {name: "/nowhere"},
                             capture_output=True, check=False)  # fmt: skip
    assert started.returncode != 0
    done = run_env("--only", "mpi.components", "--json", "-", **{name: "/nowhere"})
    (result,) = json.loads(done.stdout)["results"]
    assert (done.returncode, result["status"]) == (1, "FAIL")
    assert (result["found"], result["fix"]) == ("no transport at all (btl)", f"unset {name}")


def test_what_a_misled_open_mpi_cannot_tell_gets_no_cure_of_its_own(run_env, tmp_path):
    asked = "mpi.launcher,mpi.version,mpi.others,mpi.installation"
    done = run_env("--only", asked, "--json", "-", OPAL_PREFIX=str(tmp_path))
    results = {result["id"]: result for result in json.loads(done.stdout)["results"]}
    told = {name: (result["status"], result["fix"]) for name, result in results.items()}
    assert done.returncode == 1
    assert told.pop("mpi.installation")[0] == "FAIL"
    assert told == {"mpi.launcher": ("SKIP", ""), "mpi.version": ("SKIP", ""),
                    "mpi.others": ("PASS", "")}  # fmt: skip
    assert results["mpi.version"]["found"] == "could not tell, since mpi.installation failed"


@pytest.mark.parametrize(
    ("name", "status"), [("coll_hcoll", Status.WARN), ("pml_ucx", Status.FAIL), ("", Status.PASS)]
)
def test_components_that_cannot_be_loaded(tools, verdict, name, status):
    line = "mca_base_component_repository_open: unable to open "
    line += f"mca_{name}: undefined symbol: q (ignored)"
    facts = tools(stderr=f"{line}\n" * 1000 if name else "a harmless word\n")
    assert verdict("mpi.components", facts).status is status
    assert len(facts.value("mpi.complaints")) == bool(name)


@pytest.mark.usefixtures("open_mpi_4")
@pytest.mark.parametrize(
    ("parameter", "value", "status"),
    [("btl_vader_single_copy_mechanism", "cmaa", Status.WARN),
     ("btl_vader_single_copy_mechanism", "none", Status.PASS),
     ("btl_tcp_links", "two", Status.WARN), ("btl_tcp_links", "2", Status.PASS),
     ("btl_tcp_eager_limit", "64k", Status.PASS), ("mpi_yield_when_idle", "maybe", Status.WARN),
     ("mpi_yield_when_idle", "yes", Status.PASS), ("pml_base_verbose", "7", Status.PASS),
     ("btl", "self,tcp", Status.PASS), ("no_such_parameter", "x", Status.PASS)],
)  # fmt: skip
def test_values_of_the_real_open_mpi_s_parameters(verdict, real_environ, parameter, value, status):
    environ = real_environ | {f"OMPI_MCA_{parameter}": value}
    facts = {**probe_mpi(environ=environ), **probe_settings(environ=environ)}
    result = verdict("settings.parameters", facts)
    assert result.status is status, result
    if parameter == "btl_vader_single_copy_mechanism" and status is Status.WARN:
        told = subprocess.run(["ompi_info", "--all"], env=environ, capture_output=True, text=True,
                              check=False)  # fmt: skip
        assert "An invalid value was supplied" in told.stderr
        assert result.expected == f"{parameter}: one of cma, emulated, none"


def test_a_component_that_was_not_built(tools, verdict):
    result = verdict("settings.components", tools(OMPI_MCA_btl="self,tcp"))
    assert (result.status, result.found) == (
        Status.FAIL, "OMPI_MCA_btl=self,tcp: no self among them",
    )  # fmt: skip
    assert verdict("settings.components", tools(OMPI_MCA_btl="tcp")).status is Status.PASS


def test_another_launcher_behind_the_first(tools, verdict, tmp_path):
    tools()
    other = tmp_path / "other"
    other.mkdir()
    (other / "mpirun").write_text("#!/bin/sh\n")
    (other / "mpirun").chmod(0o755)
    (tmp_path / "alias").symlink_to(tmp_path / "bin")
    path = f"{tmp_path}/bin:{tmp_path}/alias"
    facts = probe_mpi(environ={"PATH": path})
    assert verdict("mpi.others", facts).status is Status.PASS
    facts = probe_mpi(environ={"PATH": f"{path}:{other}"})
    result = verdict("mpi.others", facts)
    assert (result.status, result.found) == (
        Status.INFO, f"{tmp_path}/bin/mpirun, and behind it {other}/mpirun",
    )  # fmt: skip


def test_mpi_and_ucx_without_threads(tools, verdict):
    without = INFO.replace("MULTIPLE: yes", "MULTIPLE: no")
    assert verdict("mpi.threads", tools(info=without)).status is Status.WARN
    lines = "echo '# version=1.13.1'; echo '# configured with: --disable-x'"
    ucx = {"ucx_info": lines}
    facts = tools(files=ucx)
    assert facts.value("mpi.ucx") == {"version": "1.13.1", "threads": False}
    assert verdict("mpi.threads", facts).status is Status.WARN
    ucx["ucx_info"] = "echo '# version=1.13.1'; echo '# configured with: --enable-mt'"
    assert verdict("mpi.threads", tools(files=ucx)).status is Status.PASS
    assert verdict("mpi.threads", tools(info="nonsense\n")).status is Status.UNKNOWN


def test_who_moves_gpu_memory(tools, verdict):
    horovod = {"frameworks.horovod": Fact({"nccl": 0, "mpi": True}, "x")}
    assert verdict("mpi.cuda", tools() | horovod, stack_device="gpu").status is Status.FAIL
    aware = tools(info=INFO.replace("support:value:false", "support:value:true"))
    assert verdict("mpi.cuda", aware | horovod, stack_device="gpu").status is Status.PASS
    nccl = {"frameworks.horovod": Fact({"nccl": 22300, "mpi": True}, "x")}
    assert verdict("mpi.cuda", aware | nccl, stack_device="gpu").status is Status.WARN


def test_the_daemon_for_other_hosts(tools, verdict):
    from env.binding import BindingPlan, RankBinding

    plan = BindingPlan(tuple(RankBinding(n, 0, f"h{n}", (), None, 1) for n in range(2)), 0)
    assert verdict("mpi.daemon", tools(), plan=plan).status is Status.FAIL
    facts = tools(files={"orted": "exit 0"})
    assert verdict("mpi.daemon", facts, plan=plan).status is Status.PASS
    other = tools(files={"prted": "exit 0"}, info=INFO.replace("--enable-mpirun-prefix", "--x"))
    assert verdict("mpi.daemon", other, plan=plan).status is Status.INFO


# --- RDMA ----------------------------------------------------------------------------------------


@pytest.fixture
def card(tmp_path):
    """Make the files of one port; returns facts with those of settings and interfaces."""

    def make(state="4: ACTIVE", link="InfiniBand", gids=(), uverbs=True, library=True, modules=""):
        port = tmp_path / "sys/class/infiniband/mlx5_0/ports/1"
        texts = {
            "state": state,
            "phys_state": "5: LinkUp",
            "link_layer": link,
            "rate": "200 Gb/sec",
        }
        for number, (gid, kind) in enumerate(gids):
            texts |= {f"gids/{number}": gid, f"gid_attrs/types/{number}": kind}
        for name, text in texts.items():
            (port / name).parent.mkdir(parents=True, exist_ok=True)
            (port / name).write_text(text + "\n")
        for name, wanted in (("dev/infiniband/uverbs0", uverbs), ("lib/libibverbs.so.1", library)):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            if wanted:
                (tmp_path / name).touch()
        (tmp_path / "proc").mkdir(exist_ok=True)
        (tmp_path / "proc/modules").write_text(modules)
        (tmp_path / "etc").mkdir(exist_ok=True)
        (tmp_path / "etc/ld.so.cache").write_bytes(b"glibc-ld.so.cache1.1" + b"\0" * 28)
        return {"LD_LIBRARY_PATH": str(tmp_path / "lib")}

    def probe(environ=None, **options):
        environ = make(**options) | (environ or {})
        eth0 = {"name": "eth0", "up": True, "loopback": False, "addresses": ["10.0.0.1/8"]}
        others = {"network.interfaces": Fact([eth0], "x"), "host.container": Fact(None, "x"),
                  "gpu.device_files": Fact(["nvidia0"], "x")}  # fmt: skip
        rdma = Facts(probe_rdma(tmp_path, environ=environ))
        return rdma | probe_settings(tmp_path, environ=environ) | others

    return probe


def test_a_port_as_the_kernel_shows_it(card):
    gids = [("fe80::1", "RoCE v2"), ("0000:0000:0000:0000:0000:0000:0000:0000", "")]
    (port,) = card(gids=gids).value("rdma.ports")
    assert port == {
        "device": "mlx5_0",
         "port": 1, "state": "ACTIVE", "physical": "LinkUp", "link": "InfiniBand",
        "rate": "200 Gb/sec", "gids": {"0": {"gid": "fe80::1", "kind": "RoCE v2"}},
    }  # fmt: skip


def test_a_container_without_the_devices_files(card, verdict):
    assert verdict("network.verbs", card()).status is Status.PASS
    assert (
        verdict("network.verbs", card(library=False, environ={"LD_LIBRARY_PATH": ""})).status
        is Status.WARN
    )
    facts = card() | {"rdma.files": Fact({}, "/dev/infiniband")}
    assert verdict("network.verbs", facts).status is Status.WARN


def test_ports_that_a_setting_names(card, verdict):
    down = card(state="1: DOWN", environ={"NCCL_IB_HCA": "=mlx5_0:1"})
    result = verdict("network.ports", down)
    assert (result.status, result.where) == (Status.FAIL, "NCCL_IB_HCA==mlx5_0:1")
    assert verdict("network.ports", card(state="1: DOWN")).status is Status.PASS
    gids = [("fe80::1", "RoCE v1"), ("::ffff:10.0.0.1", "RoCE v1"), ("::ffff:10.0.0.1", "RoCE v2")]
    for index, status in (
        ("0", Status.FAIL),
        ("1", Status.WARN),
        ("2", Status.PASS),
        ("9", Status.FAIL),
    ):
        facts = card(link="Ethernet", gids=gids, environ={"NCCL_IB_GID_INDEX": index})
        result = verdict("network.ports", facts)
        assert result.status is status, index
    assert result.fix == "NCCL_IB_GID_INDEX=2"


def test_cards_that_cannot_reach_gpu_memory(card, verdict):
    assert verdict("network.gpudirect", card()).status is Status.WARN
    loaded = card(modules="nvidia_peermem 16384 0 - Live 0x0\nnvidia 1 0 - Live 0x0\n")
    assert verdict("network.gpudirect", loaded).status is Status.PASS
    nobody = {**card(), "gpu.device_files": Fact([], "/dev")}
    assert verdict("network.gpudirect", nobody).status is Status.PASS


def test_hosts_with_other_numbers_of_ports(card, verdict):
    def rank(host, **options):
        return Facts(card(**options)) | {"host.name": Fact(host, "x")}

    ranks = {0: rank("a"), 1: rank("b", state="1: DOWN")}
    result = verdict("network.rails", ranks=ranks, num_ranks=2)
    assert (result.status, result.hosts) == (Status.WARN, ("b",))
    ranks = {0: rank("a"), 1: rank("b")}
    assert verdict("network.rails", ranks=ranks, num_ranks=2).status is Status.PASS


def test_the_old_transport_beside_a_card(card, tools, verdict):
    facts = {**tools(), **card()}
    assert verdict("mpi.openib", facts).status is Status.WARN
    old = {**tools(banner="mpirun (Open MPI) 3.1.6"), **card()}
    assert verdict("mpi.openib", old).status is Status.FAIL
    out = {**tools(), **card(environ={"OMPI_MCA_btl": "^openib"})}
    assert verdict("mpi.openib", out).status is Status.PASS


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [("NCCL_SOCKET_IFNAME", "eth99", Status.FAIL), ("NCCL_SOCKET_IFNAME", "et", Status.PASS),
     ("NCCL_SOCKET_IFNAME", "=et", Status.FAIL), ("NCCL_SOCKET_IFNAME", "^docker", Status.PASS),
     ("NCCL_SOCKET_IFNAME", "eth0:5000", Status.PASS), ("NCCL_SOCKET_IFNAME", "^e", Status.FAIL),
     ("OMPI_MCA_btl_tcp_if_include", "10.0.0.0/8", Status.PASS),
     ("OMPI_MCA_btl_tcp_if_include", "11.0.0.0/8", Status.FAIL),
     ("OMPI_MCA_oob_tcp_if_include", "eth0,eth1", Status.FAIL),
     ("UCX_NET_DEVICES", "mlx5_0:1", Status.PASS), ("UCX_NET_DEVICES", "mlx5_1:1", Status.FAIL),
     ("NCCL_IB_HCA", "mlx5", Status.PASS), ("NCCL_IB_HCA", "mlx4", Status.FAIL),
     ("HCOLL_MAIN_IB", "mlx5_0:1", Status.PASS), ("HCOLL_MAIN_IB", "mlx5_0:2", Status.FAIL),
     ("HCOLL_MAIN_IB", "eth0", Status.FAIL), ("MXM_RDMA_PORTS", "mlx5_9:1", Status.FAIL),
     ("OMPI_MCA_btl_openib_if_include", "mlx5_0", Status.PASS),
     ("OMPI_MCA_btl_openib_if_include", "mlx", Status.FAIL),
     ("PMIX_MCA_ptl_base_if_include", "eth99", Status.FAIL),
     ("PMIX_MCA_ptl_base_if_include", "10.0.0.0/8", Status.PASS),
     ("FI_SOCKETS_IFACE", "eth99", Status.FAIL), ("FI_VERBS_IFACE", "eth", Status.PASS)],
)  # fmt: skip
def test_interfaces_and_devices_that_settings_name(card, verdict, name, value, status):
    assert verdict("network.chosen", card({name: value})).status is status


def test_no_interface_of_that_name_for_real(run_env):
    done = run_env("--only", "network.chosen", "--json", "-", NCCL_SOCKET_IFNAME="nosuch9")
    (result,) = json.loads(done.stdout)["results"]
    assert (done.returncode, result["status"]) == (1, "FAIL")


def test_interfaces_of_container_engines(card, verdict):
    docker0 = {"name": "docker0", "up": True, "loopback": False, "addresses": ["172.17.0.1/16"]}
    facts = card() | {"network.interfaces": Fact([docker0], "x")}
    assert verdict("network.host-only", facts).status is Status.INFO
    chosen = card({"NCCL_SOCKET_IFNAME": "eth0"}) | {"network.interfaces": Fact([docker0], "x")}
    assert verdict("network.host-only", chosen).status is Status.PASS


def test_a_name_without_an_address(verdict):
    facts = {"network.own_name": Fact([], "node1"), "host.name": Fact("node1", "x")}
    assert verdict("network.name", facts).status is Status.INFO
    there = {**facts, "network.own_name": Fact(["10.0.0.1"], "node1")}
    assert verdict("network.name", there).status is Status.PASS
