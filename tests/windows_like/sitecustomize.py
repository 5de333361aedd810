"""Python runs this as each process of a test run on the Windows-like disk starts: daemons, view processes, workers.

This folder is on PYTHONPATH in such a run only, see `tests.windows_like.begin`.
"""

from __future__ import annotations

from tests.storage import windows_like_disk

windows_like_disk.take_over()
