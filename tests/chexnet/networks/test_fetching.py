"""Fetching weights from a server on this machine: whole, resumed, refused."""

import hashlib
import http.server
import threading

import pytest

import chexnet.__main__ as program
from chexnet.errors import UserError
from chexnet.networks.fetching import fetch_weights
from chexnet.networks.weights import PUBLISHED, Published, find_weights

CONTENT = bytes(range(256)) * 8192  # 2 MiB


class Server:
    """Serves CONTENT with ranges; can stop in the middle of it, and counts what it sent."""

    def __init__(self):
        self.stop_after = None
        self.status = None
        self.sent = 0
        handler = type("Handler", (_Handler,), {"owner": self})
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/r.h5"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()


class _Handler(http.server.BaseHTTPRequestHandler):
    owner = None

    def do_GET(self):
        owner = self.owner
        if owner.status:
            self.send_error(owner.status)
            return
        begin = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        if begin >= len(CONTENT):
            self.send_error(416)
            return
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(CONTENT) - begin))
        self.end_headers()
        body = CONTENT[begin : owner.stop_after]
        owner.sent += len(body)
        self.wfile.write(body)

    def log_message(self, *words):
        pass


@pytest.fixture
def server():
    one = Server()
    yield one
    one.http.shutdown()
    one.http.server_close()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    published = Published("r.h5", "resnet", hashlib.md5(CONTENT).hexdigest())
    monkeypatch.setitem(PUBLISHED, "resnet50", published)
    monkeypatch.setenv("CHEXNET_WEIGHTS", str(tmp_path / "cache"))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache"


def test_weights_are_found_where_they_were_fetched_to(server, cache):
    path = fetch_weights("resnet50", source=server.url)
    assert path.read_bytes() == CONTENT
    assert find_weights("resnet50", "imagenet") == path
    assert [one.name for one in cache.iterdir()] == ["r.h5"]


def test_what_came_before_an_interruption_is_gone_on_with(server, cache):
    server.stop_after = 1_000_000
    with pytest.raises(UserError) as caught:
        fetch_weights("resnet50", source=server.url)
    assert "1,000,000 of 2,097,152 bytes" in str(caught.value)
    assert find_whole(cache) == []
    server.stop_after = None
    fetch_weights("resnet50", source=server.url)
    assert server.sent == len(CONTENT)  # nothing twice


def find_whole(cache):
    return [one.name for one in cache.iterdir() if not one.name.startswith(".")]


def test_another_file_is_refused_and_not_gone_on_with(server, cache, monkeypatch):
    monkeypatch.setitem(PUBLISHED, "resnet50", Published("r.h5", "resnet", "0" * 32))
    with pytest.raises(UserError) as caught:
        fetch_weights("resnet50", source=server.url)
    assert hashlib.md5(CONTENT).hexdigest() in str(caught.value)
    assert list(cache.iterdir()) == []


def test_a_part_that_is_too_long_is_begun_anew(server, cache):
    cache.mkdir()
    (cache / ".r.h5.part").write_bytes(CONTENT + b"more")
    with pytest.raises(UserError):
        fetch_weights("resnet50", source=server.url)
    assert fetch_weights("resnet50", source=server.url).read_bytes() == CONTENT


@pytest.mark.parametrize("status", [404, 503])
def test_a_refusal_says_what_to_bring(server, status, capsys):
    server.status = status
    words = ["fetch-weights", "--model", "resnet50", "--from", server.url]
    assert program.main(words) == 1
    err = capsys.readouterr().err
    assert "resnet/r.h5 elsewhere, bring it here and add --from FILE" in err


def test_no_server_says_what_to_bring(server):
    server.http.shutdown()
    server.http.server_close()
    with pytest.raises(UserError) as caught:
        fetch_weights("resnet50", source=server.url)
    assert "refused" in caught.value.found
    assert "--from FILE" in caught.value.fix


def test_a_file_that_was_brought_is_checked_and_put_in_place(tmp_path, cache, capsys):
    brought = tmp_path / "brought.h5"
    brought.write_bytes(CONTENT)
    words = ["fetch-weights", "--model", "resnet50", "--from", str(brought)]
    assert program.main(words) == 0
    assert (cache / "r.h5").read_bytes() == CONTENT
    assert "--set weights=imagenet" in capsys.readouterr().out
    assert program.main([*words, "--output", str(tmp_path / "other")]) == 0
    assert f"--set weights={tmp_path}/other/r.h5" in capsys.readouterr().out
    brought.write_bytes(CONTENT[:-1])
    (cache / "r.h5").unlink()
    assert program.main(words) == 1
    assert find_whole(cache) == []


def test_weights_that_are_there_are_not_fetched_again(server, cache):
    cache.mkdir()
    (cache / "r.h5").write_bytes(CONTENT)
    fetch_weights("resnet50", source=server.url)
    assert server.sent == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [(["--model", "tiny"], "densenet201, resnet50"),
     (["--model", "resnet50", "--from", "/nowhere/r.h5"], "no file /nowhere/r.h5")],
)  # fmt: skip
def test_wrong_use_is_exit_2(words, expected, capsys):
    assert program.main(["fetch-weights", *words]) == 2
    assert expected in capsys.readouterr().err
