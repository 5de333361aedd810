"""What tools/run.py says to type where Python has no ensurepip. On a real Debian: tests/live/test_booted_service.py."""

from __future__ import annotations

import os
import shutil
import sys

import pytest

import run

PACKAGE = f"apt install python{sys.version_info[0]}.{sys.version_info[1]}-venv"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no users by number")
@pytest.mark.parametrize(
    ("prefix", "programs", "user", "line"),
    [
        ("/usr", {"apt", "sudo"}, 1000, f"    sudo {PACKAGE}\n    python3 tools/run.py demo --dir X"),
        ("/usr", {"apt"}, 1000, f"    su -c '{PACKAGE}'\n"),
        ("/usr", {"apt", "sudo"}, 0, f"    {PACKAGE}\n"),
        ("/usr", set(), 1000, "PYTHON tools/run.py demo --dir X"),
        ("/opt/python", {"apt", "sudo"}, 1000, "https://www.python.org"),
    ],
)
def test_the_advice_is_the_command_to_type(
    monkeypatch: pytest.MonkeyPatch, prefix: str, programs: set[str], user: int, line: str
) -> None:
    monkeypatch.setattr(sys, "base_prefix", prefix)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(shutil, "which", lambda name: name if name in programs else None)
    assert line in run.venv_advice(["demo", "--dir", "X"])
