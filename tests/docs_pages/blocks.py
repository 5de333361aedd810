"""The code blocks of the documents, cut into statements: what a reader types, and what is only shown."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
# A line that begins with one of these, perhaps after variables or a path, is typed into a shell.
SHELL = re.compile(
    r"(?:[A-Z_]+=\S+ )*(?:/\S*/bin/)?(?:acqstream|pip|pipx|python3?|mkdir|cd|mv|cp|tail|export|install|chgrp|mmcore|"
    r"napari|dd|echo|sed|curl|hsds|systemctl|usermod|loginctl|systemd-analyze)(?= |$)"
)
WINDOWS = re.compile(r"py -3|C:\\|icacls|attrib|Add-MpPreference|powercfg")
FENCE = re.compile(r"```(\S*)")


@dataclass(frozen=True)
class Statement:
    """A part of a block in one language: "python", "shell", "synopsis", "windows", "toml", "json", "yaml" or "text".

    block is the line of the page that the block begins at.
    """

    page: str
    block: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.block}: {self.text.splitlines()[0]}"


def statements(path: Path) -> list[Statement]:
    """All of a page, in order."""
    page = path.relative_to(ROOT).as_posix()
    return [
        Statement(page, line, language, text)
        for line, fence, block in _blocks(path.read_text(encoding="utf-8").splitlines())
        for language, text in ([(fence, block)] if fence else _languages(block))
    ]


def _blocks(lines: list[str]) -> Iterator[tuple[int, str, str]]:
    """Line, name of the fence (empty without one) and text."""
    start = 0
    while start < len(lines):
        end = start + 1
        if fence := FENCE.match(lines[start]):
            while not lines[end].startswith("```"):
                end += 1
            if not fence[1].startswith("{"):  # lists of pages
                yield start + 1, fence[1] or "text", "\n".join(lines[start + 1 : end])
            end += 1
        elif lines[start].startswith("    ") and not lines[start - 1].strip():
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            yield start + 1, "", textwrap.dedent("\n".join(lines[start:end])).strip("\n")
        start = end


def _languages(block: str) -> Iterator[tuple[str, str]]:
    """An indented block names no language."""
    if WINDOWS.search(block):
        yield "windows", block
    elif _is_json(block):
        yield "json", block
    elif _is_python(block):
        yield "python", block
    else:
        found = list(_split(block))
        whole = all(language != "python" or _is_python(text) for language, text in found)
        yield from found if whole else [("text", block)]


def _split(block: str) -> Iterator[tuple[str, str]]:
    """Lines that a shell takes, each with those that continue it; what is left between them as Python."""
    python: list[str] = []
    lines = iter(block.splitlines())
    for line in lines:
        if not SHELL.match(line):
            python.append(line)
            continue
        if "\n".join(python).strip():
            yield "python", "\n".join(python)
            python = []
        if "[--" in line or line.endswith(" RUN TO"):  # the rest of the block are more options, or more synopses
            yield "synopsis", "\n".join([line, *lines])
            return
        text = line
        while text.endswith("\\"):
            text += "\n" + next(lines)
        yield "shell", text
    if "\n".join(python).strip():
        yield "python", "\n".join(python)


def _is_python(text: str) -> bool:
    try:
        compile(text, "page", "exec")
    except SyntaxError:
        return False
    return True


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
