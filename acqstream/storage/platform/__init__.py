"""The operating system: files, memory, how it ends a program, and what sockets and processes can do.

No other package asks which system it runs on. Each subject has a module per system (`linux_files`, `windows_files`),
and this module chooses the one to use. `capabilities` has a function for each ability that some systems lack.
"""

from __future__ import annotations

import sys

from acqstream.storage.platform.windows_api import own_error

if sys.platform == "win32":
    from acqstream.storage.platform import windows_memory as shared_memory
    from acqstream.storage.platform import windows_memory_listener as memory_listener
    from acqstream.storage.platform import windows_process as child_process
    from acqstream.storage.platform.windows_api import wall_clock_ns
    from acqstream.storage.platform.windows_files import WindowsFiles as Files
    from acqstream.storage.platform.windows_memory import keep_large_blocks, map_private
    from acqstream.storage.platform.windows_names import create_private, exposure, open_log
    from acqstream.storage.platform.windows_process import (
        DETACHED_OPTIONS,
        STOP_SIGNALS,
        boot_id,
        console_watch,
        interpreter,
        keep_awake,
        session_signals,
    )
else:
    # macOS uses the modules of Linux, which do without what it lacks.
    from time import time_ns as wall_clock_ns

    from acqstream.storage.platform import linux_memory as shared_memory
    from acqstream.storage.platform import linux_memory_listener as memory_listener
    from acqstream.storage.platform import posix_process as child_process
    from acqstream.storage.platform.linux_memory import keep_large_blocks, map_private
    from acqstream.storage.platform.posix_files import create_private, exposure, open_log
    from acqstream.storage.platform.posix_process import (
        DETACHED_OPTIONS,
        STOP_SIGNALS,
        boot_id,
        console_watch,
        interpreter,
        keep_awake,
        session_signals,
    )

    if sys.platform == "linux":
        from acqstream.storage.platform.linux_files import LinuxFiles as Files
    else:
        from acqstream.storage.platform.posix_files import MacFiles as Files

FILES = Files()
"""Shared by all readers. A file is closed by the instance that opened it."""

__all__ = [
    "DETACHED_OPTIONS",
    "FILES",
    "STOP_SIGNALS",
    "Files",
    "boot_id",
    "child_process",
    "console_watch",
    "create_private",
    "exposure",
    "interpreter",
    "keep_awake",
    "keep_large_blocks",
    "map_private",
    "memory_listener",
    "open_log",
    "own_error",
    "session_signals",
    "shared_memory",
    "wall_clock_ns",
]
