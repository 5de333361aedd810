"""The folder of the local sockets is made, or found to be safe; else the daemon does not start."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from acqstream.daemon.config import DaemonConfig
from acqstream.daemon.endpoints import Endpoints
from acqstream.daemon.runtime_folder import make_runtime_folder, marked_start
from acqstream.errors import ConfigError
from tests.live.daemon_process import DaemonProcess
from tests.live.other_user import SERVICE, STRANGER, only_root, result_as, shared_folder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="user ids")


@pytest.fixture
def shared() -> Iterator[Path]:
    with shared_folder() as folder:
        yield folder


def owned(path: Path, user: int, mode: int) -> Path:
    path.mkdir()
    os.chown(path, user, user)
    path.chmod(mode)
    return path


def test_it_is_made_for_its_user_alone(shared: Path) -> None:
    for _ in range(2):
        make_runtime_folder(shared / "a" / "b")
        assert stat.S_IMODE((shared / "a" / "b").stat().st_mode) == 0o700


@pytest.mark.promise("foreign-commands")
@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777, 0o1777])
def test_nobody_else_may_write_in_it(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(ConfigError, match=f"{folder}.*mode {mode:04o}.*`runtime`"):
        make_runtime_folder(folder)


def test_it_is_a_real_directory(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "file").touch()
    (tmp_path / "nowhere").symlink_to("missing")
    for name in ("link", "file", "nowhere"):
        with pytest.raises(ConfigError, match=f"{tmp_path / name}"):
            make_runtime_folder(tmp_path / name)


def test_nobody_can_replace_it(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(ConfigError, match="all users may write"):
        make_runtime_folder(tmp_path / "open" / "run")


@only_root
def test_a_daemon_does_not_start_in_the_folder_of_another_user(tmp_path: Path, shared: Path) -> None:
    folder = owned(shared / "acqstream-0", STRANGER, 0o755)
    daemon = DaemonProcess(tmp_path / "data", runtime=str(folder))
    daemon.launch()
    assert daemon.wait() == 78
    assert f"{folder} is not safe: it belongs to user {STRANGER} and has mode 0755; expected user 0" in daemon.output()
    assert not list(folder.iterdir())


@only_root
def test_as_the_user_of_a_service(shared: Path) -> None:
    """What systemd makes for it is fine, and what another user has made first is not."""

    def start(runtime: Path) -> str:
        config = DaemonConfig(data=shared, endpoints=["tcp://127.0.0.1:*"], runtime=runtime)
        endpoints = Endpoints(config)
        endpoints.close()
        return endpoints.ipc

    run = owned(shared / "run", 0, 0o755)
    made_by_systemd = owned(run / "acqstream", SERVICE, 0o750)
    assert result_as(SERVICE, lambda: start(made_by_systemd)).startswith(f"ipc://{made_by_systemd}/")
    theirs = owned(shared / f"acqstream-{SERVICE}", STRANGER, 0o777)
    assert "ConfigError" in (said := result_as(SERVICE, lambda: start(theirs))), said
    assert f"belongs to user {STRANGER}" in said
    of_root = owned(shared / "of-root", 0, 0o777)
    assert f"expected user {SERVICE}" in result_as(SERVICE, lambda: start(of_root))


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:*", "tcp://127.0.0.1:5271", "tcp://[::1]:*"])
def test_the_mark_of_a_start_at_a_port_is_in_the_runtime_folder_and_goes(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with marked_start(tmp_path / "run", endpoint):
        assert [one.suffix for one in (tmp_path / "run").iterdir()] == [".starting"]
    assert [*(tmp_path / "run").iterdir(), *Path().iterdir()] == []
