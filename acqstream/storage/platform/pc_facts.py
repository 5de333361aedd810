"""What a system reports about a PC; None or empty where it does not say."""

from __future__ import annotations

from dataclasses import dataclass


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
