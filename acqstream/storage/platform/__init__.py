"""The operating system: files, memory, and what sockets and processes can do.

No other package asks which system it runs on. Each subject has a module per system (`linux_files`, `windows_files`),
and this module chooses the one to use. `capabilities` has a function for each ability that some systems lack.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    from acqstream.storage.platform.windows_files import WindowsFiles as Files
    from acqstream.storage.platform.windows_memory import keep_large_blocks, map_private
elif sys.platform == "linux":
    from acqstream.storage.platform.linux_files import LinuxFiles as Files
    from acqstream.storage.platform.linux_memory import keep_large_blocks, map_private
else:
    from acqstream.storage.platform.macos_files import MacFiles as Files
    from acqstream.storage.platform.macos_memory import keep_large_blocks, map_private

FILES = Files()
"""Shared by all readers. A file is closed by the instance that opened it."""

__all__ = ["FILES", "Files", "keep_large_blocks", "map_private"]
