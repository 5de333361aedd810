"""The daemon's sockets in-process: their names in the file system, with more than one daemon about."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from acqstream.daemon.config import DaemonConfig
from acqstream.daemon.endpoints import Endpoints
from acqstream.errors import ConfigError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs local sockets")


def config_of(folder: Path, *endpoints: str, **more: Any) -> DaemonConfig:
    return DaemonConfig(data=folder, endpoints=list(endpoints), runtime=folder / "run", **more)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_socket())


def hears(path: str | Path, kind: int) -> bool:
    with socket.socket(socket.AF_UNIX, kind) as visitor:
        try:
            visitor.connect(str(path))
        except OSError:
            return False
        return True


@pytest.fixture
def first(tmp_path: Path) -> Iterator[Endpoints]:
    endpoints = Endpoints(config_of(tmp_path, "tcp://127.0.0.1:*"))
    yield endpoints
    endpoints.close()


def check_local(endpoints: Endpoints) -> None:
    """Both names lead to somebody."""
    assert endpoints.desk is not None
    assert hears(endpoints.ipc.removeprefix("ipc://"), socket.SOCK_STREAM)
    assert hears(endpoints.desk.path, socket.SOCK_SEQPACKET)


def test_the_names_of_the_next_daemon_stay(tmp_path: Path, first: Endpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins on the same endpoint as soon as that is free, while the one before still ends."""
    destroy, others = zmq.Context.destroy, []

    def destroy_and_be_followed(context: zmq.Context[Any], linger: int | None = None) -> None:
        monkeypatch.undo()
        destroy(context, linger=linger)
        others.append(Endpoints(config_of(tmp_path, first.bound[0])))

    monkeypatch.setattr(zmq.Context, "destroy", destroy_and_be_followed)
    first.close()
    (second,) = others
    try:
        assert second.ipc == first.ipc
        check_local(second)
    finally:
        second.close()
    assert not names(tmp_path)


def test_one_that_cannot_begin_leaves_those_of_the_living_alone(tmp_path: Path, first: Endpoints) -> None:
    port = first.bound[0].rpartition(":")[2]
    for endpoint in (first.bound[0], f"tcp://127.0.0.2:{port}", first.ipc):  # the second: with names of the same port
        with pytest.raises(ConfigError, match="another"):
            Endpoints(config_of(tmp_path, endpoint))
    assert names(tmp_path) == [f"{port}.memory", f"{port}.sock"]
    check_local(first)
    first.close()
    assert not names(tmp_path)


def test_one_that_fails_later_takes_its_own_names_along(tmp_path: Path) -> None:
    other = tmp_path / "1.memory"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(other))
        listener.listen()
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / f"{os.getpid()}.memory").hardlink_to(other)  # the desk finds its place taken
        with pytest.raises(ConfigError, match="another process"):
            Endpoints(config_of(tmp_path, f"ipc://{tmp_path}/own.sock"))
        assert names(tmp_path) == ["1.memory", f"{os.getpid()}.memory"]


def test_a_local_endpoint_goes_with_its_daemon_and_is_taken_over_from_a_dead_one(tmp_path: Path) -> None:
    path = tmp_path / "own.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as killed:
        killed.bind(str(path))
        killed.listen()
    assert path.is_socket()
    for _ in range(2):
        endpoints = Endpoints(config_of(tmp_path, f"ipc://{path}", "ipc://*", "ipc://@acqstream-test", ipc=False))
        assert hears(path, socket.SOCK_STREAM)
        endpoints.close()
        assert not names(tmp_path)
