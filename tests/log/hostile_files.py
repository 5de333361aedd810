"""What a stranger may put in the place of a small file: it hangs, exhausts or confuses a careless reader."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.host_system import make_pipe_file

SPARSE_BYTES = 2**40


def pipe(path: Path) -> None:
    make_pipe_file(path)


def sparse(path: Path) -> None:
    """Holds nothing but a hole, behind what is there."""
    path.touch()
    os.truncate(path, SPARSE_BYTES)


def deep(path: Path) -> None:
    path.write_text("[" * 100_000)


def folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def many_items(path: Path) -> None:
    """Bounded bytes, twenty times as much memory."""
    path.write_bytes(b"[" + b"[]," * (20 * 2**20) + b"[]]")


def twice(path: Path) -> None:
    """A name that stands twice in the object."""
    path.write_text('{"format": "acqstream", ' + path.read_text()[1:])


def edited(key: str, text: str) -> Callable[[Path], None]:
    """A JSON object that was right but for one more or other value."""

    def make(path: Path) -> None:
        values: dict[str, Any] = json.loads(path.read_bytes()) if path.is_file() else {}
        values.pop(key, None)
        path.write_text(f'{{"{key}": {text}, {json.dumps(values)[1:]}')

    return make


ANY_FILE: dict[str, Callable[[Path], None]] = {"pipe": pipe, "sparse": sparse, "folder": folder}
JSON_FILE: dict[str, Callable[[Path], None]] = {
    **ANY_FILE,
    "deep": deep,
    "deep inside": edited("request", '{"summary": ' + "[" * 400 + "]" * 400 + "}"),
    "many items": many_items,
    "huge number": edited("gaps", "1" + 10**6 * "0"),
    "infinite": edited("started_at", "1e999999"),
    "NaN": edited("settings", "NaN"),
    "twice": twice,
    "other kinds": edited("dataset_id", "[1]"),
    "a way out": edited("name", '"../cells"'),
}
