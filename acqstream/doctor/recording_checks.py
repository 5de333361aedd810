"""Checks of what a recording needs: disk speed, file system, free space, connections, the running daemon."""

from __future__ import annotations

import mmap
import os
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path

from acqstream.doctor.verdict import Check, CheckVerdict, Examination, ok, problem, unknown, warning
from acqstream.errors import FULL_DISK_ERRNOS, ConfigError
from acqstream.model.units import count_text
from acqstream.storage.files.disk import LocalDisk, using
from acqstream.storage.platform import FILES

_MIB = 2**20
FIRST_BYTES = 32 * _MIB
MAX_BYTES = 1024 * _MIB
WANTED_S = 1.5
_MAX_SHARE = 0.8  # of what the disk takes: the daemon reaches 0.80 to 0.84 over sockets (docs/performance.md)
_GOOD_SHARE = 0.6
_SLOW_BYTES_PER_S = 100e6
_BENCH = "`acqstream bench --quick` measures it longer"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSpeedFacts:
    """bytes_per_s: what the disk took, None if not measured, with the reason; wanted_bytes_per_s: of the camera."""

    bytes_per_s: float | None = None
    reason: str = ""
    wanted_bytes_per_s: float | None = None


def _gather_disk_speed(examination: Examination) -> DiskSpeedFacts:
    """Write for some seconds into the data directory, unless something is being recorded. Raises OSError."""
    camera = examination.camera
    wanted = camera.bytes_per_s if camera is not None else None
    if examination.running:
        reason = f"{', '.join(examination.running)} is being recorded"
        return DiskSpeedFacts(reason=reason, wanted_bytes_per_s=wanted)
    free = FILES.free_bytes(str(examination.data)) - examination.config.reserve_mb * _MIB
    if free < 4 * FIRST_BYTES:
        return DiskSpeedFacts(reason="there is too little free space", wanted_bytes_per_s=wanted)
    with tempfile.TemporaryDirectory(prefix=".acqstream-doctor-", dir=examination.data) as folder:
        return DiskSpeedFacts(bytes_per_s=_measure(Path(folder), free), wanted_bytes_per_s=wanted)


def _measure(folder: Path, free: int) -> float:
    """Bytes per second: of a small file first, so that a slow disk takes seconds and not minutes."""
    from acqstream.bench.limit import measure_limit

    first = measure_limit(folder, FIRST_BYTES).bytes_per_s
    size = int(min(first * WANTED_S, MAX_BYTES, free // 4)) // FIRST_BYTES * FIRST_BYTES
    return first if size <= FIRST_BYTES else measure_limit(folder, size).bytes_per_s


def _judge_disk_speed(facts: DiskSpeedFacts) -> CheckVerdict:
    """Compare the disk with the camera."""
    if facts.bytes_per_s is None:
        return unknown(f"The speed of the disk was not measured, because {facts.reason}.", "Run this again later.")
    speed, wanted = facts.bytes_per_s, facts.wanted_bytes_per_s
    takes = f"The disk takes {_mb_text(speed)}"
    if wanted is None:
        if speed < _SLOW_BYTES_PER_S:
            return warning(
                f"{takes}, which is slow.", "Use a local SSD, or name the camera (--frame, --fps) to be sure."
            )
        return ok(f"{takes} in a short measurement.")
    share = f"{takes}; the camera sends {_mb_text(wanted)}, {100 * wanted / speed:.0f}% of that"
    if wanted > _MAX_SHARE * speed:
        remedy = "Use a faster local disk, fewer frames per second, smaller frames or binning."
        return problem(f"{share}: more than the {100 * _MAX_SHARE:.0f}% that can be stored.", remedy)
    if wanted > _GOOD_SHARE * speed:
        return warning(f"{share}: little reserve.", f"Keep the PC free of other work; {_BENCH}.")
    return ok(f"{share}.")


def _mb_text(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e6:,.0f} MB/s"


DISK_SPEED = Check("disk speed", _gather_disk_speed, _judge_disk_speed, is_of_disk=True)


_RESERVED_BYTES = 2**20
_NETWORK = (
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "smb2",
    "afpfs",
    "9p",
    "fuse.sshfs",
    "fuse.rclone",
    "ceph",
    "lustre",
)
_SMALL_FILES = ("vfat", "msdos", "fat", "fat12", "fat16", "fat32")
_NO_HOLES = ("exfat", "fuse.exfat")
_IN_MEMORY = ("tmpfs", "ramfs")
_BY_PROGRAM = ("fuse", "fuseblk")  # FUSE: NTFS and exFAT of older systems, and all kinds of folders
_GOOD = ("ext4", "xfs", "NTFS")
_QUOTAS = {"quota", "usrquota", "grpquota", "usrjquota", "grpjquota"}  # options of a mount
_BLOCK_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSystemFacts:
    """kind: its name, empty if not known; is_remote; has_direct, has_reservation: tried with a small file.

    failure: the step that failed, with the reason of the system; empty if all went well.
    """

    kind: str = ""
    is_remote: bool = False
    has_direct: bool = True
    has_reservation: bool = True
    cached_reason: str = ""  # direct writes are taken, and go through a page cache
    failure: str = ""


def _gather_file_system(examination: Examination) -> FileSystemFacts:
    """Look up the file system, and do with a small file what the daemon does with its own."""
    kind, is_remote = _kind(examination.data)
    tried = _Trial(LocalDisk())
    try:
        with tempfile.TemporaryDirectory(prefix=".acqstream-doctor-", dir=examination.data) as folder:
            tried.run(folder)
    except OSError as error:
        tried.failure = f"cannot {tried.step}: {error.strerror or error}"
        if error.errno in FULL_DISK_ERRNOS and (quota := quota_text(examination.data)):
            tried.failure = f"{tried.failure}; {quota}"
    return FileSystemFacts(
        kind=kind,
        is_remote=is_remote,
        has_direct=tried.has_direct,
        has_reservation=tried.has_reservation,
        cached_reason=tried.cached_reason,
        failure=tried.failure,
    )


class _Trial:
    """Makes the calls that the daemon makes, in the same order. step names the current one, for the error message."""

    def __init__(self, disk: LocalDisk) -> None:
        self._disk = disk
        self.step = "create a folder"
        self.failure = self.cached_reason = ""
        self.has_direct = self.has_reservation = True

    def run(self, folder: str) -> None:
        disk, path = self._disk, os.path.join(folder, "tried")
        self.step = "create a file"
        try:
            fd = disk.open(path, create=True, direct=True)
        except OSError:
            self.has_direct = False
            path = os.path.join(folder, "buffered")
            fd = disk.open(path, create=True)
        with using(disk, fd):
            self.step = "reserve space"
            self.has_reservation = disk.reserve(fd, 0, _RESERVED_BYTES)
            self._write(fd)
            if self.has_direct:
                self.cached_reason = FILES.why_cached(path)
        self.step = "rename a file"
        disk.replace(path, f"{path}.new")
        self.step = "force the names in a folder"
        disk.sync_directory(folder)
        self._read_and_lock(f"{path}.new")

    def _write(self, fd: int) -> None:
        with mmap.mmap(-1, _BLOCK_BYTES) as block:  # at the start of a page, as direct writes need it
            block[:4] = b"acqs"
            self.step = "write"
            with memoryview(block) as view:
                self._disk.pwritev(fd, [view], 0)
            self.step = "force a file to the disk"
            self._disk.fdatasync(fd)

    def _read_and_lock(self, path: str) -> None:
        self.step = "open a file again"
        with using(self._disk, self._disk.open(path, create=False)) as first:
            self.step = "cut a file"
            self._disk.truncate(first, _BLOCK_BYTES)
            self.step = "read"
            if self._disk.pread(first, _BLOCK_BYTES, 0)[:4] != b"acqs":
                self.failure = "gives other bytes than were written"
            self.step = "lock a file"
            with using(FILES, FILES.open_for_reading(path)) as second:
                if not FILES.try_lock(first) or FILES.try_lock(second):
                    self.failure = "locks do not work: a second daemon could write into the same folder"


def _judge_file_system(facts: FileSystemFacts) -> CheckVerdict:
    """What the daemon can do there."""
    kind = facts.kind or "The file system"
    # fuseblk may be NTFS.
    good = [one for one in _GOOD if one.lower() not in facts.kind.lower().replace("fuseblk", "ntfs")]
    remedy = f"Use a local disk with {', '.join(good[:-1])} or {good[-1]}, and copy datasets afterwards."
    if facts.failure:
        return problem(f"{kind}: {facts.failure}. Nothing can be recorded there.", "Look at the disk, or use another.")
    if facts.is_remote:
        return problem(f"{kind} is on the network: a cut cable or a busy server stops the recording.", remedy)
    if facts.kind.lower() in _SMALL_FILES:
        return problem(f"{kind} has no files above 4 GB, no reservation and no safe renaming.", remedy)
    if facts.kind.lower() in _NO_HOLES:
        text = f"{kind} has no holes and no safe renaming: files take their full length, which is long for WKW."
        return warning(text, remedy)
    if facts.kind.lower() in _IN_MEMORY:
        return warning(f"{kind} is in memory: datasets are lost when the PC starts again.", remedy)
    if facts.kind.lower().partition(".")[0] in _BY_PROGRAM:
        return warning(f"{kind} is served by a program (FUSE): each write takes processor time.", remedy)
    if not facts.has_direct:
        text = f"{kind} has no direct I/O here: frames go through the page cache, which costs speed and processor time."
        return warning(text, remedy)
    if facts.cached_reason:
        text = f"{kind} takes direct writes, but {facts.cached_reason}, which costs processor time."
        plain = "`chattr +C` on the data directory while it is empty: the journal has the checksums."
        return warning(text, plain if facts.kind == "btrfs" else remedy)
    if not facts.has_reservation:
        return warning(f"{kind} cannot reserve space: writes become slower while files grow.", remedy)
    return ok(f"{kind} takes direct writes and reserves space.")


def quota_text(folder: Path) -> str:
    """The quota that leaves less than the disk has, or that cannot be read here, for people; empty without one."""
    free, quotas = FILES.free_bytes(str(folder)), FILES.quotas(str(folder))
    if tight := [name for name, left in quotas.items() if left is not None and left <= free]:
        return f"the quota of {tight[0]} leaves no more: ask for a larger one"
    hidden = [name for name, left in quotas.items() if left is None]
    if not quotas:
        hidden = sorted({option.partition("=")[0] for option in _mount(folder)[1]} & _QUOTAS)
    return f"there are quotas that cannot be read here: {', '.join(hidden)}" if hidden else ""


def _kind(folder: Path) -> tuple[str, bool]:
    """The name of the file system that holds the folder, and whether it is on the network."""
    kind, options = _mount(folder)
    return kind, kind.lower() in _NETWORK or "remote" in options


def _mount(folder: Path) -> tuple[str, list[str]]:
    """The name of the file system that holds the folder, and the options of its mount."""
    import psutil

    real = os.path.realpath(folder)
    mounts = [one for one in psutil.disk_partitions(all=True) if _contains(one.mountpoint, real)]
    if not mounts:
        return "", ["remote"] * real.startswith("\\\\")  # a share of Windows without a drive
    mount = max(mounts, key=lambda one: len(one.mountpoint))
    return mount.fstype, mount.opts.split(",")


def _contains(mountpoint: str, path: str) -> bool:
    top = os.path.normcase(mountpoint).rstrip(os.sep)
    return os.path.normcase(path) == top or os.path.normcase(path).startswith(top + os.sep)


FILE_SYSTEM = Check("file system", _gather_file_system, _judge_file_system, is_of_disk=True)


_LOW_BYTES, _WARN_BYTES = 2e9, 20e9  # without a planned camera
_LASTING_S = 3600.0
_MORE_SPACE = "Delete or move datasets, or use another disk."


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeSpaceFacts:
    """free_bytes: for this user; reserve_bytes: of those, what the daemon keeps free; low_s: where it warns;
    quota: `quota_text`."""

    free_bytes: int
    reserve_bytes: int = 0
    low_s: float = 600.0
    wanted_bytes_per_s: float | None = None
    quota: str = ""


def _gather_free_space(examination: Examination) -> FreeSpaceFacts:
    """Ask the system for the free space. Raises OSError."""
    return FreeSpaceFacts(
        free_bytes=FILES.free_bytes(str(examination.data)),
        reserve_bytes=examination.config.reserve_mb * 2**20,
        low_s=60 * examination.config.low_space_minutes,
        wanted_bytes_per_s=examination.camera.bytes_per_s if examination.camera is not None else None,
        quota=quota_text(examination.data),
    )


def _judge_free_space(facts: FreeSpaceFacts) -> CheckVerdict:
    """Compare the space with the camera, or with what a short run needs."""
    usable = max(0, facts.free_bytes - facts.reserve_bytes)
    what = f"{usable / 1e9:,.1f} GB can be recorded{facts.quota and f' ({facts.quota})'}"
    if facts.wanted_bytes_per_s:
        lasts_s = usable / facts.wanted_bytes_per_s
        what = f"{what}, {_duration(lasts_s)} of this camera."
        if lasts_s < facts.low_s:
            return problem(what, _MORE_SPACE)
        return warning(what, _MORE_SPACE) if lasts_s < _LASTING_S else ok(what)
    if usable < _LOW_BYTES:
        return problem(f"{what}.", _MORE_SPACE)
    return warning(f"{what}.", _MORE_SPACE) if usable < _WARN_BYTES else ok(f"{what}.")


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:,.0f} h"


FREE_SPACE = Check("free space", _gather_free_space, _judge_free_space, is_of_disk=True)


_ADDRESS = ("127.0.0.1", 5271)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionFacts:
    """is_port_free: the default port; has_daemon: a daemon answers; runtime_problem: why the folder is unusable."""

    port: int = _ADDRESS[1]
    is_port_free: bool = True
    has_daemon: bool = False
    runtime: str = ""
    runtime_problem: str = ""


def _gather_connections(examination: Examination) -> ConnectionFacts:
    """Try the port and the runtime folder, as the daemon does."""
    from acqstream.daemon.runtime_folder import make_runtime_folder

    runtime, runtime_problem = examination.config.runtime.absolute(), ""
    try:
        make_runtime_folder(runtime)
    except ConfigError as error:
        runtime_problem = str(error)
    return ConnectionFacts(
        is_port_free=_is_port_free(),
        has_daemon=examination.status is not None,
        runtime=str(runtime),
        runtime_problem=runtime_problem,
    )


def _judge_connections(facts: ConnectionFacts) -> CheckVerdict:
    """Without the folder no daemon starts; without the port only one at another port."""
    if facts.runtime_problem:
        return problem(
            f"No daemon can start: {facts.runtime_problem}.", "Do that, or set `runtime` in its configuration."
        )
    if facts.is_port_free or facts.has_daemon:
        state = "free" if facts.is_port_free else "the port of a daemon"
        return ok(f"Port {facts.port} is {state}; local sockets go into {facts.runtime}.")
    return warning(
        f"Port {facts.port} is taken by another program.",
        "Use create(data=DIR), which takes any port, or give the daemon another --endpoint.",
    )


def _is_port_free() -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(_ADDRESS)
        except OSError:
            return False
    return True


CONNECTIONS = Check("connections", _gather_connections, _judge_connections)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningDaemonFacts:
    """endpoint: empty if none runs. paused, stalled, buffered: one line for each acquisition in that state."""

    endpoint: str = ""
    data: str = ""
    version: str = ""
    own_version: str = ""
    acquisitions: int = 0
    paused: tuple[str, ...] = ()
    stalled: tuple[str, ...] = ()
    failed_views: tuple[str, ...] = ()


def _gather_running_daemon(examination: Examination) -> RunningDaemonFacts:
    """Take what the daemon has answered."""
    from acqstream import __version__

    status = examination.status
    if status is None:
        return RunningDaemonFacts()
    return RunningDaemonFacts(
        endpoint=status.endpoint,
        data=status.data,
        version=status.version,
        own_version=__version__,
        acquisitions=len(status.acquisitions),
        paused=tuple(f"{one.name}: {one.paused}" for one in status.acquisitions if one.paused),
        stalled=tuple(f"{one.name}: {one.stall}" for one in status.acquisitions if one.stall),
        failed_views=tuple(
            f"{one.mirror} of {one.path}: {one.reason}" for one in status.views.mirrors if one.state == "failed"
        ),
    )


def _judge_running_daemon(facts: RunningDaemonFacts) -> CheckVerdict:
    """The worst first."""
    if not facts.endpoint:
        return ok("No daemon answers; create(data=DIR) starts one.")
    if facts.stalled:
        return problem(f"The disk stalls: {'; '.join(facts.stalled)}.", "Look at the disk and its cable.")
    if facts.paused:
        return problem(f"Recording is paused: {'; '.join(facts.paused)}.", "Free some space on the disk.")
    if facts.failed_views:
        return warning(f"Copies have failed: {'; '.join(facts.failed_views)}.", "Make them again: `acqstream mirror`.")
    if facts.version != facts.own_version:
        text = f"The daemon at {facts.endpoint} is of version {facts.version}, this program of {facts.own_version}."
        return warning(text, "Restart the daemon when nothing is recorded: `acqstream shutdown`.")
    return ok(
        f"The daemon at {facts.endpoint} writes to {facts.data}; "
        f"{count_text(facts.acquisitions, 'acquisition', 'are')} open."
    )


RUNNING_DAEMON = Check("daemon", _gather_running_daemon, _judge_running_daemon)
