"""Keys, where something about them fails: nobody gets in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from zmq.auth import load_certificate
from zmq.utils.monitor import recv_monitor_message

from acqstream.client.keys import make_keys
from acqstream.daemon.endpoints import ClientAccess

pytestmark = pytest.mark.skipif(not zmq.has("curve"), reason="ZeroMQ without CURVE")


class Contact:
    """A listener that asks for keys, and a client with a known one; `is_let_in` once `connect` was called."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], folder: Path) -> None:
        for name in ("server", "alice"):
            make_keys(folder, name)
        self.context = context
        self.access = ClientAccess(context, folder / "server.key_secret", folder)
        self._router, self._dealer = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
        self._dealer.curve_publickey, secret = load_certificate(folder / "alice.key_secret")
        assert secret is not None
        self._dealer.curve_secretkey = secret
        self._dealer.curve_serverkey = load_certificate(folder / "server.key")[0]

    def is_let_in(self) -> bool:
        self.access.secure(self._router)
        failures = zmq.Event.HANDSHAKE_FAILED_NO_DETAIL | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
        monitor = self._router.get_monitor_socket(failures | zmq.Event.HANDSHAKE_SUCCEEDED)
        port = self._router.bind_to_random_port("tcp://127.0.0.1")
        self._dealer.connect(f"tcp://127.0.0.1:{port}")
        with monitor:
            assert monitor.poll(20_000)
            is_let_in = bool(recv_monitor_message(monitor)["event"] == zmq.Event.HANDSHAKE_SUCCEEDED)
        self._router.disable_monitor()
        return is_let_in

    def close(self) -> None:
        self._router.close(linger=0)
        self._dealer.close(linger=0)
        self.access.stop()


@pytest.fixture
def contact(tmp_path: Path) -> Iterator[Contact]:
    with zmq.Context() as context, contextlib.closing(Contact(context, tmp_path)) as contact:
        yield contact


def test_without_its_handler_nobody_is_let_in(contact: Contact) -> None:
    """libzmq would let in whoever knows the daemon's public key."""
    assert not contact.is_let_in()


def test_a_known_key_is_let_in_though_asyncio_waits_for_no_socket(
    contact: Contact, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its usual loop on Windows cannot wait for ZeroMQ."""
    monkeypatch.setattr(asyncio.SelectorEventLoop, "add_reader", None)
    contact.access.start()
    assert contact.is_let_in()


def test_a_start_that_fails_says_so(contact: Contact) -> None:
    with contact.context.socket(zmq.REP) as other:
        other.bind("inproc://zeromq.zap.01")  # the only place for a handler
        with pytest.raises(zmq.ZMQError):
            contact.access.start()
