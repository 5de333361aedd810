"""Containers have the bytes that the previous version gave them: documents, the XML file and blocks."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.checksum_files import is_list
from tests.formats.n5.n5_samples import GOLDEN, samples, write_pyramid

EXPECTED = GOLDEN / "written.json"
CASES: dict[str, dict[str, Any]] = {
    "bdv": {"compression": "raw", "blocks": [4, 8, 16], "levels": 2, "scale": (1.0, 1.0, 0.5, 0.1, 0.1)},
    "multiscale": {"layout": "multiscale", "compression": "raw", "blocks": [4, 8, 16], "levels": 2},
    "array": {"layout": "array", "compression": "raw", "blocks": [4, 8, 16], "levels": 2},
    "unfinished": {"compression": "raw", "blocks": [4, 8, 16], "levels": 1, "is_finished": False},
}
AXES = ("time", "channel", "z", "y", "x")


def digests(folder: Path, name: str) -> dict[str, str]:
    """The digest of every file of a container with this content."""
    given = {"units": ("s", "", "um", "um", "um"), "labels": {"channel": ["DAPI", "GFP"]}, **CASES[name]}
    write_pyramid(folder / "cells.n5", samples((2, 2, 6, 20, 30), "uint16"), AXES, **given)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not is_list(path))
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("name", CASES)
def test_a_container_has_the_bytes_of_before(tmp_path: Path, name: str) -> None:
    expected = json.loads(EXPECTED.read_text())[name]
    assert digests(tmp_path, name) == expected
