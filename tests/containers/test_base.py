"""Choosing a base: whether a registry answers, and what a local one takes."""

import http.server
import threading
from dataclasses import replace
from pathlib import Path

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
    threading.Thread(target=service.serve_forever, args=(0.01,), daemon=True).start()
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


def test_a_base_is_made_of_the_folder_of_packages_and_not_made_again(tmp_path):
    local = LocalBase("trixie", "abc", 86400, tmp_path)
    options = {"work": tmp_path / "w", "packages": Path("/a b/packages")}
    make, unpack = local.steps(**options, unpack=True)
    assert make.argv[:4] == ("env", "SOURCE_DATE_EPOCH=86400", "mmdebstrap", "--variant=minbase")
    assert make.argv[-3:] == ("trixie", str(tmp_path / "w" / "base.tar"), "")
    assert "--setup-hook=sync-in '/a b/packages' /packages" in make.argv
    assert make.product == (tmp_path / "w" / "base.tar", local.tar)
    assert unpack.product == (tmp_path / "w" / "base", local.folder)
    local.tar.touch()
    assert local.steps(**options, unpack=False) == []
    assert len(local.steps(**options, unpack=True)) == 1
    local.folder.mkdir()
    assert local.steps(**options, unpack=True) == []


def test_a_base_is_known_by_what_is_in_it(tiny):
    other = replace(tiny.system_packages[0], sha256="e" * 64)
    assert other.groups == ("base",)
    changed = replace(tiny, system_packages=(other, *tiny.system_packages[1:]))
    assert base.make_key(changed) != base.make_key(tiny)
    elsewhere = replace(tiny, system_packages=tiny.system_packages[:1], archive_date="")
    assert base.make_key(elsewhere) == base.make_key(tiny)


def test_a_base_that_cannot_be_locked_comes_from_a_registry_alone(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(base, "registry_answers", lambda _image: False)
    gap = replace(tiny, system_packages=(), gaps={"system_packages": "not Debian"})
    with pytest.raises(UserError, match=r"a registry that has[\s\S]*not Debian"):
        choose_base("auto", lock=gap, cache=tmp_path)


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
    threading.Thread(target=service.serve_forever, args=(0.01,), daemon=True).start()
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
