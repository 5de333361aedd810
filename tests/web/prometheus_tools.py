"""Prometheus' own checker of rules and metrics, where it is installed."""

from __future__ import annotations

import shutil
import subprocess

import pytest

PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)")


def promtool(*arguments: str, text: str = "") -> str:
    """Run a command of promtool, which must succeed, and return its output."""
    done = subprocess.run([str(PROMTOOL), *arguments], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
