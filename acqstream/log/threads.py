"""The threads of a log: each is made here, so that all have names and none keeps the interpreter alive."""

from __future__ import annotations

import threading
from collections.abc import Callable


def make_thread(role: str, log_name: str, target: Callable[[], None]) -> threading.Thread:
    """A thread that is not started yet. role: write, commit or checksums. The class that starts it also joins it."""
    return threading.Thread(target=target, name=f"{role}-{log_name}", daemon=True)
