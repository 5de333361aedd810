"""Memory of a daemon: frames have it while a run records, and the system at rest."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

import acqstream
from tests.live.daemon_process import DaemonProcess
from tests.waiting import until

MIB = 2**20
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mapped memory files are counted in /proc")


def frame_memory_bytes(pid: int) -> int:
    """The pages of the memory files that a process maps."""
    text = Path(f"/proc/{pid}/smaps").read_text(encoding="utf-8")
    maps = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", text, flags=re.MULTILINE)
    sizes = (re.search(r"^Rss:\s+(\d+) kB", one, re.MULTILINE) for one in maps if "memfd:acqstream" in one)
    return 1024 * sum(int(size[1]) for size in sizes if size is not None)


@pytest.mark.parametrize("mirrors", [[], ["null"]])
def test_frame_memory_is_there_while_a_run_records_and_goes_back_at_its_end(tmp_path: Path, mirrors: list[str]) -> None:
    with DaemonProcess(tmp_path / "data", memory_mb=256) as daemon:
        pid = daemon.pid
        for number in range(2):
            assert frame_memory_bytes(pid) < MIB
            with acqstream.create(f"cells_{number}", endpoint=daemon.endpoint, mirrors=mirrors, transport="tcp") as run:
                for time in range(20):
                    run.put(np.full((512, 512), time, np.uint16), time=time)
                until(lambda: frame_memory_bytes(pid) > 48 * MIB, "its memory is present")
            until(lambda: frame_memory_bytes(pid) < MIB, "the system has it again", 60.0)
            with acqstream.open(run.path) as dataset:
                assert [int(dataset.read_frame(time=time).max()) for time in range(20)] == list(range(20))
