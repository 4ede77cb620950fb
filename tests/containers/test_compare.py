"""Trees read from folders, .sif files and archives alike; every kind of difference is found."""

import gzip
import hashlib
import io
import json
import os
import socket
import struct
import subprocess
import tarfile
from pathlib import Path

import jsonschema
import pytest

from containers import compare
from containers.compare import compare_images, render_json, render_text
from containers.layers import read_archive, read_labels
from containers.squashfs import read_sif
from containers.trees import Entry, read_folder
from env.errors import UserError

OWNER = f"{os.geteuid()}:{os.getegid()}"
HELLO = hashlib.sha256(b"hello\n").hexdigest()
SIF_PARTITION = 0x4004


def put(root, path, content=b"hello\n", *, mode=0o644):
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    file.chmod(mode)


@pytest.fixture
def root(tmp_path):
    """Return a root folder with one of everything."""
    folder = tmp_path / "root"
    put(folder, "etc/a b")
    put(folder, "usr/bin/tool", b"#!/bin/sh\n", mode=0o4755)
    put(folder, 'usr/q"u\\o')
    put(folder, "usr/new\nline")
    put(folder, "usr/empty", b"")
    put(folder, "usr/big", bytes(range(256)) * 9000)
    with (folder / "usr/sparse").open("wb") as file:
        file.truncate(300_000)
    (folder / "usr/hard").hardlink_to(folder / "usr/big")
    (folder / "usr/li nk").symlink_to("to here")
    os.mkfifo(folder / "usr/pipe")
    with socket.socket(socket.AF_UNIX) as one:
        before = Path.cwd()
        os.chdir(folder)  # the path of a socket must be short
        one.bind("etc/sock")
        os.chdir(before)
    return folder


def squash(folder, image):
    line = ["mksquashfs", str(folder), str(image), "-noappend", "-quiet", "-no-progress"]
    subprocess.run(line, check=True)
    return image


def sif_around(image, target):
    """Write a .sif file by hand, after its specification: header, one descriptor, the data."""
    content = image.read_bytes()
    begin = 4096
    head = struct.pack("<32s10s3s3s16sqqqqqqqq", b"#!/usr/bin/env run-singularity\n",
                       b"SIF_MAGIC\0", b"01\0", b"02\0", b"", 0, 0, 46, 48, 128, 585 * 48,
                       begin, len(content))  # fmt: skip
    other = struct.pack("<i?IIIqqqqqqq128s384s", 0x4002, True, 1, 1, 0, begin, 1, 1, 0, 0, 0, 0,
                        b"labels", b"")  # fmt: skip
    extra = struct.pack("<ii", 1, 2)
    root = struct.pack("<i?IIIqqqqqqq128s384s", SIF_PARTITION, True, 2, 1, 0, begin, len(content),
                       len(content), 0, 0, 0, 0, b"root", extra)  # fmt: skip
    table = head.ljust(128, b"\0") + other + root
    target.write_bytes(table.ljust(begin, b"\0") + content)
    return target


def test_a_folder_is_read_as_it_is(root):
    told = read_folder(root).entries
    assert told["etc/a b"] == Entry("file", "644", OWNER, sha256=HELLO)
    assert told["usr/bin/tool"].mode == "4755"
    assert told["usr/li nk"].target == "to here"
    assert told["usr/hard"] == told["usr/big"]
    assert {told["usr/pipe"].type, told["etc/sock"].type} == {"pipe", "socket"}
    assert told[""].type == "folder"
    assert len(told) == 15


def test_a_sif_is_read_like_the_folder_it_was_made_of(root, tmp_path):
    image = squash(root, tmp_path / "root.squashfs")
    wanted = read_folder(root).entries
    assert read_sif(image).entries == wanted
    assert read_sif(sif_around(image, tmp_path / "x.sif")).entries == wanted


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device files")
def test_devices_are_told_by_kind_and_numbers(tmp_path):
    folder = tmp_path / "d"
    folder.mkdir()
    os.mknod(folder / "null", 0o600 | 0o020000, os.makedev(1, 3))
    os.mknod(folder / "loop", 0o600 | 0o060000, os.makedev(7, 9))
    wanted = {"null": "c 1,3", "loop": "b 7,9"}
    for tree in (read_folder(folder), read_sif(squash(folder, tmp_path / "d.squashfs"))):
        assert {name: e.target for name, e in tree.entries.items() if name} == wanted


def layer(members):
    """Return a layer: of each member its name, and its content or its type and target."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, what in members:
            info = tarfile.TarInfo(name)
            content = what if isinstance(what, bytes) else b""
            if not isinstance(what, bytes):
                info.type, info.linkname = what
            elif name.endswith("/"):
                info.type, info.mode = tarfile.DIRTYPE, 0o755
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def archive(path, layers, *, labels=None, form="oci"):
    """Write an OCI or Docker archive of some layers."""
    files = {}

    def blob(content):
        digest = hashlib.sha256(content).hexdigest()
        files[f"blobs/sha256/{digest}"] = content
        return {"digest": f"sha256:{digest}", "size": len(content)}

    config = json.dumps({"config": {"Labels": labels}}).encode()
    if form == "oci":
        manifest = {"config": blob(config), "layers": [blob(gzip.compress(x)) for x in layers]}
        files["index.json"] = json.dumps(
            {"manifests": [blob(json.dumps(manifest).encode())]}
        ).encode()
        files["oci-layout"] = b"{}"
    else:
        names = [f"{number}/layer.tar" for number in range(len(layers))]
        files |= dict(zip(names, layers, strict=True)) | {"c.json": config}
        files["manifest.json"] = json.dumps([{"Config": "c.json", "Layers": names}]).encode()
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


LOWER = [
    ("etc/", b""), ("etc/stays", b"hello\n"), ("etc/goes", b"x"), ("opt/", b""),
    ("opt/old/", b""), ("opt/old/file", b"x"), ("srv/", b""), ("srv/deep/", b""),
    ("srv/deep/file", b"x"), ("was/", b""), ("was/folder", b"x"), ("./dotted", b"hello\n"),
]  # fmt: skip
UPPER = [
    ("etc/.wh.goes", b""), ("opt/new", b"hello\n"), ("opt/.wh..wh..opq", b""),
    ("srv/.wh.deep", b""), ("was", b"hello\n"), ("etc/hard", (tarfile.LNKTYPE, "etc/stays")),
    ("etc/soft", (tarfile.SYMTYPE, "stays")),
]  # fmt: skip


@pytest.mark.parametrize("form", ["oci", "docker"])
def test_layers_lie_one_over_the_other(tmp_path, form):
    image = archive(tmp_path / "i.tar", [layer(LOWER), layer(UPPER)], labels={"a": "b"}, form=form)
    tree = read_archive(image)
    assert sorted(tree.entries) == [
        "dotted", "etc", "etc/hard", "etc/soft", "etc/stays", "opt", "opt/new", "srv", "was",
    ]  # fmt: skip
    assert tree.entries["was"] == Entry("file", "644", "0:0", sha256=HELLO)
    assert tree.entries["etc/hard"] == tree.entries["etc/stays"]
    assert tree.entries["etc/soft"].target == "stays"
    assert tree.labels == read_labels(image) == {"a": "b"}


def test_an_archive_and_the_folder_it_was_made_of_can_be_compared(tmp_path):
    folder = tmp_path / "root"
    for name in ("etc", "usr"):
        (folder / name).mkdir(parents=True)
        (folder / name).chmod(0o755)
    put(folder, "etc/file")
    image = archive(tmp_path / "i.tar", [layer([("etc/", b""), ("etc/file", b"hello\n")])])
    told = {one.path: one.change for one in compare_images(str(image), str(folder)).files}
    owners = {} if os.geteuid() == 0 else {"/etc": "owner", "/etc/file": "owner"}
    assert told == {"/usr": "only in B"} | owners


def bill(version):
    components = [{"bom-ref": "pkg:deb/debian/libc6", "version": version}, {"bom-ref": "same"}]
    return json.dumps({"metadata": {"component": "c"}, "components": components}).encode()


def status(version):
    head = "Package: libc6\nStatus: install ok installed\nArchitecture: amd64\n"
    return f"{head}Version: {version}\n".encode()


@pytest.fixture
def pair(root, tmp_path):
    """Return two root folders that hold the same."""
    for number in ("1", "2"):
        put(root, "var/lib/dpkg/status", status("2.36"))
        put(root, "opt/chexnet/sbom.cdx.json", bill("2.36"))
        put(root, ".singularity.d/labels.json", b'{"chexnet.stack": "cpu"}')
        put(root, "opt/lib/six-1.17.dist-info/METADATA")
        subprocess.run(["cp", "-a", str(root), str(tmp_path / number)], check=True)
    return tmp_path / "1", tmp_path / "2"


def test_two_copies_are_the_same_whatever_their_time(pair):
    os.utime(pair[1] / "etc/a b", (1, 1))
    done = compare_images(*map(str, pair))
    assert (done.files, done.packages, done.labels, done.components) == ((), (), (), ())
    assert done.exit_code == 0
    assert done.paths_a == done.paths_b > 20
    assert render_text(done).endswith("the same\n")


def test_a_sif_and_a_folder_can_be_compared(pair, tmp_path):
    image = sif_around(squash(pair[0], tmp_path / "1.squashfs"), tmp_path / "1.sif")
    assert compare_images(str(image), str(pair[1])).exit_code == 0
    put(pair[1], "etc/a b", b"other")
    (change,) = compare_images(str(image), str(pair[1])).files
    assert (change.path, change.change, change.a.sha256) == ("/etc/a b", "content", HELLO)


def test_every_kind_of_difference_is_told(pair):
    a, b = pair
    put(b, "etc/a b", b"hellO\n", mode=0o600)
    (b / "usr/empty").chmod(0o755)
    (b / "usr/li nk").unlink()
    (b / "usr/li nk").symlink_to("elsewhere")
    (b / "usr/pipe").unlink()
    (b / "usr/pipe").mkdir()
    (a / "usr/hard").unlink()
    put(b, "usr/local/new")
    put(b, "var/lib/dpkg/status", status("2.37"))
    put(b, "opt/chexnet/sbom.cdx.json", bill("2.37"))
    put(b, ".singularity.d/labels.json", b'{"chexnet.stack": "cpu13", "more": "1"}')
    (b / "opt/lib/six-1.17.dist-info").rename(b / "opt/lib/six-1.18.dist-info")
    done = compare_images(str(a), str(b))
    told = {change.path: change.change for change in done.files}
    assert told == {
        "/etc/a b": "mode, content", "/usr/empty": "mode", "/usr/li nk": "target",
        "/usr/pipe": "type", "/usr/hard": "only in B", "/usr/local": "only in B",
        "/usr/local/new": "only in B", "/var/lib/dpkg/status": "content",
        "/opt/chexnet/sbom.cdx.json": "content", "/.singularity.d/labels.json": "content",
        "/opt/lib/six-1.17.dist-info": "only in A", "/opt/lib/six-1.18.dist-info": "only in B",
        "/opt/lib/six-1.17.dist-info/METADATA": "only in A",
        "/opt/lib/six-1.18.dist-info/METADATA": "only in B",
    }  # fmt: skip
    assert [(n.name, n.a, n.b) for n in done.packages] == [
        ("deb:libc6:amd64", "2.36", "2.37"), ("pypi:six", "1.17", "1.18"),
    ]  # fmt: skip
    assert [(n.name, n.a, n.b) for n in done.labels] == [
        ("chexnet.stack", "cpu", "cpu13"), ("more", None, "1"),
    ]  # fmt: skip
    assert [n.name for n in done.components] == ["pkg:deb/debian/libc6"]
    assert done.exit_code == 1
    jsonschema.validate(json.loads(render_json(done)), json.loads(compare.SCHEMA.read_text()))
    text = render_text(done)
    assert "/usr/li nk: target (to here | elsewhere)" in text
    assert "deb:libc6:amd64: 2.36 | 2.37" in text
    assert "pkg:deb/debian/libc6: version" in text
    assert text.endswith("they differ\n")


@pytest.mark.parametrize(
    ("other", "words"),
    [(None, ["metadata: only in A", "same: only in A"]), (b"{", ["metadata: ", "unreadable"])],
)
def test_a_bill_that_is_missing_or_broken_is_told(pair, other, words):
    path = pair[1] / "opt/chexnet/sbom.cdx.json"
    path.unlink() if other is None else path.write_bytes(other)
    text = render_text(compare_images(*map(str, pair)))
    assert all(word in text for word in words), text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_another_owner_is_a_difference(pair):
    os.chown(pair[1] / "etc/a b", 7, 8)
    (change,) = compare_images(*map(str, pair)).files
    assert (change.change, change.b.owner) == ("owner", "7:8")


def test_the_text_is_limited_and_the_json_is_not(pair):
    for number in range(compare.SHOWN + 7):
        put(pair[1], f"etc/new/{number}")
    done = compare_images(*map(str, pair))
    assert f"… and {1 + 7} more: see --json FILE" in render_text(done)
    assert len(json.loads(render_json(done))["files"]) == compare.SHOWN + 8


def test_names_that_are_no_text_reach_the_report(pair):
    name = os.fsdecode(b"etc/\xff\x1b[31m")
    put(pair[1], name)
    done = compare_images(*map(str, pair))
    assert "\x1b" not in render_text(done)
    assert json.loads(render_json(done))["files"][0]["path"] == f"/{name}"


def truncated(path, keep):
    path.write_bytes(path.read_bytes()[:keep])
    return path


def test_damaged_images_are_refused_by_name(root, tmp_path):
    image = sif_around(squash(root, tmp_path / "r.squashfs"), tmp_path / "half.sif")
    damaged = [
        truncated(image, 4096 + 500),
        truncated(archive(tmp_path / "half.tar", [layer(LOWER)]), 1000),
    ]
    empty = tmp_path / "empty.sif"
    empty.write_bytes(b"\0" * 32 + b"SIF_MAGIC\0".ljust(1000, b"\0"))
    for path in (*damaged, empty):
        with pytest.raises(UserError) as caught:
            compare_images(str(path), str(root))
        assert str(path) in caught.value.found
        assert caught.value.exit_code == 2


def test_what_is_no_image_is_refused(root, tmp_path):
    (tmp_path / "text").write_text("no image\n")
    for name in (tmp_path / "text", tmp_path / "none.sif", tmp_path, "chexnet:cpu"):
        with pytest.raises(UserError, match="a root folder") as caught:
            compare_images(str(name), str(root))
        assert str(name) in caught.value.found


def test_without_unsquashfs_it_says_what_brings_it(root, tmp_path, monkeypatch):
    image = squash(root, tmp_path / "r.squashfs")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="squashfs-tools"):
        compare_images(str(image), str(root))
