"""A daemon's port where there are no local sockets (Windows): only programs of its user can use it."""

from __future__ import annotations

import socket
import stat
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import zmq

from acqstream.client import keys
from acqstream.client.keys import port_keys
from acqstream.client.link import Link
from acqstream.daemon import config as config_module
from acqstream.daemon import endpoints as endpoints_module
from acqstream.daemon.config import DaemonConfig, embedded_config
from acqstream.daemon.endpoints import Endpoints
from acqstream.storage.local_sockets import private_folder, read_port_key, write_port_key
from tests.waiting import until


@pytest.fixture
def without_local_sockets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in (keys, config_module, endpoints_module):
        monkeypatch.setattr(module, "has_local_sockets", lambda: False)
    for name in ("RUNTIME_DIRECTORY", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))


@pytest.fixture
def endpoints(without_local_sockets: None, tmp_path: Path) -> Iterator[Endpoints]:
    config = DaemonConfig(data=tmp_path, runtime=tmp_path / "run" / "acqstream", ipc=False, shared_memory=False)
    found = Endpoints(embedded_config(config))
    yield found
    found.close()


def _reaches(endpoints: Endpoints, link: Link, wait_s: float = 10.0) -> bool:
    """Whether a message of the link arrives."""
    if link.wait_writable(wait_s):
        link.send(b'{"t":"hello"}')
    found = bool(endpoints.producers.poll(int(wait_s * 1000)))
    if found:
        endpoints.producers.recv_multipart()
    return found


def test_its_own_user_reaches_it(endpoints: Endpoints, tmp_path: Path) -> None:
    port = int(endpoints.bound[0].rpartition(":")[2])
    path = private_folder() / f"{port}.key"
    assert path.parent == tmp_path / "run" / "acqstream"
    if sys.platform != "win32":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        link = Link(context, endpoints.bound[0])
        assert _reaches(endpoints, link)
        link.close()
    finally:
        context.destroy(linger=0)
    endpoints.close()
    assert not path.exists()


@pytest.mark.promise("other-users")
@pytest.mark.parametrize("knows", ["no key", "another key"])
def test_another_user_does_not(endpoints: Endpoints, monkeypatch: pytest.MonkeyPatch, knows: str) -> None:
    found = None if knows == "no key" else keys.CurveKeys(zmq.curve_keypair()[0], *zmq.curve_keypair())
    monkeypatch.setattr("acqstream.client.link.port_keys", lambda _: found)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        link = Link(context, endpoints.bound[0])
        assert not _reaches(endpoints, link, 0.5)
        link.close()
        events = context.socket(zmq.SUB)
        if found is not None:
            events.curve_serverkey, events.curve_publickey, events.curve_secretkey = (
                found.server,
                found.public,
                found.secret,
            )
        events.subscribe(b"")
        events.connect(endpoints.events_endpoint)
        assert not endpoints.events.poll(500)
    finally:
        context.destroy(linger=0)


def test_a_program_that_took_the_port_cannot_answer(endpoints: Endpoints) -> None:
    """The daemon was killed, so its key is still there."""
    port = int(endpoints.bound[0].rpartition(":")[2])
    key = read_port_key(port)
    assert key is not None
    endpoints.close()
    write_port_key(port, key)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        for has_keys in (False, True):
            thief = context.socket(zmq.ROUTER)
            if has_keys:
                thief.curve_server, thief.curve_secretkey = True, zmq.curve_keypair()[1]
            until(partial(_binds, thief, port), "the port is free")
            link = Link(context, f"tcp://127.0.0.1:{port}")
            assert not link.wait_writable(0.5)
            assert not thief.poll(0)
            link.close()
            thief.close(0)
    finally:
        context.destroy(linger=0)


def _binds(one: zmq.Socket[bytes], port: int) -> bool:
    try:
        one.bind(f"tcp://127.0.0.1:{port}")
    except zmq.ZMQError:
        return False
    return True


def test_a_key_that_was_left_keeps_nobody_out(without_local_sockets: None, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    private_folder().mkdir(parents=True)
    write_port_key(port, zmq.curve_keypair()[0])
    assert port_keys(f"tcp://127.0.0.1:{port}") is not None
    config = DaemonConfig(data=tmp_path, ipc=False, shared_memory=False, endpoints=[f"tcp://127.0.0.1:{port}"])
    found = Endpoints(config)
    try:
        assert port_keys(found.bound[0]) is None
    finally:
        found.close()
