"""Limits that keep the house in order: sizes of classes, unique names, no circles, comments where code is subtle."""

from __future__ import annotations

import ast
import functools
import graphlib
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAX_CLASS_LINES = 300
MAX_ATTRIBUTES = 18
MIN_COMMENTS = 0.05  # of the lines of code
SUBTLE = re.compile(r"\b(?:Lock|RLock|Condition)\(|<<|>>|\bunpack_from\b|\bpack_into\b|\boffset\b")
MIN_SUBTLE = 5  # places in a module that make it one of those


@functools.cache
def trees() -> dict[str, ast.Module]:
    """Parsed modules by their path from the root."""
    paths = sorted((ROOT / "acqstream").rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    for place, tree in trees().items():
        yield from ((place, node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def attributes(node: ast.ClassDef) -> set[str]:
    """Names that a class assigns on itself, and the fields that it declares."""
    declared = {
        item.target.id for item in node.body if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }
    stored = {
        item.attr
        for item in ast.walk(node)
        if isinstance(item, ast.Attribute)
        and isinstance(item.ctx, ast.Store)
        and isinstance(item.value, ast.Name)
        and item.value.id == "self"
    }
    return declared | stored


def is_plain_record(node: ast.ClassDef) -> bool:
    """A frozen dataclass, a named tuple or a pydantic model: values of a format or a message, which has many."""
    decorators = " ".join(map(ast.unparse, node.decorator_list))
    return "frozen=True" in decorators or any(ast.unparse(base) in ("NamedTuple", "BaseModel") for base in node.bases)


def test_classes_are_small():
    found = {}
    for _, node in classes():
        lines = (node.end_lineno or 0) - node.lineno + 1
        count = 0 if is_plain_record(node) else len(attributes(node))
        if lines > MAX_CLASS_LINES or count > MAX_ATTRIBUTES:
            found[node.name] = f"{lines} lines, {count} attributes"
    assert not found


def test_no_class_name_is_used_twice():
    """A reader who searches for a class finds one. Modules of a subject for several platforms define the same one."""
    places = defaultdict(set)
    for place, node in classes():
        if not node.name.startswith("_"):
            places[node.name].add(re.sub(r"(?<=/storage/platform/)(linux|windows|posix)_", "", place))
    found = {name: sorted(where) for name, where in places.items() if len(where) > 1}
    assert not found


def imports_of(module: str, tree: ast.Module, known: set[str]) -> set[str]:
    """Our modules that a module names anywhere: for types and in functions as well."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            members = {f"{node.module}.{alias.name}" for alias in node.names}
            found.update(members & known or {node.module})
    return (found & known) - {module}


def test_no_circle_of_imports_not_even_for_types():
    """Two modules that name each other are one. Move what both need into a third, lower one."""
    modules = {
        place.removesuffix(".py").removesuffix("/__init__").replace("/", "."): tree for place, tree in trees().items()
    }
    modules.pop("acqstream")  # it loads its public names when they are asked for
    needs = {module: imports_of(module, tree, set(modules)) for module, tree in modules.items()}
    assert sum(map(len, needs.values())) > len(needs)
    order = list(graphlib.TopologicalSorter(needs).static_order())  # CycleError names the circle
    assert len(order) == len(needs)


def test_a_main_program_stands_at_the_end_of_its_module():
    """What follows it would not exist yet when it runs; importing the module shows nothing of that."""
    programs = {
        place: [number for number, node in enumerate(tree.body) if ast.unparse(node).startswith("if __name__ == ")]
        for place, tree in trees().items()
    }
    assert any(programs.values())
    assert not [place for place, found in programs.items() if any(n + 1 < len(trees()[place].body) for n in found)]


def test_subtle_code_says_why():
    """Locks, bits and byte offsets need comments: 5 for 100 lines."""
    found = {}
    for place in trees():
        path = ROOT / place
        text = path.read_text(encoding="utf-8")
        if len(SUBTLE.findall(text)) < MIN_SUBTLE:
            continue
        with path.open("rb") as file:
            tokens = list(tokenize.tokenize(file.readline))
        comments = {token.start[0] for token in tokens if token.type == tokenize.COMMENT}
        code = {token.start[0] for token in tokens if token.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER)}
        if len(comments) < MIN_COMMENTS * len(code):
            found[path.stem] = f"{len(comments)} comments on {len(code)} lines"
    assert not found
