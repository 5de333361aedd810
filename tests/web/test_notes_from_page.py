"""Notes by a request of the page: stored by the daemon, and taken from pages of this server alone."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

import acqstream
from acqstream.client.directory_daemon import endpoint_of
from acqstream.client.keys import make_keys
from acqstream.daemon.config import DaemonConfig
from acqstream.daemon.server import Server
from acqstream.formats.ndtiff.folders import NOTES_NAME
from acqstream.web.web_settings import is_own_origin
from tests.live.daemon_process import DaemonProcess, free_port
from tests.live.embedded_daemons import embedded_daemons
from tests.waiting import HANG_S, until
from tests.web.web_process import Reply, Site, web_thread

IMAGE = np.zeros((8, 8), np.uint16)
TYPE = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path_factory.mktemp("notes") / "data") as process:
        yield process


@pytest.fixture(scope="module")
def site(daemon: DaemonProcess) -> Iterator[Site]:
    with web_thread(daemon.data, endpoint=daemon.endpoint) as site:
        wait_for_daemon(site)
        yield site


def wait_for_daemon(site: Site) -> None:
    context = site.context
    assert context is not None
    until(lambda: context.feed.view.status is not None, "the server has heard of the daemon")


def add(site: Site, name: str, text: str = "drug added", path: str = "/api/notes", **headers: str) -> Reply:
    given = {**TYPE, **{key.replace("_", "-"): value for key, value in headers.items()}}
    return site.ask(path, "POST", given, json.dumps({"name": name, "text": text}).encode())


def test_a_note_is_stored_and_listed(daemon: DaemonProcess, site: Site) -> None:
    with acqstream.create("cells", endpoint=daemon.endpoint) as run:
        run.put(IMAGE, time=0)
        own = f"http://127.0.0.1:{site.port}"
        assert add(site, "cells", Origin=own).status == 204
        assert add(site, "cells", "without a browser").status == 204
    with acqstream.open(run.path) as dataset:
        assert [(one.text, one.source) for one in dataset.notes] == [
            ("drug added", "page"),
            ("without a browser", "page"),
        ]
    listed = json.loads(site.ask("/api/datasets/cells/notes").body)
    assert listed["count"] == 2
    assert [one["text"] for one in listed["notes"]] == ["without a browser", "drug added"]
    assert site.ask("/api/datasets/absent/notes").status == 404


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "http://127.0.0.1:1"},  # another program's page on this machine
        {"Origin": "https://neuroglancer-demo.appspot.com"},  # may read, and not write
        {"Host": "evil.example"},
        {"Content_Type": "text/plain"},
        {"Content_Type": "application/x-www-form-urlencoded"},
    ],
)
def test_other_pages_add_none(daemon: DaemonProcess, site: Site, headers: dict[str, str]) -> None:
    with acqstream.create("safe", endpoint=daemon.endpoint, on_exists="number") as run:
        assert add(site, run.name, **headers).status in (403, 415, 421)
    assert not Path(run.path, NOTES_NAME).exists()


def test_a_preflight_allows_no_write(site: Site) -> None:
    reply = site.ask("/api/notes", "OPTIONS", {"Origin": "https://neuroglancer-demo.appspot.com"})
    assert reply.headers["access-control-allow-methods"] == "GET, HEAD"


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
def test_other_methods_are_refused(site: Site, method: str) -> None:
    assert site.ask("/api/notes", method, TYPE).status == 405


@pytest.mark.parametrize("path", ["/api/notes/", "/api/notes/x", "/api/datasets", "/api//notes", "/api/note%73"])
def test_no_other_path_is_written(site: Site, path: str) -> None:
    assert add(site, "cells", path=path).status == 405


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 10_000,
        b'{"name":"cells"}',
        b'{"name":5,"text":"x"}',
        b'{"name":"cells","text":""}',
        b'{"name":"cells","text":"\\u001b"}',
        b'{"name":"\\ud800","text":"x"}',
        b" " * 20_000,
    ],
)
def test_what_is_no_note_is_refused(site: Site, body: bytes) -> None:
    assert site.ask("/api/notes", "POST", TYPE, body).status == 400


def test_a_body_without_a_length_is_refused(site: Site) -> None:
    chunked: dict[str, Any] = {**TYPE, "Transfer-Encoding": "chunked"}
    assert site.ask("/api/notes", "POST", chunked).status == 400


def test_a_run_that_does_not_run_is_named(site: Site) -> None:
    reply = add(site, "absent")
    assert (reply.status, b"'absent'" in reply.body) == (404, True)


def test_a_token_is_needed_where_one_is(daemon: DaemonProcess) -> None:
    with (
        web_thread(daemon.data, endpoint=daemon.endpoint, token="a-token-of-some-length") as site,
        acqstream.create("guarded", endpoint=daemon.endpoint) as run,
    ):
        wait_for_daemon(site)
        assert add(site, "guarded").status == 401
        assert add(site, "guarded", path="/t/wrong/api/notes").status == 401
        assert not Path(run.path, NOTES_NAME).exists()
        assert add(site, "guarded", path="/t/a-token-of-some-length/api/notes").status == 204
        assert add(site, "guarded", Authorization="Bearer a-token-of-some-length").status == 204


def test_without_a_daemon_the_page_is_told(tmp_path: Path) -> None:
    with web_thread(tmp_path, endpoint="tcp://127.0.0.1:9") as site:
        reply = add(site, "cells")
        assert (reply.status, b"no daemon answers" in reply.body) == (503, True)


@pytest.mark.skipif(sys.platform == "win32", reason="its daemons of a directory listen on a port")
def test_a_daemon_that_others_cannot_reach_needs_a_token(tmp_path: Path) -> None:
    with embedded_daemons(tmp_path) as daemons:
        check_needs_a_token(daemons.data)


@pytest.mark.skipif(sys.platform == "win32" or not zmq.has("curve"), reason="needs local sockets and CURVE")
def test_a_port_for_other_machines_does_not_open_notes_to_all_users(tmp_path: Path) -> None:
    """Its clients need keys, and the daemon has no other port: page and notes need a token."""
    keys, clients, port = tmp_path / "keys", tmp_path / "clients", free_port()
    for folder in (clients, tmp_path / "data"):
        folder.mkdir()
    make_keys(keys, "server")
    config = DaemonConfig(
        data=tmp_path / "data",
        endpoints=[f"ipc://{tmp_path}/own.sock"],
        runtime=tmp_path / "run",
        remote=["tcp://127.0.0.1:*"],
        server_key=keys / "server.key_secret",
        client_keys=clients,
        web=True,
        web_port=port,
    )
    server = Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert any(one.startswith("tcp:") for one in server.endpoints.all)
        until((tmp_path / "run" / "web-token").is_file, "the daemon's own page has a token")
        check_needs_a_token(tmp_path / "data")
    finally:
        server.stop()
        thread.join(HANG_S)


def check_needs_a_token(data: Path) -> None:
    with acqstream.create("own", data=data) as run:
        with web_thread(data, endpoint=endpoint_of(data)) as site:
            wait_for_daemon(site)
            reply = add(site, "own")
            assert (reply.status, b"--token-file" in reply.body) == (403, True)
            assert not Path(run.path, NOTES_NAME).exists()
        with web_thread(data, endpoint=endpoint_of(data), token="a-token-of-some-length") as site:
            wait_for_daemon(site)
            assert add(site, "own", path="/t/a-token-of-some-length/api/notes").status == 204


def test_own_origins() -> None:
    assert is_own_origin(None, "127.0.0.1:5280")
    assert is_own_origin("http://scope-1:80", "Scope-1:80")
    assert is_own_origin("https://scope-1", "scope-1")  # behind a proxy
    for origin, host in (("http://scope-1.evil", "scope-1"), ("null", "null"), ("http://", ""), ("ftp://a", "a")):
        assert not is_own_origin(origin, host)
