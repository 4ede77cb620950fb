"""What the tests of containers share: a server of files, and tiny packages of every kind."""

import hashlib
import http.server
import io
import tarfile
import threading
from dataclasses import replace

import pytest

from env.lock import PythonPackage, SystemPackage, load_lock, lock_path


class Files(http.server.BaseHTTPRequestHandler):
    """Serves a table of contents by path, ranges too, and notes what it is asked."""

    contents: dict[str, bytes]
    asked: list[tuple[str, str]]
    cut: dict[str, int]
    """How much of a file is sent before the line drops, once."""
    kinds: dict[str, str]
    """Content types, where they are not HTML."""
    logins: dict[str, str]
    """By path, the last ``Authorization`` that was sent; asked without one: no entry."""
    moved: dict[str, str]
    """By path, where it is now."""

    def do_GET(self):
        """Answer with the content, with what of it is asked for, or with 404."""
        begins = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-")
        self.asked.append((self.path, begins))
        if login := self.headers.get("Authorization"):
            self.logins[self.path] = login
        if self.path in self.moved:
            self.send_response(302)
            self.send_header("Location", self.moved[self.path])
            self.end_headers()
            return
        content = self.contents.get(self.path)
        if content is None:
            self.send_error(404)
            return
        part = content[int(begins) :]
        if not part and content:
            self.send_error(416)
            return
        self.send_response(206 if int(begins) else 200)
        self.send_header("Content-Type", self.kinds.get(self.path, "text/html"))
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part[: self.cut.pop(self.path, len(part))])

    def log_message(self, *_args):
        """Say nothing."""


@pytest.fixture
def server():
    """Return a server's table of contents, its address, and what it was asked."""
    tables = {name: {} for name in ("contents", "cut", "kinds", "logins", "moved")}
    handler = type("Handler", (Files,), {"asked": [], **tables})
    service = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=service.serve_forever, args=(0.01,), daemon=True).start()
    handler.url = f"http://127.0.0.1:{service.server_port}"
    yield handler
    service.shutdown()
    service.server_close()


def make_deb(name, version="1.0", **fields):
    """Return the bytes of a package file, written here from Debian's manual (deb(5))."""
    control = {"Package": name, "Version": version, "Architecture": "all",
               "Maintainer": "Nobody <a@example.org>", "Description": name} | fields  # fmt: skip
    text = "".join(f"{key}: {value}\n" for key, value in control.items()).encode()
    members = {"debian-binary": b"2.0\n"}
    for member, content in (("control.tar.xz", {"./control": text}), ("data.tar.xz", {})):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:xz") as tar:
            for path, data in content.items():
                info = tarfile.TarInfo(path)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        members[member] = buffer.getvalue()
    archive = b"!<arch>\n"
    for member, data in members.items():
        header = f"{member:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode()
        archive += header + data + b"\n" * (len(data) % 2)
    return archive


def digest(content):
    """Return the hash of some bytes."""
    return hashlib.sha256(content).hexdigest()


DEBS = {"base-x": (make_deb("base-x"), ("base",)), "tool": (make_deb("tool"), ("build", "run"))}
WHEEL = b"a wheel's content"
DEVELOP = b"a wheel's content, for who works on the project"
SOURCE = b"an archive's content"


@pytest.fixture
def tiny():
    """Return a lock of two packages of the distribution, a wheel and a source archive."""
    debs = tuple(
        SystemPackage(name, "1.0", "all", digest(content), len(content),
                      f"debian/pool/main/{name}_1.0_all.deb", groups)
        for name, (content, groups) in DEBS.items()
    )  # fmt: skip
    return replace(
        load_lock(lock_path("cpu")),
        system_packages=debs,
        python=(
            PythonPackage("some-wheel", "2.0", ("0" * 64, digest(WHEEL)), ("run",)),
            PythonPackage("only-to-develop", "1", (digest(DEVELOP),), ("develop",)),
        ),
        sources={"horovod-9.tar.gz": digest(SOURCE)},
    )


@pytest.fixture
def shops(server, monkeypatch):
    """Serve the tiny lock's files: a mirror of the distribution and an index of wheels."""
    for name, (content, _) in DEBS.items():
        server.contents[f"/debian/pool/main/{name}_1.0_all.deb"] = content
    page = '<a href="../../files/{0}#sha256={1}" data-x="1">{0}</a>\n'
    wheel, develop = "Some_Wheel-2.0-py3-none-any.whl", "only_to_develop-1-py3-none-any.whl"
    other = page.format("Some_Wheel-1.0-py3-none-any.whl", "2" * 64)
    server.contents |= {
        "/simple/some-wheel/": (other + page.format(wheel, digest(WHEEL))).encode(),
        "/simple/horovod/": page.format("horovod-9.tar.gz", digest(SOURCE)).encode(),
        "/simple/only-to-develop/": page.format(develop, digest(DEVELOP)).encode(),
        f"/files/{wheel}": WHEEL,
        f"/files/{develop}": DEVELOP,
        "/files/horovod-9.tar.gz": SOURCE,
    }
    monkeypatch.setenv("CHEXNET_DEBIAN_MIRROR", f"{server.url}/debian")
    monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
    return server
