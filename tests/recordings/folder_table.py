"""The files of a folder as a table: size and digest of each, or of all chunks below one folder."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tests.recordings.recording import digest, masked

# Names that are coordinates of chunks, and folders of such: N5, Zarr, WKW, precomputed, HSDS.
_CHUNK = re.compile(r"[0-9]+|c|[xyz][0-9]+(\.wkw)?|[0-9]+(_[0-9]+)+|[0-9]+-[0-9]+(_[0-9]+-[0-9]+)+|[0-9a-f]+\.shard")
# Locks, and lists of checksums: random names, and threads decide how their pages are divided.
_LEFT_OUT = (".acqstream.lock", ".sums")
_RECEIPT_MIRRORS = re.compile(rb'"mirrors":\{.*\}(?=,"root_sha256")')  # their progress at that moment
_DIGITS = re.compile(r"[0-9]+")
_ALIKE = 3  # from so many files on, those whose names differ in numbers alone are one line


def folder_table(path: Path, root: Path) -> dict[str, str]:
    """By path below the parent of `path`: "SIZE DIGEST", with the count where it is about many files.

    root: its path has a fixed length, as some files hold it; another one in its place.
    """
    rows = {found.relative_to(path.parent).as_posix(): found for found in sorted([path, *path.rglob("*")])}
    files = {name: _content(found, root) for name, found in rows.items() if found.is_file()}
    files = {name: content for name, content in files.items() if not name.endswith(_LEFT_OUT)}
    names: dict[str, list[str]] = {}
    for name in files:
        names.setdefault(_shared_name(name), []).append(name)
    table: dict[str, str] = {}
    for shared, alike in names.items():
        if len(alike) < _ALIKE and "*" not in shared:
            table |= {name: _row([(name, files[name])]) for name in alike}
        else:
            table[shared] = f"{_row([(name, files[name]) for name in alike])} of {len(alike)} files"
    return table


def _row(files: Sequence[tuple[str, bytes]]) -> str:
    size = sum(len(content) for _, content in files)
    if len(files) == 1:
        return f"{size} {digest(files[0][1])}"
    return f"{size} {digest(''.join(f'{name} {digest(content)} ' for name, content in files).encode())}"


def _shared_name(name: str) -> str:
    """A name with # for numbers, and * for what names a chunk."""
    parts = name.split("/")
    last = len(parts)
    while last > 1 and _CHUNK.fullmatch(parts[last - 1]):
        last -= 1
    chunk = ["*"] if last < len(parts) else []
    return "/".join([parts[0], *(_DIGITS.sub("#", part) for part in parts[1:last]), *chunk])


def _content(path: Path, root: Path) -> bytes:
    """Masked. Nothing of HDF5 references: they hold paths, and checksums of these."""
    if path.name.endswith(".ref.h5"):
        return b""
    content = path.read_bytes()
    if path.name == "receipt.json":
        content = _RECEIPT_MIRRORS.sub(b'"mirrors":{}', content)
    if content[:1] in (b"{", b"["):
        return masked(content).replace(str(root).encode(), b"ROOT")
    return content.replace(str(root).encode(), b"/" * len(str(root)))
