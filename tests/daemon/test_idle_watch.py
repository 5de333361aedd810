from __future__ import annotations

from pathlib import Path

import pytest

from acqstream.daemon import config as daemon_config
from acqstream.daemon.config import ANY_LOCAL_PORT, DaemonConfig, embedded_config
from acqstream.daemon.supervisor import IdleWatch
from acqstream.storage.platform.capabilities import has_local_sockets


def test_a_daemon_is_idle_after_the_configured_time_without_work() -> None:
    watch = IdleWatch(10.0)
    watch.tick(100.0, is_busy=False)  # the time counts from the first look, not from the start of the clock
    watch.tick(109.9, is_busy=False)
    assert not watch.is_over
    watch.tick(110.0, is_busy=False)
    assert watch.is_over


def test_work_starts_the_time_again() -> None:
    watch = IdleWatch(10.0)
    watch.tick(0.0, is_busy=False)
    watch.tick(9.0, is_busy=True)
    watch.tick(30.0, is_busy=False)
    assert not watch.is_over
    watch.tick(39.9, is_busy=False)
    assert not watch.is_over
    watch.tick(40.0, is_busy=False)
    assert watch.is_over
    watch.tick(41.0, is_busy=True)
    assert not watch.is_over


def test_without_a_configured_time_a_daemon_stays() -> None:
    watch = IdleWatch(None)
    watch.tick(0.0, is_busy=False)
    watch.tick(1e9, is_busy=False)
    assert not watch.is_over


def test_an_embedded_daemon_takes_a_socket_of_its_own_and_ends_when_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"remote": ["tcp://0.0.0.0:9"], "server_key": Path("server.key_secret"), "client_keys": Path("clients")}
    given = DaemonConfig(endpoints=["tcp://127.0.0.1:9"], memory_mb=99, ipc=False, **keys)  # type: ignore[arg-type]
    config = embedded_config(given)
    assert (config.remote, config.idle_exit_s) == ([], 60.0)
    if has_local_sockets():
        (endpoint,) = config.endpoints
        assert Path(endpoint.removeprefix("ipc://")).parent == given.runtime.absolute()
        assert embedded_config(given).endpoints != config.endpoints
    monkeypatch.setattr(daemon_config, "has_local_sockets", lambda: False)
    assert embedded_config(given).endpoints == [ANY_LOCAL_PORT]
    assert (config.memory_mb, config.ipc) == (99, False)  # the rest stays as it is configured
    assert embedded_config(DaemonConfig(idle_exit_s=5.0)).idle_exit_s == 5.0
    assert embedded_config(DaemonConfig(idle_exit_s=0.0)).idle_exit_s == 0.0
