"""Only `acqstream.storage.platform` knows operating systems."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

from acqstream.storage.platform import (
    linux_memory,
    linux_memory_listener,
    posix_process,
    windows_memory,
    windows_memory_listener,
    windows_process,
)
from acqstream.storage.platform.linux_files import LinuxFiles
from acqstream.storage.platform.posix_files import MacFiles, PosixFiles
from acqstream.storage.platform.windows_files import WindowsFiles

ROOT = Path(__file__).resolve().parents[2]
PLATFORM = ROOT / "acqstream" / "storage" / "platform"
SYSTEM_MODULES = {"os", "socket", "signal", "select", "mmap", "time"}
QUESTIONS = {("sys", "platform"), ("os", "name")}


def questions(tree: ast.Module) -> list[str]:
    """Places in a module that ask which system it runs on, or whether the system has something."""
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=module), attr=name) if (module, name) in QUESTIONS:
                found.append(f"line {node.lineno}: {module}.{name}")
            case ast.Call(func=ast.Name(id="hasattr" | "getattr" as call), args=[ast.Name(id=module), *_]) if (
                module in SYSTEM_MODULES
            ):
                found.append(f"line {node.lineno}: {call}({module}, ...)")
    return found


def test_no_other_package_asks_which_system_it_runs_on():
    """Instead: a method of `Files`, or a function in `capabilities`."""
    found = {}
    for path in sorted((ROOT / "acqstream").rglob("*.py")):
        if PLATFORM not in path.parents:
            places = questions(ast.parse(path.read_text(encoding="utf-8")))
            if places:
                found[path.relative_to(ROOT).as_posix()] = places
    assert not found


def test_the_rule_sees_each_kind_of_question():
    text = "sys.platform == 'x'\nos.name\nhasattr(os, 'a')\ngetattr(socket, 'b', 0)\ngetattr(other, 'c')"
    assert len(questions(ast.parse(text))) == 4


def calls_of(kind: type) -> dict[str, list[str]]:
    """Public methods of a class, with the names of their parameters."""
    methods = inspect.getmembers(kind, inspect.isfunction)
    return {name: list(inspect.signature(call).parameters) for name, call in methods if not name.startswith("_")}


@pytest.mark.parametrize("kind", [LinuxFiles, MacFiles, WindowsFiles])
def test_files_of_each_system_have_the_same_calls(kind):
    assert calls_of(kind) == calls_of(PosixFiles)


def functions_of(module: ModuleType) -> dict[str, list[str]]:
    """Public functions that a module defines or imports from its package, with the names of their parameters."""
    found = inspect.getmembers(module, inspect.isfunction)
    own = {name: call for name, call in found if name[0] != "_" and "platform" in call.__module__}
    return {name: list(inspect.signature(call).parameters) for name, call in own.items()}


@pytest.mark.parametrize("name", ["keep_large_blocks", "map_private"])
def test_memory_of_each_system_has_the_same_functions(name):
    assert functions_of(windows_memory)[name] == functions_of(linux_memory)[name]


@pytest.mark.parametrize(
    ("alias", "subject", "windows"),
    [
        ("child_process", posix_process, windows_process),
        ("memory_listener", linux_memory_listener, windows_memory_listener),
        ("shared_memory", linux_memory, windows_memory),
    ],
)
def test_other_modules_use_only_what_each_system_has(alias, subject, windows):
    """All names that the other packages take from the module of a subject exist on both systems, with equal calls."""
    pattern = re.compile(rf"\b{alias}\.(\w+)")
    sources = [path.read_text("utf-8") for path in (ROOT / "acqstream").rglob("*.py") if PLATFORM not in path.parents]
    used = {name for text in sources for name in pattern.findall(text)}
    assert used
    for name in used:
        one, other = getattr(subject, name), getattr(windows, name)
        if inspect.isclass(one):
            assert calls_of(one) == calls_of(other), name
        elif callable(one):
            assert list(inspect.signature(one).parameters) == list(inspect.signature(other).parameters), name
