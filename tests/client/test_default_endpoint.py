"""Which daemon is used when the caller names none."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

import acqstream
from acqstream.client import default_endpoint
from acqstream.client.daemon_requests import fetch_status, stop_acquisition
from acqstream.client.default_endpoint import DEFAULT_ENDPOINT, find_endpoint, hint, not_a_member
from acqstream.client.link import no_daemon
from acqstream.errors import DaemonUnavailable
from tests.client.fake_daemon import FakeDaemon

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs local sockets")


class Places:
    """Folders that stand for those of this user and of the system service."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.own, self.system = folder / "user" / "acqstream", folder / "system" / "acqstream.sock"
        self._stack = stack

    def listen(self, path: Path) -> socket.socket:
        path.parent.mkdir(parents=True, exist_ok=True)
        one = self._stack.enter_context(socket.socket(socket.AF_UNIX))
        one.bind(str(path))
        one.listen()
        return one


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Places]:
    monkeypatch.delenv("ACQSTREAM_ENDPOINT", raising=False)
    with ExitStack() as stack:
        made = Places(tmp_path, stack)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(made.own.parent))
        monkeypatch.setattr(default_endpoint, "SYSTEM_SOCKET", made.system)
        monkeypatch.setattr(default_endpoint, "_own_folders", only_in(made.own, default_endpoint._own_folders))
        yield made


def only_in(folder: Path, folders):  # type: ignore[no-untyped-def]
    """A daemon of the developer's own does not matter here."""
    return lambda: (one for one in folders() if one == folder)


def test_without_any_daemon_it_is_the_port_as_ever(places: Places) -> None:
    assert find_endpoint() == DEFAULT_ENDPOINT == "tcp://127.0.0.1:5271"


def test_the_variable_comes_first(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    places.listen(places.own / "acqstream.sock")
    monkeypatch.setenv("ACQSTREAM_ENDPOINT", "tcp://127.0.0.1:7")
    assert find_endpoint() == "tcp://127.0.0.1:7"


@pytest.mark.parametrize("name", ["acqstream.sock", "5271.sock"])
def test_the_users_own_daemon_comes_before_the_system_service(places: Places, name: str) -> None:
    places.listen(places.system)
    own = places.listen(places.own / name)
    expected = DEFAULT_ENDPOINT if name == "5271.sock" else f"ipc://{places.own / name}"
    assert find_endpoint() == expected
    own.close()  # killed: its name stays
    assert (places.own / name).is_socket()
    assert find_endpoint() == f"ipc://{places.system}"


def test_a_system_service_that_restarts_is_waited_for(places: Places) -> None:
    places.listen(places.system).close()
    assert find_endpoint() == f"ipc://{places.system}"


def test_a_folder_of_another_user_is_not_ours(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    places.listen(places.own / "acqstream.sock")
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert find_endpoint() == DEFAULT_ENDPOINT


def test_insisting_on_tcp_passes_over_local_sockets(places: Places) -> None:
    places.listen(places.own / "acqstream.sock")
    places.listen(places.system)
    assert find_endpoint("tcp") == DEFAULT_ENDPOINT


# --- who is not in the group -----------------------------------------------------------------------------------------


@pytest.fixture
def stranger(places: Places, monkeypatch: pytest.MonkeyPatch) -> Places:
    """This process may not look into the folder of the system service, and is not in its group, number 54321."""
    places.listen(places.system)
    real = os.stat

    def stat(path, *arguments, **options):  # type: ignore[no-untyped-def]
        if path == places.system:
            raise PermissionError(13, "Permission denied", str(path))
        found = real(path, *arguments, **options)
        return os.stat_result((*found[:5], 54321, *found[6:10])) if path == places.system.parent else found

    monkeypatch.setattr(os, "stat", stat)
    monkeypatch.setattr(default_endpoint, "_group_name", lambda number: {54321: "acqstream"}[number])
    return places


def test_it_is_told_at_once_by_every_way_in(stranger: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_endpoint, "_is_answered", lambda: False)
    for ask in (find_endpoint, fetch_status, lambda: stop_acquisition("cells"), lambda: acqstream.create("cells")):
        with pytest.raises(DaemonUnavailable, match=r"you are not in group acqstream: .*usermod -aG acqstream"):
            ask()  # type: ignore[operator]


def test_a_port_that_answers_is_used_as_ever(stranger: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_endpoint, "_is_answered", lambda: True)
    assert find_endpoint() == DEFAULT_ENDPOINT


def test_a_user_with_a_daemon_that_is_starting_waits_for_it(stranger: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_endpoint, "_is_answered", lambda: False)
    stranger.own.mkdir(parents=True)
    assert find_endpoint() == DEFAULT_ENDPOINT
    assert "you are not in group acqstream" in str(no_daemon(DEFAULT_ENDPOINT))


def test_the_hint_is_for_closed_sockets_only(stranger: Places) -> None:
    assert "you are not in group acqstream" in hint(f"ipc://{stranger.system}")
    for endpoint in ("tcp://127.0.0.1:5272", "ipc://@abstract", f"ipc://{stranger.own / 'acqstream.sock'}"):
        assert hint(endpoint) == ""
        assert "start one with: acqstream serve" in str(no_daemon(endpoint))


def test_a_member_gets_no_hint(stranger: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getgroups", lambda: [54321])
    assert not_a_member(stranger.system) == ""


# --- with a daemon ---------------------------------------------------------------------------------------------------


def test_the_found_daemon_takes_a_run_and_answers(places: Places) -> None:
    places.system.parent.mkdir()
    daemon = FakeDaemon(f"ipc://{places.system}")
    try:
        assert fetch_status().endpoint == daemon.endpoint == f"ipc://{places.system}"
        with acqstream.create("cells", buffer_mb=1) as run:
            run.put(np.zeros((8, 8), "u1"), time=0)
            assert run._connection.opener.endpoint == daemon.endpoint
        assert len(daemon.frames) == 1
    finally:
        daemon.stop()


def test_a_service_that_comes_while_create_waits_is_found(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    places.system.parent.mkdir()
    daemons: list[FakeDaemon] = []
    nobody = "tcp://127.0.0.1:9"
    calls: list[str] = []

    def find(transport: str) -> str:
        assert transport == "auto"
        calls.append(nobody)
        if len(calls) == 3:
            daemons.append(FakeDaemon(f"ipc://{places.system}"))
        return nobody if len(calls) < 3 else f"ipc://{places.system}"

    monkeypatch.setattr("acqstream.client.producer.find_endpoint", find)
    try:
        with acqstream.create("cells", buffer_mb=1, patience_s=60) as run:
            assert run._connection.opener.endpoint == f"ipc://{places.system}"
            found = len(calls)
            daemons[0].peer = b"nobody"  # contact is lost: the run stays with its daemon
            run.put(np.zeros((8, 8), "u1"), time=0)
            daemons[0].wait_for(lambda: len(daemons[0].opens) == 2, 60)
            assert len(calls) == found
    finally:
        daemons[0].stop()


def test_an_endpoint_that_is_given_is_the_one(places: Places) -> None:
    places.listen(places.own / "acqstream.sock")
    daemon = FakeDaemon()
    try:
        assert fetch_status(daemon.endpoint).endpoint == daemon.endpoint
        with acqstream.create("cells", endpoint=daemon.endpoint, buffer_mb=1) as run:
            assert run._connection.opener.endpoint == daemon.endpoint
    finally:
        daemon.stop()
