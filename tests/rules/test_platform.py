"""Only `acqstream.storage.platform` knows operating systems."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

from acqstream.storage.platform import linux_memory, macos_memory, windows_memory
from acqstream.storage.platform.linux_files import LinuxFiles
from acqstream.storage.platform.macos_files import MacFiles
from acqstream.storage.platform.posix_files import PosixFiles
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


@pytest.mark.parametrize("module", [macos_memory, windows_memory])
def test_memory_of_each_system_has_the_same_functions(module):
    def functions(of: object) -> dict[str, list[str]]:
        found = inspect.getmembers(of, inspect.isfunction)
        return {name: list(inspect.signature(call).parameters) for name, call in found if name[0] != "_"}

    assert functions(module) == functions(linux_memory)
