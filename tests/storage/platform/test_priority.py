from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

PROGRAM = """
import threading
import psutil
from acqstream.storage.platform.capabilities import go_last

{before}
go_last()
found = []
def look():
    found.append(psutil.Process(threading.get_native_id() if psutil.LINUX else None))
    print(int(found[0].nice()), *map(int, found[0].ionice() if psutil.LINUX else ()))
thread = threading.Thread(target=look)
thread.start()
thread.join()
"""


def priority_after(before: str = "") -> list[int]:
    """Priorities of a thread that began afterwards, in a process of its own: processor, then class and level of I/O."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before=before)], capture_output=True, text=True, check=True
    )
    return [int(word) for word in run.stdout.split()]


def test_it_gives_way_to_others() -> None:
    niceness, *disk = priority_after()
    if psutil.WINDOWS:
        assert niceness == psutil.BELOW_NORMAL_PRIORITY_CLASS
        return
    assert niceness == max(10, psutil.Process().nice())
    if psutil.LINUX:
        assert disk == [psutil.IOPRIO_CLASS_BE, 7]


@pytest.mark.skipif(not psutil.LINUX, reason="classes of the disk are Linux's")
def test_a_lower_priority_is_kept() -> None:
    assert priority_after("import os; os.nice(15); psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)")[1] == 3
    assert priority_after("import os; os.nice(15)")[0] >= 15
