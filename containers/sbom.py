"""The bill of materials of an image: CycloneDX, written in the image while it is built.

Knows which parts an image has and how CycloneDX names them: every dpkg package, every
Python distribution with the hashes that the lock holds it to, Horovod with how it was
compiled, the project with its files. The same image gives the same bytes: sorted, its
serial number made from its content, and no time in it. Leaves comparing it with anything to
``containers.verify`` and ``containers.compare``.

Run inside an image as ``python -m containers.sbom --output FILE``.
"""

from __future__ import annotations

import argparse
import json
import sys
import uuid
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.dependency import Dependency
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from env.atomic import write_text
from env.errors import UserError
from env.lock import Lock, load_lock
from env.probes.distributions import Distribution, file_sha256, read_distributions
from env.probes.dpkg import SystemPackage, read_packages
from recipes.layout import LOCK, PROJECT, SBOM

# What Horovod's machine code is compiled against, as far as a stack has it.
_AGAINST = ("tensorflow", "openmpi", "gcc", "cuda", "nccl")
_NAMESPACE = uuid.UUID("6f0b3a3e-7f0c-5d8e-9c55-0d3a7d1c7c11")
"""Ours; only the serial numbers of our bills are made from it."""


def render_sbom(
    lock: Lock,
    *,
    system: Iterable[SystemPackage],
    python: Iterable[Distribution],
    project: Mapping[str, str],
    revision: str,
) -> str:
    """Return the bill of materials as CycloneDX 1.6 in JSON.

    Args:
        lock: what the image was made of.
        system: the distribution's packages in it.
        python: the Python distributions in it.
        project: SHA-256 by path of the project's files in it.
        revision: the project's revision, as the build named it.
    """
    components = [_system(package, lock) for package in system]
    components += [_python(one, lock) for one in python]
    components.append(_project(project, revision))
    bom = Bom(components=components)
    bom.metadata.component = _image(lock)
    bom.metadata.timestamp = None  # when it was built says nothing of what it is
    bom.dependencies.add(
        Dependency(
            bom.metadata.component.bom_ref,
            dependencies=[Dependency(one.bom_ref) for one in components],
        )
    )
    # The serial number names the content, so it is made from the bill without a real one.
    bom.serial_number = _NAMESPACE
    bom.serial_number = uuid.uuid5(_NAMESPACE, _json(bom))
    return _json(bom)


def observe_sbom(*, lock: Path = Path(LOCK), project: Path = Path(PROJECT)) -> str:
    """Return the bill of materials of the system this runs in.

    Raises:
        UserError: there is no lock, or no dpkg database.
    """
    revision = project / "chexnet" / "REVISION"
    try:
        system = read_packages(licences=True)
    except OSError as error:
        raise UserError("a system installed by dpkg", found=f"{error.filename}: {error.strerror}",
                        fix="run it inside an image of this project") from error  # fmt: skip
    files = {
        path.relative_to(project).as_posix(): file_sha256(path)
        for path in sorted(project.rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
    }
    return render_sbom(
        load_lock(lock), system=system, python=read_distributions(sys.path), project=files,
        revision=revision.read_text(encoding="utf-8").strip() if revision.exists() else "unknown",
    )  # fmt: skip


def _json(bom: Bom) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the library warns of a bill that is not whole
        return json.dumps(json.loads(JsonV1Dot6(bom).output_as_string()), indent=1) + "\n"


def _image(lock: Lock) -> Component:
    told = {
        "stack": lock.stack, "stack:sha256": lock.stack_sha256, "lock:sha256": lock.sha256,
        "base": f"{lock.base['distribution']} {lock.base['release']}",
    }  # fmt: skip
    return Component(
        name=f"chexnet-{lock.stack}", type=ComponentType.CONTAINER, version=lock.sha256,
        bom_ref=f"chexnet-{lock.stack}", properties=_properties(told),
    )  # fmt: skip


def _system(package: SystemPackage, lock: Lock) -> Component:
    base = lock.base
    qualifiers = {
        "arch": package.architecture,
        "distro": f"{base['distribution']}-{base['release']}",
    }
    purl = PackageURL("deb", base["distribution"], package.name, package.version, qualifiers)
    return Component(
        name=package.name, version=package.version, purl=purl, bom_ref=purl.to_string(),
        # Debian's short names of licences (GPL-2+) are not SPDX's.
        licenses=[DisjunctiveLicense(name=name) for name in package.licences],
        properties=_properties({"source": package.source}),
    )  # fmt: skip


def _python(one: Distribution, lock: Lock) -> Component:
    purl = PackageURL("pypi", None, one.name, one.version)
    horovod = one.name == "horovod"
    locked = next((p for p in lock.python if p.name == one.name), None)
    accepted = locked.sha256 if locked and locked.version == one.version else ()
    return Component(
        name=one.name, version=one.version, purl=purl, bom_ref=purl.to_string(),
        # Of a package the lock names every wheel that would have been accepted.
        hashes=_hashes(lock.sources.values() if horovod else accepted),
        licenses=[LicenseFactory().make_from_string(one.licence)] if one.licence else [],
        properties=_properties(_horovod_build(lock)) if horovod else [],
        components=_horovod_files(one) if horovod else [],
    )  # fmt: skip


def _horovod_build(lock: Lock) -> dict[str, str]:
    """Return how Horovod was compiled: the archive, our edits to it, the variables."""
    flags = {f"flag:{name}": value for name, value in lock.flags.items()}
    sources = {f"source:{name}": digest for name, digest in lock.sources.items()}
    edits = {f"edits:{name}": value for name, value in lock.edits.items()}
    against = {f"against:{n}": lock.components[n] for n in _AGAINST if n in lock.components}
    return flags | sources | edits | against


def _horovod_files(one: Distribution) -> list[Component]:
    """Return Horovod's compiled files, which no index holds a hash of."""
    compiled = [path for path, _ in one.files or () if path.endswith(".so")]
    return [_file(path, file_sha256(path)) for path in compiled if Path(path).exists()]


def _project(files: Mapping[str, str], revision: str) -> Component:
    return Component(
        name="chexnet", type=ComponentType.APPLICATION, version=revision, bom_ref="chexnet",
        components=[_file(f"{PROJECT}/{path}", digest) for path, digest in files.items()],
    )  # fmt: skip


def _file(path: str, digest: str) -> Component:
    return Component(
        name=path, type=ComponentType.FILE, bom_ref=f"file:{path}", hashes=_hashes([digest])
    )


def _hashes(digests: Iterable[str]) -> list[HashType]:
    return [HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in digests]


def _properties(values: Mapping[str, str]) -> list[Property]:
    return [Property(name=f"chexnet:{name}", value=value) for name, value in values.items()]


def main(argv: Sequence[str] | None = None) -> int:
    """Write the bill of the image this runs in; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m containers.sbom", description=main.__doc__)
    parser.add_argument("--lock", type=Path, default=Path(LOCK), help="default: %(default)s")
    parser.add_argument("--output", type=Path, default=Path(SBOM), help="default: %(default)s")
    args = parser.parse_args(argv)
    try:
        write_text(args.output, observe_sbom(lock=args.lock))
    except UserError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
