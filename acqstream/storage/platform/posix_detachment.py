"""How a process is made independent of the program that starts it, on Linux and macOS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DETACHED_OPTIONS: tuple[Mapping[str, Any], ...] = ({"start_new_session": True},)
"""Keywords for subprocess.Popen, the best first. A session without a terminal gets no Ctrl-C and no SIGHUP from one."""


def interpreter(program: str, environment: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the program and its environment, unchanged."""
    return program, dict(environment)
