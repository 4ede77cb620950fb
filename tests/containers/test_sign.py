"""Signatures of .sif files, made and broken in earnest with keys of our own."""

import shutil
import subprocess
from pathlib import Path

import pytest

from containers.parts import signature_part
from containers.sign import keys_folder, parse_signature, read_signature, sign_image
from env.errors import UserError
from env.result import Status

PERSON = "Ada Lovelace <ada@example.org>"
CONTENT = b"the content that is signed\n"

pytestmark = pytest.mark.container


@pytest.fixture(scope="module")
def unsigned(tmp_path_factory):
    """Return a small .sif file that nobody has signed."""
    folder = tmp_path_factory.mktemp("unsigned")
    (folder / "root" / "etc").mkdir(parents=True)
    (folder / "root" / "etc" / "file").write_bytes(CONTENT)
    squashfs, image = folder / "root.squashfs", folder / "image.sif"
    plain = ["-noappend", "-quiet", "-no-progress", "-noD", "-noF"]
    run("mksquashfs", folder / "root", squashfs, *plain)
    run("apptainer", "sif", "new", image)
    kind = ["--datatype", "4", "--parttype", "2", "--partfs", "1", "--partarch", "2"]
    run("apptainer", "sif", "add", *kind, "--groupid", "1", image, squashfs)
    return image


def run(*line):
    subprocess.run([str(word) for word in line], check=True, capture_output=True)


@pytest.fixture(scope="module")
def signed(unsigned, tmp_path_factory):
    """Return a signed copy and the folder of the signer's keys."""
    folder = tmp_path_factory.mktemp("signed")
    image, keys = folder / "signed.sif", folder / "keys"
    keys.mkdir(mode=0o700)
    shutil.copy(unsigned, image)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("APPTAINER_KEYSDIR", str(keys))
        assert sign_image(str(image), new_key=PERSON) == 0
    return image, keys


@pytest.fixture
def keyring(signed, monkeypatch):
    """Verify with the signer's keys."""
    monkeypatch.setenv("APPTAINER_KEYSDIR", str(signed[1]))


def test_a_signed_image_says_by_whom(signed, keyring, capsys):
    signature = read_signature(str(signed[0]), kind="sif")
    assert signature.state == "good"
    (signer,) = signature.signers
    assert signer.startswith("Ada Lovelace (chexnet) <ada@example.org> (")
    part = signature_part(signature, required=True)
    assert part.status is Status.PASS
    assert part.note == f"signed by {signer}, and unchanged since"
    assert sorted(path.name for path in signed[1].iterdir()) == ["pgp-public", "pgp-secret"]


@pytest.mark.parametrize(("required", "status"), [(False, Status.INFO), (True, Status.FAIL)])
def test_an_unsigned_image_differs_only_where_a_signature_is_asked_for(
    unsigned, keyring, required, status
):
    signature = read_signature(str(unsigned), kind="sif")
    assert (signature.state, signature.signers) == ("unsigned", ())
    part = signature_part(signature, required=required)
    assert part.status is status
    assert part.title == "signature"  # which says nothing that the note takes back
    assert all("invoke sign-image" in one.fix for one in part.differences)


def test_one_bit_that_changed_after_signing_is_caught(signed, keyring, tmp_path):
    image = tmp_path / "flipped.sif"
    content = bytearray(signed[0].read_bytes())
    content[content.index(CONTENT) + 3] ^= 1
    image.write_bytes(content)
    signature = read_signature(str(image), kind="sif")
    assert signature.state == "broken"
    assert signature.where == f"{image}: FS"
    (difference,) = signature_part(signature, required=False).differences
    assert "changed since it was signed" in difference.found
    assert "do not use it" in difference.fix


def test_a_signer_whom_nobody_here_knows_is_no_pass(signed, tmp_path, monkeypatch):
    monkeypatch.setenv("APPTAINER_KEYSDIR", str(tmp_path / "none"))
    signature = read_signature(str(signed[0]), kind="sif")
    assert (signature.state, signature.signers) == ("unknown", ())
    part = signature_part(signature, required=False)
    assert part.status is Status.UNKNOWN
    assert "apptainer key import" in part.note


def test_a_pem_key_signs_and_verifies_as_well(unsigned, keyring, tmp_path):
    image, private, public = tmp_path / "i.sif", tmp_path / "private.pem", tmp_path / "public.pem"
    shutil.copy(unsigned, image)
    run("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", private)
    run("openssl", "ec", "-in", private, "-pubout", "-out", public)
    assert sign_image(str(image), key=private) == 0
    assert read_signature(str(image), kind="sif", key=public).state == "good"
    assert read_signature(str(image), kind="sif").state == "unknown"
    other = tmp_path / "other.pem"
    run("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", private)
    run("openssl", "ec", "-in", private, "-pubout", "-out", other)
    assert read_signature(str(image), kind="sif", key=other).state == "unknown"


def test_only_a_sif_carries_a_signature(tmp_path):
    signature = read_signature(str(tmp_path), kind="sandbox")
    assert signature.state == "none"
    assert signature_part(signature, required=False).status is Status.INFO
    assert signature_part(signature, required=True).status is Status.UNKNOWN
    for name in ("etc", "usr"):
        (tmp_path / name).mkdir()
    with pytest.raises(UserError, match=r"a \.sif file"):
        sign_image(str(tmp_path))


def test_without_a_key_it_says_how_to_make_one(unsigned, tmp_path, monkeypatch):
    monkeypatch.setenv("APPTAINER_KEYSDIR", str(tmp_path / "none"))
    with pytest.raises(UserError, match="--new-key") as caught:
        sign_image(str(unsigned))
    assert str(tmp_path / "none") in caught.value.found
    for person in ("Ada", "<ada@example.org>", "Ada <ada>"):
        with pytest.raises(UserError, match="Ada Lovelace"):
            sign_image(str(unsigned), new_key=person)


def pem(kind, content="MAMCAQE="):
    return f"-----BEGIN {kind} KEY-----\n{content}\n-----END {kind} KEY-----\n"


NO_KEYS = {
    "missing": None, "empty": "", "prose": "no key\n", "cut": pem("KIND")[:-9],
    "no text": b"\xff\xfe", "no base64": pem("KIND", "no base64"), "no content": pem("KIND", ""),
    "no structure": pem("KIND", "AAAA"), "the other half": pem("OTHER"),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "other"), [("PUBLIC", "PRIVATE"), ("PRIVATE", "PUBLIC")])
@pytest.mark.parametrize("text", NO_KEYS.values(), ids=NO_KEYS)
def test_a_key_that_is_none_is_wrong_use_of_either_command(unsigned, tmp_path, text, kind, other):
    key = tmp_path / "key.pem"
    if text is not None:
        content = text if isinstance(text, bytes) else text.encode()
        content = content.replace(b"KIND", kind.encode()).replace(b"OTHER", other.encode())
        key.write_bytes(content)

    def use():
        if kind == "PUBLIC":
            return read_signature(str(unsigned), kind="sif", key=key)
        return sign_image(str(unsigned), key=key)

    with pytest.raises(UserError, match=f"a {kind.lower()} key") as caught:
        use()
    assert caught.value.exit_code == 2
    reason = f"{key}: No such file" if text is None else f"no {kind.lower()} key in {key}"
    assert caught.value.found.startswith(reason)


def test_a_key_behind_a_passphrase_is_left_to_the_engine(unsigned, tmp_path):
    key, plain = tmp_path / "key.pem", tmp_path / "plain.pem"
    run("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-out", plain)  # with parameters
    run("openssl", "ec", "-in", plain, "-aes128", "-passout", "pass:x", "-out", key)
    assert "Proc-Type: 4,ENCRYPTED" in key.read_text()
    run("openssl", "pkcs8", "-topk8", "-in", plain, "-passout", "pass:x", "-out", f"{key}8")
    assert "BEGIN ENCRYPTED PRIVATE KEY" in (tmp_path / "key.pem8").read_text()
    for name in (key, f"{key}8", plain):
        assert sign_image(str(unsigned), key=Path(name), dry_run=True) == 0


def test_an_engine_that_fails_is_told_by_its_words(unsigned, tmp_path, monkeypatch):
    image = tmp_path / "i.sif"
    shutil.copy(unsigned, image)
    (tmp_path / "no.pem").write_text(pem("PRIVATE"))
    with pytest.raises(UserError, match=r"apptainer sign") as caught:
        sign_image(str(image), key=tmp_path / "no.pem")
    assert caught.value.exit_code == 1
    assert image.read_bytes() == unsigned.read_bytes()


def test_a_dry_run_prints_the_lines_and_signs_nothing(unsigned, capsys):
    before = unsigned.read_bytes()
    assert sign_image(str(unsigned), new_key=PERSON, dry_run=True) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert "key newpair --name 'Ada Lovelace' --email ada@example.org" in first
    assert "--push=false" in first
    assert second.endswith(f" sign {unsigned}")
    assert unsigned.read_bytes() == before


def test_where_the_keys_lie(monkeypatch):
    assert str(keys_folder({"APPTAINER_KEYSDIR": "/a", "SINGULARITY_KEYSDIR": "/b"})) == "/a"
    assert str(keys_folder({"SINGULARITY_KEYSDIR": "/b"})) == "/b"
    assert str(keys_folder({"HOME": "/home/ada"})) == "/home/ada/.apptainer/keys"


@pytest.mark.parametrize("text", ["", "not JSON", "[]", '{"Signatures": 1, "SignerKeys": [{}]}'])
def test_an_answer_that_is_not_understood_is_no_pass(text):
    signature = parse_signature(text, "FATAL: out of cheese\n", image="i.sif")
    assert signature.state == "unknown"
    assert "out of cheese" in signature.problem


def test_an_image_that_cannot_be_written_to_is_refused(unsigned, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may write everywhere
    with pytest.raises(UserError, match="read-only"):
        sign_image(str(unsigned), new_key=PERSON)
