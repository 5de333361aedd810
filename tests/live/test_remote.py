"""Connections with keys: who knows none, or the wrong ones, gets no answer. Over loopback, with a real daemon."""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import zmq

import acqstream
from acqstream.client.daemon_requests import fetch_status
from acqstream.client.keys import make_keys
from acqstream.errors import ConfigError, DaemonUnavailable
from acqstream.simulate import pattern
from tests.live.daemon_process import DaemonProcess, free_port
from tests.live.old_protocols import send_and_wait, streams
from tests.live.wire_client import WireClient
from tests.waiting import until

pytestmark = pytest.mark.skipif(not zmq.has("curve"), reason="ZeroMQ without CURVE")

SILENCE_S = 0.4  # for an answer that does not come
ANSWER_S = 20.0  # for one that does


@dataclass(frozen=True)
class Site:
    """A daemon with keys, its remote endpoint, and where the keys are."""

    daemon: DaemonProcess
    endpoint: str
    keys: Path
    clients: Path

    def status(self, client: str, server: str = "server", timeout_s: float = ANSWER_S) -> None:
        keys = self.keys
        fetch_status(
            self.endpoint, timeout_s=timeout_s, server_key=keys / f"{server}.key", keys=keys / f"{client}.key_secret"
        )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root = tmp_path_factory.mktemp("remote")
    keys, clients = root / "keys", root / "clients"
    clients.mkdir()
    for name in ("server", "another-server", "alice", "stranger", "late"):
        make_keys(keys, name)
    (clients / "alice.key").write_bytes((keys / "alice.key").read_bytes())
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    options: dict[str, Any] = {
        "remote": [endpoint],
        "server_key": str(keys / "server.key_secret"),
        "client_keys": str(clients),
    }
    with DaemonProcess(root / "data", **options) as daemon:
        yield Site(daemon, endpoint, keys, clients)


@pytest.mark.parametrize("transport", ["tcp", "auto"])
def test_a_known_client_records_a_run(site: Site, transport: Literal["tcp", "auto"]) -> None:
    server_key = (site.keys / "server.key").read_text("utf-8").split('public-key = "')[1][:40]
    keys = site.keys / "alice.key_secret"
    image = pattern.frame(0, (300, 400), "uint16")
    name = f"far-{transport}"
    with acqstream.create(name, endpoint=site.endpoint, transport=transport, server_key=server_key, keys=keys) as run:
        run.put(image, time=0)
    with acqstream.open(run.path) as dataset:
        assert np.array_equal(dataset.read_frame(time=0), image)


def test_wrong_keys_get_no_answer_and_are_logged(site: Site) -> None:
    site.status("alice")
    with pytest.raises(DaemonUnavailable):
        site.status("stranger", timeout_s=SILENCE_S)
    with pytest.raises(DaemonUnavailable):
        site.status("alice", server="another-server", timeout_s=SILENCE_S)
    until(lambda: "denied a connection from 127.0.0.1" in site.daemon.output(), "it is logged")


def test_without_keys_there_is_no_answer(site: Site) -> None:
    with pytest.raises(DaemonUnavailable):
        fetch_status(site.endpoint, timeout_s=SILENCE_S)
    with pytest.raises(DaemonUnavailable):
        acqstream.create("nobody", endpoint=site.endpoint, patience_s=SILENCE_S)


@pytest.mark.parametrize("kind", list(streams()))
def test_old_protocols_do_not_lead_around_the_keys(site: Site, kind: str) -> None:
    """ZMTP 1.0 and 2.0 know no keys. On the local listener of a daemon with a ZAP handler they are refused, too."""
    for endpoint in (site.endpoint, site.daemon.endpoint):
        port = int(endpoint.rpartition(":")[2])
        assert b"status" not in send_and_wait(port, streams(b'{"t":"ping"}')[kind])
    site.status("alice")


def test_this_machine_needs_no_keys(site: Site) -> None:
    with WireClient(site.daemon.endpoint) as client:
        client.send("ping")
        assert site.endpoint in client.wait_for("status")["endpoints"]
    if zmq.has("ipc"):
        fetch_status(site.daemon.ipc)


def test_a_key_counts_as_soon_as_it_is_in_the_folder(site: Site) -> None:
    with pytest.raises(DaemonUnavailable):
        site.status("late", timeout_s=SILENCE_S)
    (site.clients / "broken.key").write_text("no key", "utf-8")
    added = site.clients / "late.key"
    added.write_bytes((site.keys / "late.key").read_bytes())
    site.status("late")
    added.unlink()
    with pytest.raises(DaemonUnavailable):
        site.status("late", timeout_s=SILENCE_S)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"remote": ["tcp://0.0.0.0:5272"]}, "remote needs server_key and client_keys"),
        (
            {"remote": ["tcp://127.0.0.1:*"], "server_key": "absent", "client_keys": "."},
            "server_key: cannot read absent",
        ),
        ({"remote": ["tcp://127.0.0.1:*"], "server_key": "absent", "client_keys": "none"}, "client_keys: none"),
    ],
)
def test_a_daemon_without_usable_keys_does_not_start(tmp_path: Path, options: dict[str, Any], text: str) -> None:
    daemon = DaemonProcess(tmp_path / "data", **options)
    daemon.launch()
    assert daemon.wait() == 78
    assert text in daemon.output()


@pytest.mark.skipif(sys.platform == "win32", reason="modes of files")
def test_a_secret_that_everybody_can_read_is_refused(tmp_path: Path) -> None:
    _, secret = make_keys(tmp_path, "server")
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    secret.chmod(0o644)
    options: dict[str, Any] = {"remote": ["tcp://127.0.0.1:*"], "server_key": str(secret), "client_keys": str(tmp_path)}
    daemon = DaemonProcess(tmp_path / "data", **options)
    daemon.launch()
    assert daemon.wait() == 78
    assert "every user can read" in daemon.output()


def test_half_a_pair_of_keys_is_told_before_anything_is_sent(site: Site) -> None:
    with pytest.raises(ConfigError, match="ACQSTREAM_KEYS"):
        fetch_status(site.endpoint, server_key=site.keys / "server.key")
