"""The verdicts of all checks, as a table: facts in, level and words out."""

from __future__ import annotations

import re
from typing import Any

import pytest

from acqstream.doctor import (
    clock,
    compiled_kernels,
    connections,
    disk_speed,
    file_system,
    free_space,
    memory_limits,
    memory_sharing,
    packages,
    power_saving,
    running_daemon,
    virus_scanner,
)
from acqstream.doctor.checks import CHECKS
from acqstream.doctor.clock import ClockFacts
from acqstream.doctor.compiled_kernels import KernelFacts
from acqstream.doctor.connections import ConnectionFacts
from acqstream.doctor.disk_speed import DiskSpeedFacts
from acqstream.doctor.file_system import FileSystemFacts
from acqstream.doctor.free_space import FreeSpaceFacts
from acqstream.doctor.memory_limits import MemoryFacts
from acqstream.doctor.memory_sharing import MemorySharingFacts
from acqstream.doctor.packages import PackageFacts
from acqstream.doctor.running_daemon import RunningDaemonFacts
from acqstream.doctor.verdict import Severity, worst
from acqstream.doctor.virus_scanner import DirectoryScanFacts
from acqstream.storage.platform.pc_facts import PowerFacts, ScannerFacts

OK, UNKNOWN, WARNING, PROBLEM = Severity.OK, Severity.UNKNOWN, Severity.WARNING, Severity.PROBLEM
GB = 10**9
DEFENDER = "Microsoft Defender"


def memory(**changes: Any) -> MemoryFacts:
    return MemoryFacts(**{"needed_bytes": 7 * GB, "frames_bytes": GB, "available_bytes": 16 * GB, **changes})


def scan(data: str, *excluded: str, is_scanning: bool = True) -> DirectoryScanFacts:
    return DirectoryScanFacts(ScannerFacts(name=DEFENDER, is_scanning=is_scanning, excluded=excluded), data)


def daemon(**changes: Any) -> RunningDaemonFacts:
    usual = {"endpoint": "tcp://127.0.0.1:1", "data": "/data", "version": "1", "own_version": "1", "acquisitions": 2}
    return RunningDaemonFacts(**{**usual, **changes})


def installed(versions: dict[str, str], oldest: dict[str, str]) -> PackageFacts:
    return PackageFacts(python="3.11.7", acqstream="1.0", versions=versions, oldest=oldest)


TABLE: list[tuple[Any, Any, Severity, str]] = [
    (disk_speed, DiskSpeedFacts(bytes_per_s=1e9, wanted_bytes_per_s=5e8), OK, "1,000 MB/s.*500 MB/s, 50%"),
    (disk_speed, DiskSpeedFacts(bytes_per_s=1e9, wanted_bytes_per_s=6.1e8), WARNING, "little reserve"),
    (disk_speed, DiskSpeedFacts(bytes_per_s=1e9, wanted_bytes_per_s=8e8), WARNING, "80% of that"),
    (disk_speed, DiskSpeedFacts(bytes_per_s=1e9, wanted_bytes_per_s=8.1e8), PROBLEM, "more than the 80%"),
    (disk_speed, DiskSpeedFacts(bytes_per_s=2e7, wanted_bytes_per_s=8e8), PROBLEM, "20 MB/s.*800 MB/s"),
    (disk_speed, DiskSpeedFacts(bytes_per_s=1e9), OK, "1,000 MB/s in a short"),
    (disk_speed, DiskSpeedFacts(bytes_per_s=9.9e7), WARNING, "slow"),
    (disk_speed, DiskSpeedFacts(reason="cells is being recorded"), UNKNOWN, "because cells is being"),
    (free_space, FreeSpaceFacts(free_bytes=100 * GB, reserve_bytes=GB), OK, "99.0 GB"),
    (free_space, FreeSpaceFacts(free_bytes=19 * GB), WARNING, "19.0 GB"),
    (free_space, FreeSpaceFacts(free_bytes=2 * GB, reserve_bytes=GB), PROBLEM, "1.0 GB"),
    (free_space, FreeSpaceFacts(free_bytes=GB // 2, reserve_bytes=GB), PROBLEM, "0.0 GB"),
    (free_space, FreeSpaceFacts(free_bytes=8000 * GB, wanted_bytes_per_s=1e9), OK, "2 h of this camera"),
    (free_space, FreeSpaceFacts(free_bytes=3599 * GB, wanted_bytes_per_s=1e9), WARNING, "60 min of this camera"),
    (free_space, FreeSpaceFacts(free_bytes=599 * GB, wanted_bytes_per_s=1e9), PROBLEM, "10 min of this camera"),
    (free_space, FreeSpaceFacts(free_bytes=60 * GB, wanted_bytes_per_s=1e9), PROBLEM, "60 s of this camera"),
    (free_space, FreeSpaceFacts(free_bytes=60 * GB, low_s=30, wanted_bytes_per_s=1e9), WARNING, "60 s of this camera"),
    (file_system, FileSystemFacts(kind="ext4"), OK, "ext4 takes direct writes and reserves"),
    (file_system, FileSystemFacts(kind="nfs4", is_remote=True), PROBLEM, "on the network"),
    (file_system, FileSystemFacts(kind="FAT32", has_direct=False), PROBLEM, "4 GB"),
    (file_system, FileSystemFacts(kind="tmpfs", has_direct=False), WARNING, "in memory"),
    (file_system, FileSystemFacts(kind="btrfs", has_direct=False), WARNING, "no direct I/O"),
    (file_system, FileSystemFacts(kind="zfs", has_reservation=False), WARNING, "reserve space"),
    (file_system, FileSystemFacts(), OK, "The file system takes"),
    (
        file_system,
        FileSystemFacts(kind="xfs", failure="cannot write: Input/output error"),
        PROBLEM,
        "xfs: cannot write",
    ),
    (file_system, FileSystemFacts(kind="fuseblk"), WARNING, "by a program"),
    (file_system, FileSystemFacts(kind="fuse.bindfs"), WARNING, "by a program"),
    (file_system, FileSystemFacts(kind="fuse.sshfs", is_remote=True), PROBLEM, "on the network"),
    (file_system, FileSystemFacts(kind="ext4", has_direct=False), WARNING, "no direct I/O"),
    (memory_limits, memory(), OK, "16.0 GB of memory are available; a daemon may need 7.0 GB"),
    (memory_limits, memory(available_bytes=6 * GB), WARNING, "6.0 GB of memory are available"),
    (memory_limits, memory(available_bytes=GB // 2), PROBLEM, "takes 1.0 GB at once"),
    (memory_limits, memory(group_limit_bytes=7 * GB - 1), PROBLEM, "service or container"),
    (memory_limits, memory(group_limit_bytes=7 * GB), OK, "16.0 GB"),
    (memory_limits, memory(address_limit_bytes=13 * GB), PROBLEM, "ulimit -v"),
    (memory_limits, memory(address_limit_bytes=14 * GB), OK, "16.0 GB"),
    (memory_limits, memory(descriptors=256), WARNING, "256 files"),
    (memory_sharing, MemorySharingFacts(), OK, "shared memory"),
    (memory_sharing, MemorySharingFacts("no memfd here"), WARNING, "no memfd here"),
    (memory_sharing, MemorySharingFacts(is_switched_off=True), WARNING, "switches shared memory off"),
    (power_saving, PowerFacts(plan="performance", sleep_after_s=0), OK, "plan performance, the PC does not sleep"),
    (power_saving, PowerFacts(plan="performance"), OK, r"plan performance\."),
    (power_saving, PowerFacts(sleep_after_s=0), OK, "does not sleep"),
    (power_saving, PowerFacts(), UNKNOWN, "does not report"),
    (power_saving, PowerFacts(plan="performance", sleep_after_s=1200), PROBLEM, "sleeps after 20 minutes"),
    (power_saving, PowerFacts(plan="balanced", sleep_after_s=1200, stays_awake_for_runs=True), OK, "not during a run"),
    (power_saving, PowerFacts(plan="powersave", slows_down=True), WARNING, r"save power \(powersave\)"),
    (power_saving, PowerFacts(plan="performance", on_battery=True), WARNING, "battery"),
    (power_saving, PowerFacts(plan="performance", on_battery=False), OK, "performance"),
    (virus_scanner, DirectoryScanFacts(ScannerFacts(), "/data"), OK, "no scanner of its own"),
    (virus_scanner, scan(r"D:\data", r"D:\data"), OK, "leaves"),
    (virus_scanner, scan(r"D:\Data\Cells", r"C:\x", "d:\\data\\"), OK, "leaves"),
    (virus_scanner, scan(r"D:\database", r"D:\data"), WARNING, "scans each file"),
    (virus_scanner, scan(r"D:\data"), WARNING, "scans each file"),
    (virus_scanner, scan(r"D:\data", is_scanning=False), OK, "does not scan"),
    (virus_scanner, DirectoryScanFacts(ScannerFacts(name=DEFENDER, is_scanning=True), "D:"), UNKNOWN, "administrator"),
    (clock, ClockFacts(True), OK, "time server"),
    (clock, ClockFacts(False), WARNING, "not kept"),
    (clock, ClockFacts(None), UNKNOWN, "does not report"),
    (connections, ConnectionFacts(runtime="/run/a"), OK, "Port 5271 is free.*/run/a"),
    (connections, ConnectionFacts(is_port_free=False, has_daemon=True), OK, "the port of a daemon"),
    (connections, ConnectionFacts(is_port_free=False), WARNING, "another program"),
    (connections, ConnectionFacts(runtime_problem="it belongs to user 5"), PROBLEM, "it belongs to user 5"),
    (packages, installed({"numpy": "1.26"}, {"numpy": "1.26"}), OK, "all 1 packages"),
    (packages, installed({"numpy": "1.9.3"}, {"numpy": "1.26"}), PROBLEM, r"numpy 1.9.3 \(needs 1.26\)"),
    (packages, installed({"numpy": "2.0rc1"}, {"numpy": "1.26"}), OK, "new enough"),
    (packages, installed({"numpy": "", "zmq": "3"}, {"numpy": "1", "zmq": "2"}), PROBLEM, "numpy is missing"),
    (packages, installed({}, {}), UNKNOWN, "not installed as a package"),
    (compiled_kernels, KernelFacts(name="compiled"), OK, "have the compiled kernels"),
    (compiled_kernels, KernelFacts(name="compiled", daemon="compiled"), OK, "have the compiled kernels"),
    (compiled_kernels, KernelFacts(name="compiled", daemon="numpy"), WARNING, "The daemon's views use numpy"),
    (
        compiled_kernels,
        KernelFacts(name="numpy", reason="no such module"),
        WARNING,
        r"\(no such module\): levels and mirrors take about a third more",
    ),
    (running_daemon, RunningDaemonFacts(), OK, "No daemon answers"),
    (running_daemon, daemon(), OK, "writes to /data; 2 acquisitions"),
    (running_daemon, daemon(paused=("cells: disk full",)), PROBLEM, "paused: cells: disk full"),
    (running_daemon, daemon(stalled=("cells: fdatasync",), paused=("x",)), PROBLEM, "stalls: cells: fdatasync"),
    (running_daemon, daemon(failed_views=("n5 of /data/cells: full",)), WARNING, "n5 of /data/cells: full"),
    (running_daemon, daemon(version="0"), WARNING, "version 0, this program of 1"),
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
        kind: file_system.judge(FileSystemFacts(kind=kind, has_direct=False)).remedy
        for kind in ("ext4", "xfs", "NTFS", "btrfs")
    }
    assert "with xfs or NTFS," in remedies["ext4"]
    assert all(kind not in remedy for kind, remedy in remedies.items())


def test_kernels_are_mended_by_what_they_lack() -> None:
    chosen, missing, of_daemon = (
        compiled_kernels.judge(facts).remedy
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
        assert levels & {WARNING, PROBLEM}, check.NAME
    names = [check.NAME for check in CHECKS]
    assert len(set(names)) == len(names)


def test_the_worst_level_counts() -> None:
    assert worst([]) is OK
    assert worst([OK, UNKNOWN]) is UNKNOWN
    assert worst([PROBLEM, OK, WARNING]) is PROBLEM
    assert worst([UNKNOWN, WARNING]) is WARNING
