"""Building: what is decided, what is run, and that nothing half-made is left.

Stub engines stand for the real ones; tests/containers/test_image.py builds in earnest.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from containers import base, blueprint, build, drift
from containers.archive import Resolution
from containers.build import build_image, render_result
from containers.packages import save_packages
from env.errors import UserError
from env.lock import load_lock, lock_path, render_lock
from env.stack import PROJECT, load_stack
from recipes.layout import PROJECT_PARTS, build_sources

CPU = load_stack("cpu")
SOURCES = build_sources(load_lock(lock_path("cpu")))
# Writes its definition into the image (or the sandbox), so that a test can look at it.
APPTAINER = """#!/bin/sh
echo "engine says: $*"
for last; do :; done
for word; do case $word in --sandbox) sandbox=1;; esac; done
while [ $# -gt 2 ]; do shift; done
if [ -n "$sandbox" ]; then mkdir -p "$1/usr/bin" "$1/opt/chexnet/venv"; else cp "$last" "$1"; fi
"""
FAILS = """#!/bin/sh
while [ $# -gt 2 ]; do shift; done
echo half > "$1"
i=0; while [ $i -lt 50 ]; do echo "line $i"; i=$((i + 1)); done
echo "the compiler is on fire" >&2
exit 7
"""
SLEEPS = """#!/bin/sh
while [ $# -gt 2 ]; do shift; done
echo half > "$1"
sleep 977 & echo $! > "$STUB_PID"; wait
"""
MMDEBSTRAP = """#!/bin/sh
while [ $# -gt 2 ]; do shift; done
mkdir -p base.$$/etc && ls "$(dirname "$1")/base-packages" > base.$$/etc/made-of
tar -C base.$$ -cf "$1" . && rm -r base.$$
"""


@pytest.fixture
def stub(tmp_path, monkeypatch):
    """Put programs in front of everything on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def put(name, text):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)

    put("apptainer", APPTAINER)
    put("mmdebstrap", MMDEBSTRAP)
    return put


@pytest.fixture
def place(tmp_path, monkeypatch, stub, shops, tiny):
    """Work in an empty folder, with a small project and lock, an own cache and no registry."""
    monkeypatch.setattr(base, "registry_answers", lambda _image: False)
    path = tmp_path / "tiny.lock.json"
    path.write_text(render_lock(tiny))
    monkeypatch.setattr(blueprint, "lock_path", lambda _name: path)
    monkeypatch.setenv("CHEXNET_HOME", str(tmp_path / "home"))
    root = tmp_path / "project"
    for name in SOURCES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROJECT / name, root / name)
    for part in PROJECT_PARTS:
        if "." in part or part.isupper():
            (root / part).write_text(part)
        else:
            (root / part).mkdir(exist_ok=True)
            (root / part / "file.py").write_text(part)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return root


def make(root, **kwargs):
    return build_image(CPU, **{"format": "singularity", "root": root} | kwargs)


def cache():
    return Path(os.environ["CHEXNET_HOME"]) / "cache" / "images"


def left():
    return sorted(path.name for path in Path.cwd().iterdir())


def test_a_build_makes_the_image_and_says_what_it_took(place, capsys):
    result = make(place)
    text = Path("chexnet-cpu.sif").read_text()
    assert result.output == str(Path("chexnet-cpu.sif").absolute())
    assert result.size_bytes == len(text)
    assert set(result.seconds) >= {"compile the first stage", "build the image", "all"}
    assert "chexnet-cpu.sif: 0 MiB in " in capsys.readouterr().out
    assert json.loads(render_result(result))["base"] == "local"
    assert "engine says: build" in Path(result.log).read_text()
    assert list((cache() / "work").iterdir()) == []


def test_the_definition_that_is_built_has_the_labels_of_this_build(place, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    make(place)
    last = Path("chexnet-cpu.sif").read_text().rpartition("%labels\n")[2]
    assert "org.opencontainers.image.created 1970-01-02T00:00:00Z" in last
    assert "org.opencontainers.image.revision unknown" in last
    assert "org.opencontainers.image.source unknown" in last
    assert "org.opencontainers.image.base.name mmdebstrap:bookworm" in last


def test_the_first_stage_is_kept_and_used_again_while_nothing_it_reads_changes(place):
    first = make(place)
    again = make(place, force=True)
    assert "compile the first stage" in first.seconds
    assert "compile the first stage" not in again.seconds
    (place / "tasks.py").write_text("changed")
    assert "compile the first stage" not in make(place, force=True).seconds
    assert "From: stage\nStage: build" in Path("chexnet-cpu.sif").read_text()
    (stage,) = (path for path in (cache() / "stages").iterdir() if path.is_dir())
    # What was only there to compile is not kept.
    assert [path.name for path in stage.iterdir()] == ["opt"]
    assert (stage / "opt/chexnet/venv").is_dir()


@pytest.mark.parametrize("name", [name for name in SOURCES if not name.endswith("lock.json")])
def test_every_file_the_first_stage_reads_is_in_its_key(place, name):
    make(place)
    with (place / name).open("a") as source:
        source.write("\n")
    assert "compile the first stage" in make(place, force=True).seconds


def test_the_cache_keeps_the_newest_and_the_one_in_use(place):
    for number in range(build.KEPT + 2):
        old = cache() / "stages" / f"cpu-{number}"
        old.mkdir(parents=True)
        os.utime(old, (number, number))
    make(place)
    kept = sorted((cache() / "stages").iterdir(), key=lambda path: path.stat().st_mtime)
    assert [path.name for path in kept[:-1]] == [f"cpu-{build.KEPT + 1}"]
    assert (kept[-1] / "opt/chexnet/venv").is_dir()
    os.utime(kept[-1], (0, 0))
    make(place, force=True)
    assert kept[-1].exists()


DATED = """#!/bin/sh
while [ $# -gt 2 ]; do shift; done
mkdir base.$$ && touch -d 2001-01-01 base.$$ && tar -C base.$$ -cf "$1" . && rm -r base.$$
"""


def test_a_base_in_use_is_kept_whatever_date_its_archive_gave_it(place, stub):
    stub("mmdebstrap", DATED)
    for number in range(2 * build.KEPT + 1):
        old = cache() / "bases" / f"old-{number}"
        old.mkdir(parents=True)
        os.utime(old, (2e9 + number, 2e9 + number))  # newer than anything of this build
    make(place)
    kept = {path.name for path in (cache() / "bases").iterdir()}
    own = {name for name in kept if not name.startswith("old-")}
    assert {Path(name).suffix for name in own} == {"", ".tar"}
    assert kept - own == {f"old-{2 * build.KEPT}", f"old-{2 * build.KEPT - 1}"}


def test_what_a_build_uses_is_the_newest_before_its_steps_run(place, stub, tmp_path):
    stub("mmdebstrap", DATED)
    make(place)
    entries = [path for kind in ("bases", "stages") for path in (cache() / kind).iterdir()]
    assert len(entries) == 3
    for path in entries:
        os.utime(path, (1e9, 1e9))
    quoted = " ".join(map(str, entries))
    stub("apptainer", APPTAINER + f"stat -c %Y {quoted} > {tmp_path}/dates\n")
    began = time.time()
    make(place, force=True)
    dates = [int(line) for line in (tmp_path / "dates").read_text().split()]
    assert len(dates) == 3
    assert min(dates) >= int(began)


def test_a_candidate_is_said_to_be_one_with_its_summary(place, capsys):
    doubtful = replace(CPU, status="candidate", summary="it may not train")
    build._say(blueprint.draw_blueprint(doubtful, lock=blueprint.load_current_lock(CPU),
                                        format="singularity", root=place))  # fmt: skip
    assert "candidate: it may not train\n" in capsys.readouterr().err
    make(place)
    assert "candidate:" not in capsys.readouterr().err


def test_a_changed_recipe_is_in_the_key_too(place, monkeypatch):
    make(place)
    render = blueprint.render_build_stage
    monkeypatch.setattr(
        blueprint, "render_build_stage", lambda *a, **k: render(*a, **k) + "# new\n"
    )
    assert "compile the first stage" in make(place, force=True).seconds


def test_a_failed_build_leaves_its_log_alone_and_shows_its_end(place, stub):
    stub("apptainer", FAILS)
    with pytest.raises(UserError) as caught:
        make(place)
    assert caught.value.exit_code == 1
    message = str(caught.value)
    assert "the compiler is on fire" in message
    assert "line 49" in message
    assert "line 29" not in message
    assert str(Path("chexnet-cpu.sif.log").absolute()) in message
    assert "line 0" in Path("chexnet-cpu.sif.log").read_text()
    assert left() == ["chexnet-cpu.sif.log"]
    assert list((cache() / "work").iterdir()) == []
    assert not list(cache().glob("stages/*"))


def test_a_failed_rebuild_leaves_the_old_image(place, stub):
    make(place)
    before = Path("chexnet-cpu.sif").read_bytes()
    stub("apptainer", FAILS)
    with pytest.raises(UserError):
        make(place, force=True)
    assert Path("chexnet-cpu.sif").read_bytes() == before


def test_an_image_is_not_overwritten_unasked(place):
    Path("chexnet-cpu.sif").write_text("precious")
    with pytest.raises(UserError, match="--force") as caught:
        make(place)
    assert caught.value.exit_code == 2
    assert Path("chexnet-cpu.sif").read_text() == "precious"
    make(place, force=True)
    assert Path("chexnet-cpu.sif").read_text() != "precious"


def test_a_dry_run_prints_the_lines_and_runs_none(place, stub, capsys):
    stub("apptainer", "#!/bin/sh\ntouch ran\n")
    stub("mmdebstrap", "#!/bin/sh\ntouch ran\n")
    assert make(place, dry_run=True) is None
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert [line.split()[0] for line in lines] == ["env", "sh", "cd", "sh", "cd"]
    assert "apptainer build" in lines[2]
    assert "--sandbox" in lines[2]
    assert lines[-1].endswith(f"{Path.cwd()}/chexnet-cpu.sif")
    assert "a local base, made by mmdebstrap" in captured.err
    assert left() == []
    assert not cache().exists()


@pytest.mark.parametrize(
    ("wrong", "known"),
    [
        ({"format": "oci"}, "docker, singularity"),
        ({"engine": "rkt"}, "apptainer, buildah, docker, podman, singularity"),
        ({"base": "cloud"}, "auto, local, registry"),
        ({"output": Path("no/such/folder/x.sif")}, "make it first"),
        ({"output": Path()}, "name a file"),
    ],
)
def test_wrong_use_is_refused_with_what_is_known(place, wrong, known):
    with pytest.raises(UserError) as caught:
        make(place, **wrong)
    assert caught.value.exit_code == 2
    assert known in str(caught.value)
    assert left() == []


def test_a_cache_that_cannot_be_made_says_which_variable_moves_it(place, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("CHEXNET_HOME", str(tmp_path / "file"))
    with pytest.raises(UserError, match="CHEXNET_HOME") as caught:
        make(place)
    assert caught.value.exit_code == 2
    assert left() == []


def test_a_lock_of_another_catalogue_is_refused(place, monkeypatch):
    other = load_stack("cpu13")
    with pytest.raises(UserError, match="invoke lock --stack cpu13"):
        build_image(other, format="singularity", root=place)


@pytest.mark.parametrize(
    ("choice", "answers", "expected"),
    [
        ("auto", True, "registry"),
        ("auto", False, "local"),
        ("registry", False, "registry"),
        ("local", True, "local"),
    ],
)
def test_the_base_is_the_registrys_where_one_answers(
    place, monkeypatch, choice, answers, expected, capsys
):
    monkeypatch.setattr(base, "registry_answers", lambda _image: answers)
    assert make(place, base=choice).base == expected
    said = {"registry": CPU.base.image, "local": "made by mmdebstrap"}
    assert said[expected] in capsys.readouterr().err
    bootstrap = {"registry": "BootStrap: docker", "local": "BootStrap: localimage"}
    run_stage = Path("chexnet-cpu.sif").read_text().rpartition("Stage: run")[0]
    assert run_stage.rstrip().splitlines()[-2].strip() == bootstrap[expected]


def test_docker_gets_the_base_in_its_context_and_the_ca_as_a_secret(
    place, stub, tmp_path, monkeypatch
):
    stub(
        "buildah",
        """#!/bin/sh
        if [ "$1" = bud ]; then
            for last; do :; done
            ls "$last" && grep ADD ../Dockerfile && grep -c . ../lent/host-ca.crt
        else echo archive > "$(echo "$3" | cut -d: -f2)"; fi
        """,
    )
    bundle = tmp_path / "ca.pem"
    bundle.write_text("one\ntwo\nthree\n")
    monkeypatch.setenv("PIP_CERT", str(bundle))
    result = make(place, format="docker", engine="buildah")
    log = Path(result.log).read_text()
    assert Path("chexnet-cpu.tar").read_text() == "archive\n"
    (tar,) = cache().glob("bases/*.tar")
    assert f"ADD {tar.name} /" in log
    assert f"\n{tar.name}\n" in log
    assert "\n3\n" in log


def test_the_base_is_given_its_own_packages_alone(place):
    make(place)
    (made_of,) = cache().glob("bases/*/etc/made-of")
    assert made_of.read_text().split() == ["Packages", "Release", "base-x_1.0_all.deb"]


def change_lock(monkeypatch, tmp_path, lock):
    path = tmp_path / "changed.lock.json"
    path.write_text(render_lock(lock))
    monkeypatch.setattr(blueprint, "lock_path", lambda _name: path)


def test_of_the_lock_the_first_stage_reads_what_it_installs(place, monkeypatch, tmp_path, tiny):
    make(place)
    change_lock(monkeypatch, tmp_path, replace(tiny, archive_date="2027-01-01T00:00:00Z"))
    assert "compile the first stage" not in make(place, force=True).seconds
    only_run = replace(tiny.system_packages[1], groups=("run",))
    changed = replace(tiny, system_packages=(tiny.system_packages[0], only_run))
    change_lock(monkeypatch, tmp_path, changed)
    assert "compile the first stage" in make(place, force=True).seconds
    # Another hash that is accepted for a wheel, and the stage may hold another wheel.
    (wheel, other) = tiny.python
    more = replace(wheel, sha256=(*wheel.sha256, "3" * 64))
    change_lock(monkeypatch, tmp_path, replace(tiny, python=(more, other)))
    assert "compile the first stage" in make(place, force=True).seconds


def test_the_image_names_no_folder_of_this_host(place):
    make(place)
    text = Path("chexnet-cpu.sif").read_text()
    assert str(cache()) not in text
    assert "From: base\n" in text


def test_two_builds_in_different_folders_at_different_times_are_given_the_same(
    place, monkeypatch, tmp_path
):
    make(place)
    first = Path("chexnet-cpu.sif").read_text()
    monkeypatch.setenv("CHEXNET_HOME", str(tmp_path / "elsewhere"))
    later = time.time() + 3600
    monkeypatch.setattr(time, "time", lambda: later)
    make(place, force=True)
    assert Path("chexnet-cpu.sif").read_text() == first


@pytest.fixture
def saved(place, tmp_path):
    """Return a folder saved before."""
    save_packages(CPU, folder=tmp_path / "saved")
    return tmp_path / "saved"


def test_a_saved_folder_is_built_from_and_nothing_is_asked(place, shops, saved):
    shops.contents.clear()
    shops.asked.clear()
    log = Path(make(place, packages=saved).log).read_text()
    assert f"--bind {saved}:/mnt/packages:ro" in log
    assert shops.asked == []


def test_a_saved_folder_that_is_not_whole_is_refused_before_anything_runs(place, saved, stub):
    (saved / "debs" / "tool_1.0_all.deb").unlink()
    stub("mmdebstrap", "#!/bin/sh\ntouch ran\n")
    with pytest.raises(UserError, match=r"debs/tool_1\.0_all\.deb: missing") as caught:
        make(place, packages=saved)
    assert caught.value.exit_code == 2
    assert left() == ["chexnet-cpu.sif.log"]


def test_docker_finds_a_saved_folder_in_its_context(place, saved, stub):
    stub(
        "buildah",
        """#!/bin/sh
        if [ "$1" = bud ]; then for last; do :; done; cd "$last" && find packages -type f
            grep -c 'mount=type=bind,source=packages,target=/mnt/packages' ../Dockerfile
        else echo archive > "$(echo "$3" | cut -d: -f2)"; fi
        """,
    )
    log = Path(make(place, format="docker", engine="buildah", packages=saved).log).read_text()
    for name in ("debs/tool_1.0_all.deb", "debs/Packages", "sources.list"):
        assert f"packages/{name}\n" in log
    assert "\n4\n" in log  # two steps of apt, one of pip, one of Horovod


def test_packages_that_have_vanished_stop_the_build_with_the_drift_listed(
    place, shops, monkeypatch, tiny
):
    del shops.contents["/debian/pool/main/tool_1.0_all.deb"]
    offered = (tiny.system_packages[0], replace(tiny.system_packages[1], version="1.1"))
    monkeypatch.setattr(drift, "resolve_system", lambda _stack: Resolution(offered, "2027"))
    with pytest.raises(UserError, match=r"tool: locked 1\.0, offered 1\.1") as caught:
        make(place)
    assert caught.value.exit_code == 1
    assert "--allow-drift" in caught.value.fix
    assert left() == ["chexnet-cpu.sif.log"]


def test_allowed_drift_is_built_and_said_in_the_labels(place, shops, monkeypatch, tiny, capsys):
    renamed = "/debian/pool/main/tool_1.1_all.deb"
    shops.contents[renamed] = shops.contents.pop("/debian/pool/main/tool_1.0_all.deb")
    new = replace(tiny.system_packages[1], version="1.1", path=renamed[1:])
    offered = Resolution((tiny.system_packages[0], new), "2027-01-01T00:00:00Z")
    monkeypatch.setattr(drift, "resolve_system", lambda _stack: offered)
    make(place, allow_drift=True)
    text = Path("chexnet-cpu.sif").read_text()
    assert "chexnet.drift tool: locked 1.0, offered 1.1\n" in text
    assert "tool=1.1" in text
    assert tiny.sha256 not in text
    assert "drift: tool: locked 1.0, offered 1.1" in capsys.readouterr().err


def test_drift_is_not_allowed_where_nothing_can_drift(place, tmp_path):
    with pytest.raises(UserError, match="leave one out"):
        make(place, packages=tmp_path, allow_drift=True)


def test_the_cache_forgets_packages_that_no_build_uses(place):
    old = cache() / "packages" / "debs" / "old_1_all.deb"
    old.parent.mkdir(parents=True)
    old.touch()
    os.utime(old, (0, 0))
    make(place)
    assert not old.exists()
    assert (cache() / "packages" / "debs" / "tool_1.0_all.deb").exists()


SCRIPT = """
import sys
from pathlib import Path
from containers import base, blueprint
from containers.build import build_image
from env.stack import load_stack
base.registry_answers = lambda _image: False
blueprint.lock_path = lambda _name: Path(sys.argv[2])
build_image(load_stack("cpu"), format="singularity", root=Path(sys.argv[1]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_build_cleans_up_and_stops_what_it_started(
    place, stub, tmp_path, ends, number
):
    stub("apptainer", SLEEPS)
    pid_file = tmp_path / "pid"
    environment = os.environ | {"PYTHONPATH": str(PROJECT), "STUB_PID": str(pid_file)}
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(place), str(tmp_path / "tiny.lock.json")],
        env=environment,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not (pid_file.exists() and pid_file.read_text().strip()):
        assert time.monotonic() < deadline
        assert child.poll() is None
        time.sleep(0.05)
    child.send_signal(number)
    assert child.wait(timeout=60) == 128 + number
    assert ends(pid_file.read_text())
    assert left() == ["chexnet-cpu.sif.log"]
    assert list((cache() / "work").iterdir()) == []
