"""Choosing a base: whether a registry answers, and what a local one takes."""

import http.server
import threading

import pytest

from containers import base
from containers.base import (
    LocalBase,
    choose_base,
    find_digest,
    registry_answers,
    registry_host,
)
from env.errors import UserError
from env.lock import load_lock, lock_path

CPU = load_lock(lock_path("cpu"))


@pytest.mark.parametrize(
    ("image", "host"),
    [
        ("docker.io/library/debian:bookworm-slim", "registry-1.docker.io"),
        ("debian:bookworm", "registry-1.docker.io"),
        ("library/debian", "registry-1.docker.io"),
        ("quay.io/a/b:1", "quay.io"),
        ("localhost:5000/a", "localhost:5000"),
        ("localhost/a", "localhost"),
    ],
)
def test_the_registry_of_an_image(image, host):
    assert registry_host(image) == host


@pytest.fixture
def server(monkeypatch):
    """Serve one status at /v2/ on this machine; the probe asks over plain HTTP."""

    class Handler(http.server.BaseHTTPRequestHandler):
        status = 200

        def do_GET(self):
            self.send_response(self.status if self.path == "/v2/" else 418)
            self.end_headers()

        def log_message(self, *_args):
            pass

    service = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    ask = base.urllib.request.urlopen
    plain = {"timeout": None}

    def urlopen(url, timeout):
        plain["timeout"] = timeout
        return ask(url.replace("https://", "http://"), timeout=timeout)

    monkeypatch.setattr(base.urllib.request, "urlopen", urlopen)
    yield Handler, f"127.0.0.1:{service.server_port}", plain
    service.shutdown()
    service.server_close()


@pytest.mark.parametrize(
    ("status", "answers"), [(200, True), (401, True), (403, False), (404, False), (503, False)]
)
def test_only_what_a_registry_says_counts_as_an_answer(server, status, answers):
    handler, host, asked = server
    handler.status = status
    assert registry_answers(f"{host}/library/debian:x") is answers
    assert asked["timeout"] == base.PROBE_TIMEOUT_S


def test_no_one_there_is_no_answer(monkeypatch):
    def fail(*_args, **_kwargs):
        raise OSError("name or service not known")

    monkeypatch.setattr(base.urllib.request, "urlopen", fail)
    assert registry_answers("docker.io/library/debian:x") is False


def test_without_registry_and_mmdebstrap_both_ways_out_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(base, "registry_answers", lambda _image: False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError) as caught:
        choose_base("auto", lock=CPU, cache=tmp_path)
    assert "mmdebstrap" in caught.value.fix
    assert "--base registry" in caught.value.fix


def test_a_base_made_before_is_not_made_again(tmp_path):
    local = LocalBase("trixie", tmp_path)
    make, unpack = local.steps(work=tmp_path / "w", unpack=True)
    assert make.argv[:2] == ("mmdebstrap", "--variant=minbase")
    assert make.argv[-2] == "trixie"
    assert make.product == (tmp_path / "w" / "base.tar", local.tar)
    assert unpack.product == (tmp_path / "w" / "base", local.folder)
    local.tar.touch()
    assert local.steps(work=tmp_path / "w", unpack=False) == []
    assert len(local.steps(work=tmp_path / "w", unpack=True)) == 1
    local.folder.mkdir()
    assert local.steps(work=tmp_path / "w", unpack=True) == []


def test_a_base_is_known_by_release_machine_and_month(tmp_path, monkeypatch):
    here = LocalBase("trixie", tmp_path).tar
    monkeypatch.setattr(base.platform, "machine", lambda: "riscv64")
    assert LocalBase("trixie", tmp_path).tar != here
    assert LocalBase("bookworm", tmp_path).tar != LocalBase("trixie", tmp_path).tar


@pytest.fixture
def registry(monkeypatch):
    """Serve one image's manifest to who holds a token, and the token; over plain HTTP."""

    class Handler(http.server.BaseHTTPRequestHandler):
        wants_token = True

        def do_HEAD(self):
            held = self.headers["Authorization"] == "Bearer t0ken"
            if "/manifests/12" not in self.path:
                self.send_response(404)
            elif self.wants_token and not held:
                self.send_response(401)
                realm = f"http://127.0.0.1:{self.server.server_port}/token"
                challenge = f'Bearer realm="{realm}",service="s",scope="repository:a/b:pull"'
                self.send_header("WWW-Authenticate", challenge)
            else:
                self.send_response(200)
                self.send_header("Docker-Content-Digest", "sha256:" + "c" * 64)
            self.end_headers()

        def do_GET(self):
            good = self.path == "/token?service=s&scope=repository%3Aa%2Fb%3Apull"
            self.send_response(200 if good else 400)
            self.end_headers()
            self.wfile.write(b'{"token": "t0ken"}')

        def log_message(self, *_args):
            pass

    service = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    request = base.urllib.request.Request

    def plain(url, *data, **options):
        return request(url.replace("https://", "http://"), *data, **options)

    monkeypatch.setattr(base.urllib.request, "Request", plain)
    yield Handler, f"127.0.0.1:{service.server_port}"
    service.shutdown()
    service.server_close()


@pytest.mark.parametrize("wants_token", [True, False])
def test_the_digest_of_an_image_is_what_its_registry_says(registry, wants_token):
    handler, host = registry
    handler.wants_token = wants_token
    assert find_digest(f"{host}/a/b:12") == "sha256:" + "c" * 64


def test_without_an_answer_there_is_no_digest(registry):
    _, host = registry
    assert find_digest(f"{host}/a/b:13") is None
    assert find_digest("localhost:1/a/b:12", timeout_s=1) is None
