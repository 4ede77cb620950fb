"""What a build is given: tracked files only, the CA apart, honest labels."""

import subprocess

import pytest

from containers.context import find_host_ca, lend_host_ca, origin_labels, stage_project
from env.errors import UserError

PARTS = ("code", "tasks.py")


def git(folder, *arguments):
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "-C", folder, *who, *arguments], check=True, capture_output=True)


@pytest.fixture
def project(tmp_path):
    root = tmp_path / "project"
    for name in ("code/a.py", "code/__pycache__/a.pyc", "code/runs/big", "runs/x", "tasks.py",
                 "code/.hidden", "secret.txt"):  # fmt: skip
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return root


def staged(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_without_git_the_named_parts_less_what_working_leaves(project, tmp_path):
    stage_project(tmp_path / "out", root=project, parts=PARTS)
    assert staged(tmp_path / "out") == ["code/a.py", "tasks.py"]


def test_with_git_what_it_tracks_as_it_stands(project, tmp_path):
    git(project, "init", "-q")
    git(project, "add", "code/a.py", "tasks.py", "secret.txt")
    (project / "code" / "untracked.py").write_text("x")
    (project / "tasks.py").write_text("edited")
    stage_project(tmp_path / "out", root=project, parts=PARTS)
    assert staged(tmp_path / "out") == ["code/a.py", "tasks.py"]
    assert (tmp_path / "out" / "tasks.py").read_text() == "edited"


def test_a_part_that_is_missing_is_named(project, tmp_path):
    with pytest.raises(UserError, match="no docs in"):
        stage_project(tmp_path / "out", root=project, parts=(*PARTS, "docs"))


def test_labels_tell_revision_and_whether_the_tree_differs(project):
    git(project, "init", "-q")
    git(project, "add", "tasks.py")
    git(project, "commit", "-qm", "x")
    head = subprocess.check_output(["git", "-C", project, "rev-parse", "HEAD"], text=True).strip()
    prefix = "org.opencontainers.image."
    labels = origin_labels(project, environ={"SOURCE_DATE_EPOCH": "0"})
    assert labels == {
        f"{prefix}created": "1970-01-01T00:00:00Z",
        f"{prefix}revision": head,
        f"{prefix}source": "unknown",
    }
    (project / "tasks.py").write_text("edited")
    assert origin_labels(project)[f"{prefix}revision"] == f"{head}-dirty"


@pytest.mark.parametrize(
    ("remote", "source"),
    [
        ("https://user:token@example.org:8443/a/b.git", "https://example.org:8443/a/b.git"),
        ("https://example.org/a/b", "https://example.org/a/b"),
        ("/home/someone/project", "unknown"),
        ("git@example.org:a/b.git", "unknown"),
    ],
)
def test_the_source_is_a_web_address_without_secrets(project, remote, source):
    git(project, "init", "-q")
    git(project, "remote", "add", "origin", remote)
    assert origin_labels(project)["org.opencontainers.image.source"] == source


def test_the_host_ca_is_where_the_variables_say(tmp_path):
    bundle = tmp_path / "ca.pem"
    bundle.write_text("authorities")
    assert find_host_ca({"PIP_CERT": str(tmp_path / "absent"), "SSL_CERT_FILE": str(bundle)}) == (
        bundle
    )
    lent = lend_host_ca(bundle, folder=tmp_path / "lent")
    assert [path.name for path in lent.iterdir()] == ["host-ca.crt"]
    assert (lent / "host-ca.crt").read_text() == "authorities"
