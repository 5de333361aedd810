"""Local sockets that another user has put where the daemon's should be: they receive nothing."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import zmq

import acqstream
from acqstream.client.daemon_requests import fetch_status
from acqstream.client.frame_buffer import LocalMemory
from acqstream.client.link import Link
from acqstream.errors import ConfigError
from tests.live.other_user import STRANGER, only_root, result_as, shared_folder

pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="needs local sockets"), only_root]

IMAGE = np.arange(64, dtype=np.uint16).reshape(8, 8)


class Trap:
    """A folder in the temporary directory, and sockets in it, that the stranger was first to make."""

    def __init__(self, shared: Path, stack: ExitStack) -> None:
        folder = shared / "acqstream-0"
        folder.mkdir()
        self.ipc, self.memory = folder / "5271.sock", folder / "5271.memory"
        kinds = {self.ipc: socket.SOCK_STREAM, self.memory: socket.SOCK_SEQPACKET}
        self.listeners = [stack.enter_context(_listener(path, kind)) for path, kind in kinds.items()]
        for path in (folder, *kinds):
            os.chown(path, STRANGER, STRANGER)
        folder.chmod(0o755)

    def has_visitors(self) -> bool:
        for one in self.listeners:
            try:
                one.accept()[0].close()
            except BlockingIOError:
                continue
            return True
        return False


def _listener(path: Path, kind: int) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, kind)
    listener.bind(str(path))
    path.chmod(0o777)
    listener.listen()
    listener.setblocking(False)
    return listener


@pytest.fixture
def shared() -> Iterator[Path]:
    with shared_folder() as folder:
        yield folder


@pytest.fixture
def trap(shared: Path) -> Iterator[Trap]:
    with ExitStack() as stack:
        yield Trap(shared, stack)


@pytest.mark.promise("foreign-commands")
def test_frames_stay_on_tcp(daemon, trap: Trap) -> None:
    daemon.behavior.ipc, daemon.behavior.memory = f"ipc://{trap.ipc}", str(trap.memory)
    with acqstream.create("cells", endpoint=daemon.endpoint, buffer_mb=1) as run:
        run.put(IMAGE, time=0)
    assert len(daemon.frames) == 1
    assert not trap.has_visitors()


def test_who_insists_is_told(daemon, trap: Trap) -> None:
    daemon.behavior.ipc, daemon.behavior.memory = f"ipc://{trap.ipc}", str(trap.memory)
    for transport in ("ipc", "shm"):
        with pytest.raises(ConfigError, match=f"acqstream-0 belongs to user {STRANGER}"):
            acqstream.create("cells", endpoint=daemon.endpoint, transport=transport, buffer_mb=1)
    with pytest.raises(ConfigError, match=f"acqstream-0 belongs to user {STRANGER}"):
        fetch_status(f"ipc://{trap.ipc}")
    assert not trap.has_visitors()


def test_a_link_to_a_socket_of_another_user(trap: Trap) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        with pytest.raises(ConfigError, match="not safe"):
            Link(context, f"ipc://{trap.ipc}")
    finally:
        context.destroy(linger=0)
    assert not trap.has_visitors()


def test_memory_is_not_handed_to_a_process_that_is_not_the_owner(tmp_path: Path) -> None:
    """The listening process counts, not only the name: one of another user has got hold of the socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "a.memory"))
        assert result_as(STRANGER, listener.listen) == "None"  # that is where the kernel notes the user
        memory = LocalMemory(4096, shared=True)
        try:
            handover = memory.hand_over(str(tmp_path / "a.memory"), 5.0)
            assert (handover.connection, handover.token) == (None, "")
            assert f"of user {STRANGER} listens there" in handover.why
        finally:
            memory.close()
