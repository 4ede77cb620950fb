"""A folder of packages: filled from a mirror and an index, checked, staged, read by apt."""

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from containers import blueprint, drift
from containers.archive import Resolution
from containers.packages import (
    MANIFEST,
    check_packages,
    fetch_packages,
    find_index,
    list_wanted,
    read_html_page,
    read_json_page,
    save_packages,
    stage_packages,
)
from env.errors import UserError
from env.lock import render_lock
from env.stack import load_stack

WHEEL = "wheels/Some_Wheel-2.0-py3-none-any.whl"
FILES = ["debs/base-x_1.0_all.deb", "debs/tool_1.0_all.deb", WHEEL, "sources/horovod-9.tar.gz"]
DEVELOP = "wheels/only_to_develop-1-py3-none-any.whl"
SAVED = [*FILES[:3], DEVELOP, FILES[3]]
INDEXES = ["debs/Packages", "debs/Release", MANIFEST, "sources.list"]


CPU = load_stack("cpu")


@pytest.fixture(autouse=True)
def locked(tiny, tmp_path, monkeypatch):
    """Let the tiny lock be the stack's."""
    path = tmp_path / "tiny.lock.json"
    path.write_text(render_lock(tiny))
    monkeypatch.setattr(blueprint, "lock_path", lambda _name: path)
    return path


def names(folder):
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


@pytest.fixture
def saved(shops, tmp_path):
    """Return a saved folder."""
    save_packages(CPU, folder=tmp_path / "saved")
    shops.asked.clear()
    return tmp_path / "saved"


def test_everything_to_build_and_run_is_wanted_and_nothing_to_develop(tiny):
    assert [str(item) for item in list_wanted(tiny)] == [
        "debs/base-x_1.0_all.deb", "debs/tool_1.0_all.deb", "wheels/some-wheel-2.0",
        "sources/horovod-9.tar.gz",
    ]  # fmt: skip


def test_a_saved_folder_holds_every_file_with_indexes_and_a_manifest(tiny, saved):
    assert names(saved) == sorted(SAVED + INDEXES)
    manifest = json.loads((saved / MANIFEST).read_text())
    assert manifest["lock_sha256"] == tiny.sha256
    assert [entry["path"] for entry in manifest["files"]] == SAVED
    for entry in manifest["files"]:
        told = subprocess.run(["sha256sum", saved / entry["path"]], capture_output=True, text=True)
        assert told.stdout.split()[0] == entry["sha256"]
        assert (saved / entry["path"]).stat().st_size == entry["size_bytes"]


def test_what_is_there_is_not_fetched_again(saved, shops):
    (saved / FILES[1]).unlink()
    save_packages(CPU, folder=saved)
    assert [path for path, _ in shops.asked] == ["/debian/pool/main/tool_1.0_all.deb"]
    shops.asked.clear()
    save_packages(CPU, folder=saved)
    assert shops.asked == []


def test_two_fetches_into_one_folder_do_not_meet(shops, tmp_path):
    folder = tmp_path / "shared"
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: save_packages(CPU, folder=folder), range(2)))
    asked = [path for path, _ in shops.asked]
    assert len(asked) == len(set(asked))


def test_a_file_of_another_content_is_fetched_anew(saved):
    before = (saved / WHEEL).read_bytes()
    (saved / WHEEL).write_bytes(b"spoilt")
    save_packages(CPU, folder=saved)
    assert (saved / WHEEL).read_bytes() == before


def test_a_good_folder_gives_its_files_in_the_order_they_are_wanted(tiny, saved, shops):
    assert [
        path.relative_to(saved).as_posix() for path in check_packages(tiny, folder=saved)
    ] == FILES
    assert shops.asked == []


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(tiny, saved, name):
    (saved / name).unlink()
    with pytest.raises(UserError, match="missing") as caught:
        check_packages(tiny, folder=saved)
    assert caught.value.exit_code == 2
    known = "some-wheel-2.0" if name == WHEEL else name
    assert known in caught.value.found
    assert "fetch-packages --stack cpu" in caught.value.fix


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_content_is_named(tiny, saved, name):
    (saved / name).write_bytes((saved / name).read_bytes() + b"!")
    with pytest.raises(UserError, match="another content"):
        check_packages(tiny, folder=saved)


def test_every_bad_file_is_named_at_once(tiny, saved):
    for name in FILES[:2]:
        (saved / name).unlink()
    with pytest.raises(UserError) as caught:
        check_packages(tiny, folder=saved)
    assert all(name in caught.value.found for name in FILES[:2])


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("debs/Packages", b"Package: tool", b"Package: tools"),
        ("debs/Packages", b"Package: tool", b"Package: caf\xe9"),
        ("debs/Release", b"Origin: chexnet", b"Origin: other"),
        ("sources.list", b"deb [trusted=yes]", b"deb http://evil.example ./\ndeb [trusted=yes]"),
    ],
)
def test_what_apt_reads_is_refused_where_it_is_not_what_was_written(tiny, saved, name, old, new):
    path = saved / name
    assert old in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(old, new))
    with pytest.raises(UserError, match=name) as caught:
        check_packages(tiny, folder=saved)
    assert caught.value.exit_code == 2
    assert "fetch-packages" in caught.value.fix
    save_packages(CPU, folder=saved)
    check_packages(tiny, folder=saved)


@pytest.mark.parametrize("name", ["debs/Packages", "debs/Release", "sources.list"])
def test_what_apt_reads_is_missed_where_it_is_not_there(tiny, saved, name):
    (saved / name).unlink()
    with pytest.raises(UserError, match=name):
        check_packages(tiny, folder=saved)


def test_a_folder_that_was_never_completed_is_refused(tiny, tmp_path):
    with pytest.raises(UserError, match="manifest"):
        check_packages(tiny, folder=tmp_path)


def test_packages_that_have_vanished_are_told_all_together(tiny, shops, tmp_path, monkeypatch):
    for name in ("base-x", "tool"):
        del shops.contents[f"/debian/pool/main/{name}_1.0_all.deb"]
    offered = Resolution((replace(tiny.system_packages[1], version="1.1"),), "2027")
    monkeypatch.setattr(drift, "resolve_system", lambda _stack: offered)
    with pytest.raises(UserError) as caught:
        fetch_packages(tiny, stack=CPU, folder=tmp_path / "f")
    assert "base-x: locked 1.0, offered nothing" in caught.value.found
    assert "tool: locked 1.0, offered 1.1" in caught.value.found
    assert (tmp_path / "f" / WHEEL).exists()


@pytest.mark.parametrize("name", [WHEEL, FILES[3]])
def test_a_file_that_the_index_names_and_has_not_got_is_named(tiny, shops, tmp_path, name):
    address = "/files/" + name.partition("/")[2]
    del shops.contents[address]
    with pytest.raises(UserError) as caught:
        fetch_packages(tiny, stack=CPU, folder=tmp_path)
    known = "wheels/some-wheel-2.0" if name == WHEEL else name
    assert caught.value.found == f"{known}: none at {shops.url}{address}"
    assert caught.value.exit_code == 1
    assert "PIP_INDEX_URL" in caught.value.fix
    assert "--allow-drift" not in str(caught.value)
    assert "distribution" not in str(caught.value)


def test_a_lost_wheel_does_not_hide_a_package_that_is_gone_too(tiny, shops, tmp_path):
    del shops.contents[WHEEL.replace("wheels", "/files")]
    del shops.contents["/debian/pool/main/tool_1.0_all.deb"]
    with pytest.raises(UserError) as caught:
        fetch_packages(tiny, stack=CPU, folder=tmp_path)
    assert "wheels/some-wheel-2.0: none at " in caught.value.found
    assert "debs/tool_1.0_all.deb: none at " in caught.value.found


def test_a_build_takes_nothing_to_develop_with_and_does_not_look_for_it(tiny, saved, shops):
    (saved / DEVELOP).unlink()
    assert len(check_packages(tiny, folder=saved)) == len(FILES)
    save_packages(CPU, folder=saved)
    assert [path for path, _ in shops.asked][-1] == DEVELOP.replace("wheels", "/files")


def test_a_wheel_that_the_index_has_not_got_is_named(tiny, shops, tmp_path):
    del shops.contents["/simple/some-wheel/"]
    with pytest.raises(UserError, match=r"some-wheel 2\.0") as caught:
        fetch_packages(tiny, stack=CPU, folder=tmp_path)
    assert "PIP_INDEX_URL" in caught.value.fix
    shops.contents["/simple/some-wheel/"] = b"<a href='x'>no hash</a>"
    with pytest.raises(UserError, match="locked sha256"):
        fetch_packages(tiny, stack=CPU, folder=tmp_path)


@pytest.mark.parametrize(
    ("kind", "page"),
    [
        ("application/json", b"<html>please log in</html>"),
        ("application/json", b"{}"),
        ("application/json", b"[]"),
        ("application/json", b'{"files": [3]}'),
        ("text/html", "<a href='caf\xe9'>".encode("latin-1")),
    ],
)
def test_a_page_that_is_none_of_an_index_is_named(tiny, shops, tmp_path, kind, page):
    shops.contents["/simple/some-wheel/"] = page
    shops.kinds["/simple/some-wheel/"] = kind
    with pytest.raises(UserError, match=r"/simple/some-wheel/: ") as caught:
        fetch_packages(tiny, stack=CPU, folder=tmp_path)
    assert caught.value.exit_code == 1
    assert "PIP_INDEX_URL" in caught.value.fix


def test_an_index_that_is_no_address_is_named(tiny, shops, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "user")
    with pytest.raises(UserError, match=r"user/some-wheel/"):
        fetch_packages(tiny, stack=CPU, folder=tmp_path)


@pytest.fixture
def login(shops, monkeypatch):
    """Let the index's address name RFC 7617's user; return the header that stands for it."""
    monkeypatch.setenv(
        "PIP_INDEX_URL", shops.url.replace("://", "://Aladdin:open%20sesame@") + "/simple"
    )
    return "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="


def test_a_login_goes_to_the_index_and_its_files_alone(tiny, shops, tmp_path, login):
    fetch_packages(tiny, stack=CPU, folder=tmp_path)
    wheel = WHEEL.replace("wheels", "/files")
    assert shops.logins == {
        "/simple/some-wheel/": login, "/simple/horovod/": login, wheel: login,
        "/files/horovod-9.tar.gz": login,
    }  # fmt: skip


def test_a_login_does_not_go_where_the_index_sends_us(tiny, shops, tmp_path, login):
    wheel = WHEEL.replace("wheels", "/files")
    shops.contents["/cdn"] = shops.contents.pop(wheel)
    shops.moved[wheel] = f"http://localhost:{shops.url.rpartition(':')[2]}/cdn"
    fetch_packages(tiny, stack=CPU, folder=tmp_path)
    assert (tmp_path / WHEEL).exists()
    assert "/cdn" in {path for path, _ in shops.asked}
    assert "/cdn" not in shops.logins


def test_a_password_is_not_printed(tiny, shops, tmp_path, login):
    del shops.contents["/simple/some-wheel/"]
    with pytest.raises(UserError, match="some-wheel") as caught:
        fetch_packages(tiny, stack=CPU, folder=tmp_path)
    assert "sesame" not in str(caught.value)
    assert "Aladdin" not in str(caught.value)


def test_a_lock_without_the_distributions_packages_cannot_be_saved(tiny, locked, tmp_path):
    gap = replace(tiny, system_packages=(), gaps={"system_packages": "not Debian"})
    locked.write_text(render_lock(gap))
    with pytest.raises(UserError, match="not Debian"):
        save_packages(CPU, folder=tmp_path)


def test_a_build_is_given_its_own_files_and_no_others(tiny, saved, tmp_path):
    (saved / "wheels" / "other-1-py3-none-any.whl").write_text("of another stack")
    files = check_packages(tiny, folder=saved)
    stage_packages(tiny, files=files, folder=tmp_path / "staged")
    assert names(tmp_path / "staged") == sorted(FILES + [n for n in INDEXES if n != MANIFEST])
    assert (tmp_path / "staged" / FILES[0]).stat().st_ino == (saved / FILES[0]).stat().st_ino


def test_apt_reads_the_folder(saved, tmp_path):
    """The system's own apt judges: in folders of its own, with this source alone."""
    private = tmp_path / "apt"
    for name in ("lists/partial", "archives/partial"):
        (private / name).mkdir(parents=True)
    (private / "status").touch()
    (private / "sources.list").write_text(f"deb [trusted=yes] file:{saved}/debs ./\n")
    options = []
    for name, value in {
        "Dir::Etc::SourceList": private / "sources.list", "Dir::Etc::SourceParts": "/dev/null",
        "Dir::Etc::PreferencesParts": "/dev/null", "Dir::State": private,
        "Dir::State::Lists": private / "lists", "Dir::State::Status": private / "status",
        "Dir::Cache": private, "APT::Sandbox::User": "",
    }.items():  # fmt: skip
        options += ["-o", f"{name}={value}"]
    subprocess.run(["apt-get", *options, "update"], check=True, capture_output=True)
    for wanted in ("tool=1.0", "?archive(^bookworm$)?priority(required)"):
        command = ["apt-get", *options, "-s", "install", wanted]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        name = "tool" if wanted.startswith("tool") else "base-x"
        assert f"Inst {name} (1.0" in done.stdout
        assert done.stdout.count("\nInst ") == 1


def test_pages_of_an_index_in_both_forms():
    a, b = "a" * 64, "b" * 64
    page = f'<a href="https://f/x.whl#sha256={a}">x</a><a href="y&amp;z.whl#sha256={b}" d>y</a>'
    assert read_html_page(page) == {a: ("https://f/x.whl", 0), b: ("y&z.whl", 0)}
    files = [
        {"url": "u", "size": 7, "hashes": {"sha256": a}},
        {"url": "v", "hashes": {"sha256": b}},
        {"url": "w", "hashes": {}},
    ]
    assert read_json_page(json.dumps({"files": files})) == {a: ("u", 7), b: ("v", 0)}


def test_the_index_is_the_users_else_pips_own():
    assert find_index({"PIP_INDEX_URL": "https://site/simple"}) == "https://site/simple"
    assert find_index({}).startswith("https://")
