"""What a build is given: tracked files only, the CA apart, honest labels."""

import os
import stat
import subprocess
from datetime import datetime

import pytest

from containers.context import (
    find_epoch,
    find_host_ca,
    lend_host_ca,
    origin_labels,
    stage_project,
)
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
    labels = origin_labels(project, epoch=0)
    assert labels == {
        f"{prefix}created": "1970-01-01T00:00:00Z",
        f"{prefix}revision": head,
        f"{prefix}source": "unknown",
    }
    (project / "tasks.py").write_text("edited")
    assert origin_labels(project, epoch=0)[f"{prefix}revision"] == f"{head}-dirty"


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
    assert origin_labels(project, epoch=0)["org.opencontainers.image.source"] == source


def test_the_host_ca_is_where_the_variables_say(tmp_path):
    bundle = tmp_path / "ca.pem"
    bundle.write_text("authorities")
    assert find_host_ca({"PIP_CERT": str(tmp_path / "absent"), "SSL_CERT_FILE": str(bundle)}) == (
        bundle
    )
    lent = lend_host_ca(bundle, folder=tmp_path / "lent")
    assert [path.name for path in lent.iterdir()] == ["host-ca.crt"]
    assert (lent / "host-ca.crt").read_text() == "authorities"


def test_the_time_of_a_build_is_the_callers_else_the_commits_else_the_locks(project, tmp_path):
    assert find_epoch(project, otherwise=7, environ={}) == 7
    git(project, "init", "-q")
    git(project, "add", "tasks.py")
    git(project, "commit", "-q", "-m", "x")
    done = subprocess.run(["git", "-C", project, "log", "-1", "--format=%cI"], capture_output=True,
                          text=True, check=True)  # fmt: skip
    committed = int(datetime.fromisoformat(done.stdout.strip()).timestamp())
    assert find_epoch(project, otherwise=7, environ={}) == committed
    assert find_epoch(project, otherwise=7, environ={"SOURCE_DATE_EPOCH": "5"}) == 5
    with pytest.raises(UserError, match="SOURCE_DATE_EPOCH"):
        find_epoch(project, otherwise=7, environ={"SOURCE_DATE_EPOCH": "today"})


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_the_modes_of_what_is_staged_do_not_follow_the_users_mask(project, tmp_path, mask):
    (project / "tasks.py").chmod(0o777 & ~mask)
    (project / "code" / "a.py").chmod(0o666 & ~mask)
    before = os.umask(mask)
    try:
        stage_project(tmp_path / "out", root=project, parts=PARTS)
    finally:
        os.umask(before)
    modes = {
        name: stat.S_IMODE((tmp_path / "out" / name).stat().st_mode)
        for name in ("tasks.py", "code/a.py", "code")
    }
    assert modes == {"tasks.py": 0o755, "code/a.py": 0o644, "code": 0o755}
