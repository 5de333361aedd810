"""Lists of checksums in containers: their names differ from process to process, so comparisons leave them out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from acqstream.formats.checksum_list import FOLDER

_Value = TypeVar("_Value")


def is_list(path: Path | str) -> bool:
    """True for files of the folder of lists, and the folder itself."""
    return FOLDER in Path(path).parts


def other_keys(keys: Iterable[str]) -> list[str]:
    return [key for key in keys if not is_list(key)]


def other_files(files: Mapping[str, _Value]) -> dict[str, _Value]:
    return {name: content for name, content in files.items() if not is_list(name)}
