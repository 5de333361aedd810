"""`create` at a daemon that dies, or is cut off, before it has answered; another one follows at the same endpoint."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

from acqstream.client.producer import create
from acqstream.errors import AcquisitionRefused, ConfigError, DaemonUnavailable, DatasetExists
from acqstream.protocol.replies import Error
from acqstream.protocol.requests import Hello, Open, parse_request
from tests.client.fake_daemon import FakeDaemon, needs_ipc

GRAY = np.arange(6, dtype="<u2").reshape(2, 3)
PATIENCE_S = 60.0  # no test waits for it: a daemon that follows is found by the next attempt
TAKEN = Error("name_taken", "cells exists already")


class DyingDaemon(FakeDaemon):
    """Ends at the first message of type `last`, without an answer."""

    def __init__(self, endpoint: str, last: type) -> None:
        self._last = last
        self.died = threading.Event()
        super().__init__(endpoint)

    def _take(self, peer: bytes, header: bytes, *payload: bytes) -> None:
        from acqstream.protocol.encoding import decode_header

        request = parse_request(decode_header(header)[0])
        if isinstance(request, self._last):
            self.requests.append(request)
            self._router.close(0)
            self._stopping = True
            self.died.set()
            return
        super()._take(peer, header, *payload)

    def bury(self) -> None:
        self.died.wait(100)
        if not self.died.is_set():
            self.stop()
        self._thread.join()
        self._wake_out.close(0)
        self._context.destroy(linger=0)


class Succession:
    """A daemon that dies at `last`, and one that follows as soon as the endpoint is free again."""

    def __init__(self, endpoint: str, last: type, prepare: Callable[[FakeDaemon], None] = lambda _: None) -> None:
        self.first = DyingDaemon(endpoint, last)
        self.endpoint = self.first.endpoint
        self.second: FakeDaemon | None = None
        self._prepare = prepare
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def _follow(self) -> None:
        self.first.bury()
        while self.second is None:
            try:
                self.second = FakeDaemon(self.endpoint)
            except zmq.ZMQError:
                continue  # libzmq closes sockets later
        self._prepare(self.second)

    def __enter__(self) -> Succession:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        assert self.second is not None
        self.second.stop()

    @property
    def follower(self) -> FakeDaemon:
        assert self.second is not None
        return self.second

    @property
    def hellos(self) -> int:
        return sum(isinstance(request, Hello) for request in self.follower.requests)


@pytest.fixture(params=["tcp", pytest.param("ipc", marks=needs_ipc)])
def endpoint(request: Any, tmp_path: Path) -> str:
    return "tcp://127.0.0.1:*" if request.param == "tcp" else f"ipc://{tmp_path}/d.sock"


def start(succession: Succession, **arguments: Any) -> Any:
    arguments = {"endpoint": succession.endpoint, "buffer_mb": 1, "patience_s": PATIENCE_S, **arguments}
    return create("cells", **arguments)


def check_run(run: Any, succession: Succession) -> None:
    run.put(GRAY, time=0)
    assert run.close().stored == 1
    assert len(succession.follower.frames) == 1
    assert succession.hellos == 1


def test_a_daemon_that_dies_before_it_answers_hello(endpoint, monkeypatch):
    monkeypatch.setattr("acqstream.client.connector._HELLO_S", PATIENCE_S)  # only the lost connection tells
    with Succession(endpoint, Hello) as succession:
        check_run(start(succession), succession)
        assert [resume for _, resume in succession.follower.opens] == [False]


def test_an_open_that_was_lost_with_the_daemon_is_repeated_with_the_next_epoch(endpoint):
    with Succession(endpoint, Open) as succession:
        check_run(start(succession), succession)
        (first,) = [one for one in succession.first.requests if isinstance(one, Open)]
        (second,) = [one for one in succession.follower.requests if isinstance(one, Open)]
        assert (first.spec.epoch, second.spec.epoch, second.spec.resume) == (0, 1, False)
        assert replace(second.spec, epoch=0) == first.spec


def test_a_name_that_another_has_taken_meanwhile_is_refused(endpoint):
    def has_another(daemon: FakeDaemon) -> None:
        daemon.behavior.open_error = TAKEN

    with Succession(endpoint, Open, has_another) as succession, pytest.raises(DatasetExists, match="exists already"):
        start(succession)


@pytest.mark.parametrize("last", [Hello, Open])
def test_the_same_with_resume(endpoint, last):
    with Succession(endpoint, last) as succession:
        check_run(start(succession, resume=True), succession)
        assert {resume for _, resume in succession.follower.opens} == {True}


@needs_ipc
def test_a_daemon_that_dies_after_it_has_pointed_to_its_local_socket(tmp_path):
    """The connection over tcp is made, that to the local socket is lost: the whole attempt begins anew."""
    local = f"ipc://{tmp_path}/d.sock"

    def offers_local(daemon: FakeDaemon) -> None:
        daemon.behavior.ipc = local
        daemon.bind_also(local)

    with Succession("tcp://127.0.0.1:*", Open, offers_local) as succession:
        succession.first.behavior.ipc = local
        succession.first.bind_also(local)
        run = start(succession, transport="ipc")
        assert run.transport == "ipc"
        run.put(GRAY, time=0)
        assert run.close().stored == 1


def test_a_daemon_that_is_shutting_down_is_waited_for(daemon):
    daemon.behavior.open_error = Error("shutting_down", "the daemon is shutting down")

    def end() -> None:
        daemon.wait_for(lambda: len(daemon.opens) > 1, 60)
        daemon.behavior.open_error = None

    ending = threading.Thread(target=end)
    ending.start()
    with create("cells", endpoint=daemon.endpoint, buffer_mb=1, patience_s=PATIENCE_S) as run:
        run.put(GRAY, time=0)
    ending.join()
    assert len(daemon.opens) > 1
    opens = [one for one in daemon.requests if isinstance(one, Open)]
    assert {one.spec.epoch for one in opens} == {0}, "a refused one has opened nothing"


def test_a_daemon_that_keeps_shutting_down_is_an_error_that_says_so(daemon):
    daemon.behavior.open_error = Error("shutting_down", "the daemon is shutting down")
    with pytest.raises(AcquisitionRefused, match="shutting down"):
        create("cells", endpoint=daemon.endpoint, buffer_mb=1, patience_s=0.5)


def test_a_daemon_that_hangs_before_hello_is_asked_again(daemon, monkeypatch):
    monkeypatch.setattr("acqstream.client.connector._HELLO_S", 0.05)
    daemon.behavior.silent = True

    def wake_up() -> None:
        daemon.wait_for(lambda: len(daemon.requests) > 2, 60)
        daemon.behavior.silent = False

    waking = threading.Thread(target=wake_up)
    waking.start()
    with create("cells", endpoint=daemon.endpoint, buffer_mb=1, patience_s=PATIENCE_S) as run:
        run.put(GRAY, time=0)
    waking.join()
    assert len(daemon.opens) == 1


def test_a_listener_that_hangs_up_again_and_again_is_not_asked_without_pause():
    visits = 0
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:

        def hang_up() -> None:
            nonlocal visits
            with contextlib.suppress(OSError):  # the server is shut down
                while True:
                    visitor, _ = server.accept()
                    visits += 1
                    with visitor:
                        visitor.recv(64)  # the first bytes of a greeting: the connection stood

        thread = threading.Thread(target=hang_up)
        thread.start()
        try:
            with pytest.raises(DaemonUnavailable, match="closes each connection at once"):
                create(
                    "cells",
                    endpoint=f"tcp://127.0.0.1:{server.getsockname()[1]}",
                    buffer_mb=1,
                    patience_s=1.0,
                )
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
    assert 2 <= visits <= 20


def test_insisting_on_ipc_stays_an_error_of_configuration(daemon):
    with pytest.raises(ConfigError, match="transport='ipc'"):
        create("cells", endpoint=daemon.endpoint, buffer_mb=1, transport="ipc", patience_s=PATIENCE_S)


@pytest.mark.parametrize("daemon_knows", [True, False])
def test_another_version_of_the_protocol_is_refused_with_both_numbers(daemon: FakeDaemon, daemon_knows: bool) -> None:
    """The daemon refuses `hello`, as ours does, or answers with its own version."""
    text = "speaks protocol version 2, this client 1"
    if daemon_knows:
        text = "protocol version 1; this daemon speaks 2"
        daemon.behavior.hello_error = Error("bad_version", text)
    daemon.behavior.version = 2
    with pytest.raises(AcquisitionRefused, match=f"the daemon at {daemon.endpoint}.*{text}") as caught:
        create("cells", endpoint=daemon.endpoint, buffer_mb=1, patience_s=PATIENCE_S)
    assert caught.value.code == "bad_version"
    assert daemon.opens == []
