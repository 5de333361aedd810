"""Web pages and peers with old versions of ZMTP: nothing that they send is taken, on any listener."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable, Iterator

import pytest

from acqstream.client.daemon_requests import fetch_status
from tests.live.daemon_process import DaemonProcess
from tests.live.old_protocols import http, send_and_wait, streams, unversioned, versioned_1, versioned_2
from tests.live.victim import Victim
from tests.live.wire_client import WireClient, new_dataset_id

_INTRUSION = "opened-by-a-web-page"


@pytest.fixture(scope="module")
def victim(shared_daemon: DaemonProcess) -> Iterator[Victim]:
    at_work = Victim(shared_daemon.endpoint)
    yield at_work
    at_work.finish()


def commands(victim: Victim) -> tuple[bytes, ...]:
    """What ends the victim's acquisition, opens another one, and asks for an answer."""
    open_one = {"t": "open", "ds": new_dataset_id(), "name": _INTRUSION, "on_exists": "number"}
    stop = {"t": "stop", "name": victim.run.name}
    return tuple(json.dumps(one).encode() for one in (open_one, stop, {"t": "ping"}))


def check_untouched(daemon: DaemonProcess, victim: Victim) -> None:
    assert [one.name for one in fetch_status(daemon.endpoint).acquisitions] == [victim.run.name]
    assert not list(daemon.data.glob(f"{_INTRUSION}*"))
    assert victim.error is None


@pytest.mark.promise("foreign-commands")
def test_a_web_page_cannot_command_the_daemon(shared_daemon: DaemonProcess, victim: Victim) -> None:
    """A POST whose body holds messages where libzmq's parser of ZMTP 1.0 would look for them."""
    answer = send_and_wait(shared_daemon.port, http("POST / HTTP/1.1", *commands(victim)))
    assert b"status" not in answer
    check_untouched(shared_daemon, victim)


@pytest.mark.promise("foreign-commands")
@pytest.mark.parametrize("kind", list(streams()))
@pytest.mark.parametrize("transport", ["tcp", "ipc"])
def test_what_is_no_zmtp_3_commands_nothing(
    shared_daemon: DaemonProcess, victim: Victim, transport: str, kind: str
) -> None:
    if transport == "ipc" and sys.platform != "linux":
        pytest.skip("needs local sockets")
    place = shared_daemon.port if transport == "tcp" else shared_daemon.ipc.removeprefix("ipc://")
    answer = send_and_wait(place, streams(*commands(victim))[kind])
    assert b"status" not in answer
    check_untouched(shared_daemon, victim)


@pytest.mark.promise("foreign-commands")
@pytest.mark.parametrize("greeting", [unversioned, versioned_1, versioned_2], ids=lambda one: one.__name__)
def test_old_subscribers_get_no_events(shared_daemon: DaemonProcess, greeting: Callable[..., bytes]) -> None:
    with WireClient(shared_daemon.endpoint) as client:
        events = client.hello()["events"]
        port = int(events.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=50) as subscriber:
            subscriber.sendall(greeting(b"\1"))
            heard = b""
            try:
                while part := subscriber.recv(4096):
                    heard += part
            except ConnectionError:
                pass
    assert len(heard) <= 64  # the greeting at most
