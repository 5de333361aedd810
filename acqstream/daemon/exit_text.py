"""Describes the exit of a process for users."""

from __future__ import annotations

import signal


def exit_text(code: int) -> str:
    """Return the text of a return code of `subprocess`: the exit code, or the signal's name."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
