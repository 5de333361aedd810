"""The table of formats and situations in docs/writing-a-format.md is complete, and its tests exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from acqstream.formats.registry import CHUNK_FORMATS

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| ([a-z ]+) \| ([a-z0-9, -]+) \| `([\w/]+\.py)::(test_\w+)` \|$", re.MULTILINE)
SITUATIONS = ("create", "resume", "kill", "full disk", "hostile", "golden", "written bytes")
FORMATS = ("ndtiff", *CHUNK_FORMATS)
ROWS = ROW.findall((ROOT / "docs" / "writing-a-format.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_a_test_of_every_situation(name: str, situation: str) -> None:
    assert any(row[0] == situation and name in row[1].split(", ") for row in ROWS)


def test_rows_name_formats_and_situations_that_exist() -> None:
    assert {row[0] for row in ROWS} == {*SITUATIONS}
    assert {name for row in ROWS for name in row[1].split(", ")} == {*FORMATS}


@pytest.mark.parametrize(("file", "test"), sorted({row[2:] for row in ROWS}))
def test_the_tests_exist(file: str, test: str) -> None:
    tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    assert test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
