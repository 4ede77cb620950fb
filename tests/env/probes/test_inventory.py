"""What an image holds, observed from within: here within folders made by hand."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from env.facts import Fact
from env.probes.inventory import probe_inventory, probe_loaded
from env.stack import PROJECT


@pytest.fixture
def home(tmp_path):
    """Return a folder of ours as it is in an image."""
    folder = tmp_path / "opt"
    (folder / "project" / "env").mkdir(parents=True)
    (folder / "project" / "env" / "x.py").write_text("x = 1\n")
    (folder / "stack.lock.json").write_text('{"stack": "cpu"}\n')
    return folder


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Return a root folder with one package, and an import path with one distribution."""
    folder = tmp_path / "root"
    info = folder / "var/lib/dpkg/info"
    info.mkdir(parents=True)
    head = "Package: foo\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1-2\n"
    (folder / "var/lib/dpkg/status").write_text(head)
    (info / "foo.list").write_text("/lib/libfoo.so.1\n")
    (folder / ".singularity.d").mkdir()
    (folder / ".singularity.d/labels.json").write_text('{"chexnet.stack": "cpu"}')
    site = tmp_path / "site"
    (site / "bar-3.dist-info").mkdir(parents=True)
    (site / "bar-3.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: Bar\nVersion: 3\n")
    (site / "bar-3.dist-info/RECORD").write_text(
        "bar/_c.so,,\nbar-3.dist-info/METADATA,,\nbar-3.dist-info/RECORD,,\n"
    )
    (site / "stray.pth").write_text("")
    monkeypatch.setattr(sys, "path", [str(site)])
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(site))
    return folder


def test_everything_is_told_with_where_it_is_from(home, root):
    environ = {"LD_PRELOAD": "/x.so", "HOME": "/root", "PATH": ""}
    facts = {
        key.removeprefix("inventory."): fact
        for key, fact in probe_inventory(home, root=root, environ=environ).items()
    }
    assert json.loads(facts["lock"].value) == {"stack": "cpu"}
    assert facts["lock"].origin == str(home / "stack.lock.json")
    assert facts["sbom"] == Fact(None, str(home / "sbom.cdx.json"), problem="no such file")
    assert facts["labels"].value == {"chexnet.stack": "cpu"}
    (package,) = facts["system"].value
    assert (package["name"], package["version"], package["architecture"]) == ("foo", "1-2", "amd64")
    assert facts["system_files"].value == {"checked": 0, "wrong": []}
    (one,) = facts["python"].value
    assert (one["name"], one["version"], one["recorded"]) == ("bar", "3", True)
    assert [Path(path).name for path in facts["unowned"].value] == ["stray.pth"]
    assert facts["environment"].value == {"LD_PRELOAD": "/x.so"}
    assert facts["preloaded"] == Fact(None, str(root / "etc/ld.so.preload"))


def test_the_projects_files_are_hashed_as_git_does(home, root):
    told = probe_inventory(home, root=root)["inventory.project"].value
    content = b"x = 1\n"
    git = hashlib.sha1(b"blob 6\0" + content).hexdigest()
    assert told == {"env/x.py": {"sha256": hashlib.sha256(content).hexdigest(), "git": git}}


def test_what_is_not_there_is_unread_and_the_rest_is_told(tmp_path, root):
    facts = probe_inventory(tmp_path / "nothing", root=tmp_path / "none")
    unread = {key.removeprefix("inventory.") for key, fact in facts.items() if fact.problem}
    assert unread == {
        "lock", "sbom", "labels", "system", "system_files", "programs", "project",
    }  # fmt: skip


def test_what_redirects_a_run_and_no_package_brought(home, root):
    facts = probe_inventory(home, root=root)
    assert (facts["inventory.invoke"].value, facts["inventory.venv"].value) == (None, None)
    assert (facts["inventory.scripts"].value, facts["inventory.linker"].value) == ([], {})
    texts = {
        root / "etc/invoke.yaml": "tasks: {}\n", home / "venv/pyvenv.cfg": "home = /usr/bin\n",
        root / ".singularity.d/env/99-evil.sh": "exec /tmp/evil\n",
        root / "etc/ld.so.conf.d/foo.conf": "/lib\n",
        root / "etc/ld.so.conf.d/evil.conf": "/tmp/evil\n",
        root / "etc/ld.so.conf.d/readme": "",
    }  # fmt: skip
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "var/lib/dpkg/info/foo.list").write_text("/etc/ld.so.conf.d/foo.conf\n")
    facts = probe_inventory(home, root=root)
    assert facts["inventory.invoke"].value == "tasks: {}\n"
    assert facts["inventory.venv"] == Fact("home = /usr/bin\n", str(home / "venv/pyvenv.cfg"))
    assert facts["inventory.scripts"].value == ["99-evil.sh"]
    assert facts["inventory.linker"].value == {"/etc/ld.so.conf.d/evil.conf": "/tmp/evil\n"}


def test_programs_on_the_path_that_nobody_brought_are_found(home, root):
    folders = {"local": root / "usr/local/bin", "bin": root / "usr/bin"}
    for folder in folders.values():
        folder.mkdir(parents=True)
    (root / "var/lib/dpkg/info/foo.list").write_text("/bin/tool.real\n/bin/tool.other\n")
    (folders["bin"] / "tool.real").touch()
    (folders["bin"] / "tool").symlink_to("tool.real")  # as Debian's alternatives do
    (folders["bin"] / "dangling").symlink_to("nothing")
    (folders["local"] / "tool").touch()
    (folders["local"] / "evil").symlink_to("../../../srv/evil")
    (root / "srv").mkdir()
    (root / "srv/evil").touch()
    environ = {"PATH": "/usr/local/bin:/usr/bin:/nowhere:"}
    told = probe_inventory(home, root=root, environ=environ)["inventory.programs"].value
    assert told == [str(folders["local"] / "evil"), str(folders["local"] / "tool")]


def test_what_no_package_brings_and_is_right_all_the_same(home, root):
    folder = root / "venv/bin"
    folder.mkdir(parents=True)
    (root / "venv/pyvenv.cfg").touch()
    for name in ("activate", "Activate.ps1", "activate.fish", "policy-rc.d", "thing"):
        (folder / name).touch()
    told = probe_inventory(home, root=root, environ={"PATH": "/venv/bin"})["inventory.programs"]
    assert [Path(path).name for path in told.value] == ["thing"]


@pytest.mark.parametrize("text", ["[1]", "{", "\udcff"])
def test_labels_that_are_none_are_unread(home, root, text):
    (root / ".singularity.d/labels.json").write_bytes(text.encode(errors="surrogateescape"))
    assert probe_inventory(home, root=root)["inventory.labels"].problem


def test_a_loaded_library_is_told_with_who_brought_it(root):
    site = sys.path[0]
    mapped = [f"{site}/bar/_c.so", "/usr/lib/libfoo.so.1", "/home/me/libfoo.so.1"]
    loaded = probe_loaded(Fact(mapped, "maps"), root=root)["inventory.loaded"].value
    assert {Path(one["path"]).name + " " + str(one["owner"]) for one in loaded} == {
        "_c.so bar 3", "libfoo.so.1 foo 1-2", "libfoo.so.1 None",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("mapped", "words"),
    [
        (Fact(None, "python inside.py", problem="died by SIGILL"), "SIGILL"),
        (Fact({"error": "ImportError: x"}, "python inside.py"), "ImportError"),
    ],
)
def test_a_process_that_died_leaves_its_libraries_unread(root, mapped, words):
    fact = probe_loaded(mapped, root=root)["inventory.loaded"]
    assert words in fact.problem
    assert fact.origin == mapped.origin


def test_run_by_path_it_uses_its_own_copy_of_env_and_no_other(home, tmp_path):
    decoy = tmp_path / "decoy" / "env"
    decoy.mkdir(parents=True)
    (decoy / "__init__.py").write_text("raise SystemExit('asked with its own words')")
    # No check to judge by and no TensorFlow: the path alone is what is tried here.
    program = PROJECT / "env/probes/inventory.py"
    code = f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-P", "-S", "-c", code], cwd="/", text=True, capture_output=True,
        env={"PYTHONPATH": str(tmp_path / "decoy")},
    )  # fmt: skip
    assert "asked with its own words" not in done.stderr
    assert "IndexError" in done.stderr  # it got as far as its own arguments
