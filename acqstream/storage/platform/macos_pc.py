"""Power, clock and scanner of a Mac. With the names of `linux_pc`; macOS reports none of it without other programs."""

from __future__ import annotations

from acqstream.storage.platform.pc_facts import PowerFacts, ScannerFacts


def power_facts() -> PowerFacts:
    return PowerFacts()


def is_clock_synchronised() -> bool | None:
    return None


def scanner_facts() -> ScannerFacts:
    return ScannerFacts()
