"""Every combination of boot ids and sockets: which daemon is on this machine, and which mistakes are safe."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import acqstream
from acqstream.client.default_endpoint import is_same_machine, is_socket_of
from acqstream.protocol.replies import Welcome, parse_reply
from acqstream.protocol.requests import Open
from acqstream.protocol.shared_memory import socket_identity
from acqstream.storage import platform
from tests.client.fake_daemon import FakeDaemon

pytestmark = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="needs local sockets")

GRAY = np.zeros((8, 8), "u1")
OURS, OTHER = "the boot id seen here", "the boot id seen there"


@pytest.fixture(autouse=True)
def _boot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "boot_id", lambda: OURS)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A socket that somebody has bound."""
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(tmp_path / "d.sock"))
        yield tmp_path / "d.sock"


def welcome(boot: str, sockets: dict[str, str] | None = None) -> Welcome:
    return Welcome(1, "fake", ("ndtiff",), ("|u1",), 2**20, 2**20, boot, "", "", sockets=sockets or {})


TCP, FAR = "tcp://127.0.0.1:5271", "tcp://192.168.7.2:5272"


@pytest.mark.parametrize(
    ("boot", "way", "identified", "has_memory", "same"),
    [
        (OTHER, "ipc", True, False, True),  # a container that sees another boot id: the file proves it
        (OTHER, "ipc", False, False, False),  # a forwarder's own file, or a daemon that identifies none: doubt
        (OURS, "ipc", True, False, True),
        (OURS, "ipc", False, False, True),
        (OTHER, TCP, True, False, False),  # may be a tunnel; that a file is seen proves nothing about the connection
        (OTHER, TCP, False, False, False),
        (OURS, TCP, False, False, True),
        (OURS, FAR, True, False, False),  # two machines resumed from one snapshot
        (OURS, FAR, False, False, False),
        ("", TCP, False, False, False),  # no boot ids on this platform
        ("", "ipc", True, False, True),
        (OTHER, TCP, False, True, True),  # the daemon has mapped our memory
        (OTHER, "ipc", False, True, True),
    ],
)
def test_same_machine(path: Path, boot: str, way: str, identified: bool, has_memory: bool, same: bool) -> None:
    identity = socket_identity(path) if identified else "1:2:3"
    said = welcome(boot, {"/where/the/daemon/sees/it": identity})
    endpoint = f"ipc://{path}" if way == "ipc" else way
    assert is_same_machine(said, endpoint, has_memory=has_memory) is same


def test_a_platform_without_boot_ids_is_not_the_same_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "boot_id", lambda: "")
    assert not is_same_machine(welcome(""), TCP, has_memory=False)


@pytest.mark.parametrize(
    ("boot", "identity", "usable"),
    [
        (OTHER, "equal", True),  # ipc and memory are not forbidden by a boot id
        (OURS, "equal", True),
        (OURS, "another", False),  # another daemon's socket at the same path, in a container with equal boot id
        (OTHER, "another", False),
        (OURS, "", False),  # the daemon could not look
        (OURS, None, False),  # one that the daemon has not bound
    ],
)
def test_whose_socket_it_is(path: Path, boot: str, identity: str | None, usable: bool) -> None:
    if identity == "equal":
        identity = socket_identity(path)
    said = welcome(boot, {} if identity is None else {str(path): identity})
    assert is_socket_of(said, str(path)) is usable
    path.unlink()
    assert not is_socket_of(said, str(path))


def test_identity_is_of_sockets_only_and_differs(tmp_path: Path, path: Path) -> None:
    before = socket_identity(path)
    assert before.count(":") == 2
    (tmp_path / "file").touch()
    for other in (tmp_path / "file", tmp_path / "none", tmp_path, "a\0b"):
        assert socket_identity(other) == ""
    path.rename(tmp_path / "aside")  # so that its inode stays taken
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))
        assert socket_identity(path) not in ("", before)


# --- a run -----------------------------------------------------------------------------------------------------------


def endpoint_and_hold(daemon: FakeDaemon, **options: object) -> tuple[str, int]:
    """The endpoint a run came to use, and what it still holds of a frame that is published and not durable."""
    daemon.behavior.durable = False
    with acqstream.create("cells", endpoint=daemon.endpoint, buffer_mb=1, **options) as run:  # type: ignore[arg-type]
        run.put(GRAY, time=0)
        with run._state.condition:
            assert run._state.condition.wait_for(lambda: run._state.cursors.published == 1, 20)
        return run._connection.opener.endpoint, run.progress.behind_bytes


@pytest.fixture
def local(daemon: FakeDaemon, tmp_path: Path) -> FakeDaemon:
    """The fake daemon, listening at a local socket too, of another boot id."""
    daemon.behavior.boot = OTHER
    daemon.behavior.ipc = f"ipc://{tmp_path}/ipc.sock"
    daemon.bind_also(daemon.behavior.ipc)
    daemon.wait_for((tmp_path / "ipc.sock").exists)
    return daemon


def test_another_boot_id_does_not_forbid_ipc(local: FakeDaemon, tmp_path: Path) -> None:
    file = str(tmp_path / "ipc.sock")
    local.behavior.sockets = {file: socket_identity(file)}
    assert endpoint_and_hold(local) == (local.behavior.ipc, 0)


def test_the_socket_of_another_daemon_is_left_alone(local: FakeDaemon, tmp_path: Path) -> None:
    local.behavior.boot = OURS
    local.behavior.sockets = {str(tmp_path / "ipc.sock"): "1:2:3"}  # as if seen in another mount namespace
    assert endpoint_and_hold(local) == (local.endpoint, 0)


def test_another_boot_id_and_no_socket_keeps_frames_until_they_are_durable(local: FakeDaemon) -> None:
    local.behavior.sockets = {}
    assert endpoint_and_hold(local) == (local.endpoint, GRAY.nbytes)


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs memory files")
@pytest.mark.parametrize(
    ("boot", "sockets", "why"),
    [
        (OTHER, {}, "the daemon is on another machine"),
        (OURS, {"MEMORY": "1:2:3"}, "the socket there is of another daemon"),
        (OURS, {"MEMORY": "gone"}, "the socket is missing"),
    ],
)
def test_why_memory_is_not_handed_over(
    daemon: FakeDaemon, path: Path, boot: str, sockets: dict[str, str], why: str
) -> None:
    daemon.behavior.boot, daemon.behavior.memory = boot, str(path)
    if "gone" in sockets.values():
        path.unlink()
    daemon.behavior.sockets = {str(path): identity for identity in sockets.values()}
    with acqstream.create("cells", endpoint=daemon.endpoint, buffer_mb=1):
        (request,) = (one for one in daemon.requests if isinstance(one, Open))
    assert request.memory.token == ""
    assert why in request.memory.why


def test_sockets_in_welcome_go_both_ways() -> None:
    said = welcome(OURS, {"/a": "1:2:3"})
    assert parse_reply(said.fields()) == said
