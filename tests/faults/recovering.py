"""The process whose children recover datasets and are killed by SIGKILL exactly before their k-th storage call.

    python -m tests.faults.recovering

For every line "K FOLDER" on stdin a child is forked; a line on stdout tells how it ended: "killed", "recovered" or
"error". It has no threads, so that forking is safe.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from acqstream.integrity.recover import recover
from acqstream.storage.files.disk import LocalDisk

ENDINGS = {0: "recovered", -signal.SIGKILL: "killed"}


class CountedDisk(LocalDisk):
    """Kills its process before the k-th call; every method of a disk is one."""

    def __init__(self, fatal_call: int) -> None:
        super().__init__()
        self._left = fatal_call

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name.startswith("_") or not callable(value):
            return value
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return value


def recover_in_child(folder: Path, fatal_call: int) -> str:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            recover(folder, CountedDisk(fatal_call))
            code = 0
        except BaseException:  # noqa: BLE001 - the child's edge: told, and never back into the loop
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return ENDINGS.get(os.waitstatus_to_exitcode(status), "error")


def main() -> None:
    for line in sys.stdin:
        fatal_call, folder = line.rstrip("\n").split(" ", 1)
        sys.stdout.write(recover_in_child(Path(folder), int(fatal_call)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
