"""Limits of size: small files and functions, flat code, few positional parameters."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE_LINES = {"acqstream": 501, "tools": 501, "tests": 601}  # fewer than this
BODY_LINES = 60  # fewer than this, without the docstring
NESTING = 4  # at most
POSITIONAL = 5  # at most, without self and cls

# "path" or "path:function" -> why it may break a limit. May only shrink.
EXCEPTIONS: dict[str, str] = {}

BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Breach:
    place: str
    text: str


def source_files() -> Iterator[tuple[Path, int]]:
    for folder, limit in FILE_LINES.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "golden" not in path.parts:
                yield path, limit


def breaches_of(path: Path, line_limit: int) -> Iterator[Breach]:
    place = path.relative_to(ROOT).as_posix()
    text = path.read_text(encoding="utf-8")
    lines = len(text.splitlines())
    if lines >= line_limit:
        yield Breach(place, f"{lines} lines, must be fewer than {line_limit}")
    for node in ast.walk(ast.parse(text, filename=place)):
        if isinstance(node, Function):
            yield from breaches_of_function(node, f"{place}:{node.name}")


def breaches_of_function(function: Function, place: str) -> Iterator[Breach]:
    if (lines := body_lines(function)) >= BODY_LINES:
        yield Breach(place, f"body of {lines} lines, must be fewer than {BODY_LINES}")
    if (depth := nesting(function.body)) > NESTING:
        yield Breach(place, f"nested {depth} deep, at most {NESTING}")
    if not place.startswith("tests/") and (count := positional(function)) > POSITIONAL:
        yield Breach(place, f"{count} positional parameters, at most {POSITIONAL}")  # fixtures are parameters in tests


def body_lines(function: Function) -> int:
    body = function.body
    if ast.get_docstring(function, clean=False) is not None:
        body = body[1:]
    return body[-1].end_lineno - body[0].lineno + 1 if body and body[-1].end_lineno else 0


def nesting(statements: list[ast.stmt]) -> int:
    return max((depth_of(statement) for statement in statements), default=0)


def depth_of(statement: ast.stmt) -> int:
    """How many blocks deep a statement goes, itself included; `elif` counts as its `if`."""
    if not isinstance(statement, BLOCKS):
        return 0
    if isinstance(statement, ast.Match):
        return 1 + nesting([inner for case in statement.cases for inner in case.body])
    depth = 1 + nesting(statement.body)
    for handler in getattr(statement, "handlers", ()):
        depth = max(depth, 1 + nesting(handler.body))
    depth = max(depth, 1 + nesting(getattr(statement, "finalbody", [])))
    other = getattr(statement, "orelse", [])
    is_elif = isinstance(statement, ast.If) and len(other) == 1 and isinstance(other[0], ast.If)
    return max(depth, depth_of(other[0]) if is_elif else 1 + nesting(other))


def positional(function: Function) -> int:
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


@functools.cache
def all_breaches() -> list[Breach]:
    return [breach for path, limit in source_files() for breach in breaches_of(path, limit)]


def test_every_file_and_function_is_within_the_limits():
    found = [f"{breach.place}: {breach.text}" for breach in all_breaches() if breach.place not in EXCEPTIONS]
    assert not found, "\n" + "\n".join(found)


def test_every_exception_is_still_needed():
    needed = {breach.place for breach in all_breaches()}
    assert not set(EXCEPTIONS) - needed, "within the limits by now: take these out of EXCEPTIONS"
    assert all(EXCEPTIONS.values()), "an exception needs its reason"


def test_the_measures_themselves():
    code = '''
def sample(self, a, b, /, c, *, d):
    """Not
    counted."""
    if a:
        pass
    elif b:
        for _ in c:
            with d:
                pass
    try:
        return 1
    except ValueError:
        while a:
            pass
'''
    function = ast.parse(code).body[0]
    assert isinstance(function, ast.FunctionDef)
    assert body_lines(function) == 11
    assert nesting(function.body) == 3
    assert positional(function) == 3
