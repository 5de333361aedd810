"""The web face of a service for a group: a user outside of the group sees nothing."""

from __future__ import annotations

import encodings.idna  # noqa: F401 - another user may not be able to load it
import http.client
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from acqstream.web.web_settings import read_or_make_token
from tests.live.other_user import SERVICE, STRANGER, only_root, result_as, shared_folder
from tests.web.web_process import web_thread

pytestmark = only_root
PATH = "/data/cells.n5/attributes.json"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A data directory and a runtime folder as that of the system service, for members of a group alone."""
    with shared_folder() as folder:
        (folder / "data" / "cells.n5").mkdir(parents=True)
        (folder / "data" / "cells.n5" / "attributes.json").write_text('{"n5":"4.0.0"}')
        (folder / "run").mkdir(mode=0o750)
        os.chown(folder / "run", -1, SERVICE)
        yield folder


def status(port: int, token: str = "") -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", PATH, headers={"Authorization": f"Bearer {token}"} if token else {})
        return connection.getresponse().status
    finally:
        connection.close()


def test_only_a_member_can_read_the_token(folder: Path) -> None:
    path = folder / "run" / "web-token"
    token = read_or_make_token(path, for_group=True)
    os.chown(path, -1, SERVICE)
    with web_thread(folder / "data", token=token) as site:
        assert result_as(STRANGER, path.read_text).startswith("PermissionError")
        assert result_as(STRANGER, lambda: status(site.port)) == "401"
        assert result_as(SERVICE, lambda: status(site.port, path.read_text().strip())) == "200"


def test_only_a_member_can_use_the_socket(folder: Path) -> None:
    path = folder / "run" / "web.sock"

    def ask() -> str:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
            one.connect(str(path))
            one.sendall(f"GET {PATH} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            return one.recv(100).decode().splitlines()[0]

    with web_thread(folder / "data", socket=path):
        os.chown(path, -1, SERVICE)
        assert path.stat().st_mode & 0o777 == 0o660
        assert result_as(STRANGER, ask).startswith("PermissionError")
        assert result_as(SERVICE, ask) == "HTTP/1.1 200 OK"
    with web_thread(folder / "data", socket=path):  # the socket of an earlier process is replaced
        assert ask() == "HTTP/1.1 200 OK"
