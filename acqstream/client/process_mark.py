"""Identifies this process without a system call: a frame is checked for a fork in the middle of its `put`."""

from __future__ import annotations

import os

from acqstream.storage.platform.capabilities import can_fork


class ProcessMark:
    """number is the id of this process, also after a fork (os.register_at_fork)."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.note()

    def note(self) -> None:
        """Take the id of this process."""
        self.number = os.getpid()


THIS_PROCESS = ProcessMark()

if can_fork():
    os.register_at_fork(after_in_child=THIS_PROCESS.note)
