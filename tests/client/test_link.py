"""Connections to a daemon, where the program does more than talk to it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import zmq

from acqstream.client.link import Link


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("kind", ["tcp", "ipc"])
def test_a_forked_process_does_not_keep_the_connection_up(tmp_path: Path, kind: str) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.router_mandatory = 1
    router.bind("tcp://127.0.0.1:*" if kind == "tcp" else f"ipc://{tmp_path}/s")
    link = Link(context, router.getsockopt_string(zmq.LAST_ENDPOINT))
    try:
        assert link.wait_writable(5)
        assert link.send(b"{}")
        peer = router.recv_multipart()[0]
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(writing)
            os.read(reading, 1)  # until the parent closes it
            os._exit(0)
        try:
            router.send_multipart([peer, b"{}"])  # the parent's connection stands
            assert link.wait(5)
            link.close()
            assert _is_gone(router, peer)
        finally:
            os.close(writing)
            os.waitpid(child, 0)
            os.close(reading)
    finally:
        link.close()
        context.destroy(linger=0)


def _is_gone(router: zmq.Socket[bytes], peer: bytes) -> bool:
    until_s = time.monotonic() + 5
    while time.monotonic() < until_s:
        try:
            router.send_multipart([peer, b"{}"], zmq.DONTWAIT)
        except zmq.ZMQError as error:
            return error.errno == zmq.EHOSTUNREACH
        time.sleep(0.01)
    return False
