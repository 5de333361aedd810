"""How a process ended, for people."""

from __future__ import annotations

import signal


def exit_text(code: int) -> str:
    """What a return code of `subprocess` says."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
