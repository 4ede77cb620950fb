"""Verifying a real image: as it was built, and with one thing after another planted in it.

Nothing is built for the plants: what Singularity binds over a file of the image is what a
process in it finds there.
"""

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import jsonschema
import pytest

from containers import verify
from containers.runtime import exec_command
from containers.sign import Signature
from containers.verify import print_sbom, render_json, render_text, verify_image
from env.errors import UserError
from env.facts import Fact, render_facts
from env.lock import load_lock, lock_path, render_lock
from env.probes.inventory import MARK
from env.result import Status
from env.stack import PROJECT as PROJECT_HERE
from recipes.layout import LOCK, PROJECT, SBOM, VENV

pytestmark = pytest.mark.container
SITE = f"{VENV}/lib/python3.11/site-packages"
LIBRARIES = "/usr/lib/x86_64-linux-gnu"


def read(image, path):
    """Return a file of an image."""
    return subprocess.run(
        exec_command(image, ["cat", path]), capture_output=True, check=True
    ).stdout


def by_part(verification):
    return {part.id.removeprefix("image."): part for part in verification.parts}


def check_form(verification):
    """Check the JSON against its schema and the text for what each line must tell."""
    data = json.loads(render_json(verification))
    jsonschema.validate(data, json.loads(verify.SCHEMA.read_text()))
    lines = [line for line in render_text(verification).splitlines() if "expected:" in line]
    assert all(re.search(r"expected: .+ \| found: .+ \| where: .+ \| fix: .+", x) for x in lines)
    return data


@pytest.mark.slow
def test_an_image_as_it_was_built_differs_in_nothing(sif):
    done = verify_image(str(sif))
    assert [one for part in done.parts for one in part.differences] == []
    assert done.exit_code == 0, render_text(done)
    check_looked_at(done)
    assert any(name.startswith("libmpi.so") and owner.startswith("libopenmpi3 ")
               for name, owner in owners(done).items())  # fmt: skip
    data = check_form(done)
    assert (data["differences"], data["exit_code"]) == ([], 0)
    assert "no difference" in render_text(done)


def check_looked_at(done):
    """Check that all there is in an image was compared, and whose each library is."""
    parts = by_part(done)
    assert (done.kind, done.stack) == ("sif", "cpu")
    # The numbers: packages of base and run stage, and the lock's wheels with Horovod.
    lock = load_lock(lock_path("cpu"))
    wheels = [p for p in lock.python if "run" in p.groups]
    assert parts["python"].compared == len(wheels) + 1
    assert parts["system"].compared == len(lock.system_group("base") + lock.system_group("run"))
    assert parts["python-files"].compared > 10_000
    assert parts["system-files"].compared > 5_000
    assert parts["loaded"].compared > 50
    assert owners(done)["libc.so.6"].startswith("libc6 ")


def owners(done):
    return {Path(one["path"]).name: one["owner"] for one in done.libraries}


@pytest.fixture
def plant(sif, tmp_path, monkeypatch):
    """Lay other content over files of the image, for every process that enters it."""
    binds = [os.environ["APPTAINER_BIND"]] if os.environ.get("APPTAINER_BIND") else []

    def lay(path, content):
        file = tmp_path / str(len(binds))
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        binds.append(f"{file}:{path}")
        monkeypatch.setenv("APPTAINER_BIND", ",".join(binds))

    return lay


def test_every_planted_difference_is_told(sif, plant, tmp_path, monkeypatch):
    status = read(sif, "/var/lib/dpkg/status").decode()
    stanza = re.search(r"Package: numactl\n.*?\nVersion: (\S+)", status, re.DOTALL)
    version = stanza[1]
    upgraded = stanza[0].replace(version, "9.9-9")
    plant("/var/lib/dpkg/status", status.replace(stanza[0], upgraded))
    plant("/etc/invoke.yaml", "tasks:\n  search_root: /tmp/evil\n")
    plant("/etc/openmpi/openmpi-mca-params.conf", "btl = tcp,self\n")
    plant(f"{SITE}/invoke/tasks.py", read(sif, f"{SITE}/invoke/tasks.py") + b"# edited\n")
    plant(f"{PROJECT}/tasks.py", read(sif, f"{PROJECT}/tasks.py") + b"# edited\n")
    lock = json.loads(read(sif, LOCK))
    lock["components"]["keras"] = "9.9.9"
    plant(LOCK, json.dumps(lock))
    labels = json.loads(read(sif, "/.singularity.d/labels.json"))
    stack = labels.pop("chexnet.stack")
    plant("/.singularity.d/labels.json", json.dumps(labels))
    shadow = tmp_path / "shadow"
    shadow.mkdir()
    for name in ("libmpi.so.40", "libhwloc.so.15"):
        (shadow / name).write_bytes(read(sif, f"{LIBRARIES}/{name}"))
    monkeypatch.setenv("APPTAINER_BIND", f"{os.environ['APPTAINER_BIND']},{shadow}:/srv")
    monkeypatch.setenv("APPTAINERENV_LD_LIBRARY_PATH", "/srv")
    done = verify_image(str(sif))
    told = {}
    for part in done.parts:
        for one in part.differences:
            told.setdefault(part.id.removeprefix("image."), []).append(one)
    assert stack == "cpu"
    # What was planted, and nothing else.
    assert set(told) == {
        "system", "system-files", "python-files", "redirects", "project", "lock", "labels",
        "loaded", "sbom",
    }  # fmt: skip
    check_looked_at(done)
    (system,) = told["system"]
    assert (system.expected, system.found) == (f"numactl:amd64 {version}", "9.9-9")
    (edited,) = told["system-files"]
    assert edited.where == "/etc/openmpi/openmpi-mca-params.conf"
    assert edited.expected.startswith("openmpi-bin ")
    (module,) = told["python-files"]
    assert module.where == f"{SITE}/invoke/tasks.py"
    (settings,) = told["redirects"]
    assert settings.where == "/etc/invoke.yaml"
    (program,) = told["project"]
    assert program.where == f"{PROJECT}/tasks.py"
    (component,) = told["lock"]
    assert "keras" in component.expected
    assert "9.9.9" in component.found
    (label,) = told["labels"]
    assert (label.expected, label.found) == ("chexnet.stack=cpu", "no such label")
    assert {one.where.split()[0] for one in told["loaded"]} == {
        "/srv/libmpi.so.40", "/srv/libhwloc.so.15",
    }  # fmt: skip
    assert all("LD_LIBRARY_PATH=/srv" in one.where for one in told["loaded"])
    assert "numactl" in told["sbom"][0].expected
    assert done.exit_code == 1
    data = check_form(done)
    assert len(data["differences"]) == sum(map(len, told.values()))


def test_the_bill_of_materials_can_be_printed(sif, capfd):
    print_sbom(str(sif))
    text = capfd.readouterr().out
    assert text.encode() == read(sif, SBOM)
    bill = json.loads(text)
    assert bill["bomFormat"] == "CycloneDX"
    assert any(one["name"] == "horovod" for one in bill["components"])


def small(tmp_path, *, program="/bin/true"):
    """Return a root folder that is no image of ours."""
    root = tmp_path / "root"
    for name in ("etc", "usr", "bin", "mnt"):
        (root / name).mkdir(parents=True)
    shutil.copy(program, root / "bin")
    return root


def test_an_image_that_is_not_ours_is_refused(tmp_path):
    for ask in (verify_image, print_sbom):
        with pytest.raises(UserError, match="an image of this project") as caught:
            ask(str(small(tmp_path / ask.__name__)))
        assert caught.value.exit_code == 2


def test_without_an_engine_it_says_which_would_do(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="none of apptainer, singularity"):
        verify_image(str(small(tmp_path)))
    with pytest.raises(UserError, match="no engine with a store"):
        verify_image("chexnet:cpu")


def test_a_lock_to_hold_it_against_that_is_none_is_refused_before_the_long_look(tmp_path, capsys):
    with pytest.raises(UserError, match="a lock file"):
        verify_image(str(small(tmp_path)), lock=tmp_path / "none.json")
    assert "looking into" not in capsys.readouterr().err


DOCKER = """#!/bin/sh
case $1 in
    info) ;;
    image) echo "$*" >> "$STUB/asked"; cat "$STUB/labels" ;;
    run)
        echo "$*" >> "$STUB/asked"
        case $* in *" cat "*) cat "$STUB/lock" ;; *) echo noise; cat "$STUB/told" ;; esac ;;
esac
"""


def test_an_image_of_a_store_is_asked_through_its_engine(tmp_path, monkeypatch):
    lock = load_lock(lock_path("cpu"))
    facts = render_facts({"inventory.lock": Fact(render_lock(lock), "inside")})
    (tmp_path / "lock").write_text(render_lock(lock))
    (tmp_path / "told").write_text(MARK + json.dumps(json.loads(facts)) + "\n")
    (tmp_path / "labels").write_text(json.dumps({"chexnet.stack": "cpu"}) + "\n")
    (tmp_path / "docker").write_text(DOCKER)
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("STUB", str(tmp_path))
    done = verify_image("chexnet:cpu")
    parts = by_part(done)
    assert done.kind == "stored"
    assert parts["lock"].status is Status.PASS
    told = [one.expected for one in parts["labels"].differences]
    assert f"chexnet.lock.sha256={lock.sha256}" in told
    assert "chexnet.stack=cpu" not in told
    # What nobody told is no pass.
    assert re.search(
        r"differences, and \d+ parts that could not be told$", render_text(done).strip()
    )
    assert parts["system"].status is parts["loaded"].status is Status.UNKNOWN
    lock_first, entered, labels = (tmp_path / "asked").read_text().splitlines()
    assert lock_first.endswith(f"chexnet:cpu cat {LOCK}")
    assert f"--volume {PROJECT_HERE}:/mnt" in entered
    assert f"chexnet:cpu {VENV}/bin/python -P /mnt/env/probes/inventory.py" in entered
    assert labels == "image inspect --format {{json .Config.Labels}} chexnet:cpu"


@pytest.mark.parametrize(
    ("lock", "words"),
    [
        ('{"stack": "cpu"}', "told nothing"),
        ('{"stack": "cuda99"}', "'cuda99'"),
        ("{}", "KeyError"), ("[]", "TypeError"), ("no lock", "JSONDecodeError"),
    ],
)  # fmt: skip
def test_an_image_that_tells_nothing_of_use_is_refused(tmp_path, monkeypatch, lock, words):
    (tmp_path / "lock").write_text(lock)
    (tmp_path / "told").touch()
    (tmp_path / "docker").write_text(DOCKER)
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("STUB", str(tmp_path))
    with pytest.raises(UserError, match=words) as caught:
        verify_image("chexnet:cpu")
    assert caught.value.exit_code == 2


def oci_archive(root, path, *, labels):
    """Write an OCI archive of one layer."""
    files = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}'}

    def blob(content, kind):
        digest = hashlib.sha256(content).hexdigest()
        files[f"blobs/sha256/{digest}"] = content
        media = f"application/vnd.oci.image.{kind}"
        return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(content)}

    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.add(root, arcname=".")
    only = blob(layer.getvalue(), "layer.v1.tar")
    config = {"architecture": "amd64", "os": "linux", "config": {"Labels": labels},
              "rootfs": {"type": "layers", "diff_ids": [only["digest"]]}}  # fmt: skip
    told = blob(json.dumps(config).encode(), "config.v1+json")
    manifest = {"schemaVersion": 2, "config": told, "layers": [only]}
    listed = [blob(json.dumps(manifest).encode(), "manifest.v1+json")]
    files["index.json"] = json.dumps({"schemaVersion": 2, "manifests": listed}).encode()
    with tarfile.open(path, "w") as tar:
        for name in ("blobs", "blobs/sha256"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(folder)
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def test_an_archive_is_unpacked_asked_and_taken_away_again(tmp_path, monkeypatch):
    root = small(tmp_path, program="/bin/cat")
    shutil.copy("/bin/sh", root / "bin/sh")
    for name in ("/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"):
        (root / name[1:]).parent.mkdir(parents=True)
        shutil.copy(name, root / name[1:])
    lock = load_lock(lock_path("cpu"))
    facts = render_facts({"inventory.lock": Fact(render_lock(lock), "inside")})
    python = root / VENV[1:] / "bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\n/bin/cat /etc/told\n")
    python.chmod(0o755)
    (root / LOCK[1:]).write_text(render_lock(lock))
    (root / "etc/told").write_text(MARK + json.dumps(json.loads(facts)) + "\n")
    image = oci_archive(root, tmp_path / "image.tar", labels={"chexnet.stack": "cpu"})
    monkeypatch.setenv("CHEXNET_HOME", str(tmp_path / "home"))
    done = verify_image(str(image))
    parts = by_part(done)
    assert done.kind == "archive"
    assert parts["lock"].status is Status.PASS
    assert all("configuration" in one.where for one in parts["labels"].differences)
    assert not any("chexnet.stack" in one.expected for one in parts["labels"].differences)
    assert parts["signature"].note == "only a .sif file carries a signature"
    assert [path for path in (tmp_path / "home").rglob("*") if path.is_file()] == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["archive", "sandbox"])
def test_archives_and_folders_are_verified_as_well(oci, sif, tmp_path, kind):
    image = oci
    if kind == "sandbox":
        image = tmp_path / "root"
        line = ["apptainer", "build", "--fakeroot", "--sandbox", str(image), str(sif)]
        subprocess.run(line, check=True, capture_output=True)
    done = verify_image(str(image))
    assert [one for part in done.parts for one in part.differences] == []
    assert (done.kind, done.exit_code) == (kind, 0)
    assert by_part(done)["signature"].status is Status.INFO


def test_signatures_and_differences_add_up_to_the_exit_code():
    def code(*statuses):
        parts = tuple(verify.Part(f"image.{n}", "t", s, 1) for n, s in enumerate(statuses))
        one = verify.Verification("i", "sif", "cpu", "l", "0" * 64, Signature("good"), parts, ())
        return one.exit_code

    assert code(Status.PASS, Status.INFO) == 0
    assert code(Status.PASS, Status.UNKNOWN) == 3
    assert code(Status.UNKNOWN, Status.FAIL) == 1
