"""A disk that goes away in the middle of a run: told with the frame's number, and the other runs go on."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import acqstream
from acqstream.cli.output import ExitCode, exit_code_of
from acqstream.client.connector import Transport
from acqstream.errors import DiskFull, StorageError
from acqstream.integrity.verify import verify
from tests.command import command
from tests.faults.loop_disk import TRIAL_BYTES, LoopDisk, why_not
from tests.live.daemon_process import DaemonProcess
from tests.live.small_disk import small_disk
from tests.live.stored import check_frames, image_of, state_of
from tests.waiting import in_time, until

SHAPE = (512, 512)

# While the trigger exists every disk call on the dataset named `broken` fails with this error.
PRELUDE = """
import os
from pathlib import Path
from typing import Any
from acqstream.storage.files.disk import LocalDisk
trigger, paths = Path({trigger!r}), {{}}
def check(path):
    if {part!r} in path and trigger.exists():
        raise OSError({code}, os.strerror({code}))
def by_fd(name):
    call = getattr(LocalDisk, name)
    def checked(self, fd, *rest):
        check(paths.get(fd, ""))
        return call(self, fd, *rest)
    setattr(LocalDisk, name, checked)
def by_path(name):
    call = getattr(LocalDisk, name)
    def checked(self, path, *rest, **more):
        check(path)
        result = call(self, path, *rest, **more)
        if name == "open":
            paths[result] = path
        return result
    setattr(LocalDisk, name, checked)
for name in ("pwritev", "pread", "fdatasync", "reserve", "truncate"):
    by_fd(name)
for name in ("open", "replace", "unlink", "mkdir", "sync_directory"):
    by_path(name)
"""


@pytest.mark.thinned(2)
@pytest.mark.promise("failing-disk-call")
@pytest.mark.parametrize(
    ("code", "transport"),
    [(errno.EIO, "shm"), (errno.EROFS, "ipc"), (errno.ESTALE, "shm"), (errno.ENODEV, "tcp")],
)
def test_a_disk_that_fails_for_good_ends_its_run_and_no_other(tmp_path: Path, code: int, transport: Transport) -> None:
    trigger = tmp_path / "fail"
    daemon = DaemonProcess(tmp_path / "data", prelude=PRELUDE.format(trigger=str(trigger), code=code, part="broken"))
    if transport == "ipc":
        assert daemon.ipc  # skips where it is missing
    daemon.start()
    way: dict[str, Any] = {"endpoint": daemon.endpoint, "transport": transport}
    with acqstream.create("well", **way, buffer_mb=16) as well:
        assert well.transport == transport
        well.put(image_of(0, SHAPE), time=0)
        with pytest.raises(StorageError) as caught:
            with acqstream.create("broken", **way, buffer_mb=16) as broken:
                for number in range(5):
                    broken.put(image_of(number, SHAPE), time=number)
                until(lambda: broken.progress.durable == 5, "five are durable")  # no call is due until the next one
                trigger.touch()
                for number in range(5, 10_000):
                    broken.put(image_of(number, SHAPE), time=number)
        assert (caught.value.errno, caught.value.number) == (code, 5)
        well.put(image_of(1, SHAPE), time=1)
    assert broken.receipt is not None
    assert (broken.receipt.status, broken.receipt.stored) == ("failed", 5)
    assert broken.receipt.missing[0].first == 5
    trigger.unlink()
    assert daemon.stop() == ExitCode.STORAGE  # the failure is not forgotten
    assert check_frames(well.path, lambda _: SHAPE) == 2
    check_frames(broken.path, lambda _: SHAPE, least=5)
    daemon.start()  # puts the dataset in order
    assert daemon.stop() == ExitCode.OK
    check_frames(broken.path, lambda _: SHAPE, least=5)


@pytest.mark.parametrize(("part", "state"), [("broken", "RUNNING"), ("NDTiffStack", "FAILED")])
def test_the_daemon_of_a_disk_that_is_back_resumes_the_run(tmp_path: Path, part: str, state: str) -> None:
    trigger = tmp_path / "fail"
    prelude = PRELUDE.format(trigger=str(trigger), code=errno.EIO, part=part)
    with DaemonProcess(tmp_path / "data", prelude=prelude) as daemon:
        options: dict[str, Any] = {"endpoint": daemon.endpoint, "buffer_mb": 16, "resume": True}
        with pytest.raises(StorageError), acqstream.create("broken", **options) as run:
            run.put(image_of(0, SHAPE), time=0)
            until(lambda: run.progress.durable == 1, "it is durable")
            trigger.touch()
            for number in range(1, 10_000):
                run.put(image_of(number, SHAPE), time=number)
        assert state_of(run.path)["state"] == state
        trigger.unlink()
        with acqstream.create("broken", **options) as run:
            assert run.next == 1
            run.put(image_of(1, SHAPE), time=1)
        assert run.receipt is not None
        assert run.receipt.complete
        assert check_frames(run.path, lambda _: SHAPE) == 2
        assert verify(Path(run.path)).ok
        assert daemon.stop() == ExitCode.STORAGE


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_file_system_that_is_shut_down_refuses_with_a_storage_error(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """ext4 still lists folders then, xfs does not; whatever call fails, no fault of the daemon is told."""
    if why := why_not(kind):
        pytest.skip(why)
    with LoopDisk(kind, tmp_path / "image", tmp_path / "disk", TRIAL_BYTES) as disk:
        daemon = DaemonProcess(disk.place / "data", home=tmp_path, reserve_mb=4, ballast_mb=1).start()
        with acqstream.create("first", endpoint=daemon.endpoint, buffer_mb=16) as run:
            run.put(image_of(0, SHAPE), time=0)
        disk.cut()
        for options in ({}, {"resume": True}, {"on_exists": "number"}, {"expect": 9, "frame": (SHAPE, "uint16")}):
            with pytest.raises(StorageError, match=r"refuses to open 'more': .*Input/output error: '[^']*'$") as caught:
                acqstream.create("more", endpoint=daemon.endpoint, buffer_mb=16, **options)
            assert caught.value.errno == errno.EIO
            assert exit_code_of(caught.value) == ExitCode.STORAGE
        assert command("simulate", "--endpoint", daemon.endpoint, "--frames", "2", "--name", "more") == ExitCode.STORAGE
        assert "fault" not in capsys.readouterr().err + daemon.output()
        daemon.kill()


def test_words_of_a_quota_come_once(tmp_path: Path) -> None:
    trigger = tmp_path / "fail"
    prelude = PRELUDE.format(trigger=str(trigger), code=errno.EDQUOT, part="broken")
    daemon = DaemonProcess(tmp_path / "data", prelude=prelude).start()
    with pytest.raises(DiskFull) as caught:
        with acqstream.create("broken", endpoint=daemon.endpoint, buffer_mb=16, patience_s=in_time(2)) as run:
            trigger.touch()
            for number in range(10_000):
                run.put(image_of(number, SHAPE), time=number)
    with pytest.raises(DiskFull) as refused:
        acqstream.create("broken2", endpoint=daemon.endpoint, buffer_mb=16)
    daemon.kill()
    for error in (caught.value, refused.value):
        words = str(error)
        assert words.count(os.strerror(errno.EDQUOT)) == 1
        assert "Errno" not in words
        assert os.strerror(errno.ENOSPC) not in words


def test_a_mount_that_vanishes(tmp_path: Path) -> None:
    """Files that are open can still be written; what must be made anew cannot, and that is told."""
    with small_disk(tmp_path / "small", 256) as place:
        daemon = DaemonProcess(place / "data", home=tmp_path, reserve_mb=4, ballast_mb=1).start()
        with pytest.raises(StorageError) as caught:
            with acqstream.create("cells", endpoint=daemon.endpoint, buffer_mb=16) as run:
                for number in range(5):
                    run.put(image_of(number, SHAPE), time=number)
                until(lambda: run.progress.published == 5, "five are published")
                subprocess.run(["umount", "-l", str(place)], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(place)], check=True)  # an empty one, as after a reboot
        assert caught.value.errno == errno.ENOENT
        assert run.receipt is not None
        assert run.receipt.status == "failed"
        with pytest.raises(acqstream.AcqStreamError, match="No such file or directory"):
            acqstream.create("more", endpoint=daemon.endpoint, buffer_mb=16)
        assert daemon.stop() == ExitCode.STORAGE
