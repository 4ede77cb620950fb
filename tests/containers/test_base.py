"""Choosing a base: whether a registry answers, and what a local one takes."""

import http.server
import threading

import pytest

from containers import base
from containers.base import LocalBase, choose_base, registry_answers, registry_host
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
