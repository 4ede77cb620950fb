"""Python and its packages, seen from outside: nothing is imported.

Knows what importlib.metadata and the files of a Horovod package tell. Leaves what an
import really loads to ``env.probes.frameworks``.
"""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import json
import os
import platform
import site
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from env.facts import Fact
from env.names import normal_name
from env.probes.reading import read_fact

MODULES = ("tensorflow", "keras", "horovod", "numpy")


def probe_packages(
    *, environ: Mapping[str, str] = os.environ, path: list[str] | None = None
) -> dict[str, Fact]:
    """Return the facts ``packages.*``.

    Args:
        environ: the process's environment.
        path: where to look for packages, in this order; ``sys.path`` if None.
    """
    path = [entry for entry in (sys.path if path is None else path) if entry]
    user_site = site.getusersitepackages()
    return {
        "packages.python": Fact(platform.python_version(), sys.executable),
        "packages.executable": Fact(sys.executable, "sys.executable"),
        "packages.prefixes": Fact(sorted({sys.prefix, sys.base_prefix}), "sys.prefix"),
        "packages.user_site": Fact(user_site if user_site in path else None, "site"),
        "packages.python_path": Fact(environ.get("PYTHONPATH"), "PYTHONPATH"),
        "packages.installed": _installed(path),
        "packages.modules": Fact({name: _origin(name, path) for name in MODULES}, "sys.path"),
    } | _horovod_files(path)


def _installed(path: list[str]) -> Fact:
    """Return ``{name: {version, location}}``; of several copies, the first one found counts."""
    found: dict[str, dict[str, str]] = {}
    for package in importlib.metadata.distributions(path=path):
        name = package.metadata["Name"]
        if name:  # a half-removed package has no metadata
            where = str(package.locate_file(""))
            found.setdefault(normal_name(name), {"version": package.version, "location": where})
    return Fact(found, "importlib.metadata")


def _origin(name: str, path: list[str]) -> str | None:
    spec = importlib.machinery.PathFinder.find_spec(name, path)
    return spec.origin if spec else None


def _horovod_files(path: list[str]) -> dict[str, Fact]:
    """Return what Horovod was compiled against, and the extensions it has."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    origin = _origin("horovod", path)
    if origin is None:
        absent = Fact(None, "sys.path", problem="horovod is not installed")
        return {"packages.horovod_metadata": absent, "packages.horovod_extensions": absent,
                "packages.extension_suffix": Fact(suffix, "sysconfig")}  # fmt: skip
    folder = Path(origin).parent
    extensions = sorted(file.name for file in folder.glob("tensorflow/mpi_lib*.so"))
    return {
        "packages.horovod_metadata": read_fact(folder / "metadata.json", parse=json.loads),
        "packages.horovod_extensions": Fact(extensions, str(folder / "tensorflow")),
        "packages.extension_suffix": Fact(suffix, "sysconfig"),
    }
