"""Runs the program with which a system manages its services."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

TIMEOUT_S = 60.0
_UNKNOWN = "acqstream does not know the service manager of this system: start `acqstream serve` with its own means"


def run_tool(command: Sequence[str]) -> str:
    """Run the program and return its output. Raises OSError with its message if it fails or is missing."""
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise OSError(f"`{' '.join(command)}` has not ended within {TIMEOUT_S:g} s") from error
    if done.returncode != 0:
        text = " ".join((done.stderr or done.stdout).split())
        raise OSError(f"`{' '.join(command)}` ended with {done.returncode}: {text}")
    return done.stdout


def answers(command: Sequence[str]) -> bool:
    """Return True if the program ends with 0. Raises OSError if it is missing."""
    try:
        run_tool(command)
    except FileNotFoundError:
        raise
    except OSError:
        return False
    return True


def install(command: Sequence[str], log: Path) -> str:
    """Refuse, on a system whose service manager is not known here."""
    raise OSError(_UNKNOWN)


def remove() -> str:
    """Refuse, on a system whose service manager is not known here."""
    raise OSError(_UNKNOWN)


def is_installed() -> bool:
    """False on a system whose service manager is not known here."""
    return False
