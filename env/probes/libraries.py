"""Which shared libraries this process would load, from where, and what hides what.

Follows the loader's own order (ld.so(8)) over the files that TensorFlow, Horovod and
Python load, without loading any of them. Leaves what an import really mapped to
``env.probes.frameworks``.
"""

from __future__ import annotations

import importlib.machinery
import os
import platform
import re
import struct
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from env.facts import Fact
from env.probes.elf import Elf, read_elf
from env.probes.reading import is_file, is_folder
from env.probes.search_path import entries_of, library_folders

# Loaded by name while a program runs, so that no table of needed libraries names them.
WATCHED = re.compile(
    r"lib(mpi|open-pal|open-rte|prrte|pmix|hwloc|ucp|uct|ucs|fabric|ibverbs|nccl|cudart|cudnn\w*|cublas\w*"
    r"|cufft|cusolver|cusparse|nvrtc|nvJitLink|cuda|nvidia-ml|stdc\+\+|tensorflow\w*|gomp|iomp5|hcoll|sharp)\.so"
)
# What TensorFlow's GPU side opens by name (tsl/platform/default/dso_loader.cc), by CUDA's major
# version; cuDNN comes in the version that TensorFlow names.
OPENED = {
    "11": ("libcudart.so.11.0", "libcublas.so.11", "libcublasLt.so.11", "libcufft.so.10",
           "libcusolver.so.11", "libcusparse.so.11", "libcudnn.so.8"),
    "12": ("libcudart.so.12", "libcublas.so.12", "libcublasLt.so.12", "libcufft.so.11",
           "libcusolver.so.11", "libcusparse.so.12", "libcudnn.so.9", "libcudnn.so.8"),
}  # fmt: skip
# Libraries of which one process must hold one release, under the name that ldconfig lists.
_SINGLE = re.compile(
    r"(libmpi|libopen-pal|libnccl|libcudart|libcudnn|libstdc\+\+|libpmix)\.so\.[\d.]+"
)
_CACHE_MAGIC = b"glibc-ld.so.cache1.1"
_ARCHITECTURES = {"x86_64": 0x0303, "aarch64": 0x0A03}
_MAX_LIBRARIES = 600
_MAX_LISTED = 20_000
_SINGULARITY = ".singularity.d/libs"


@dataclass(frozen=True)
class _Search:
    """Where the loader looks.

    Attributes:
        given: the folders of LD_LIBRARY_PATH.
        cache: paths by soname, from ld.so.cache and the default folders.
        loaded: folders whose libraries are in the process before: TensorFlow's own.
        preloaded: files of LD_PRELOAD and ld.so.preload, by the name that others know them by.
    """

    given: tuple[Path, ...]
    cache: Mapping[str, tuple[str, ...]]
    loaded: tuple[Path, ...]
    preloaded: Mapping[str, str] = field(default_factory=dict)

    def find(self, soname: str, elf: Elf, owner: Path) -> str | None:
        """Return the file the loader takes, None where there is none."""
        if "/" in soname:
            return soname if is_file(soname) else None
        if soname in self.preloaded:  # it is in the process before anything is looked for
            return self.preloaded[soname]
        rpath = () if elf.runpath else _with_origin(elf.rpath, owner)
        folders = (*rpath, *self.given, *_with_origin(elf.runpath, owner), *self.loaded)
        for folder in folders:
            if is_file(folder / soname):
                return str(folder / soname)
        return next(iter(self.cache.get(soname, ())), None)

    def without_variables(self) -> _Search:
        return _Search((), self.cache, self.loaded)


def probe_libraries(
    root: Path = Path("/"),
    *,
    environ: Mapping[str, str] = os.environ,
    path: Sequence[str] | None = None,
) -> dict[str, Fact]:
    """Return the facts ``libraries.*``.

    ``libraries.missing``: ``{soname, needed_by}`` of each that no search finds.
    ``libraries.lacking``: ``{library, version, of, path}``: a symbol version that the library
    found does not define. ``libraries.shadowed``: ``{soname, path, hides, loaded, by}``: found by
    LD_LIBRARY_PATH, or preloaded, before the file that would be taken without it; ``loaded`` where
    something here needs it, ``by`` which variable. ``libraries.path``: ``{entry, state}`` of
    LD_LIBRARY_PATH. ``libraries.preload``: ``{entry, state}`` of LD_PRELOAD and ld.so.preload.
    ``libraries.copies``: files by name of each library of which several are installed.
    ``libraries.cuda``: where each library of CUDA is that TensorFlow opens by name, by CUDA's
    major version. ``libraries.xla``: ``{libdevice, ptxas, folder}``: what XLA compiles for GPUs
    with, and the folder of CUDA that a variable names.

    Args:
        root: the folder in which /etc and the container's libraries lie.
        environ: the process's environment.
        path: where to look for packages; ``sys.path`` if None.
    """
    cache_file = root / "etc/ld.so.cache"
    entries, preloaded = entries_of(environ.get("LD_LIBRARY_PATH", "")), _preloaded(root, environ)
    facts = {
        "libraries.path": Fact([_entry(e) for e in entries], "LD_LIBRARY_PATH"),
        "libraries.preload": Fact(preloaded, "LD_PRELOAD"),
        "libraries.xla": _xla(root, environ, path),
    }
    keys = ("missing", "lacking", "shadowed", "cuda", "copies")
    try:
        cache = _with_defaults(read_cache(cache_file), root)
    except (OSError, ValueError) as error:
        lost = Fact(None, str(cache_file), problem=getattr(error, "strerror", None) or str(error))
        return facts | {f"libraries.{key}": lost for key in keys}
    site = [entry for entry in (sys.path if path is None else path) if entry]
    search = _Search(tuple(library_folders(environ)), cache,
                     tuple(_package_folders("tensorflow", site)))  # fmt: skip
    search = replace(search, preloaded=dict(_by_soname(preloaded, search)))
    subjects = [*_subjects(site), *_injected(root)]
    missing, lacking, needed = _follow(search, subjects)
    told = search.given or search.preloaded
    usual = _follow(search.without_variables(), subjects)[2] if told else {}
    for file in _of_wheels(site) if told else ():
        usual.setdefault(file.name, str(file))
    opened = _opened(search, site)
    found = f"{cache_file} and LD_LIBRARY_PATH"
    return facts | {
        "libraries.missing": Fact(missing, found),
        "libraries.lacking": Fact(lacking, found),
        "libraries.cuda": Fact(opened, found),
        "libraries.copies": Fact(_copies(cache, site), found),
        "libraries.shadowed": Fact(list(_shadowed(search, needed, usual)), "LD_LIBRARY_PATH"),
    }


def _copies(cache: Mapping[str, tuple[str, ...]], site: Sequence[str]) -> dict[str, list[str]]:
    """Return the files of each library that is installed more than once.

    CUDA's releases live side by side under their own names; those of MPI do not.
    """
    found: dict[str, set[str]] = {}
    files = [(soname, path) for soname, paths in cache.items() for path in paths]
    files += [(file.name, str(file)) for file in _of_wheels(site)]
    for soname, path in files:
        match = _SINGLE.fullmatch(soname)
        if match and "glibc-hwcaps" not in path:
            name = match[1] if match[1] in ("libmpi", "libopen-pal") else soname
            found.setdefault(name, set()).add(os.path.realpath(path))
    return {name: sorted(paths) for name, paths in sorted(found.items()) if len(paths) > 1}


def _opened(search: _Search, site: Sequence[str]) -> dict[str, dict[str, str | None]]:
    """Return where TensorFlow would find what it opens: its wheels' folders count as well."""
    wheels = {file.name: str(file) for file in _of_wheels(site)}
    return {
        major: {name: search.find(name, Elf(), Path("/")) or wheels.get(name) for name in names}
        for major, names in OPENED.items()
    }


def _xla(root: Path, environ: Mapping[str, str], path: Sequence[str] | None) -> Fact:
    """Look where XLA does: the folder it is told, CUDA's usual ones, NVIDIA's wheels."""
    told = re.search(r"--xla_gpu_cuda_data_dir=(\S+)", environ.get("XLA_FLAGS", ""))
    named = [told[1]] if told else []
    homes = [environ.get(name, "") for name in ("CUDA_DIR", "CUDA_HOME", "CUDA_PATH")]
    usual = [str(root / "usr/local/cuda"), str(root / "usr/lib/nvidia-cuda-toolkit"), "."]
    wheels = [f"{entry}/nvidia/cuda_nvcc" for entry in (sys.path if path is None else path)]
    folders = [Path(place) for place in (*named, *filter(None, homes), *usual, *wheels)]
    bins = [folder / "bin" for folder in folders]
    bins += [Path(entry) for entry in environ.get("PATH", "").split(os.pathsep) if entry]
    devices = [folder / tail for folder in folders
               for tail in ("nvvm/libdevice/libdevice.10.bc", "libdevice.10.bc")]  # fmt: skip
    compiler = next((str(f / "ptxas") for f in bins if os.access(f / "ptxas", os.X_OK)), None)
    device = next((str(file) for file in devices if is_file(file)), None)
    value = {"libdevice": device, "ptxas": compiler, "folder": told[1] if told else None}
    return Fact(value, "PATH, CUDA's folders and wheels")


def read_cache(path: Path) -> dict[str, tuple[str, ...]]:
    """Return the paths that ``ldconfig`` wrote down for each soname of this architecture.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not such a cache.
    """
    data = path.read_bytes()
    start = data.find(_CACHE_MAGIC)
    if start < 0:
        raise ValueError("not understood: no cache of glibc 2.2 or later")
    wanted = _ARCHITECTURES.get(platform.machine())
    found: dict[str, list[str]] = {}
    try:
        (number,) = struct.unpack_from("<I", data, start + 20)
        for index in range(min(number, _MAX_LISTED)):
            flags, key, value = struct.unpack_from("<iII", data, start + 48 + 24 * index)
            if wanted is None or flags == wanted:
                found.setdefault(_text(data, start + key), []).append(_text(data, start + value))
    except (struct.error, IndexError) as error:
        raise ValueError(f"not understood: {error}") from error
    return {soname: tuple(dict.fromkeys(paths)) for soname, paths in found.items()}


def _text(data: bytes, place: int) -> str:
    return data[place : data.index(b"\0", place)].decode(errors="replace")


def _with_defaults(cache: Mapping[str, tuple[str, ...]], root: Path) -> dict[str, tuple[str, ...]]:
    """Add what lies in the default folders; the loader looks there where the cache is silent."""
    found = dict(cache)
    for folder in ("lib64", "usr/lib64", "lib", "usr/lib"):
        for file in (root / folder).glob("lib*.so.*"):
            found.setdefault(file.name, (str(file),))
    return found


def _entry(entry: str) -> dict[str, str]:
    """Say what an entry of LD_LIBRARY_PATH is: a dead one or an empty one is a trap."""
    if not entry or not entry.startswith("/"):
        return {"entry": entry, "state": "relative"}
    path = Path(entry)
    try:
        state = "folder" if path.is_dir() else "no folder" if path.exists() else "absent"
        if state == "folder" and not os.access(path, os.R_OK | os.X_OK):
            state = "unreadable"
    except OSError as error:  # a loop of links, a name too long
        state = error.strerror or "unreadable"
    return {"entry": entry, "state": state}


def _preloaded(root: Path, environ: Mapping[str, str]) -> list[dict[str, str]]:
    words = [(w, "LD_PRELOAD") for w in re.split(r"[\s:]+", environ.get("LD_PRELOAD", "")) if w]
    file = root / "etc/ld.so.preload"
    try:
        text = re.sub(r"#.*", "", file.read_text(errors="replace"))
        words += [(word, str(file)) for word in re.split(r"[\s:]+", text) if word]
    except OSError:
        pass
    return [{"entry": w, "state": _preload_state(w), "origin": o} for w, o in words]


def _by_soname(
    preloaded: Iterable[Mapping[str, str]], search: _Search
) -> Iterator[tuple[str, str]]:
    """Yield preloaded files with the names under which others would look for them."""
    for row in preloaded:
        path = search.find(row["entry"], Elf(), Path("/"))
        elf = _read(Path(path)) if path else None
        if path and elf:
            yield elf.soname or Path(path).name, path


def _preload_state(word: str) -> str:
    if "/" not in word:
        return "named"  # searched for like any library
    try:
        read_elf(Path(word))
    except OSError as error:
        return error.strerror or "unreadable"
    except ValueError as error:
        return str(error)
    return "present"


def _package_folders(name: str, site: Sequence[str]) -> Iterator[Path]:
    spec = importlib.machinery.PathFinder.find_spec(name, list(site))
    for place in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(place)


def _subjects(site: Sequence[str]) -> Iterator[Path]:
    """Yield the files whose needs are followed: Horovod's, TensorFlow's, numpy's, Python's."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX") or ".so"
    for folder in _package_folders("horovod", site):
        yield from folder.glob(f"tensorflow/mpi_lib*{suffix}")
    for folder in _package_folders("tensorflow", site):
        yield from folder.glob("python/_pywrap_tensorflow_internal.so")
        yield from folder.glob("libtensorflow_*.so.*")
    for folder in _package_folders("numpy", site):
        yield from folder.glob(f"*core/_multiarray_umath*{suffix}")
    yield Path(sys.executable).resolve()
    yield from Path(sysconfig.get_path("platstdlib"), "lib-dynload").glob("*.so")


def _injected(root: Path) -> Iterator[Path]:
    """Yield the host's libraries that Apptainer's --nv put into the container."""
    yield from sorted((root / _SINGULARITY).glob("lib*.so*"))[:_MAX_LIBRARIES]


def _follow(
    search: _Search, subjects: Iterable[Path]
) -> tuple[list[dict[str, str]], list[dict[str, str]], dict[str, str]]:
    """Walk what is needed by what; returns the missing, the lacking, and the path by soname."""
    missing: dict[str, str] = {}
    lacking: list[dict[str, str]] = []
    needed: dict[str, str] = {}
    waiting, seen = list(subjects), set()
    while waiting and len(seen) < _MAX_LIBRARIES:
        file = waiting.pop()
        elf = _read(file) if file not in seen else None
        seen.add(file)
        if elf is None:
            continue
        for soname in elf.needed:
            # One process has one library of a name: the first that was found serves all.
            path = needed.get(soname) or search.find(soname, elf, file)
            if path is None:
                missing.setdefault(soname, str(file))
                continue
            if soname not in needed:
                needed[soname] = path
                waiting.append(Path(path))
            lacking += _lacks(file, elf, soname, path)
    listed = [{"soname": name, "needed_by": file} for name, file in sorted(missing.items())]
    return listed, lacking, needed


def _lacks(file: Path, elf: Elf, soname: str, path: str) -> Iterator[dict[str, str]]:
    wanted = elf.requires.get(soname, ())
    provider = _read(Path(path)) if wanted else None
    # A library that defines no versions at all satisfies any, with a warning (dl-version.c).
    for version in wanted if provider and provider.offers else ():
        if version not in provider.offers:
            yield {"library": str(file), "version": version, "of": soname, "path": path}


def _read(path: Path) -> Elf | None:
    try:
        return read_elf(path)
    except (OSError, ValueError):
        return None


def _shadowed(
    search: _Search, needed: Mapping[str, str], usual: Mapping[str, str]
) -> Iterator[dict[str, object]]:
    """Yield each library that a variable puts before the one it would be without it."""
    places = [(name, path, "LD_PRELOAD") for name, path in search.preloaded.items()]
    places += [(name, str(folder / name), "LD_LIBRARY_PATH")
               for folder in search.given for name in _libraries_in(folder)]  # fmt: skip
    seen: set[str] = set()
    for name, mine, by in places:
        if name in seen or not (name in needed or WATCHED.match(name)):
            continue
        seen.add(name)
        hidden = usual.get(name) or next(iter(search.cache.get(name, ())), None)
        if hidden and os.path.realpath(hidden) != os.path.realpath(mine):
            yield {"soname": name, "path": mine, "hides": hidden, "loaded": name in needed,
                   "by": by}  # fmt: skip


def _of_wheels(site: Sequence[str]) -> Iterator[Path]:
    """Yield the libraries of NVIDIA's wheels, which TensorFlow opens by name."""
    for entry in site:
        if is_folder(Path(entry) / "nvidia"):
            yield from Path(entry).glob("nvidia/*/lib/lib*.so*")


def _libraries_in(folder: Path) -> list[str]:
    try:
        names = sorted(entry.name for entry in os.scandir(folder))
    except OSError:
        return []
    return [name for name in names[:_MAX_LISTED] if re.match(r"lib.+\.so(\.|$)", name)]


def _with_origin(folders: Iterable[str], owner: Path) -> tuple[Path, ...]:
    origin = os.path.realpath(owner.parent)
    return tuple(
        Path(re.sub(r"\$\{?ORIGIN\}?", lambda match: origin, folder)) for folder in folders
    )
