"""What lies at the top of the repository: nothing that a test or a tool has left there."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOP = {
    ".ci",
    ".gitignore",
    "CHANGELOG.md",
    "LICENSE",
    "README.md",
    "acqstream",
    "docs",
    "pyproject.toml",
    "requirements",
    "systemd",
    "tests",
    "tools",
}


@pytest.mark.skipif(not (ROOT / ".git").exists() or shutil.which("git") is None, reason="no checkout by git")
def test_only_known_names_are_at_the_top():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {name.split("/")[0] for name in listed.split("\0") if name} <= TOP
