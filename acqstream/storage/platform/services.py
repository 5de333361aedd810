"""The service manager of this system. Not in the package itself: it loads parsers that no producer needs."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    from acqstream.storage.platform.windows_service import install, is_installed, remove
elif sys.platform == "linux":
    from acqstream.storage.platform.linux_service import install, is_installed, remove
else:
    from acqstream.storage.platform.service_tool import install, is_installed, remove

__all__ = ["install", "is_installed", "remove"]
