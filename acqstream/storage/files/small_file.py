"""Small files and JSON documents from untrusted sources, bounded in bytes, items and depth; ends of growing texts.

Every JSON file of a dataset's folder is read here. A pipe does not block, a sparse file of many gigabytes takes no
memory, and every defect raises one error that names the file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from acqstream.errors import CorruptDataset, FileMissing, ProtocolError, StorageError
from acqstream.model.fields import MAX_INTEGER, Fields
from acqstream.model.metadata import MAX_JSON_BYTES, MAX_JSON_ITEMS, is_deeper_than
from acqstream.storage.files.disk import using
from acqstream.storage.files.read_file import ReadFile, is_absent
from acqstream.storage.platform import FILES

_MAX_BYTES = 2**14


def last_lines(path: Path, count: int) -> list[str]:
    """Return up to `count` lines from the end; none if the file cannot be read."""
    try:
        with using(FILES, FILES.open_for_reading(str(path))) as fd:
            start = max(0, FILES.size(fd) - _MAX_BYTES)
            return FILES.pread(fd, _MAX_BYTES, start).decode("utf-8", "replace").splitlines()[-count:]
    except OSError:
        return []


MAX_FILE_BYTES, MAX_ITEMS = MAX_JSON_BYTES, MAX_JSON_ITEMS
MAX_DEPTH = 300  # far below the depth that exhausts the stack of recursive readers, far above that of real documents

_T = TypeVar("_T")


def read_small_file(path: Path, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """The content of a file of at most max_bytes.

    Raises FileMissing, CorruptDataset if it is larger or not a regular file, StorageError.
    """
    try:
        file = ReadFile(path)
    except StorageError as error:
        if is_absent(error):
            raise FileMissing(error, str(path), "read") from error
        raise
    with closing(file):
        size = file.size()
        if size > max_bytes:
            raise CorruptDataset(f"has {size} bytes, expected at most {max_bytes}", path=str(path))
        return file.read(0, max_bytes)


def parse_json(
    content: bytes | str,
    path: str,
    *,
    is_ours: bool = False,
    what: str = "",
    offset: int | None = None,
    max_items: int = MAX_ITEMS,
) -> Any:
    """The value of a JSON text from the file `path`.

    is_ours: acqstream wrote the text, so repeated names and numbers that are not finite are damage. what names the
    text in error messages, offset is its first byte in the file. Raises CorruptDataset.
    """
    place = f"{what} " if what else ""
    # Counted before parsing: every value but the first follows one of these characters, so memory stays bounded.
    marks = b"[{," if isinstance(content, bytes) else "[{,"
    counts = [content.count(marks[i : i + 1]) for i in range(3)]  # type: ignore[arg-type] # both are of one kind
    if sum(counts) > max_items:
        text = f"{place}has about {sum(counts)} JSON items, expected at most {max_items}"
        raise CorruptDataset(text, path=path, offset=offset)
    strict: dict[str, Any] = {}
    if is_ours:
        strict = {"parse_constant": _refuse_constant, "parse_float": _finite, "object_pairs_hook": _unique_names}
    try:
        value = json.loads(content, **strict)
    except RecursionError as error:
        raise CorruptDataset(f"{place}is not valid JSON: nested too deeply", path=path, offset=offset) from error
    except ValueError as error:
        is_zeros = isinstance(content, bytes) and not content.strip(b"\0")
        why = (
            f"{len(content)} bytes of zeros, as a power cut leaves them" if content and is_zeros else f"{error!s:.200}"
        )
        raise CorruptDataset(f"{place}is not valid JSON: {why}", path=path, offset=offset) from error
    # Fewer brackets than levels: the walk through the value can be spared.
    if counts[0] + counts[1] > MAX_DEPTH and is_deeper_than(MAX_DEPTH, value):
        text = f"{place}is nested deeper than {MAX_DEPTH} levels"
        raise CorruptDataset(text, path=path, offset=offset)
    return value


def read_json_object(
    path: Path, max_bytes: int = MAX_FILE_BYTES, *, is_ours: bool = False, max_items: int = MAX_ITEMS
) -> dict[str, Any]:
    """The JSON object in a file. Raises as `read_small_file`, and CorruptDataset for any other value."""
    value = parse_json(read_small_file(path, max_bytes), str(path), is_ours=is_ours, max_items=max_items)
    return _object_in(value, str(path))


def _object_in(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CorruptDataset(f"contains {type(value).__name__}, expected a JSON object", path=path)
    return value


def parse_fields(content: bytes, path: str, *, max_integer: int = MAX_INTEGER) -> Fields:
    """The JSON object in the content of the file `path`, of any program; its field checks raise CorruptDataset."""
    value = _object_in(parse_json(content, path), path)
    return Fields(value, error=partial(CorruptDataset, path=path), max_integer=max_integer)


def read_document(path: Path, kind: str, parse: Callable[[Fields], _T], *, max_items: int = MAX_ITEMS) -> _T:
    """The result of `parse` for an acqstream document: a JSON object with `kind` as its format, version 1.

    Raises as `read_json_object`, and CorruptDataset where `parse` raises ProtocolError, FieldError or ValueError.
    """
    values = read_json_object(path, is_ours=True, max_items=max_items)
    if values.get("format") != kind or values.get("version") != 1:
        # Version first, fields after: a later version may use the same names for something else.
        actual = f"format {values.get('format')!r:.60}, version {values.get('version')!r:.60}"
        raise CorruptDataset(f"{actual}; expected {kind!r}, version 1", path=str(path))
    return parsed(values, path, parse)


def parsed(values: dict[str, Any], path: Path, parse: Callable[[Fields], _T]) -> _T:
    """The result of `parse` for values that were read from `path`.

    Raises CorruptDataset where `parse` raises ProtocolError, FieldError or ValueError.
    """
    try:
        return parse(Fields(values))
    except (ProtocolError, ValueError) as error:
        raise CorruptDataset(f"{error!s:.300}", path=str(path)) from error


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"number {text:.40} is too large")
    return number


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # The standard library keeps the last of two equal names: damage would go unseen.
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("an object has the same name twice")
    return values
