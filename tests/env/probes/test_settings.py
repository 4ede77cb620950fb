"""Settings from variables and from every file that a tool reads; the names real tools know."""

import contextlib
import json
import string
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from env.checks.evidence import Evidence
from env.checks.registry import find_check, run_check
from env.errors import UserError
from env.facts import Fact, Facts
from env.probes.config_files import (
    parse_env_list,
    parse_flags,
    parse_hosts,
    parse_keras,
    parse_mca,
    parse_pairs,
    parse_preload,
    parse_slurm,
)
from env.probes.known import probe_known
from env.probes.settings import probe_settings
from env.result import Status
from env.settings import load_table, nearest_name
from env.stack import PROJECT


@pytest.fixture
def home(tmp_path):
    """Write files under a made-up root; returns facts with HOME at /home/u."""

    def probe(files=None, **environ):
        for name, text in (files or {}).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return Facts(probe_settings(tmp_path, environ={"HOME": "/home/u", **environ}))

    return probe


def assigned(facts):
    return {(row["name"], row["value"]) for row in facts.value("settings.assigned")}


@pytest.mark.parametrize(
    ("file", "text", "name", "value"),
    [
        ("home/u/.openmpi/mca-params.conf", "# x\nbtl = tcp # y\n", "OMPI_MCA_btl", "tcp"),
        ("etc/openmpi/openmpi-mca-params.conf", "pml=ob1\n", "OMPI_MCA_pml", "ob1"),
        ("etc/openmpi/openmpi-default-hostfile", "# c\nn1 slots=2\nn2\n",
         "OMPI_MCA_orte_default_hostfile", "n1 slots=2, n2"),
        ("home/u/.openmpi/mca-params.conf", "-mca pml ob1 # x\n", "OMPI_MCA_pml", "ob1"),
        ("etc/openmpi-x86_64/openmpi-mca-params.conf", "--mca btl ^tcp\n", "OMPI_MCA_btl", "^tcp"),
        ("etc/psm3.conf", "PSM3_NIC=any\n", "PSM3_NIC", "any"),
        ("home/u/ucc.conf", "UCC_TLS=ucp\n", "UCC_TLS", "ucp"),
        ("home/u/.pmix/mca-params.conf", "gds = hash\n", "PMIX_MCA_gds", "hash"),
        ("home/u/.prte/mca-params.conf", "plm=ssh\n", "PRTE_MCA_plm", "ssh"),
        ("home/u/.nccl.conf", "NCCL_DEBUG=INFO\n", "NCCL_DEBUG", "INFO"),
        ("etc/nccl.conf", "#c\nNCCL_SOCKET_IFNAME==ib0\n", "NCCL_SOCKET_IFNAME", "=ib0"),
        ("home/u/ucx.conf", "[x]\nUCX_TLS=tcp\n", "UCX_TLS", "tcp"),
        ("home/u/.keras/keras.json", '{"floatx": "float16"}', "keras.json/floatx", "float16"),
        ("home/u/.slurm/defaults", "partition=x\nsalloc:export=NONE\nsrun : export = NONE # y\n",
         "SLURM_EXPORT_ENV", "NONE"),
        ("etc/ld.so.preload", "/x.so\n/y.so # z\n", "LD_PRELOAD", "/x.so /y.so"),
    ],
)  # fmt: skip
def test_a_line_of_a_file_is_a_setting(home, tmp_path, file, text, name, value):
    facts = home({file: text})
    (row,) = facts.value("settings.assigned")
    assert row == {"name": name, "value": value, "origin": str(tmp_path / file)}


def test_a_file_that_a_variable_names(home, tmp_path):
    facts = home({"x/site.conf": "NCCL_ALGO=Ring\n"}, NCCL_CONF_FILE="/x/site.conf")
    assert ("NCCL_ALGO", "Ring") in assigned(facts)
    facts = home({"y/ucx.conf": "UCX_TLS=rc\n"}, UCX_CONFIG_DIR="/y")
    assert ("UCX_TLS", "rc") in assigned(facts)
    facts = home({"a": "pml=cm\n", "b": "btl=self\n"}, OMPI_MCA_mca_base_param_files="/a,/b")
    assert {("OMPI_MCA_pml", "cm"), ("OMPI_MCA_btl", "self")} <= assigned(facts)


def test_files_of_the_installation_whose_mpirun_is_first(home, tmp_path, verdict):
    for prefix in ("home/u/ompi", "opt/mpich"):
        (tmp_path / prefix / "bin").mkdir(parents=True)
    real = tmp_path / "home/u/ompi/bin/prterun"
    real.write_text("#!/bin/sh\n")
    real.chmod(0o755)
    real.with_name("mpirun").symlink_to("prterun")
    file = "home/u/ompi/etc/openmpi-mca-params.conf"
    files = {file: "btl = tcp\n", "home/u/ompi/etc/prte-mca-params.conf": "rmaps = seq\n",
             "opt/mpich/etc/openmpi-mca-params.conf": "pml = cm\n"}  # fmt: skip
    facts = home(files, PATH="/nowhere:/opt/mpich/bin:/home/u/ompi/bin")
    assert assigned(facts) == {("OMPI_MCA_btl", "tcp"), ("PRTE_MCA_rmaps", "seq")}
    result = verdict("settings.harmful", facts)
    assert (result.status, result.where) == (Status.FAIL, str(tmp_path / file))
    assert assigned(home(files)) == set()


@pytest.mark.parametrize("name", ["XLA_FLAGS", "TF_XLA_FLAGS"])
def test_flags_in_a_file_that_the_variable_names(home, verdict, tmp_path, name):
    files = {"x/flags": "--tf_xla_auto_jit=2\n --xla_dump_to=/x\n"}
    facts = home(files, **{name: "/x/flags"})
    (first, *_) = (row for row in facts.value("settings.assigned") if row["name"] == name)
    assert first["value"] == "--tf_xla_auto_jit=2 --xla_dump_to=/x"
    result = verdict("settings.harmful", facts)
    assert (result.status, result.where) == (Status.WARN, str(tmp_path / "x/flags"))


ENV_LIST = "NCCL_P2P_DISABLE=1;HOME;CHEXNET_X=a b"


@pytest.mark.usefixtures("open_mpi_4")
def test_variables_that_a_parameter_gives_the_ranks(home, verdict, tmp_path, real_environ):
    facts = home(OMPI_MCA_mca_base_env_list=ENV_LIST)
    assert ("NCCL_P2P_DISABLE", "1") in assigned(facts)
    result = verdict("settings.harmful", facts)
    assert (result.status, result.where) == (Status.WARN, "OMPI_MCA_mca_base_env_list")
    assert verdict("settings.files", facts).status is Status.PASS
    # A file may say so as mpirun's option, and comes before what the shell says.
    file = {"home/u/.openmpi/mca-params.conf": "-x NCCL_P2P_DISABLE=1\n"}
    result = verdict("settings.harmful", home(file, NCCL_P2P_DISABLE="0"))
    assert (result.status, result.where) == (Status.WARN, str(tmp_path / next(iter(file))))
    # Open MPI itself gives its ranks the same.
    environ = real_environ | {"OMPI_MCA_mca_base_env_list": ENV_LIST, "NCCL_P2P_DISABLE": "0"}
    done = subprocess.run(["mpirun", "-np", "1", "env"], env=environ, text=True,
                          capture_output=True, check=True)  # fmt: skip
    assert {f"{n}={v}" for n, v in parse_env_list(ENV_LIST)} <= set(done.stdout.splitlines())


def test_components_in_the_home(home, verdict, tmp_path):
    folder = tmp_path / "home/u/.openmpi/components"
    facts = home(
        {"home/u/.openmpi/components/readme": "", "home/u/.openmpi/components/mca_btl_x.so": ""}
    )
    assert assigned(facts) == {("OMPI_MCA_mca_base_component_path", "mca_btl_x.so")}
    result = verdict("settings.files", facts)
    assert (result.status, result.where) == (Status.WARN, str(folder))


def test_what_a_launcher_tells_its_ranks_is_no_setting(home):
    of_launch = {"OMPI_COMM_WORLD_RANK": "1", "PMIX_RANK": "1", "OMPI_MCA_orte_hnp_uri": "x",
                 "PMIX_SERVER_URI4": "y"}  # fmt: skip
    facts = home(**of_launch, OMPI_MCA_btl="self")
    assert assigned(facts) == {("OMPI_MCA_btl", "self")}
    assert set(facts.value("settings.launch")) == set(of_launch)
    # The same parameter in a shell that is no rank was set by somebody.
    assert assigned(home(OMPI_MCA_ess="env")) == {("OMPI_MCA_ess", "env")}


def test_the_options_of_mpirun_are_no_settings_of_the_user(tmp_path, real_environ):
    program = "import json; from env.probes.settings import probe_settings as p; " \
              "print(json.dumps({k: f.value for k, f in p().items()}))"  # fmt: skip
    argv = ["mpirun", "--oversubscribe", "--map-by", "slot", "--bind-to", "none", "--mca",
            "btl_tcp_if_include", "lo", "-np", "1", sys.executable, "-c", program]  # fmt: skip
    done = subprocess.run(argv, env=real_environ | {"HOME": str(tmp_path)}, text=True,
                          capture_output=True, check=True, cwd=PROJECT)  # fmt: skip
    facts = {key: Fact(value, "x") for key, value in json.loads(done.stdout).items()}
    assert "OMPI_COMM_WORLD_RANK" in facts["settings.launch"].value
    result = run_check(find_check("settings.harmful"), Evidence(Facts(facts)))
    assert result.status is Status.PASS, result


def test_secrets_and_megabytes_stay_out(home):
    facts = home(SLURM_JWT="eyJhbGci", NCCL_NET="x" * 10**6)
    values = dict(assigned(facts))
    assert values["SLURM_JWT"] == "(hidden)"
    assert len(values["NCCL_NET"]) == 4096


def test_files_that_cannot_be_read_are_told_and_hide_nothing(home, tmp_path, verdict):
    folder = tmp_path / "home/u/.openmpi"
    (folder / "mca-params.conf").mkdir(parents=True)
    loop = tmp_path / "home/u/.nccl.conf"
    loop.symlink_to(loop)
    facts = home({"home/u/.keras/keras.json": "[1", "etc/nccl.conf": "NCCL_DEBUG=WARN\n",
                  "home/u/ucx.conf": b"UCX_TLS=\xff\x00\x1b[31m\n"})  # fmt: skip
    unread = {row["path"]: row["problem"] for row in facts.value("settings.unread")}
    assert set(unread) == {str(folder / "mca-params.conf"), str(loop),
                           str(tmp_path / "home/u/.keras/keras.json")}  # fmt: skip
    assert ("NCCL_DEBUG", "WARN") in assigned(facts)
    result = verdict("settings.files", facts)
    assert (result.status, bool(result.fix)) == (Status.WARN, True)


def test_a_home_of_somebody_else_raises_no_alarm(tmp_path, run_env, ordinary):
    home = tmp_path / "home"
    (home / ".openmpi").mkdir(parents=True)
    (home / ".nccl.conf").write_text("NCCL_P2P_DISABLE=1\n")
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    home.chmod(0)
    done = run_env("--only", "settings.files,settings.harmful", prefix=ordinary, HOME=str(home))
    assert "WARN" not in done.stdout, done.stdout
    home.chmod(0o755)
    (home / ".nccl.conf").chmod(0)
    done = run_env("--only", "settings.files", prefix=ordinary, HOME=str(home))
    assert f"{home}/.nccl.conf: Permission denied" in " ".join(done.stdout.split())


def test_without_a_home_no_home_is_looked_at(tmp_path):
    facts = Facts(probe_settings(tmp_path, environ={}))
    assert (facts.value("settings.assigned"), facts.value("settings.unread")) == ([], [])


NAMES = st.text(string.ascii_lowercase + "_", min_size=1, max_size=9)
VALUES = st.text(string.ascii_letters + string.digits + ",^/:", max_size=9)


@given(st.dictionaries(NAMES, VALUES))
def test_what_is_written_is_what_is_read(pairs):
    text = "".join(f"{name} = {value}  # c\n\n" for name, value in pairs.items())
    assert dict(parse_mca(text)) == pairs
    text = "".join(f"{name}={value}\n# c\n" for name, value in pairs.items())
    assert dict(parse_pairs(text)) == pairs
    assert dict(parse_keras(json.dumps(pairs))) == pairs


@given(st.text())
def test_no_text_breaks_the_parsers(text):
    parsers = (parse_mca, parse_pairs, parse_preload, parse_flags, parse_env_list, parse_slurm,
               parse_hosts)  # fmt: skip
    for parse in parsers:
        assert all(isinstance(name, str) for name, _ in parse(text))
    with contextlib.suppress(ValueError, RecursionError):
        list(parse_keras(text))


# --- the table ---------------------------------------------------------------------------------


def test_every_row_of_the_table_can_apply_and_says_why():
    table = load_table()
    assert len(table.consequences) > 80
    for row in table.consequences:
        assert len(row.why) > 15
        assert row.status in (Status.FAIL, Status.WARN, Status.INFO)


@pytest.mark.parametrize(
    ("text", "found"),
    [("x = [", "Unclosed array|Invalid value"),
     ('[[setting]]\nnames = ["A"]\nstatus = "BAD"\nwhy = ""\n', "BAD"),
     ('[[setting]]\nnames = ["A"]\nstatus = "WARN"\n', "why"),
     ('[[setting]]\nnames = ["A"]\nstatus = "WARN"\nwhy = "x"\nvalues = "("\n', "entry 1"),
     ('[[setting]]\nnames = ["A"]\nstatus = "WARN"\nwhy = "x"\ncolour = "red"\n', "colour"),
     ('[[value]]\nnames = ["A"]\nkind = "colour"\n', "colour")],
)  # fmt: skip
def test_a_bad_table_is_named(tmp_path, text, found):
    (tmp_path / "t.toml").write_text(text)
    with pytest.raises(UserError, match=found) as error:
        load_table(tmp_path / "t.toml")
    assert str(tmp_path / "t.toml") in str(error.value)


def test_a_known_name_is_never_a_misspelling():
    for names in load_table().known.values():
        for name in names:
            assert nearest_name(name, names) == name


# --- from the probe to the verdict --------------------------------------------------------------


def test_a_switch_left_in_a_file(home, verdict, tmp_path):
    facts = home({"home/u/.nccl.conf": "NCCL_P2P_DISABLE=1\n"})
    result = verdict("settings.harmful", facts)
    assert (result.status, result.where) == (Status.WARN, str(tmp_path / "home/u/.nccl.conf"))
    assert result.fix == f"take the line NCCL_P2P_DISABLE=1 out of {result.where}"


SITES = {
    "an InfiniBand cluster": {
        "OMPI_MCA_pml": "ucx", "OMPI_MCA_btl": "^openib", "UCX_TLS": "rc,sm,self,cuda_copy",
        "OMP_NUM_THREADS": "8", "OMP_PROC_BIND": "close", "OMP_PLACES": "cores",
        "NCCL_SOCKET_IFNAME": "ib0", "NCCL_IB_HCA": "mlx5", "PYTHONNOUSERSITE": "1"},
    "a cloud with a fabric of its own": {
        "FI_PROVIDER": "efa", "NCCL_TOPO_FILE": "/opt/topo.xml", "NCCL_DEBUG": "WARN",
        "NCCL_NET_PLUGIN": "ofi", "NCCL_OFI_TUNER": "1", "NCCL_IB_PCI_RELAXED_ORDERING": "1"},
    "an image of NVIDIA's": {
        "NCCL_VERSION": "2.21.5", "NVIDIA_VISIBLE_DEVICES": "all", "CUDA_VERSION": "12.4.1",
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility", "CUDA_MODULE_LOADING": "LAZY",
        "NVIDIA_REQUIRE_CUDA": "cuda>=12.4", "TF_ENABLE_ONEDNN_OPTS": "1",
        "HOROVOD_WITH_MPI": "1", "HOROVOD_GPU_OPERATIONS": "NCCL", "PYTHONIOENCODING": "utf-8"},
    "a job of Slurm's": {
        "SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "8", "SLURM_NTASKS": "4",
        "SLURM_SUBMIT_DIR": "/home/u", "SLURM_MPI_TYPE": "pmix_v4", "SLURM_NNODES": "1",
        "SLURM_CPU_BIND": "quiet,mask_cpu:0xFF", "SLURM_DISTRIBUTION": "cyclic,pack",
        "MALLOC_ARENA_MAX": "4", "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
}  # fmt: skip


@pytest.mark.parametrize("site", SITES)
def test_settings_of_well_run_sites_raise_no_alarm(home, verdict, site):
    facts = home({"opt/topo.xml": "<system/>"}, **SITES[site])
    for name in ("settings.harmful", "settings.values", "settings.names", "settings.files"):
        result = verdict(name, facts)
        assert result.status in (Status.PASS, Status.INFO), result


def test_the_variable_comes_before_the_file(home, verdict):
    file = {"home/u/.nccl.conf": "NCCL_P2P_DISABLE=1\n"}
    assert verdict("settings.harmful", home(file, NCCL_P2P_DISABLE="0")).status is Status.PASS


def test_a_file_that_overrides_variables(home, verdict, tmp_path):
    file = {"etc/openmpi/openmpi-mca-params-override.conf": "btl = tcp,vader\n"}
    result = verdict("settings.harmful", home(file, OMPI_MCA_btl="self,tcp,vader"))
    assert (result.status, result.where) == (Status.FAIL, str(tmp_path / next(iter(file))))
    moved = {"opt/mpi/etc/openmpi-mca-params-override.conf": "pml=cm\n", "x/o.conf": "pml=v\n"}
    assert ("OMPI_MCA_pml", "cm") in assigned(home(moved, OPAL_PREFIX="/opt/mpi"))
    facts = home(moved, OMPI_MCA_mca_base_override_param_file="/x/o.conf")
    assert ("OMPI_MCA_pml", "v") in assigned(facts)


@pytest.mark.parametrize(
    ("name", "value"),
    [("NCCL_CONF_FILE", "/nowhere/nccl.conf"), ("NCCL_TOPO_FILE", "/nowhere/topo.xml"),
     ("OMPI_MCA_mca_base_param_files", "/nowhere/mca.conf"), ("CUDA_INJECTION64_PATH", "/no.so"),
     ("HOSTALIASES", "/nowhere/hosts"), ("UCC_CONFIG_FILE", "/nowhere/ucc.conf")],
)  # fmt: skip
def test_a_file_that_is_not_where_a_variable_says(home, verdict, tmp_path, name, value):
    result = verdict("settings.files", home(**{name: value}))
    assert (result.status, result.where) == (Status.WARN, str(tmp_path / value[1:]))
    assert result.fix == f"correct {name}, or unset it"
    # In a rank they may be the launcher's; a folder for files to come need not be there.
    assert not home(**{name: value}, PMIX_RANK="0").value("settings.unread")
    assert not home(KERAS_HOME="/nowhere").value("settings.unread")


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [("NCCL_IB_GDR_LEVEL", "0", Status.WARN), ("NCCL_COMM_ID", "10.0.0.1:7000", Status.WARN),
     ("NCCL_COLLNET_ENABLE", "1", Status.INFO), ("NCCL_IGNORE_CPU_AFFINITY", "1", Status.WARN),
     ("HOROVOD_CYCLE_TIME", "1000", Status.WARN), ("HOROVOD_CYCLE_TIME", "3.5", Status.PASS),
     ("HOROVOD_CYCLE_TIME", "99.5", Status.PASS), ("HOROVOD_CYCLE_TIME", "0.125", Status.PASS),
     ("HOROVOD_FUSION_THRESHOLD", "1024", Status.WARN),
     ("HOROVOD_FUSION_THRESHOLD", "8388608", Status.PASS),
     ("HOROVOD_CACHE_CAPACITY", "0", Status.WARN), ("HOROVOD_CACHE_CAPACITY", "1024", Status.PASS),
     ("HOROVOD_DISABLE_GROUP_FUSION", "1", Status.INFO),
     ("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "5", Status.WARN),
     ("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "0", Status.PASS),
     ("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "600", Status.PASS),
     ("TF_MIN_GPU_MULTIPROCESSOR_COUNT", "200", Status.WARN),
     ("TF_MIN_GPU_MULTIPROCESSOR_COUNT", "8", Status.PASS),
     ("CUDA_CACHE_MAXSIZE", "0", Status.WARN), ("CUDA_CACHE_MAXSIZE", "4294967296", Status.PASS),
     ("CUDA_INJECTION64_PATH", "/x.so", Status.WARN), ("CUBLASLT_LOG_LEVEL", "5", Status.WARN),
     ("CUBLASLT_LOG_LEVEL", "0", Status.PASS), ("SLURM_EXPORT_ENV", "NONE", Status.WARN),
     ("SLURM_EXPORT_ENV", "ALL", Status.PASS), ("SLURM_EXPORT_ENV", "ALL,X=1", Status.PASS),
     ("OMPI_mca_btl", "self", Status.WARN), ("MPIEXEC_TIMEOUT", "60", Status.WARN),
     ("MPIEXEC_TIMEOUT", "0", Status.PASS), ("OMPI_MCA_mpi_abort_delay", "-1", Status.WARN),
     ("OMPI_MCA_orte_abort_on_non_zero_status", "0", Status.WARN),
     ("OMPI_MCA_orte_abort_on_non_zero_status", "1", Status.PASS),
     ("OMPI_MCA_orte_enable_recovery", "true", Status.WARN),
     ("OMPI_MCA_orte_xml_output", "1", Status.WARN),
     ("OMPI_MCA_coll_tuned_allreduce_algorithm", "1", Status.WARN),
     ("OMPI_MCA_btl_tcp_disable_family", "4", Status.WARN),
     ("OMPI_MCA_btl_tcp_disable_family", "6", Status.PASS),
     ("OMPI_MCA_btl_tcp_port_range_v4", "1", Status.WARN), ("OPAL_PKGLIBDIR", "/x", Status.WARN),
     ("OPAL_PREFIX", "/x", Status.PASS), ("MLX5_SINGLE_THREADED", "1", Status.WARN),
     ("HCOLL_MAIN_IB", "mlx5_0:1", Status.INFO), ("RES_OPTIONS", "ndots:5", Status.INFO),
     ("TF_FUNCTION_JIT_COMPILE_DEFAULT", "1", Status.WARN),
     ("TF_FUNCTION_JIT_COMPILE_DEFAULT", "false", Status.PASS),
     ("TF_GPU_HOST_MEM_LIMIT_IN_MB", "512", Status.INFO),
     ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "10", Status.WARN),
     ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100", Status.INFO),
     ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=2G", Status.WARN),
     ("CUDA_DEVICE_WAITS_ON_EXCEPTION", "1", Status.WARN),
     ("APPTAINER_COMPAT", "1", Status.WARN), ("APPTAINER_MEMORY", "4G", Status.WARN),
     ("SLURM_STDOUTMODE", "/x/%t", Status.WARN), ("SLURM_TASK_PROLOG", "/x", Status.WARN),
     ("SLURM_CPU_FREQ_REQ", "Low", Status.WARN), ("SLURM_OVERCOMMIT", "1", Status.INFO),
     ("OPENBLAS_CORETYPE", "Haswell", Status.PASS),
     ("OPENBLAS_CORETYPE", "Prescott", Status.INFO),
     ("TF_CPP_MIN_LOG_LEVEL", "3", Status.PASS)],  # the training program's own choice
)  # fmt: skip
def test_what_a_variable_does_to_a_training(home, verdict, name, value, status):
    assert verdict("settings.harmful", home(**{name: value})).status is status


def test_a_choice_that_keeps_ranks_apart(home, verdict):
    told = {"mpi.components": {"btl": ["self", "tcp", "vader"], "pml": ["ob1", "ucx", "cm"]},
            "rdma.ports": [], "gpu.device_files": []}  # fmt: skip
    told = {key: Fact(value, "x") for key, value in told.items()}
    file = {"etc/openmpi/openmpi-mca-params.conf": "btl = self\n"}
    result = verdict("settings.components", home(file) | told, num_ranks=2)
    assert (result.status, result.found) == (Status.FAIL, "OMPI_MCA_btl=self leaves only self")
    assert verdict("settings.components", home(file) | told, num_ranks=1).status is Status.PASS


def test_a_value_of_the_wrong_form(home, verdict):
    result = verdict("settings.values", home(HOROVOD_FUSION_THRESHOLD="64MB"))
    assert (result.status, result.expected) == (
        Status.WARN, "HOROVOD_FUSION_THRESHOLD: a whole number",
    )  # fmt: skip


def test_the_installed_horovod_says_which_names_it_knows(home, verdict):
    environ = {"HOROVOD_CYCLE_TME": "1"}
    facts = home(**environ) | Facts(probe_known(environ=environ))
    known = facts.value("known.names")
    assert set(known) == {"HOROVOD_"}
    assert {"HOROVOD_FUSION_THRESHOLD", "HOROVOD_CYCLE_TIME"} <= set(known["HOROVOD_"])
    result = verdict("settings.names", facts)
    assert (result.status, result.fix) == (
        Status.WARN, "write HOROVOD_CYCLE_TIME for HOROVOD_CYCLE_TME",
    )  # fmt: skip
    assert "unknown to the installed Horovod" in result.found


@pytest.mark.parametrize(
    ("name", "meant"),
    [("PMIX_MCA_gdz", "PMIX_MCA_gds"), ("KERAS_BACKENDS", "KERAS_BACKEND"),
     ("PRTE_MCA_prte_if_includ", "PRTE_MCA_prte_if_include"), ("PMIX_MCA_gds", None)],
)  # fmt: skip
def test_names_of_tools_that_list_none_are_held_against_ours(home, verdict, name, meant):
    facts = home(**{name: "hash"}) | {"known.names": Fact({}, "x")}
    result = verdict("settings.names", facts)
    expected = (Status.WARN, f"write {meant} for {name}") if meant else (Status.PASS, "")
    assert (result.status, result.fix) == expected


def test_nobody_is_asked_for_names_that_nobody_sets():
    assert probe_known(environ={})["known.names"].value == {}


def test_the_real_open_mpi_says_which_parameters_it_knows(run_env, tmp_path):
    done = run_env("--only", "settings.names,settings.harmful,settings.files", "--json", "-",
                   HOME=str(tmp_path), OMPI_MCA_btl_tcp_if_inclde="eth0",
                   OMPI_MCA_btl_tcp_if_include="lo")  # fmt: skip
    results = json.loads(done.stdout)["results"]
    bad = [(r["id"], r["status"]) for r in results if r["status"] not in ("PASS", "INFO")]
    assert bad == [("settings.names", "WARN")]
    (found,) = [r["found"] for r in results if r["status"] == "WARN"]
    assert "OMPI_MCA_btl_tcp_if_inclde is unknown to mpirun" in found
    assert "meant: OMPI_MCA_btl_tcp_if_include" in found


def test_hostile_variables_disturb_neither_terminal_nor_json(run_env):
    hostile = "\x1b[2J\x07\n" + "A" * 10**5
    done = run_env("--only", "settings.values,settings.harmful", NCCL_DEBUG=hostile)
    assert done.returncode == 0
    assert "\x1b[2J" not in done.stdout
    assert "\x07" not in done.stdout
    assert len(done.stdout) < 20_000
    done = run_env("--only", "settings.values", "--json", "-", NCCL_DEBUG=hostile + "\udcff")
    (result,) = json.loads(done.stdout)["results"]
    assert result["status"] == "WARN"
