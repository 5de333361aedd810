"""`acqstream web --socket PATH` replaces a socket that no process listens at, and no other file."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from acqstream.errors import ConfigError
from acqstream.storage.platform.capabilities import has_local_sockets
from acqstream.web.web_server import _listen_locally
from tests.host_system import make_link

pytestmark = pytest.mark.skipif(not has_local_sockets(), reason="this system has no local sockets")


def make_stack(path: Path) -> None:
    path.write_bytes(b"pixels" * 1000)


def make_link_to_stack(path: Path) -> None:
    make_stack(path.parent / "NDTiffStack.tif")
    make_link(path, path.parent / "NDTiffStack.tif")


@pytest.mark.parametrize("make", [make_stack, make_link_to_stack, Path.mkdir])
def test_what_is_no_socket_stays(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "web.sock")
    before = sorted((path.name, path.lstat().st_ino) for path in tmp_path.iterdir())
    with pytest.raises(ConfigError, match="a file exists there that is not a socket"):
        asyncio.run(_listen_locally(tmp_path / "web.sock", asyncio.Protocol))
    assert sorted((path.name, path.lstat().st_ino) for path in tmp_path.iterdir()) == before


def test_a_dead_socket_is_replaced_and_a_living_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "web.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        with pytest.raises(ConfigError, match="another process does"):
            asyncio.run(_listen_locally(path, asyncio.Protocol))
    server = asyncio.run(_listen_locally(path, asyncio.Protocol))
    assert path.is_socket()
    assert path.stat().st_mode & 0o777 == 0o660
    server.close()
