"""The security rules, each at a real server."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import threading
from pathlib import Path

import pytest

from acqstream.client.keys import make_keys
from acqstream.errors import ConfigError
from acqstream.web.connection_watch import ConnectionWatch
from acqstream.web.web_server import check_settings
from acqstream.web.web_settings import WebLimits, WebSettings, read_or_make_token
from tests.host_system import make_link
from tests.live.raw_peer import is_closed
from tests.waiting import WAIT_S, until
from tests.web.web_process import web_thread

TOKEN = "a-token-of-some-length"
DOCUMENT = b'{"n5":"4.0.0"}'


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with a small container, and a file outside of it."""
    folder = tmp_path / "data"
    container = folder / "cells.n5"
    (container / "s0" / "0").mkdir(parents=True)
    (container / "attributes.json").write_bytes(DOCUMENT)
    (container / "s0" / "0" / "0").write_bytes(bytes(range(200)))
    (tmp_path / "secret").write_text("secret")
    return folder


def test_files_of_a_container_are_served(site):
    reply = site.ask("/data/cells.n5/attributes.json")
    assert (reply.status, reply.body) == (200, DOCUMENT)
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert site.ask("/data/cells.n5/s0/0/0").body == bytes(range(200))


def test_ranges_heads_and_conditions(site):
    path = "/data/cells.n5/s0/0/0"
    whole = site.ask(path)
    head = site.ask(path, "HEAD")
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", "200")
    assert site.ask(path, "HEAD", {"Range": "bytes=10-19"}).headers["content-length"] == "200"
    part = site.ask(path, headers={"Range": "bytes=10-19"})
    assert (part.status, part.body, part.headers["content-range"]) == (206, bytes(range(10, 20)), "bytes 10-19/200")
    assert site.ask(path, headers={"Range": "bytes=-5"}).body == bytes(range(195, 200))
    missed = site.ask(path, headers={"Range": "bytes=200-"})
    assert (missed.status, missed.headers["content-range"]) == (416, "bytes */200")
    same = site.ask(path, headers={"If-None-Match": whole.headers["etag"]})
    assert (same.status, same.body) == (304, b"")
    assert "content-length" not in same.headers
    stale = site.ask(path, headers={"Range": "bytes=0-1", "If-Range": '"other"'})
    assert (stale.status, len(stale.body)) == (200, 200)


def test_a_changed_file_has_another_tag(site, data):
    path = "/data/cells.n5/attributes.json"
    before = site.ask(path).headers["etag"]
    (data / "cells.n5" / "attributes.json").write_bytes(b'{"n5":"4.0.0","dimensions":[1]}')
    reply = site.ask(path, headers={"If-None-Match": before})
    assert (reply.status, reply.headers["etag"] == before) == (200, False)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "TRACE", "BREW"])
@pytest.mark.parametrize("path", ["/", "/data/cells.n5/attributes.json", "/data/cells.n5"])
def test_only_reading_methods(site, data, method, path):
    assert site.ask(path, method).status == (400 if method == "BREW" else 405)  # the library knows no such word
    assert (data / "cells.n5" / "attributes.json").read_bytes() == DOCUMENT


@pytest.mark.parametrize(
    "path", ["/", "/data/cells.n5/attributes.json", "/nowhere", "/t/x/data/cells.n5/attributes.json"]
)
@pytest.mark.parametrize("host", ["evil.example", "evil.example:5280", "127.0.0.1.evil.example", ""])
def test_another_host_is_misdirected_on_every_path(site, path, host):
    assert site.ask(path, headers={"Host": host}).status == 421


def test_further_hosts_are_configured(data):
    with web_thread(data, hosts=("scope-3",)) as site:
        assert site.ask("/data/cells.n5/attributes.json", headers={"Host": "scope-3:1"}).status == 200


@pytest.mark.parametrize("path", ["/data/cells.n5/attributes.json", "/data/cells.n5/none", "/attributes.json"])
def test_origins_on_every_status(site, path):
    """Viewers walk up to the root for documents; without these headers they log an error for each."""
    allowed = site.ask(path, headers={"Origin": "https://neuroglancer-demo.appspot.com"})
    assert allowed.headers["access-control-allow-origin"] == "https://neuroglancer-demo.appspot.com"
    assert "Origin" in allowed.headers["vary"]
    stranger = site.ask(path, headers={"Origin": "https://evil.example"})
    assert "access-control-allow-origin" not in stranger.headers
    assert stranger.status == allowed.status


def test_origins_on_304_and_416(site):
    path, origin = "/data/cells.n5/s0/0/0", {"Origin": "http://localhost:3000"}
    tag = site.ask(path).headers["etag"]
    for more, status in (({"If-None-Match": tag}, 304), ({"Range": "bytes=999-"}, 416), ({"Host": "evil"}, 421)):
        reply = site.ask(path, headers={**origin, **more})
        assert reply.status == status
        assert reply.headers["access-control-allow-origin"] == "http://localhost:3000"


def test_preflight(site):
    asked = {"Origin": "http://127.0.0.1:9", "Access-Control-Request-Private-Network": "true"}
    reply = site.ask("/data/cells.n5/attributes.json", "OPTIONS", asked)
    assert (reply.status, reply.body) == (204, b"")
    assert "content-length" not in reply.headers
    assert "Range" in reply.headers["access-control-allow-headers"]
    assert reply.headers["access-control-max-age"] == "7200"
    assert reply.headers["access-control-allow-private-network"] == "true"


@pytest.mark.parametrize(
    "path",
    [
        "/data/../secret",
        "/data/%2e%2e/secret",
        "/data/cells.n5/../../secret",
        "/data/cells.n5/..%2f..%2fsecret",
        "/data/cells.n5/%2e%2e/%2e%2e/secret",
        "/data//etc/passwd",
        "/data/cells.n5//attributes.json",
        "/data/cells.n5/s1",
        "/data/cells.n5/folder-link",
        "/data/CELLS.N5/attributes.json",
        "/data/cells.n5/.hidden",
        "/data/cells.n5/link",
        "/data/cells.n5/folder-link/secret",
        "/data/outside/secret",
        "/data/.container/attributes.json",
        "/data/circle/attributes.json",
    ],
)
def test_nothing_outside_of_a_container(site, data, path):
    shutil.copytree(data / "cells.n5", data / ".container")
    (data / "circle").symlink_to("circle")
    (data / "cells.n5" / ".hidden").write_text("secret")
    (data / "cells.n5" / "link").symlink_to(data.parent / "secret")
    (data / "cells.n5" / "folder-link").symlink_to(data.parent)
    (data / "outside").symlink_to(data.parent)
    reply = site.ask(path)
    assert (reply.status, b"secret" in reply.body) == (404, False)
    assert reply.headers["cache-control"] == "no-store"


@pytest.mark.skipif(os.name == "nt", reason="links need a right there")
@pytest.mark.parametrize(
    "path",
    [
        "/data/anna/day/cells.n5/../../../../secret",
        "/data/anna/../cells.n5/attributes.json",
        "/data/anna/day/%2e%2e/day/cells.n5/attributes.json",
        "/data/anna/./day/cells.n5/attributes.json",
        "/data/anna//day/cells.n5/attributes.json",
        "/data/anna%2fday%2fcells.n5/attributes.json",
        "/data/anna%2Fday/cells.n5/attributes.json",
        "/data/anna%252fday%252fcells.n5/attributes.json",
        "/data/anna%5cday%5ccells.n5/attributes.json",
        "/data/anna",
        "/data/anna/",
        "/data/anna/day",
        "/data/anna/day/secret",
        "/data/ANNA/day/cells.n5/attributes.json",
        "/data/anna/.hidden/cells.n5/attributes.json",
        "/data/.hidden/day/cells.n5/attributes.json",
        "/data/anna/out/private.n5/attributes.json",
        "/data/anna/out.n5/attributes.json",
        "/data/anna/up/cells.n5/attributes.json",
        "/data/anna/circle/attributes.json",
        "/data/anna/day/cells.n5@g=1/../attributes.json",
        "/api/datasets/anna",
        "/api/datasets/anna%2f..%2fcells.n5",
        "/api/datasets/anna%2fday%2f..%2f..%2f..%2fprivate.n5",
        "/api/datasets/anna%2fout.n5",
        "/api/datasets/anna%2fout%2fprivate.n5/preview.jpg",
        "/api/datasets/anna%2f.hidden%2fcells.n5",
        "/api/datasets/%2fanna%2fday%2fcells.n5",
        "/view/anna%2fout.n5/state.json",
        "/view/anna%2f..%2fanna%2fday%2fcells.n5",
    ],
)
def test_nothing_but_the_datasets_in_a_folder(site, data, path):
    outside = data.parent / "private"
    for place in (data / "anna/day", data / "anna/.hidden", data / ".hidden/day", outside / "private.n5"):
        shutil.copytree(data / "cells.n5", place / "cells.n5")
    shutil.copytree(data / "cells.n5", outside / "private.n5", dirs_exist_ok=True)
    (data / "anna" / "day" / "secret").write_text("secret")
    for name, target in (("out", outside), ("out.n5", outside / "private.n5"), ("up", data), ("circle", "circle")):
        (data / "anna" / name).symlink_to(target)
    assert site.ask("/data/anna/day/cells.n5/attributes.json").body == DOCUMENT
    reply = site.ask(path)
    assert (reply.status, b"secret" in reply.body, DOCUMENT in reply.body) == (404, False, False)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such names")
def test_folders_of_a_container_are_listed(site, data):
    (data / "cells.n5" / "<b>&").write_bytes(b"")
    (data / "cells.n5" / ".hidden").write_bytes(b"")
    reply = site.ask("/data/cells.n5/")
    assert (reply.status, reply.headers["content-type"]) == (200, "text/html")
    assert b'href="/data/cells.n5/s0/"' in reply.body
    assert b"attributes.json" in reply.body
    assert b"<b>" not in reply.body
    assert b"hidden" not in reply.body
    assert reply.headers["content-security-policy"].startswith("default-src 'none'")
    assert b'href="/data/cells.n5/s0/0/"' in site.ask("/data/cells.n5/s0").body


def test_a_token_is_asked_for(data):
    path = "/data/cells.n5/attributes.json"
    with web_thread(data, token=TOKEN) as site:
        assert site.ask(path).status == 401
        assert site.ask(path, headers={"Authorization": "Bearer wrong"}).status == 401
        assert site.ask(f"/t/wrong{path}").status == 401
        assert site.ask(f"{path}?token={TOKEN}").status == 401  # queries end up in logs
        assert site.ask("/nowhere").status == 401
        assert site.ask(path, headers={"Authorization": f"Bearer {TOKEN}"}).body == DOCUMENT
        assert site.ask(f"/t/{TOKEN}{path}").body == DOCUMENT
        assert site.ask(path, headers={"Cookie": f"acqstream_token={TOKEN}"}).body == DOCUMENT
        assert site.ask(path, "OPTIONS").status == 204  # browsers show no token there
        assert site.ask(path, "HEAD").status == 401


def test_two_servers_of_one_host_keep_their_cookies_apart(data):
    path = "/data/cells.n5/attributes.json"
    with web_thread(data, token=TOKEN) as one, web_thread(data, token=f"{TOKEN}-2") as two:
        kept = {}
        for site, token in ((one, TOKEN), (two, f"{TOKEN}-2")):
            name, _, value = site.ask(f"/t/{token}/").headers["set-cookie"].partition(";")[0].partition("=")
            kept[name] = value
        cookies = "; ".join(f"{name}={value}" for name, value in kept.items())
        assert len(kept) == 2
        assert [site.ask(path, headers={"Cookie": cookies}).status for site in (one, two)] == [200, 200]


def test_other_machines_need_a_token(data):
    with pytest.raises(ConfigError, match="token"):
        check_settings(WebSettings(data=data, address="0.0.0.0"))
    check_settings(WebSettings(data=data, address="0.0.0.0", token=TOKEN))
    check_settings(WebSettings(data=data))


@pytest.mark.skipif(os.name == "nt", reason="access lists are not modes")
def test_a_token_file_is_made_once_and_kept(tmp_path):
    path = tmp_path / "token"
    token = read_or_make_token(path)
    assert len(token) >= 16
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_or_make_token(path) == token
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="every user"):
        read_or_make_token(path)


@pytest.mark.skipif(os.name == "nt", reason="access lists are not modes")
def test_a_token_file_for_a_group(tmp_path):
    path = tmp_path / "token"
    read_or_make_token(path, for_group=True)
    assert path.stat().st_mode & 0o777 == 0o640
    path.write_text("short\n")
    with pytest.raises(ConfigError, match="letters"):
        read_or_make_token(path)


@pytest.mark.skipif(os.name == "nt", reason="access lists are not modes")
def test_a_token_file_that_a_stranger_can_replace(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    for is_made in (False, True):
        if is_made:
            (shared / "token").write_text("a-token-of-some-length")
            (shared / "token").chmod(0o600)
        with pytest.raises(ConfigError, match="all users may write"):
            read_or_make_token(shared / "token")
        assert [one.name for one in shared.iterdir()] == ["token"] * is_made
    with pytest.raises(ConfigError, match="all users may write"):
        make_keys(shared, "server")
    assert [one.name for one in shared.iterdir()] == ["token"]


def test_too_many_connections_are_closed(data):
    """The one that says nothing for longest goes, so that a stranger's connections keep nobody out."""
    with web_thread(data, limits=WebLimits(connections=4, first_request_s=600)) as site:
        opened = [socket.create_connection(("127.0.0.1", site.port), timeout=WAIT_S)]
        try:
            until(lambda: len(site.context.watch) == 1, "the first one")
            opened += [socket.create_connection(("127.0.0.1", site.port), timeout=WAIT_S) for _ in range(3)]
            until(lambda: len(site.context.watch) == 4, "four connections")
            for number in range(1, 3):
                opened.append(socket.create_connection(("127.0.0.1", site.port), timeout=WAIT_S))
                until(lambda number=number: site.context.watch.refused == number, "one is too many")
            assert _is_closed(opened[0])
            assert site.ask("/data/cells.n5/attributes.json").status == 200
            assert len(site.context.watch) <= 4
        finally:
            for one in opened:
                one.close()
        until(lambda: len(site.context.watch) == 0, "all connections are gone")


def test_many_that_come_at_once_close_as_many_others():
    """All within one turn of the loop: those that were chosen are gone at its end only."""

    class Transport(asyncio.Transport):
        is_aborted = False

        def abort(self) -> None:
            self.is_aborted = True

    async def come() -> list[bool]:
        watch = ConnectionWatch(WebLimits(connections=3), asyncio.Protocol)
        transports = [Transport() for _ in range(5)]
        for one in transports:
            watch.make_protocol().connection_made(one)
        return [one.is_aborted for one in transports]

    assert asyncio.run(come()) == [True, True, False, False, False]


def test_connections_with_requests_are_not_closed_for_new_ones(data):
    """Where all are being answered, the newest has to wait."""
    with web_thread(data, limits=WebLimits(connections=2)) as site:
        streams = [socket.create_connection(("127.0.0.1", site.port), timeout=WAIT_S) for _ in range(2)]
        for one in streams:
            one.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert one.recv(15).startswith(b"HTTP/1.1 200")
        with socket.create_connection(("127.0.0.1", site.port), timeout=WAIT_S) as more:
            assert _is_closed(more)
        for one in streams:
            assert not is_closed(one)
            one.close()


@pytest.mark.parametrize("sent", [b"", b"GET /data/", b"GET / HTTP/1.1\r\nHost: local"])
def test_a_client_that_does_not_finish_its_request_is_cut(data, sent):
    with (
        web_thread(data, limits=WebLimits(first_request_s=0.2)) as site,
        socket.create_connection(("127.0.0.1", site.port), timeout=WAIT_S) as slow,
    ):
        slow.sendall(sent)
        assert _is_closed(slow)
        assert site.context.watch.timed_out == 1


def test_a_client_that_does_not_read_is_cut(data):
    size = 64 * 2**20
    with (data / "cells.n5" / "big").open("wb") as file:
        file.truncate(size)
    with (
        web_thread(data, limits=WebLimits(patience_s=0.2, min_bytes_per_s=2**40)) as site,
        socket.create_connection(("127.0.0.1", site.port), timeout=WAIT_S) as slow,
    ):
        assert site.ask("/data/cells.n5/big", headers={"Range": "bytes=5-9"}).body == bytes(5)
        slow.sendall(b"GET /data/cells.n5/big HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until(lambda: site.context.gate.requests == 1, "the answer is sent")
        until(lambda: site.context.gate.requests == 0, "the answer is given up")


def test_more_requests_than_allowed_are_put_off(data):
    with (data / "cells.n5" / "big").open("wb") as file:
        file.truncate(64 * 2**20)
    with (
        web_thread(data, limits=WebLimits(requests=1)) as site,
        socket.create_connection(("127.0.0.1", site.port), timeout=WAIT_S) as slow,
    ):
        slow.sendall(b"GET /data/cells.n5/big HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until(lambda: site.context.gate.requests == 1, "the answer is sent")
        reply = site.ask("/data/cells.n5/attributes.json")
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")
        slow.close()
        until(lambda: site.context.gate.requests == 0, "the client is gone")
        assert site.ask("/data/cells.n5/attributes.json").status == 200


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 20_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: a\r\n" * 5_000 + b"\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x00" * 1000,
    ],
)
def test_what_is_no_request_gets_an_error_and_no_more(site, request_bytes):
    with socket.create_connection(("127.0.0.1", site.port), timeout=WAIT_S) as one:
        one.sendall(request_bytes)
        one.shutdown(socket.SHUT_WR)
        answer = b""
        try:
            while piece := one.recv(65536):
                answer += piece
        except ConnectionResetError:
            pass
    assert b" 200 " not in answer.split(b"\r\n")[0]
    assert b"Traceback" not in answer
    assert site.ask("/data/cells.n5/attributes.json").status == 200


def test_the_bound_on_bytes_holds_over_all_answers_in_memory(data):
    with web_thread(data) as site:
        listing = site.ask("/data/cells.n5/s0/").body
    bound = 3 * len(listing)
    with web_thread(data, limits=WebLimits(sending_bytes=bound)) as site:
        bodies: list[bytes] = []
        threads = [
            threading.Thread(target=lambda: bodies.append(site.ask("/data/cells.n5/s0/").body)) for _ in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert bodies == [listing] * 20
        assert len(listing) <= site.context.gate.in_transit.peak_bytes <= bound


def _is_closed(one: socket.socket) -> bool:
    try:
        return one.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.skipif(os.name == "nt", reason="a link of Wine leads nowhere")
def test_a_link_in_a_circle_hides_no_dataset(site, data):
    (data / "circle").symlink_to("circle")
    assert site.ask("/data/cells.n5/attributes.json").body == DOCUMENT
    assert site.ask("/api/datasets").status == 200
    assert site.ask("/data/circle/attributes.json").status == 404


def test_a_data_directory_that_is_missing_may_come_back(site, data, monkeypatch):
    monkeypatch.setattr("acqstream.web.data.dataset_shelf.LISTED_S", 0.0)
    away = data.with_name("away")
    assert site.ask("/data/cells.n5/attributes.json").status == 200
    data.rename(away)
    for path in ("/data/cells.n5/attributes.json", "/api/datasets", "/view/cells.n5"):
        reply = site.ask(path)
        assert (reply.status, reply.headers["cache-control"], reply.headers["retry-after"]) == (503, "no-store", "5")
    assert site.ask("/healthz").status == 200
    away.rename(data)
    assert site.ask("/data/cells.n5/attributes.json").body == DOCUMENT


def test_a_link_out_of_the_data_directory_is_not_served(site, data, tmp_path):
    outside = tmp_path / "private.n5"
    outside.mkdir()
    (outside / "attributes.json").write_bytes(DOCUMENT)
    make_link(data / "mine.n5", outside)
    make_link(data / "same.n5", data / "cells.n5")
    assert site.ask("/data/mine.n5/attributes.json").status == 404
    assert site.ask("/data/same.n5/attributes.json").body == DOCUMENT


def test_a_link_in_place_of_a_folder_that_was_listed_before(data, tmp_path, monkeypatch):
    monkeypatch.setattr("acqstream.web.data.dataset_shelf.LISTED_S", 600.0)
    for top, text in ((data / "anna", "public"), (tmp_path / "private", "secret")):
        shutil.copytree(data / "cells.n5", top / "day" / "cells.n5")
        (top / "day" / "cells.n5" / "attributes.json").write_text(text)
    path = "/data/anna/day/cells.n5/attributes.json"
    with web_thread(data) as site:
        site.context.folders.all()
        assert site.ask(path).body == b"public"
        (data / "anna" / "day").rename(data / "anna" / ".day")
        make_link(data / "anna" / "day", tmp_path / "private" / "day")
        assert site.ask(path).status == 404
