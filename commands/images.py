"""Stacks, locks, definitions and images.

Each task parses, calls one function, prints and returns an exit code. No logic.
Imports lazily, so that ``invoke --list`` loads neither hpccm nor TensorFlow.
"""

from __future__ import annotations

from pathlib import Path

from invoke import Context

from commands.command import command, one_of, optional_path, required


@command(
    help={
        "json": "print JSON instead of a table",
        "check": "hold every stack against every rule of compatibility",
        "explain": "a stack: why its versions fit each other, with the sources",
        "solve": "versions that must go together, e.g. 'tensorflow=2.18 driver=535'",
        "markdown": "write docs/stacks.md and the table of docs/choose-a-stack.md anew",
    }
)
def stacks(
    c: Context,
    json: bool = False,
    check: bool = False,
    explain: str | None = None,
    solve: str | None = None,
    markdown: bool = False,
) -> int:
    """List the stacks of the catalogue: which versions go together."""
    from containers import compatibility
    from containers.pages import write_pages
    from containers.stacks import print_stacks, render_stacks
    from env.stack import load_stacks

    one_of(check=check, explain=explain, solve=solve, markdown=markdown)
    if check:
        return compatibility.check_stacks(as_json=json)
    if explain is not None:
        return compatibility.explain_stack(explain, as_json=json)
    if solve is not None:
        return compatibility.solve_versions(solve, as_json=json)
    if markdown:
        for path in write_pages():
            print(path)
        return 0
    catalogue = load_stacks()
    print(render_stacks(catalogue)) if json else print_stacks(catalogue)
    return 0


@command(
    help={
        "stack": "a stack of the catalogue (invoke stacks)",
        "output": "write there instead of containers/STACK/stack.lock.json",
    }
)
def lock(c: Context, stack: str = "", output: str = "") -> None:
    """Resolve a stack to exact, hashed packages; write lock, definitions and pages anew."""
    from containers.lock import write_lock
    from containers.pages import write_pages
    from recipes.render import write_definitions

    required(stack=stack)
    written = [write_lock(stack, output=optional_path(output))]
    for path in written if output else [*written, *write_definitions(), *write_pages()]:
        print(path)


@command(help={"stack": "a stack of the catalogue", "format": "singularity or docker"})
def recipe(c: Context, stack: str = "", format: str = "") -> None:
    """Print the definition of an image: a Singularity.def or a Dockerfile."""
    from env.stack import load_stack
    from recipes.render import render_definition

    required(stack=stack, format=format)
    print(render_definition(load_stack(stack), format=format), end="")


@command(
    help={
        "stack": "a stack of the catalogue",
        "output": "a folder; what it holds of the lock already is not fetched again",
    }
)
def fetch_packages(c: Context, stack: str = "", output: str = "") -> None:
    """Save every package, wheel and source of a stack's lock, to build without a network.

    On a connected machine: invoke fetch-packages --stack cpu --output DIR. Carry DIR over;
    there: invoke build-image --stack cpu --format singularity --packages DIR. Keep it: the
    distribution's archive drops old versions, the folder builds the same image years later.
    """
    from containers.packages import save_packages
    from env.stack import load_stack

    required(stack=stack, output=output)
    save_packages(load_stack(stack), folder=Path(output))


@command(
    help={
        "stack": "a stack of the catalogue",
        "format": "singularity makes a .sif file, docker an OCI archive (.tar)",
        "engine": "apptainer, singularity, docker, podman or buildah; by default the first found",
        "output": "the file to make; by default chexnet-STACK.sif or .tar here",
        "base": "registry, local (mmdebstrap), or auto: local where no registry answers",
        "packages": "a folder saved by fetch-packages: build from it, without a network",
        "allow-drift": "where the archive has no longer what the lock names, take what it has, "
        "and say so in the image's labels",
        "force": "replace an image that is there",
        "json": "also write what was made, its size and the seconds of each step there",
        "dry-run": "print the command lines and run nothing",
    }
)
def build_image(
    c: Context,
    stack: str = "",
    format: str = "",
    engine: str = "",
    output: str = "",
    base: str = "auto",
    packages: str = "",
    allow_drift: bool = False,
    force: bool = False,
    json: str = "",
    dry_run: bool = False,
) -> None:
    """Build an image of a stack: invoke build-image --stack cpu --format singularity.

    Every package is the lock's, held to its hash. If the distribution has replaced one by a
    newer, the build stops and lists them: renew the lock (invoke lock --stack S), build
    from a folder saved before (--packages DIR), or take what there is (--allow-drift).
    """
    from containers.build import build_image as build
    from containers.build import render_result
    from env.atomic import write_text
    from env.stack import load_stack

    required(stack=stack, format=format)
    result = build(
        load_stack(stack),
        format=format,
        engine=engine or None,
        output=optional_path(output),
        base=base,
        packages=optional_path(packages),
        allow_drift=allow_drift,
        force=force,
        dry_run=dry_run,
    )
    if json and result is not None:
        write_text(Path(json), render_result(result))


@command(
    operands=("image",),
    help={
        "image": "a .sif file, a root folder, an OCI archive, or a name in an engine's store",
        "lock": "hold it against this lock; by default the committed one of the image's stack",
        "signed": "an image that nobody has signed differs too",
        "key": "the signer's public key, a PEM file; by default Apptainer's keyring",
        "json": "print JSON instead of text",
    },
)
def verify_image(
    c: Context,
    image: str | None = None,
    lock: str = "",
    signed: bool = False,
    key: str = "",
    json: bool = False,
) -> int:
    """Hold what is really inside an image against its lock: invoke verify-image IMAGE."""
    from containers.verify import print_verification, verify_image

    done = verify_image(str(image), lock=optional_path(lock), signed=signed, key=optional_path(key))
    return print_verification(done, as_json=json)


@command(
    operands=("image",),
    help={
        "image": "a .sif file",
        "new-key": "first make a key pair, for 'Your Name <you@example.org>'",
        "key": "a private key, a PEM file; by default Apptainer's keyring",
        "dry-run": "print the command lines and run nothing",
    },
)
def sign_image(
    c: Context,
    image: str | None = None,
    new_key: str = "",
    key: str = "",
    dry_run: bool = False,
) -> int:
    """Sign a .sif file, so that verify-image says who vouches for it: invoke sign-image IMAGE."""
    from containers.sign import sign_image as sign

    return sign(str(image), key=optional_path(key), new_key=new_key, dry_run=dry_run)


@command(
    operands=("a", "b"),
    help={
        "a": "a .sif file, a root folder or an OCI archive",
        "b": "another, of the same kind or not",
        "json": "write every difference there",
    },
)
def compare_images(c: Context, a: str | None = None, b: str | None = None, json: str = "") -> int:
    """Say how two images differ, file by file: invoke compare-images A B. Exit 1: they do."""
    from containers.compare import compare_images, print_comparison

    return print_comparison(compare_images(str(a), str(b)), json=optional_path(json))


@command(operands=("image",), help={"image": "an image; see verify-image"})
def sbom(c: Context, image: str | None = None) -> None:
    """Print the bill of materials that an image carries, in CycloneDX: invoke sbom IMAGE."""
    from containers.verify import print_sbom

    print_sbom(str(image))
