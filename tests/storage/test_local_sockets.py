"""Names of local sockets: taken over from the dead, never from the living."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from acqstream.errors import ConfigError
from acqstream.storage import local_sockets

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs local sockets")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as one:
        yield one


def listen(path: Path, kind: int = socket.SOCK_STREAM, backlog: int = 1) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, kind)
    listener.bind(str(path))
    listener.listen(backlog)
    return listener


def test_where_nothing_is(tmp_path: Path) -> None:
    local_sockets.take_over(tmp_path / "a.sock")
    local_sockets.take_over(tmp_path / "missing" / "a.sock")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET])
def test_what_the_dead_have_left_goes(tmp_path: Path, kind: int) -> None:
    path = tmp_path / "a.sock"
    listen(path, kind).close()
    assert path.exists()
    local_sockets.take_over(path)
    assert not path.exists()


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET])
@pytest.mark.parametrize("is_busy", [False, True])
def test_what_the_living_have_stays(tmp_path: Path, stack: ExitStack, kind: int, is_busy: bool) -> None:
    path = tmp_path / "a.sock"
    stack.enter_context(listen(path, kind, 0))
    if is_busy:  # nobody else gets through now
        visitor = stack.enter_context(socket.socket(socket.AF_UNIX, kind))
        visitor.connect(str(path))
    with pytest.raises(ConfigError, match="another process does"):
        local_sockets.take_over(path)
    assert path.is_socket()


def test_a_file_of_somebody_s_stays(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    with pytest.raises(ConfigError, match="is not a socket"):
        local_sockets.take_over(path)
    assert path.read_text() == "mine"


def test_a_link_is_not_followed(tmp_path: Path, stack: ExitStack) -> None:
    stack.enter_context(listen(tmp_path / "a.sock"))
    (tmp_path / "link.sock").symlink_to(tmp_path / "a.sock")
    with pytest.raises(ConfigError, match="is not a socket"):
        local_sockets.take_over(tmp_path / "link.sock")


def test_removing_what_is_gone_and_what_cannot_be(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    local_sockets.remove(tmp_path / "a.sock")
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        local_sockets.remove(tmp_path)
    assert "cannot remove the socket" in caplog.text
    assert os.path.isdir(tmp_path)
