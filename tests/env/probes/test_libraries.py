"""Libraries by the loader's order: real files compiled here, a real cache, real variables."""

import contextlib
import os
import platform
import shutil
import struct
import subprocess
import sysconfig
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from env.facts import Fact, Facts
from env.probes.elf import find_words, parse_elf, read_elf
from env.probes.libraries import probe_libraries, read_cache
from env.probes.loader import find_libraries
from env.probes.search_path import parse_help, preferred_folders
from env.probes.settings import probe_settings
from env.result import Status

LIBC = Path(next(line.split()[2] for line in subprocess.run(
    ["ldd", shutil.which("bash")], capture_output=True, text=True, check=True
).stdout.splitlines() if "libc.so" in line))  # fmt: skip


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A library, a newer and an older one of its name, and an extension that needs the newer."""
    folder = tmp_path_factory.mktemp("elf")

    def build(name, code, *options, versions=""):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        (folder / "x.c").write_text(code)
        (folder / "x.map").write_text(versions)
        script = [f"-Wl,--version-script={folder / 'x.map'}"] if versions else []
        argv = ["gcc", "-shared", "-fPIC", "-o", file, folder / "x.c", *script, *options]
        subprocess.run(argv, check=True)
        return file

    code = 'const char *known = "HOROVOD_ONE HOROVOD_TWO"; int puts(const char *);\n'
    code += "int f(void) { return puts(known); }\n"
    soname = "-Wl,-soname,libthing.so.1"
    new = build("new/libthing.so.1", code, soname, versions="T_1 {global: f;}; T_2 {} T_1;")
    build("new/libnew.so.1", code, "-Wl,-soname,libnew.so.1", versions="T_9 {global: f;};")
    build("old/libnew.so.1", code, "-Wl,-soname,libnew.so.1", versions="T_8 {global: f;};")
    build("old/libthing.so.1", code, soname, versions="T_0 {global: f;};")
    user = "int f(void); int g(void) { return f(); }\n"
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    build(f"site/horovod/tensorflow/mpi_lib{suffix}", user, new, "-Wl,-rpath,$ORIGIN/../../../new",
          "-Wl,--enable-new-dtags")  # fmt: skip
    (folder / "site/horovod/__init__.py").touch()
    return folder


@pytest.fixture
def look(compiled):
    def probe(path="", preload="", **options):
        environ = {"LD_LIBRARY_PATH": path, "LD_PRELOAD": preload}
        return Facts(probe_libraries(environ=environ, path=[str(compiled / "site")], **options))

    return probe


def test_what_a_file_says_of_itself(compiled):
    library = read_elf(compiled / "new/libthing.so.1")
    assert (library.soname, library.needed) == ("libthing.so.1", ("libc.so.6",))
    assert library.offers == ("libthing.so.1", "T_1", "T_2")
    (extension,) = (compiled / "site/horovod/tensorflow").iterdir()
    user = read_elf(extension)
    assert user.needed[0] == "libthing.so.1"
    assert user.runpath == ("$ORIGIN/../../../new",)
    assert user.requires["libthing.so.1"] == ("T_1",)
    assert find_words(compiled / "new/libthing.so.1", rb"HOROVOD_[A-Z]+") == {
        "HOROVOD_ONE", "HOROVOD_TWO",
    }  # fmt: skip


def test_it_agrees_with_readelf_on_the_c_library():
    told = subprocess.run(["readelf", "-V", LIBC], capture_output=True, text=True, check=True)
    text = told.stdout.partition("Version definition")[2].partition("Version needs")[0]
    names = [line.split("Name: ")[1].strip() for line in text.splitlines() if "Rev: 1" in line]
    assert list(read_elf(LIBC).offers) == names
    assert "GLIBC_2.17" in names


def test_it_agrees_with_ldconfig():
    told = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True)
    mark = {"x86_64": "x86-64", "aarch64": "AArch64"}[platform.machine()]
    wanted = {line.split()[0] for line in told.stdout.splitlines() if mark in line}
    assert set(read_cache(Path("/etc/ld.so.cache"))) == wanted


CHANGES = st.lists(st.tuples(st.integers(0, 2**14), st.integers(0, 255)), min_size=1, max_size=8)


@given(changes=CHANGES, cut=st.integers(0, 2**14))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_damaged_files_are_refused_and_nothing_else(changes, cut, compiled):
    damaged = bytearray((compiled / "old/libthing.so.1").read_bytes())
    for place, byte in changes:
        damaged[place % len(damaged)] = byte
    for text in (bytes(damaged), bytes(damaged[:cut])):
        with contextlib.suppress(ValueError):
            parse_elf(text)


@given(data=st.binary(max_size=300))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_damaged_cache_is_refused(tmp_path, data):
    file = tmp_path / "cache"
    for text in (data, b"glibc-ld.so.cache1.1" + struct.pack("<I", 10**6) + data):
        file.write_bytes(text)
        with contextlib.suppress(ValueError):
            read_cache(file)


def test_a_good_environment(look, verdict):
    facts = look()
    for name in ("libraries.found", "libraries.symbols", "libraries.shadowed", "libraries.path"):
        assert verdict(name, facts | here(None)).status is Status.PASS, name
    assert verdict("libraries.preload", facts | here(None)).status is Status.PASS


def here(kind):
    return {"host.container": Fact(kind, "x")}


def test_a_library_that_is_nowhere(compiled, verdict, tmp_path):
    site = tmp_path / "site"
    shutil.copytree(compiled / "site", site)  # away from the folder its run path names
    facts = Facts(probe_libraries(environ={}, path=[str(site)]))
    result = verdict("libraries.found", facts)
    assert result.status is Status.FAIL
    assert result.found.startswith(f"no libthing.so.1, which {site}/horovod/tensorflow/mpi_lib")
    # The very loader says so, too.
    (extension,) = (site / "horovod/tensorflow").iterdir()
    told = subprocess.run(["ldd", extension], capture_output=True, text=True, check=False)
    assert "libthing.so.1 => not found" in told.stdout


def test_an_older_library_that_comes_first(look, compiled, verdict):
    facts = look(str(compiled / "old"))
    result = verdict("libraries.symbols", facts)
    assert result.status is Status.FAIL
    assert f"{compiled}/old/libthing.so.1 lacks T_1" in result.found
    result = verdict("libraries.shadowed", facts | here(None))
    assert (result.status, result.where) == (Status.WARN, "LD_LIBRARY_PATH")
    new = os.path.realpath(compiled / "new/libthing.so.1")
    assert [os.path.realpath(row["hides"]) for row in facts.value("libraries.shadowed")] == [new]


def test_a_link_to_the_same_file_hides_nothing(look, compiled, tmp_path):
    (tmp_path / "libthing.so.1").symlink_to(compiled / "new/libthing.so.1")
    assert look(str(tmp_path)).value("libraries.shadowed") == []


def test_another_mpi_in_the_library_path_is_fatal(look, verdict, tmp_path):
    name = "libstdc++.so.6"
    shutil.copy(read_cache(Path("/etc/ld.so.cache"))[name][0], tmp_path / name)
    result = verdict("libraries.shadowed", look(str(tmp_path)) | here("apptainer"))
    assert result.status is Status.FAIL
    assert result.found.startswith(f"{tmp_path}/{name} comes before /")


def test_a_library_in_a_folder_of_processors(look, compiled, tmp_path, verdict):
    best = preferred_folders()[0]
    (tmp_path / best).mkdir(parents=True)
    shutil.copy(compiled / "old/libthing.so.1", tmp_path / best)
    facts = look(str(tmp_path))
    (row,) = facts.value("libraries.shadowed")
    assert (row["soname"], row["path"]) == ("libthing.so.1", f"{tmp_path}/{best}/libthing.so.1")
    assert verdict("libraries.symbols", facts).status is Status.FAIL
    # The very loader takes it, too.
    (extension,) = (compiled / "site/horovod/tensorflow").iterdir()
    told = subprocess.run(["ldd", extension], capture_output=True, text=True, check=False,
                          env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)})  # fmt: skip
    assert f"{tmp_path}/{best}/libthing.so.1" in told.stdout + told.stderr
    found = find_libraries(["libthing.so.1"], root=Path("/"),
                           environ={"LD_LIBRARY_PATH": str(tmp_path)})  # fmt: skip
    assert [place for _, place, _ in found] == [row["path"]]


HELP = """\
Shared library search path:
  /usr/lib (system search path)

Subdirectories of glibc-hwcaps directories, in priority order:
  x86-64-v4
  x86-64-v3 (supported, searched)

Legacy HWCAP subdirectories under library search path directories:
  haswell (AT_PLATFORM; supported, searched)
  tls (supported, searched)
  avx512_1
"""


def test_what_the_loader_says_of_its_folders():
    assert list(parse_help(HELP)) == ["glibc-hwcaps/x86-64-v3", "haswell", "tls"]


@given(st.text())
def test_no_help_breaks_its_parser(text):
    assert all(isinstance(place, str) for place in parse_help(HELP + text))


def test_a_preloaded_library_hides_another(look, compiled, tmp_path, verdict):
    shutil.copy(compiled / "old/libthing.so.1", tmp_path / "another.name")
    facts = look(preload=str(tmp_path / "another.name"))
    (row,) = facts.value("libraries.shadowed")
    assert (row["soname"], row["path"]) == ("libthing.so.1", f"{tmp_path}/another.name")
    result = verdict("libraries.shadowed", facts | here(None))
    assert (result.status, result.where) == (Status.FAIL, "LD_PRELOAD")
    assert result.fix == f"take {tmp_path}/another.name out of LD_PRELOAD"
    assert verdict("libraries.symbols", facts).status is Status.FAIL


def test_an_unreadable_cache_leaves_the_answer_open(look, verdict, tmp_path):
    facts = look(root=tmp_path)
    assert verdict("libraries.found", facts).status is Status.UNKNOWN
    assert verdict("libraries.path", facts | here(None)).status is Status.PASS


@pytest.mark.parametrize(
    ("path", "kind", "status"),
    [("/share/none", "docker", Status.WARN), ("/share/none", None, Status.INFO),
     ("/usr/lib:", None, Status.WARN), ("lib", None, Status.WARN),
     ("/usr/lib", "docker", Status.PASS), ("", None, Status.PASS)],
)  # fmt: skip
def test_entries_of_the_library_path(look, verdict, path, kind, status):
    assert verdict("libraries.path", look(path) | here(kind)).status is status


def test_a_loop_of_links_in_the_library_path(look, tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "a")
    (row,) = look(str(tmp_path / "a")).value("libraries.path")
    assert row["state"] in ("absent", "Too many levels of symbolic links")


def test_a_preloaded_library(look, compiled, verdict):
    there = str(compiled / "new/libthing.so.1")
    cases = [("/nonexistent.so", None, Status.WARN), (there, None, Status.INFO),
             (there, "docker", Status.WARN), ("", None, Status.PASS)]  # fmt: skip
    for preload, kind, status in cases:
        result = verdict("libraries.preload", look(preload=preload) | here(kind))
        assert result.status is status, preload


def test_libraries_that_apptainer_brings_in(tmp_path, compiled, verdict):
    folder = tmp_path / ".singularity.d/libs"
    folder.mkdir(parents=True)
    (tmp_path / "etc").mkdir()
    shutil.copy("/etc/ld.so.cache", tmp_path / "etc/ld.so.cache")
    (extension,) = (compiled / "site/horovod/tensorflow").iterdir()
    shutil.copy(extension, folder / "libcuda.so.1")
    facts = Facts(probe_libraries(tmp_path, path=[],
                                  environ={"LD_LIBRARY_PATH": str(compiled / "old")}))  # fmt: skip
    result = verdict("libraries.symbols", facts)
    assert (result.status, "libcuda.so.1 needs" in result.found) == (Status.FAIL, True)
    (folder / "libcuda.so.1").rename(folder / "libGLX.so.0")
    facts = Facts(probe_libraries(tmp_path, path=[],
                                  environ={"LD_LIBRARY_PATH": str(compiled / "old")}))  # fmt: skip
    assert verdict("libraries.symbols", facts).status is Status.WARN


def test_libraries_that_tensorflow_opens_by_name(tmp_path, verdict):
    (tmp_path / "etc").mkdir()
    shutil.copy("/etc/ld.so.cache", tmp_path / "etc/ld.so.cache")
    for name in ("cublas", "cublasLt", "cufft", "cusolver", "cusparse"):
        version = 11 if name in ("cufft", "cusolver") else 12
        file = tmp_path / f"site/nvidia/{name}/lib/lib{name}.so.{version}"
        file.parent.mkdir(parents=True)
        file.touch()
    build = {"cuda_version": "12.5.1", "cudnn_version": "9", "is_cuda_build": "True"}
    facts = {"frameworks.tensorflow": Fact({"build": build}, "x")}

    def look():
        probed = probe_libraries(tmp_path, environ={}, path=[str(tmp_path / "site")])
        return verdict("libraries.cuda", {**probed, **facts}, stack_device="gpu")

    assert (look().status, look().found) == (Status.FAIL, "no libcudart.so.12, no libcudnn.so.9")
    for name in ("cuda_runtime/lib/libcudart.so.12", "cudnn/lib/libcudnn.so.9"):
        file = tmp_path / "site/nvidia" / name
        file.parent.mkdir(parents=True)
        file.touch()
    assert look().status is Status.PASS


def test_libraries_that_are_installed_twice(tmp_path, monkeypatch, verdict):
    cache = {"libmpi.so.40": ("/a/libmpi.so.40",), "libmpi.so.20": ("/b/libmpi.so.20",),
             "libcudart.so.11.0": ("/a/libcudart.so.11.0",), "libz.so.1": ("/a/z", "/b/z"),
             "libcudart.so.12": ("/a/libcudart.so.12", "/b/libcudart.so.12"),
             "libstdc++.so.6": ("/a/libstdc++.so.6", "/glibc-hwcaps/libstdc++.so.6")}  # fmt: skip
    monkeypatch.setattr("env.probes.libraries.read_cache", lambda path: cache)
    facts = Facts(probe_libraries(tmp_path, environ={}, path=[]))
    assert facts.value("libraries.copies") == {
        "libmpi": ["/a/libmpi.so.40", "/b/libmpi.so.20"],
        "libcudart.so.12": ["/a/libcudart.so.12", "/b/libcudart.so.12"],
    }
    assert verdict("libraries.copies", facts).status is Status.WARN


def test_no_library_is_installed_twice_here(verdict):
    assert verdict("libraries.copies", probe_libraries(environ={})).status is Status.PASS


def test_what_xla_needs(tmp_path, verdict):
    def look(**environ):
        facts = Facts(probe_libraries(tmp_path, environ=environ, path=[]))
        return facts | probe_settings(tmp_path, environ=environ)

    asked = {"TF_XLA_FLAGS": "--tf_xla_auto_jit=2", "PATH": str(tmp_path)}
    assert verdict("libraries.xla", look(**asked), stack_device="gpu").status is Status.FAIL
    assert verdict("libraries.xla", look(), stack_device="gpu").status is Status.INFO
    (tmp_path / "cuda/nvvm/libdevice").mkdir(parents=True)
    (tmp_path / "cuda/nvvm/libdevice/libdevice.10.bc").touch()
    (tmp_path / "ptxas").write_text("#!/bin/sh\n")
    (tmp_path / "ptxas").chmod(0o755)
    asked["XLA_FLAGS"] = f"--xla_gpu_cuda_data_dir={tmp_path}/cuda"
    assert verdict("libraries.xla", look(**asked), stack_device="gpu").status is Status.PASS
