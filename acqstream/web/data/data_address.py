"""Addresses below /data/: which dataset, which options, which layout and which object of it. Pure.

    /data/NAME[@OPTIONS]/LAYOUT/KEY      a virtual dataset of the frames of NAME
    /data/NAME/KEY                       a file of a container in the data directory

NAME may have folders: /data/anna/2026-11-29/embryo@g=12/ome.zarr/0/c/0.

OPTIONS are `key=value` with commas. They are in the path, because viewers drop query strings. A part of a path is
decoded once, after splitting, so an encoded slash cannot make up another path.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import quote, unquote

PREFIX = "/data/"
MAX_OPTIONS = 8
MAX_GENERATION = 2**53  # what JavaScript counts exactly
_MAX_PARTS = 64
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_IDENTITY = re.compile(r"[0-9a-f]{8,32}")
_NOT_IN_NAMES = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|]')  # of files, on any system
CHUNK_SIDES = tuple(2**bits for bits in range(6, 13))


class BadAddress(Exception):
    """A path that can name nothing; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOptions:
    """generation: number of frames of the snapshot; None: all that are published. identity: of the dataset, as
    hexadecimal digits, which may be a begin; "": any. chunk: side of chunks in y and x; None: chosen. fixed: axes of
    which only one value is shown.
    """

    generation: int | None = None
    identity: str = ""
    chunk: int | None = None
    fixed: Mapping[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """The options as they stand in an address, in one order; "" without any."""
        parts = [f"{name}={value}" for name, value in sorted(self.fixed.items())]
        if self.chunk is not None:
            parts.append(f"chunk={self.chunk}")
        if self.identity:
            parts.append(f"id={self.identity}")
        if self.generation is not None:
            parts.append(f"g={self.generation}")
        return ",".join(parts)


def path_parts(raw_path: str) -> tuple[str, ...]:
    """The decoded parts of a path below /data/. Raises BadAddress.

    raw_path: as it came, without query. Empty parts, `.`, `..`, and characters that no file name has are refused.
    """
    if not raw_path.startswith(PREFIX):
        raise BadAddress("not below /data/")
    raw_parts = raw_path[len(PREFIX) :].split("/")
    if len(raw_parts) > _MAX_PARTS:
        raise BadAddress(f"more than {_MAX_PARTS} parts")
    if raw_parts and not raw_parts[-1]:
        raw_parts.pop()  # a slash at the end changes nothing
    parts = []
    for raw in raw_parts:
        try:
            part = unquote(raw, errors="strict")
        except UnicodeDecodeError as error:
            raise BadAddress("not UTF-8") from error
        if part in ("", ".", "..") or _NOT_IN_NAMES.search(part):
            raise BadAddress(f"a part {raw!r:.60}")
        parts.append(part)
    if not parts:
        raise BadAddress("no dataset")
    return tuple(parts)


def source_of(parts: Sequence[str]) -> str:
    """The name and options in an address; "" without options."""
    end = next((number for number, part in enumerate(parts, 1) if "@" in part), 0)
    return "/".join(parts[:end])


def name_and_options(part: str) -> tuple[str, str]:
    """The name and the text of the options in the last part of a name; "" without options."""
    name, _, options = part.rpartition("@")
    return (name, options) if name else (part, "")


@lru_cache(maxsize=256)  # a viewer asks for thousands of chunks with the same ones
def parse_options(text: str) -> DataOptions:
    """Parse `g=81203,chunk=512,position=2`. Raises BadAddress for values that are not canonical, or out of range."""
    if not text:
        return DataOptions()
    pairs = [part.partition("=") for part in text.split(",")]
    values = {name: value for name, _, value in pairs}
    if len(pairs) > MAX_OPTIONS or len(values) < len(pairs) or not all(name and sign for name, sign, _ in pairs):
        raise BadAddress(f"options {text!r:.80}, expected at most {MAX_OPTIONS} of key=value, each key once")
    generation, identity, side = values.pop("g", None), values.pop("id", ""), values.pop("chunk", None)
    if identity and not _IDENTITY.fullmatch(identity):
        raise BadAddress(f"id={identity!r:.60}, expected 8 to 32 hexadecimal digits")
    chunk = None if side is None else _integer("chunk", side)
    if chunk is not None and chunk not in CHUNK_SIDES:
        raise BadAddress(f"chunk={chunk}, expected a power of two from {CHUNK_SIDES[0]} to {CHUNK_SIDES[-1]}")
    count = None if generation is None else _integer("g", generation)
    if count is not None and not 0 <= count <= MAX_GENERATION:
        raise BadAddress(f"g={count}, expected a number of frames")
    return DataOptions(generation=count, identity=identity, chunk=chunk, fixed=values)


def data_path(name: str, layout: str, options: DataOptions | None = None) -> str:
    """The path of a virtual dataset, with "/" at its end."""
    text = (options or DataOptions()).text()
    part = quote(name) + (f"@{quote(text, safe='=,')}" if text else "")
    return f"{PREFIX}{part}/{layout}/"


def _integer(name: str, text: str) -> int:
    """Other spellings of a number would be other names for one thing: caches split by them."""
    if not _INTEGER.fullmatch(text):
        raise BadAddress(f"{name}={text!r:.60}, expected an integer")
    return int(text)
