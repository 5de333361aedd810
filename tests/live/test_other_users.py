"""Another user of the PC neither commands an embedded daemon, nor takes its place, nor leads it to other files."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import psutil
import pytest

import acqstream
from acqstream.client.daemon_requests import stop_acquisition
from acqstream.client.directory_daemon import LOG_NAME, DirectoryDaemon, endpoint_of
from acqstream.errors import AcqStreamError
from acqstream.model.daemon_note import DaemonNote
from acqstream.storage.files.directory_lock import LOCK_NAME, DirectoryLock
from acqstream.storage.files.free_space import BALLAST_NAME
from tests.live.daemon_process import DaemonProcess
from tests.live.embedded_daemons import EmbeddedDaemons
from tests.live.other_user import STRANGER, only_root, result_as
from tests.waiting import until

pytestmark = only_root
WORDS = "three years of work\n" * 1000
CLOSED = np.zeros((64, 64), "u2")


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that all users reach; what is in it belongs to this one."""
    folder = Path(mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def daemons(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedDaemons]:
    found = EmbeddedDaemons(home, ballast_mb=1)
    monkeypatch.setenv("ACQSTREAM_CONFIG", str(found.config))
    yield found
    found.end()


def command(endpoint: str) -> str:
    """What a stranger gets who knows an endpoint: he stops the run, and records one of his own."""
    told = []
    for work in (
        lambda: stop_acquisition("cells", endpoint=endpoint),
        lambda: acqstream.create("other", endpoint=endpoint, patience_s=1),
    ):
        try:
            told.append(str(work()))
        except AcqStreamError as error:
            told.append(type(error).__name__)
    return " ".join(told)


@pytest.mark.promise("other-users")
def test_no_other_user_reaches_an_embedded_daemon(daemons: EmbeddedDaemons) -> None:
    with acqstream.create("cells", data=daemons.data) as run:
        run.put(CLOSED, time=0)
        pid, endpoint = daemons.pid, endpoint_of(daemons.data)
        assert pid is not None
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        ports = [one for process in family for one in process.net_connections(kind="inet")]
        assert ports == []  # all users reach every port
        refused = {"DaemonUnavailable", "ConfigError", "AcquisitionRefused"}
        assert set(result_as(STRANGER, lambda: command(endpoint)).split()) <= refused
        assert result_as(STRANGER, lambda: os.listdir(Path(endpoint.removeprefix("ipc://")).parent)).startswith("Perm")
        for time in range(1, 5):
            run.put(CLOSED, time=time)
    assert run.receipt is not None
    assert (run.receipt.status, run.receipt.stored) == ("completed", 5)
    assert sorted(path.name for path in daemons.data.iterdir() if path.is_dir()) == ["cells"]


@pytest.mark.promise("other-users")
@pytest.mark.parametrize("ending", ["in order", "killed"])
def test_no_other_user_replaces_a_daemon_that_has_ended(daemons: EmbeddedDaemons, ending: str) -> None:
    with acqstream.create("first", data=daemons.data) as run:
        run.put(CLOSED, time=0)
    pid = daemons.pid
    assert pid is not None
    if ending == "killed":
        os.kill(pid, signal.SIGKILL)
        until(lambda: not psutil.pid_exists(pid), "the end of the daemon")
    daemons.end()
    lock = daemons.data / LOCK_NAME
    assert lock.stat().st_mode & 0o777 == 0o600
    assert ending == "killed" or not lock.read_bytes()

    def take() -> None:
        fcntl.flock(os.open(lock, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)

    assert result_as(STRANGER, take).startswith("PermissionError")
    with acqstream.create("second", data=daemons.data) as run:
        run.put(CLOSED, time=0)
    assert run.receipt is not None
    assert Path(run.receipt.path) == daemons.data / "second"


def test_a_socket_of_another_user_is_not_asked(daemons: EmbeddedDaemons, home: Path) -> None:
    """A note that names one cannot come about as long as the lock file is its owner's alone."""
    with acqstream.create("first", data=daemons.data) as run:
        run.put(CLOSED, time=0)
    daemons.end()
    path = home / "thief" / "data.sock"
    path.parent.mkdir()
    os.chown(path.parent, STRANGER, STRANGER)
    child = os.fork()
    if not child:
        os.setgid(STRANGER)
        os.setuid(STRANGER)
        import socket

        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen()
            signal.pause()
    try:
        until(path.exists, "the socket")
        lock = os.open(daemons.data / LOCK_NAME, os.O_RDWR)
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.write(lock, f'acqstream pid 1 on here\n{{"endpoints": ["ipc://{path}"]}}\n'.encode())
        with pytest.raises(AcqStreamError, match=rf"answered by a process of user {STRANGER}|is not safe"):
            acqstream.create("second", data=daemons.data, patience_s=1)
        os.close(lock)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.promise("links")
@pytest.mark.parametrize("name", [LOCK_NAME, LOG_NAME, BALLAST_NAME])
@pytest.mark.parametrize("kind", ["link", "second name"])
def test_links_in_a_shared_folder_lead_nowhere(daemons: EmbeddedDaemons, home: Path, name: str, kind: str) -> None:
    daemons.data.chmod(0o777)
    thesis = home / "thesis.txt"
    thesis.write_text(WORDS)
    thesis.chmod(0o600)
    if kind == "link":
        result_as(STRANGER, lambda: os.symlink(thesis, daemons.data / name))
    else:  # systems without protected_hardlinks let a stranger do this
        os.link(thesis, daemons.data / name)
    if name == BALLAST_NAME:
        with acqstream.create("cells", data=daemons.data) as run:
            run.put(CLOSED, time=0)
    else:
        with pytest.raises(AcqStreamError, match=r"is a link|no regular file of this user"):
            acqstream.create("cells", data=daemons.data)
    assert thesis.read_text() == WORDS
    if name == LOCK_NAME:
        (daemons.data / name).unlink()  # else the end of the test cannot read it


def test_a_daemon_of_another_directory_is_not_this_ones(daemons: EmbeddedDaemons, home: Path) -> None:
    """The port of a note may have another owner now."""
    other = home / "other"
    other.mkdir()
    with DaemonProcess(other) as daemon:
        with DirectoryLock(str(daemons.data)) as lock:
            lock.write_note(DaemonNote(endpoints=(daemon.endpoint,)).text())
            assert DirectoryDaemon(daemons.data).find() == ""
            assert DirectoryDaemon(other).find() != ""


@pytest.mark.parametrize("name", [LOCK_NAME, LOG_NAME])
def test_a_file_of_another_user_is_not_used(daemons: EmbeddedDaemons, name: str) -> None:
    """He could read it, and lock it."""
    daemons.data.chmod(0o1777)
    path = daemons.data / name
    result_as(STRANGER, lambda: os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o666)))
    with pytest.raises(AcqStreamError, match=r"no regular file of this user|Permission denied"):
        acqstream.create("cells", data=daemons.data)
    assert path.stat().st_uid == STRANGER
    path.unlink()
