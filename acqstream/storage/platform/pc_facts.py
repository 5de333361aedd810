"""What a system reports about a PC, None or empty where it does not say; runs the program that manages services."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_S = 60.0
_UNKNOWN = "acqstream does not know the service manager of this system: start `acqstream serve` with its own means"


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerFacts:
    """How the PC saves power. plan: of the processors; on_battery; sleep_after_s: 0 for never, None if not known."""

    plan: str = ""
    slows_down: bool = False
    on_battery: bool | None = None
    sleep_after_s: int | None = None
    stays_awake_for_runs: bool = False  # the daemon keeps it from sleeping


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannerFacts:
    """The virus scanner of the system. is_scanning: None if not known; excluded: the folders that it leaves alone."""

    name: str = ""
    is_scanning: bool | None = None
    excluded: tuple[str, ...] | None = None


def is_clock_synchronised() -> bool | None:
    """Whether the time comes from a server; None on a system whose answer is not known here."""
    return None


def power_facts() -> PowerFacts:
    """How a system saves power whose settings are not known here."""
    return PowerFacts()


def scanner_facts() -> ScannerFacts:
    """The scanner of a system whose settings are not known here."""
    return ScannerFacts()


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
