"""Check: does a virus scanner open every file that is written?"""

from __future__ import annotations

import ntpath
from dataclasses import dataclass

from acqstream.doctor.examination import Examination
from acqstream.doctor.verdict import CheckVerdict, ok, unknown, warning
from acqstream.storage.platform.pc import scanner_facts
from acqstream.storage.platform.pc_facts import ScannerFacts

NAME = "virus scanner"


@dataclass(frozen=True, slots=True)
class DirectoryScanFacts:
    """The scanner of the system, and the data directory."""

    scanner: ScannerFacts
    data: str


def gather(examination: Examination) -> DirectoryScanFacts:
    """Ask the system."""
    return DirectoryScanFacts(scanner_facts(), str(examination.data.absolute()))


def judge(facts: DirectoryScanFacts) -> CheckVerdict:
    """Is the data directory, or a folder above it, left alone?"""
    scanner = facts.scanner
    if not scanner.name:
        return ok("This system has no scanner of its own; look after one that was installed.")
    if not scanner.is_scanning:
        return ok(f"{scanner.name} does not scan files as they are written.")
    remedy = f"As administrator, in PowerShell: Add-MpPreference -ExclusionPath '{facts.data}'"
    if scanner.excluded is None:
        text = f"{scanner.name} scans files as they are written; its exclusions can only be read by an administrator."
        return unknown(text, f"{remedy}, unless that was done.")
    if any(_is_below(facts.data, folder) for folder in scanner.excluded):
        return ok(f"{scanner.name} leaves {facts.data} alone.")
    return warning(
        f"{scanner.name} scans each file in {facts.data} as it is written, which slows the recording.", remedy
    )


def _is_below(path: str, folder: str) -> bool:
    own, above = (ntpath.normcase(one).rstrip("\\") for one in (path, folder))
    return own == above or own.startswith(above + "\\")
