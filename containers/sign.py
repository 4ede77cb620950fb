"""Signatures of .sif files: made and read through Apptainer's keys.

Knows what Apptainer's ``verify`` tells in each case. A signature says who vouches for the
bytes; what the bytes are is for ``containers.verify``. The keys lie where Apptainer keeps
them: ``$APPTAINER_KEYSDIR``, by default ``~/.apptainer/keys``.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from containers.image import SIF, image_kind
from containers.runtime import find_engine
from env.errors import EXIT_FAILED, UserError

# What the engine says where it has the image, but not the key to judge it by.
_NO_KEY = (
    "unknown entity",  # a PGP key that is not in the keyring
    "key material not provided",  # signed by a key of the other kind, PEM or PGP
    "accepted signatures do not match",  # another PEM key than the one named
)
_PEM = "-----BEGIN [A-Z ]*{kind} KEY-----\n(.+?)-----END [A-Z ]*{kind} KEY-----"
_DER_SEQUENCE = 0x30
"""The first byte of every key that is not kept behind a passphrase."""
_PERSON = re.compile(r"([^<>]*[^<>\s])\s*<([^<>\s]+@[^<>\s]+)>")


@dataclass(frozen=True)
class Signature:
    """What is known about who signed an image.

    Attributes:
        state: ``"good"``; ``"unsigned"``; ``"broken"``: signed, and changed since;
            ``"unknown"``: signed with a key that is not in the keyring here; ``"none"``:
            an image of a kind that carries no signature.
        signers: name and fingerprint of each signer.
        problem: what is wrong, in words; empty where nothing is.
        where: the object of the image that is not as it was signed.
        fix: what to do; empty where nothing need be done.
    """

    state: str
    signers: tuple[str, ...] = ()
    problem: str = ""
    where: str = ""
    fix: str = ""


def read_signature(image: str, *, kind: str, key: Path | None = None) -> Signature:
    """Return who signed an image, asking the keyring here and no key server.

    Args:
        image: the image.
        kind: see ``containers.image``; only a .sif file carries signatures.
        key: a public key as a PEM file, instead of the keyring.

    Raises:
        UserError: there is no Singularity or Apptainer here, or the file holds no public key.
    """
    if key:
        _check_key(key, kind="PUBLIC")
    if kind != SIF:
        return Signature("none", problem="only a .sif file carries a signature")
    engine = find_engine(format="singularity").name
    chosen = ["--key", str(key)] if key else ["--local"]
    done = _run([engine, "verify", *chosen, "--json", image])
    return parse_signature(done.stdout, done.stderr, image=image)


def parse_signature(stdout: str, stderr: str, *, image: str) -> Signature:
    """Return what Apptainer's ``verify --json`` said.

    Args:
        stdout: its JSON: ``Signatures``, and of each signed object who and whether it is whole.
        stderr: its messages, of which the last says what failed.
        image: the image, to name it in a fix.
    """
    said = [line for line in stderr.splitlines() if line.startswith(("FATAL", "ERROR"))]
    reason = said[-1].partition(":")[2].strip() if said else ""
    try:
        told = json.loads(stdout)
        signed = [one["Signer"] for one in told["SignerKeys"] or ()]
        names = [f"{one['Name']} ({one['Fingerprint'].upper() or 'a PEM key'})" for one in signed]
        broken = [one["Partition"] for one in signed if not one["DataCheck"]]
        number = told["Signatures"]
    except (ValueError, KeyError, TypeError, AttributeError):
        problem = f"the engine could not tell: {reason or 'no reason given'}"
        return Signature("unknown", problem=problem, where=image,
                         fix="try it by hand: apptainer verify IMAGE")  # fmt: skip
    if any(words in reason for words in _NO_KEY):
        fix = (
            "get the signer's public key from them, then: apptainer key import FILE, or --key FILE"
        )
        problem = f"signed with a key that is not known here ({reason})"
        return Signature("unknown", problem=problem, where=image, fix=fix)
    if not number:
        return Signature("unsigned", where=image, fix="sign it: invoke sign-image IMAGE")
    signers = tuple(sorted(set(names)))
    if signed and not broken and not said:
        return Signature("good", signers)
    return Signature(
        "broken", signers, problem=f"changed since it was signed: {reason}",
        where=f"{image}: {', '.join(broken) or 'its signature'}",
        fix="do not use it; get it again from where it was signed",
    )  # fmt: skip


def sign_image(
    image: str, *, key: Path | None = None, new_key: str = "", dry_run: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> int:  # fmt: skip
    """Sign a .sif file and say who signed it.

    A passphrase is asked for by the engine itself, on the terminal; a key pair made where
    there is none is not protected by one, which is said.

    Args:
        image: a .sif file that may be written to.
        key: a private key as a PEM file, instead of the keyring.
        new_key: ``"Name <mail>"``: first make a key pair for this person.
        dry_run: print the command lines and run none.
        environ: names the folder of the keys.

    Returns:
        The exit code.

    Raises:
        UserError: no .sif file, no key to sign with (or none in the file named), or the
            engine could not sign.
    """
    if image_kind(image) != SIF:
        raise UserError("a .sif file, which can carry a signature", found=image,
                        fix="invoke build-image --format singularity")  # fmt: skip
    if not os.access(image, os.W_OK):
        raise UserError("a .sif file to write the signature into", found=f"{image} is read-only",
                        fix="copy it to where you may write")  # fmt: skip
    if key:
        _check_key(key, kind="PRIVATE")
    engine = find_engine(format="singularity").name
    if not key and not new_key and not (keys_folder(environ) / "pgp-secret").exists():
        raise UserError("a key to sign with", found=f"none in {keys_folder(environ)}",
                        fix='make one: --new-key "Your Name <you@example.org>"; or name a '
                        "PEM file: --key FILE")  # fmt: skip
    lines = [_new_pair(engine, new_key)] if new_key else []
    lines.append([engine, "sign", *(["--key", str(key)] if key else []), image])
    for line in lines:
        if dry_run:
            print(shlex.join(line))
            continue
        _must(line)
    if dry_run:
        return 0
    if key:
        print(f"{image}: signed with {key}; others verify with --key and its public half")
        return 0
    signature = read_signature(image, kind=SIF)
    if signature.state != "good":
        raise UserError("a good signature", found=signature.problem or "none", fix=signature.fix,
                        exit_code=EXIT_FAILED)  # fmt: skip
    print(f"{image}: signed by {', '.join(signature.signers)}")
    print(f"others need your public key: {engine} key export FILE, then {engine} key import FILE")
    return 0


def keys_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where Apptainer keeps its keys."""
    for name in ("APPTAINER_KEYSDIR", "SINGULARITY_KEYSDIR"):
        if environ.get(name):
            return Path(environ[name])
    return Path(environ.get("HOME") or Path.home()) / ".apptainer" / "keys"


def _check_key(path: Path, *, kind: str) -> None:
    """Refuse a file that holds no key, before the engine calls it a bad signature.

    Args:
        path: a PEM file.
        kind: ``"PUBLIC"`` or ``"PRIVATE"``.

    Raises:
        UserError: it cannot be read, or has no key of that kind.
    """
    expected = f"a {kind.lower()} key, a PEM file"
    fix = f"name the file of the {kind.lower()} half: private to sign, public to verify"
    try:
        text = path.read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n")
    except OSError as error:
        raise UserError(expected, found=f"{path}: {error.strerror}", fix=fix) from error
    told = re.search(_PEM.format(kind=kind), text, re.DOTALL)
    try:
        # A key behind a passphrase may have lines of its own before its content.
        content = b"" if not told else base64.b64decode(
            "".join(told[1].rpartition("\n\n")[2].split()), validate=True
        )  # fmt: skip
    except ValueError:
        content = b""
    locked = bool(told) and "ENCRYPTED" in told[0]
    if not content or (content[0] != _DER_SEQUENCE and not locked):
        raise UserError(expected, found=f"no {kind.lower()} key in {path}", fix=fix)


def _new_pair(engine: str, person: str) -> list[str]:
    """Return the command line that makes a key pair, never pushed to a key server."""
    told = _PERSON.fullmatch(person.strip())
    if not told:
        raise UserError('"Name <mail>"', found=repr(person),
                        fix='e.g. --new-key "Ada Lovelace <ada@example.org>"')  # fmt: skip
    line = [engine, "key", "newpair", "--name", told[1], "--email", told[2], "--comment", "chexnet"]
    line.append("--push=false")
    if not sys.stdin.isatty():
        print("no terminal to ask on: the new key has no passphrase", file=sys.stderr)
        line.append("--password=")
    return line


def _must(line: Sequence[str]) -> None:
    """Run a command that may ask on the terminal.

    Raises:
        UserError: it failed.
    """
    interactive = sys.stdin.isatty()
    done = _run(line) if not interactive else subprocess.run(line, check=False)
    if done.returncode:
        said = [text for text in (done.stderr or "").splitlines() if text.strip()]
        raise UserError(f"{' '.join(line[:2])} to succeed",
                        found=said[-1] if said else f"exit code {done.returncode}",
                        fix="see what it says: " + shlex.join(line),
                        exit_code=EXIT_FAILED)  # fmt: skip


def _run(line: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        line, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
        check=False,
    )  # fmt: skip
