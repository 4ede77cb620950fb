"""Fetching: what is gone on with, what is not taken, what is said."""

import hashlib
import http.server
import io
import threading

import pytest

from containers import download
from containers.download import Remote, fetch_all, fetch_one, split_login
from env.errors import UserError

CONTENT = bytes(range(256)) * 300
GOOD = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    """Try again at once."""
    monkeypatch.setattr(download.time, "sleep", lambda _seconds: None)


@pytest.fixture
def remote(server, tmp_path):
    """Return a file that is served, wanted in a folder that is not there yet."""
    server.contents["/a"] = CONTENT
    return Remote(f"{server.url}/a", tmp_path / "new" / "a", ("0" * 64, GOOD), len(CONTENT))


@pytest.fixture
def says():
    """Return a server's address, which answers anything with the bytes it is given."""
    services = []

    def serve(answer):
        class Handler(http.server.BaseHTTPRequestHandler):
            def handle(self):
                self.rfile.readline()
                self.wfile.write(answer)

        service = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=service.serve_forever, args=(0.01,), daemon=True).start()
        services.append(service)
        return f"http://127.0.0.1:{service.server_port}"

    yield serve
    for service in services:
        service.shutdown()
        service.server_close()


def fetch(*remotes, stream=None):
    return fetch_all(remotes, ca=None, stream=stream or io.StringIO())


def test_a_file_is_fetched_and_nothing_else_is_left(remote):
    assert fetch(remote) == []
    assert remote.target.read_bytes() == CONTENT
    assert [path.name for path in remote.target.parent.iterdir()] == ["a"]


def test_a_dropped_line_is_gone_on_with(server, remote):
    server.cut["/a"] = 1000
    fetch(remote)
    assert remote.target.read_bytes() == CONTENT
    assert server.asked == [("/a", "0"), ("/a", "1000")]


def test_what_an_interrupted_fetch_has_left_is_gone_on_with(server, remote):
    remote.target.parent.mkdir()
    remote.target.with_name(".a.part").write_bytes(CONTENT[:70])
    fetch(remote)
    assert remote.target.read_bytes() == CONTENT
    assert server.asked == [("/a", "70")]


@pytest.mark.parametrize("left", [b"x" * 70, CONTENT, CONTENT + b"more"])
def test_a_part_that_does_not_fit_is_thrown_away(remote, left):
    remote.target.parent.mkdir()
    remote.target.with_name(".a.part").write_bytes(left)
    fetch(remote)
    assert remote.target.read_bytes() == CONTENT


def test_another_content_is_refused_and_not_kept(server, remote):
    server.contents["/a"] = b"evil"
    with pytest.raises(UserError, match=hashlib.sha256(b"evil").hexdigest()) as caught:
        fetch(remote)
    assert caught.value.exit_code == 1
    assert list(remote.target.parent.iterdir()) == []


def test_what_the_server_has_not_got_is_told_apart_from_failures(server, remote, tmp_path):
    gone = Remote(f"{server.url}/b", tmp_path / "b", (GOOD,))
    assert fetch(remote, gone) == [gone]
    assert remote.target.exists()


def test_no_answer_names_the_file_and_what_to_see_to(tmp_path):
    remote = Remote("http://127.0.0.1:1/x/a.deb", tmp_path / "a.deb", (GOOD,))
    with pytest.raises(UserError, match=r"a\.deb from http://127.0.0.1:1") as caught:
        fetch_one(remote, ca=None, tell=lambda _count: None)
    assert "proxy" in caught.value.fix


def test_a_disk_that_is_too_small_is_said_before_anything_is_fetched(server, remote, monkeypatch):
    usage = type("Usage", (), {"free": len(CONTENT) - 1})
    monkeypatch.setattr(download.shutil, "disk_usage", lambda _folder: usage)
    with pytest.raises(UserError, match="MiB free"):
        fetch(remote)
    assert server.asked == []


def test_progress_ends_with_all_that_came(server, remote):
    stream = io.StringIO()
    fetch(remote, stream=stream)
    assert stream.getvalue().splitlines()[-1] == "fetched 1 of 1 files, 0 of 0 MiB"


def test_progress_counts_what_was_there_before(remote):
    remote.target.parent.mkdir()
    remote.target.with_name(".a.part").write_bytes(CONTENT[:70])
    counts = []
    fetch_one(remote, ca=None, tell=counts.append)
    assert sum(counts) == len(CONTENT)


@pytest.mark.parametrize(
    "answer",
    [
        b"220 mail.example.org ESMTP\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: banana\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nabc",
        b"",
    ],
    ids=["no-http", "no-number", "cut-chunk", "nothing"],
)
def test_an_answer_that_is_not_http_is_a_failure_of_the_way_there(says, tmp_path, answer):
    remote = Remote(says(answer) + "/a.deb", tmp_path / "a.deb", (GOOD,))
    with pytest.raises(UserError, match=r"a\.deb from http://") as caught:
        fetch(remote)
    assert caught.value.exit_code == 1
    assert "proxy" in caught.value.fix


def test_a_login_is_taken_out_of_an_address():
    # RFC 7617's own example of user and password.
    basic = "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
    assert split_login("https://Aladdin:open%20sesame@h:8/x@1/") == ("https://h:8/x@1/", basic)
    assert split_login("https://h/x@1/") == ("https://h/x@1/", "")
    assert split_login("user:pw@host") == ("user:pw@host", "")
