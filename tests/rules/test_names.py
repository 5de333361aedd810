"""A module is named after its one noun; a drawer for odds and ends has none."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DRAWERS = {"utils", "util", "helpers", "helper", "common", "misc", "core", "manager", "managers", "stuff", "tools"}


@pytest.mark.parametrize("folder", ["acqstream", "tests", "tools"])
def test_no_module_or_package_is_a_drawer(folder):
    named = [path for path in (ROOT / folder).rglob("*") if path.suffix == ".py" or path.is_dir()]
    assert named
    found = [path.relative_to(ROOT).as_posix() for path in named if path.stem.strip("_") in DRAWERS]
    assert not found, f"name these after what they hold: {', '.join(found)}"
