"""Keys, where something about them fails: nobody gets in."""

from __future__ import annotations

from pathlib import Path

import pytest
import zmq
from zmq.auth import load_certificate
from zmq.utils.monitor import recv_monitor_message

from acqstream.client.keys import make_keys
from acqstream.daemon.client_access import ClientAccess

pytestmark = pytest.mark.skipif(not zmq.has("curve"), reason="ZeroMQ without CURVE")


def test_without_its_handler_nobody_is_let_in(tmp_path: Path) -> None:
    """libzmq would let in whoever knows the daemon's public key."""
    for name in ("server", "alice"):
        make_keys(tmp_path, name)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        access = ClientAccess(context, tmp_path / "server.key_secret", tmp_path)  # and not started
        router = context.socket(zmq.ROUTER)
        access.secure(router)
        failures = zmq.Event.HANDSHAKE_FAILED_NO_DETAIL | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
        monitor = router.get_monitor_socket(failures | zmq.Event.HANDSHAKE_SUCCEEDED)
        port = router.bind_to_random_port("tcp://127.0.0.1")
        dealer = context.socket(zmq.DEALER)
        dealer.curve_publickey, secret = load_certificate(tmp_path / "alice.key_secret")
        assert secret is not None
        dealer.curve_secretkey = secret
        dealer.curve_serverkey = load_certificate(tmp_path / "server.key")[0]
        dealer.connect(f"tcp://127.0.0.1:{port}")
        assert monitor.poll(20_000)
        assert recv_monitor_message(monitor)["event"] != zmq.Event.HANDSHAKE_SUCCEEDED
    finally:
        context.destroy(linger=0)
