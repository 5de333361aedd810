"""Each promise has a marked test in the full run; the table of faults is that of docs/faults.json."""

from __future__ import annotations

import ast
import functools
import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
PAGE = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `([a-z0-9-]+)` \| (.+?) \| (.+?) \|(?: .*)? \|$", re.MULTILINE)
FILE = re.compile(r"`((?:tests|tools)/[\w/.]+|test_\w+\.py)`")
FAULT_COUNTS = ("acknowledged", "lost", "wrong")


@dataclass(frozen=True)
class Promise:
    """A row of the table."""

    id: str
    text: str
    shown_by: str


@dataclass(frozen=True)
class Mark:
    """A test with a promise mark."""

    promise: str
    test: str
    is_deep: bool


@functools.cache
def promises() -> list[Promise]:
    return [Promise(*match.groups()) for match in ROW.finditer(PAGE)]


@functools.cache
def deep_places() -> tuple[str, ...]:
    """DEEP_PLACES of tests/conftest.py: path prefixes of the tests outside of the full run."""
    tree = ast.parse((TESTS / "conftest.py").read_text(encoding="utf-8"))
    values = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "DEEP_PLACES"
    ]
    return tuple(
        node.value
        for value in values
        for node in ast.walk(value)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def is_mark(node: ast.expr, name: str) -> bool:
    function = node.func if isinstance(node, ast.Call) else node
    return ast.unparse(function) == f"pytest.mark.{name}"


def promise_calls(tree: ast.AST) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call) and is_mark(node, "promise")]


def marks_of(path: Path) -> list[Mark]:
    """The promise marks of one file. A mark anywhere but on a test function raises ValueError: nothing would run it."""
    text = path.read_text(encoding="utf-8")
    if "mark.promise" not in text:
        return []
    tree, place = ast.parse(text), path.relative_to(TESTS).as_posix()
    is_deep_file = place.startswith(deep_places()) or any(
        is_mark(part, "deep")
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
        for part in ast.walk(node.value)
        if isinstance(part, ast.expr)
    )
    marks = [
        Mark(
            ast.literal_eval(call.args[0]),
            f"{place}::{node.name}",
            is_deep_file or any(is_mark(other, "deep") for other in node.decorator_list),
        )
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        for call in node.decorator_list
        if isinstance(call, ast.Call) and is_mark(call, "promise")
    ]
    if len(marks) != len(promise_calls(tree)):
        raise ValueError(f"{place} has promise marks that are not decorators of test functions")
    return marks


@functools.cache
def marks() -> list[Mark]:
    return [mark for path in sorted(TESTS.rglob("test_*.py")) if path != Path(__file__) for mark in marks_of(path)]


def test_every_row_has_an_id_of_its_own() -> None:
    table = PAGE.partition("## Promises")[2].partition("\n\nThe last full run")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")]
    assert len(promises()) == len(rows) - 1 > 30  # without the titles
    counts = Counter(promise.id for promise in promises())
    assert not [name for name, count in counts.items() if count > 1]


def test_every_promise_has_a_test_in_the_full_run() -> None:
    full = {mark.promise for mark in marks() if not mark.is_deep}
    assert not [promise.id for promise in promises() if promise.id not in full]


def test_every_mark_names_a_promise() -> None:
    ids = {promise.id for promise in promises()}
    assert not [f"{mark.test}: {mark.promise}" for mark in marks() if mark.promise not in ids]


def test_deep_places_are_recognized() -> None:
    assert any(mark.is_deep for mark in marks())
    assert "live/test_booted_service.py" in deep_places()


@pytest.mark.parametrize("promise", promises(), ids=lambda promise: promise.id)
def test_the_files_of_a_row_exist(promise: Promise) -> None:
    """A name without a folder is a file of any folder of the tests: no two share a name."""
    missing = [
        name
        for name in FILE.findall(promise.shown_by)
        if not ((ROOT / name).exists() if "/" in name else any(TESTS.rglob(name)))
    ]
    assert not missing, f"{promise.id} names {', '.join(missing)}"


def test_a_row_names_a_file_of_its_marked_tests() -> None:
    """A file, or a folder that it lies in; the tools that drive the same faults stand for the tests of the faults."""
    found: dict[str, set[str]] = defaultdict(set)
    for mark in marks():
        found[mark.promise].add(mark.test.partition("::")[0])
    unnamed = [
        promise.id
        for promise in promises()
        if not any(
            f"tests/{file}".startswith(name) or file.endswith(f"/{name}")
            for name in FILE.findall(promise.shown_by)
            for file in found[promise.id]
        )
    ]
    assert not unnamed


def test_the_fault_table_is_that_of_the_recorded_run() -> None:
    run = json.loads((ROOT / "docs" / "faults.json").read_text(encoding="utf-8"))
    rows = [
        f"| {fault['fault']} | {fault['survived']} / {fault['tried']} | "
        f"{' | '.join(f'{fault[name]:,}' for name in FAULT_COUNTS)} |"
        for fault in run["faults"]
    ]
    assert not [row for row in rows if row not in PAGE.splitlines()]
