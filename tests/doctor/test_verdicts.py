"""The verdicts of all checks, as a table: facts in, level and words out."""

from __future__ import annotations

import re
from typing import Any

import pytest

from acqstream.doctor.checks import CHECKS
from acqstream.doctor.pc_checks import (
    CLOCK,
    COMPILED_KERNELS,
    MEMORY_LIMITS,
    MEMORY_SHARING,
    PACKAGES,
    POWER_SAVING,
    VIRUS_SCANNER,
    ClockFacts,
    DirectoryScanFacts,
    KernelFacts,
    MemoryFacts,
    MemorySharingFacts,
    PackageFacts,
)
from acqstream.doctor.recording_checks import (
    CONNECTIONS,
    DISK_SPEED,
    FILE_SYSTEM,
    FREE_SPACE,
    RUNNING_DAEMON,
    ConnectionFacts,
    DiskSpeedFacts,
    FileSystemFacts,
    FreeSpaceFacts,
    RunningDaemonFacts,
)
from acqstream.doctor.verdict import Severity, worst
from acqstream.storage.platform.pc_facts import PowerFacts, ScannerFacts

OK, UNKNOWN, WARNING, PROBLEM = Severity.OK, Severity.UNKNOWN, Severity.WARNING, Severity.PROBLEM
GB = 10**9
DEFENDER = "Microsoft Defender"


def memory(**changes: Any) -> MemoryFacts:
    return MemoryFacts(**{"needed_bytes": 7 * GB, "available_bytes": 16 * GB, **changes})


def scan(data: str, *excluded: str, is_scanning: bool = True) -> DirectoryScanFacts:
    return DirectoryScanFacts(ScannerFacts(name=DEFENDER, is_scanning=is_scanning, excluded=excluded), data)


def daemon(**changes: Any) -> RunningDaemonFacts:
    usual = {"endpoint": "tcp://127.0.0.1:1", "data": "/data", "version": "1", "own_version": "1", "acquisitions": 2}
    return RunningDaemonFacts(**{**usual, **changes})


def installed(versions: dict[str, str], oldest: dict[str, str]) -> PackageFacts:
    return PackageFacts(python="3.11.7", acqstream="1.0", versions=versions, oldest=oldest)


TABLE: list[tuple[Any, Any, Severity, str]] = [
    (DISK_SPEED, DiskSpeedFacts(bytes_per_s=1e9, wanted_bytes_per_s=5e8), OK, "1,000 MB/s.*500 MB/s, 50%"),
    (DISK_SPEED, DiskSpeedFacts(bytes_per_s=1e9, wanted_bytes_per_s=6.1e8), WARNING, "little reserve"),
    (DISK_SPEED, DiskSpeedFacts(bytes_per_s=1e9, wanted_bytes_per_s=8e8), WARNING, "80% of that"),
    (DISK_SPEED, DiskSpeedFacts(bytes_per_s=1e9, wanted_bytes_per_s=8.1e8), PROBLEM, "more than the 80%"),
    (DISK_SPEED, DiskSpeedFacts(bytes_per_s=2e7, wanted_bytes_per_s=8e8), PROBLEM, "20 MB/s.*800 MB/s"),
    (DISK_SPEED, DiskSpeedFacts(bytes_per_s=1e9), OK, "1,000 MB/s in a short"),
    (DISK_SPEED, DiskSpeedFacts(bytes_per_s=9.9e7), WARNING, "slow"),
    (DISK_SPEED, DiskSpeedFacts(reason="cells is being recorded"), UNKNOWN, "because cells is being"),
    (FREE_SPACE, FreeSpaceFacts(free_bytes=100 * GB, reserve_bytes=GB), OK, "99.0 GB"),
    (FREE_SPACE, FreeSpaceFacts(free_bytes=19 * GB), WARNING, "19.0 GB"),
    (FREE_SPACE, FreeSpaceFacts(free_bytes=2 * GB, reserve_bytes=GB), PROBLEM, "1.0 GB"),
    (FREE_SPACE, FreeSpaceFacts(free_bytes=GB // 2, reserve_bytes=GB), PROBLEM, "0.0 GB"),
    (FREE_SPACE, FreeSpaceFacts(free_bytes=8000 * GB, wanted_bytes_per_s=1e9), OK, "2 h of this camera"),
    (FREE_SPACE, FreeSpaceFacts(free_bytes=3599 * GB, wanted_bytes_per_s=1e9), WARNING, "60 min of this camera"),
    (FREE_SPACE, FreeSpaceFacts(free_bytes=599 * GB, wanted_bytes_per_s=1e9), PROBLEM, "10 min of this camera"),
    (FREE_SPACE, FreeSpaceFacts(free_bytes=60 * GB, wanted_bytes_per_s=1e9), PROBLEM, "60 s of this camera"),
    (FREE_SPACE, FreeSpaceFacts(free_bytes=60 * GB, low_s=30, wanted_bytes_per_s=1e9), WARNING, "60 s of this camera"),
    (FILE_SYSTEM, FileSystemFacts(kind="ext4"), OK, "ext4 takes direct writes and reserves"),
    (FILE_SYSTEM, FileSystemFacts(kind="nfs4", is_remote=True), PROBLEM, "on the network"),
    (FILE_SYSTEM, FileSystemFacts(kind="FAT32", has_direct=False), PROBLEM, "4 GB"),
    (FILE_SYSTEM, FileSystemFacts(kind="tmpfs", has_direct=False), WARNING, "in memory"),
    (FILE_SYSTEM, FileSystemFacts(kind="btrfs", has_direct=False), WARNING, "no direct I/O"),
    (FILE_SYSTEM, FileSystemFacts(kind="zfs", has_reservation=False), WARNING, "reserve space"),
    (FILE_SYSTEM, FileSystemFacts(), OK, "The file system takes"),
    (
        FILE_SYSTEM,
        FileSystemFacts(kind="xfs", failure="cannot write: Input/output error"),
        PROBLEM,
        "xfs: cannot write",
    ),
    (FILE_SYSTEM, FileSystemFacts(kind="fuseblk"), WARNING, "by a program"),
    (FILE_SYSTEM, FileSystemFacts(kind="fuse.bindfs"), WARNING, "by a program"),
    (FILE_SYSTEM, FileSystemFacts(kind="fuse.sshfs", is_remote=True), PROBLEM, "on the network"),
    (FILE_SYSTEM, FileSystemFacts(kind="ext4", has_direct=False), WARNING, "no direct I/O"),
    (MEMORY_LIMITS, memory(), OK, "16.0 GB of memory are available; a daemon may need 7.0 GB"),
    (MEMORY_LIMITS, memory(available_bytes=6 * GB), WARNING, "6.0 GB of memory are available"),
    (MEMORY_LIMITS, memory(available_bytes=GB // 2), WARNING, "0.5 GB of memory are available"),
    (MEMORY_LIMITS, memory(group_limit_bytes=7 * GB - 1), PROBLEM, "service or container"),
    (MEMORY_LIMITS, memory(group_limit_bytes=7 * GB), OK, "16.0 GB"),
    (MEMORY_LIMITS, memory(address_limit_bytes=13 * GB), PROBLEM, "ulimit -v"),
    (MEMORY_LIMITS, memory(address_limit_bytes=14 * GB), OK, "16.0 GB"),
    (MEMORY_LIMITS, memory(descriptors=256), WARNING, "256 files"),
    (MEMORY_SHARING, MemorySharingFacts(), OK, "shared memory"),
    (MEMORY_SHARING, MemorySharingFacts("no memfd here"), WARNING, "no memfd here"),
    (MEMORY_SHARING, MemorySharingFacts(is_switched_off=True), WARNING, "switches shared memory off"),
    (POWER_SAVING, PowerFacts(plan="performance", sleep_after_s=0), OK, "plan performance, the PC does not sleep"),
    (POWER_SAVING, PowerFacts(plan="performance"), OK, r"plan performance\."),
    (POWER_SAVING, PowerFacts(sleep_after_s=0), OK, "does not sleep"),
    (POWER_SAVING, PowerFacts(), UNKNOWN, "does not report"),
    (POWER_SAVING, PowerFacts(plan="performance", sleep_after_s=1200), PROBLEM, "sleeps after 20 minutes"),
    (POWER_SAVING, PowerFacts(plan="balanced", sleep_after_s=1200, stays_awake_for_runs=True), OK, "not during a run"),
    (POWER_SAVING, PowerFacts(plan="powersave", slows_down=True), WARNING, r"save power \(powersave\)"),
    (POWER_SAVING, PowerFacts(plan="performance", on_battery=True), WARNING, "battery"),
    (POWER_SAVING, PowerFacts(plan="performance", on_battery=False), OK, "performance"),
    (VIRUS_SCANNER, DirectoryScanFacts(ScannerFacts(), "/data"), OK, "no scanner of its own"),
    (VIRUS_SCANNER, scan(r"D:\data", r"D:\data"), OK, "leaves"),
    (VIRUS_SCANNER, scan(r"D:\Data\Cells", r"C:\x", "d:\\data\\"), OK, "leaves"),
    (VIRUS_SCANNER, scan(r"D:\database", r"D:\data"), WARNING, "scans each file"),
    (VIRUS_SCANNER, scan(r"D:\data"), WARNING, "scans each file"),
    (VIRUS_SCANNER, scan(r"D:\data", is_scanning=False), OK, "does not scan"),
    (VIRUS_SCANNER, DirectoryScanFacts(ScannerFacts(name=DEFENDER, is_scanning=True), "D:"), UNKNOWN, "administrator"),
    (CLOCK, ClockFacts(True), OK, "time server"),
    (CLOCK, ClockFacts(False), WARNING, "not kept"),
    (CLOCK, ClockFacts(None), UNKNOWN, "does not report"),
    (CONNECTIONS, ConnectionFacts(runtime="/run/a"), OK, "Port 5271 is free.*/run/a"),
    (CONNECTIONS, ConnectionFacts(is_port_free=False, has_daemon=True), OK, "the port of a daemon"),
    (CONNECTIONS, ConnectionFacts(is_port_free=False), WARNING, "another program"),
    (CONNECTIONS, ConnectionFacts(runtime_problem="it belongs to user 5"), PROBLEM, "it belongs to user 5"),
    (PACKAGES, installed({"numpy": "1.26"}, {"numpy": "1.26"}), OK, "all 1 packages"),
    (PACKAGES, installed({"numpy": "1.9.3"}, {"numpy": "1.26"}), PROBLEM, r"numpy 1.9.3 \(needs 1.26\)"),
    (PACKAGES, installed({"numpy": "2.0rc1"}, {"numpy": "1.26"}), OK, "new enough"),
    (PACKAGES, installed({"numpy": "", "zmq": "3"}, {"numpy": "1", "zmq": "2"}), PROBLEM, "numpy is missing"),
    (PACKAGES, installed({}, {}), UNKNOWN, "not installed as a package"),
    (COMPILED_KERNELS, KernelFacts(name="compiled"), OK, "have the compiled kernels"),
    (COMPILED_KERNELS, KernelFacts(name="compiled", daemon="compiled"), OK, "have the compiled kernels"),
    (COMPILED_KERNELS, KernelFacts(name="compiled", daemon="numpy"), WARNING, "The daemon's views use numpy"),
    (
        COMPILED_KERNELS,
        KernelFacts(name="numpy", reason="no such module"),
        WARNING,
        r"\(no such module\): levels and mirrors take about a third more",
    ),
    (RUNNING_DAEMON, RunningDaemonFacts(), OK, "No daemon answers"),
    (RUNNING_DAEMON, daemon(), OK, "writes to /data; 2 acquisitions"),
    (RUNNING_DAEMON, daemon(paused=("cells: disk full",)), PROBLEM, "paused: cells: disk full"),
    (RUNNING_DAEMON, daemon(stalled=("cells: fdatasync",), paused=("x",)), PROBLEM, "stalls: cells: fdatasync"),
    (RUNNING_DAEMON, daemon(failed_views=("n5 of /data/cells: full",)), WARNING, "n5 of /data/cells: full"),
    (RUNNING_DAEMON, daemon(version="0"), WARNING, "version 0, this program of 1"),
]


@pytest.mark.parametrize(("check", "facts", "level", "words"), TABLE, ids=range(len(TABLE)))
def test_facts_and_their_verdict(check: Any, facts: Any, level: Severity, words: str) -> None:
    verdict = check.judge(facts)
    assert verdict.level is level
    assert re.search(words, verdict.what)
    assert verdict.what.endswith(".")
    assert "\n" not in verdict.what + verdict.remedy
    if level in (WARNING, PROBLEM):
        assert verdict.remedy  # what hurts can be mended
    if level is OK:
        assert not verdict.remedy


def test_no_remedy_names_the_file_system_in_use() -> None:
    remedies = {
        kind: FILE_SYSTEM.judge(FileSystemFacts(kind=kind, has_direct=False)).remedy
        for kind in ("ext4", "xfs", "NTFS", "btrfs")
    }
    assert "with xfs or NTFS," in remedies["ext4"]
    assert all(kind not in remedy for kind, remedy in remedies.items())


def test_kernels_are_mended_by_what_they_lack() -> None:
    chosen, missing, of_daemon = (
        COMPILED_KERNELS.judge(facts).remedy
        for facts in (
            KernelFacts(name="numpy", reason="ACQSTREAM_KERNELS=0"),
            KernelFacts(name="numpy", reason="the compiled kernels are missing: no module"),
            KernelFacts(name="compiled", daemon="numpy"),
        )
    )
    assert chosen == "Remove ACQSTREAM_KERNELS from the environment."
    assert "a C compiler" in missing
    assert of_daemon == "Remove ACQSTREAM_KERNELS from the environment of the daemon. Then restart the daemon."


def test_every_check_is_judged_well_and_badly_in_the_table() -> None:
    for check in CHECKS:
        levels = {level for one, _, level, _ in TABLE if one is check}
        assert OK in levels
        assert levels & {WARNING, PROBLEM}, check.name
    names = [check.name for check in CHECKS]
    assert len(set(names)) == len(names)


def test_the_worst_level_counts() -> None:
    assert worst([]) is OK
    assert worst([OK, UNKNOWN]) is UNKNOWN
    assert worst([PROBLEM, OK, WARNING]) is PROBLEM
    assert worst([UNKNOWN, WARNING]) is WARNING
