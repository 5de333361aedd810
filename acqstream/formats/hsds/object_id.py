"""Ids of the objects of an HSDS domain, and the keys of their files below the bucket. Pure.

An id is a letter (g: group, d: dataset, t: committed type) and 32 hexadecimal digits. Schema v2 groups the digits
8-8-4-6-6 and keeps all objects of a domain in one folder; schema v1 groups them 8-4-4-4-12, as a UUID, and keeps all
objects flat. The grouping alone tells them apart.

    v2  g-b03b24ef-69f244b6-38b3-ac67e1-7acc3e  db/b03b24ef-69f244b6/.group.json (the root group)
        d-b03b24ef-69f244b6-56e5-25125a-89ba79  db/b03b24ef-69f244b6/d/56e5-25125a-89ba79/.dataset.json
        its chunk (7, 0, 0)                     db/b03b24ef-69f244b6/d/56e5-25125a-89ba79/7_0_0
    v1  g-2428ae0e-a082-11e6-9d93-0242ac110005  a860f-g-2428ae0e-a082-11e6-9d93-0242ac110005

Source: HDF Group, HSDS object storage schema, "Object ids" and "Keys", schema v1 and v2.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

from acqstream.arrays.array_spec import Position

Kind = Literal["g", "d", "t"]

DOMAIN_NAME = ".domain.json"
DATABASE_FOLDER = "db"
MAX_NDIM = 32  # of HDF5

_DOCUMENT_NAMES: dict[Kind, str] = {"g": ".group.json", "d": ".dataset.json", "t": ".datatype.json"}
_KINDS: dict[str, Kind] = {name: kind for kind, name in _DOCUMENT_NAMES.items()}
_V1_GROUPS = (8, 4, 4, 4, 12)
_V2_GROUPS = (8, 8, 4, 6, 6)
_HALF = 16  # digits that all objects of a domain share in v2


def _pattern(groups: Sequence[int]) -> str:
    return "-".join(f"[0-9a-f]{{{count}}}" for count in groups)


_V1_ID = re.compile(f"([gdt])-({_pattern(_V1_GROUPS)})")
_V2_ID = re.compile(f"([gdt])-({_pattern(_V2_GROUPS)})")
_V1_KEY = re.compile(f"[0-9a-f]{{5}}-([gdtc])-({_pattern(_V1_GROUPS)})(?:_([0-9_]+))?")
_V2_ROOT_KEY = re.compile(rf"{DATABASE_FOLDER}/({_pattern(_V2_GROUPS[:2])})/\.group\.json")
_V2_KEY = re.compile(
    rf"{DATABASE_FOLDER}/({_pattern(_V2_GROUPS[:2])})/([gdt])/({_pattern(_V2_GROUPS[2:])})/(?:p([0-9]+)/)?([^/]+)"
)
_INDEX = re.compile(r"(?:0|[1-9][0-9]{0,17})(?:_(?:0|[1-9][0-9]{0,17}))*")


@dataclass(frozen=True, slots=True)
class ObjectId:
    """The id of a group, a dataset or a committed type. digits: 32 hexadecimal digits in lower case."""

    kind: Kind
    digits: str
    is_v1: bool = False

    def __str__(self) -> str:
        return f"{self.kind}-{_grouped(self.digits, _V1_GROUPS if self.is_v1 else _V2_GROUPS)}"

    @property
    def is_root(self) -> bool:
        """True for the root group of a v2 domain: its second half follows from the first. Unknown for v1: False."""
        return self.kind == "g" and not self.is_v1 and self.digits[_HALF:] == _rotated(self.digits[:_HALF])

    @property
    def key(self) -> str:
        """The key of the object's document, below the bucket."""
        if self.is_v1:
            return f"{_md5(str(self))}-{self}"
        return f"{self.folder}/{_DOCUMENT_NAMES[self.kind]}"

    @property
    def folder(self) -> str:
        """The folder with the document and the chunks of a v2 object. Raises ValueError for v1, which has none."""
        if self.is_v1:
            raise ValueError(f"{self}: objects of schema v1 have no folder of their own")
        domain = f"{DATABASE_FOLDER}/{_grouped(self.digits[:_HALF], _V2_GROUPS[:2])}"
        return domain if self.is_root else f"{domain}/{self.kind}/{_grouped(self.digits[_HALF:], _V2_GROUPS[2:])}"

    def chunk_key(self, position: Sequence[int], partition: int | None = None) -> str:
        """The key of a chunk of a dataset. position: slowest dimension first; (0,) for a scalar.

        partition: the number of the folder level that `partition_count` of a layout adds; v2 only.
        """
        index = "_".join(map(str, position))
        if self.is_v1:
            chunk = f"c-{_grouped(self.digits, _V1_GROUPS)}_{index}"
            return f"{_md5(chunk)}-{chunk}"
        part = "" if partition is None else f"p{partition}/"
        return f"{self.folder}/{part}{index}"


class ObjectKey(NamedTuple):
    """The meaning of a key: an object's document, or with a position, a chunk of a dataset."""

    id: ObjectId
    position: Position | None = None
    partition: int | None = None


def parse_id(text: str) -> ObjectId:
    """The inverse of `str(id)`, of both schemas. Raises ValueError."""
    for pattern, is_v1 in ((_V2_ID, False), (_V1_ID, True)):
        found = pattern.fullmatch(text)
        if found is not None:
            return ObjectId(cast("Kind", found[1]), found[2].replace("-", ""), is_v1)
    raise ValueError(f"{text[:80]!r} is not an id of an HSDS object; expected g-, d- or t- and 32 grouped hex digits")


def parse_key(key: str) -> ObjectKey | None:
    """The inverse of `ObjectId.key` and `chunk_key`; None for any other key."""
    found = _V2_ROOT_KEY.fullmatch(key)
    if found is not None:
        first = found[1].replace("-", "")
        return ObjectKey(ObjectId("g", first + _rotated(first)))
    found = _V2_KEY.fullmatch(key)
    if found is not None:
        parsed = _of_v2(found)
    else:
        found = _V1_KEY.fullmatch(key)
        parsed = None if found is None else _of_v1(found)
    # Keys are names of files: two of them never mean one object.
    return parsed if parsed is not None and _key_of(parsed) == key else None


def root_id(seed: str) -> ObjectId:
    """The v2 root group of a new domain: the same seed, for example the uuid of a dataset, gives the same id."""
    first = hashlib.sha256(f"acqstream-hsds:{seed}".encode()).hexdigest()[:_HALF]
    return ObjectId("g", first + _rotated(first))


def object_id(root: ObjectId, kind: Kind, name: str) -> ObjectId:
    """A further v2 object of the domain of `root`: the same name, for example its path in the file, gives the same id.

    Raises ValueError for a root of schema v1.
    """
    if root.is_v1:
        raise ValueError(f"{root}: new objects are of schema v2")
    second = hashlib.sha256(f"{root}:{kind}:{name}".encode()).hexdigest()[:_HALF]
    return ObjectId(kind, root.digits[:_HALF] + second)


def domain_key(path: str) -> str:
    """The key of the document of a domain. path: `/home/acq.h5`, as a client names it."""
    return f"{path.strip('/')}/{DOMAIN_NAME}"


def parse_index(text: str) -> Position | None:
    """The position that the last part of a chunk's key states; None if it states none."""
    if _INDEX.fullmatch(text) is None or text.count("_") >= MAX_NDIM:
        return None
    return tuple(map(int, text.split("_")))


def _of_v2(found: re.Match[str]) -> ObjectKey | None:
    first, kind, second, partition, name = found.groups()
    parsed = ObjectId(cast("Kind", kind), (first + second).replace("-", ""))
    if name == _DOCUMENT_NAMES[parsed.kind] and partition is None:
        return ObjectKey(parsed)
    position = parse_index(name)
    if parsed.kind != "d" or position is None:
        return None
    return ObjectKey(parsed, position, None if partition is None else int(partition))


def _of_v1(found: re.Match[str]) -> ObjectKey | None:
    kind, digits, index = found[1], found[2].replace("-", ""), found[3]
    if kind != "c":
        return None if index is not None else ObjectKey(ObjectId(cast("Kind", kind), digits, is_v1=True))
    position = None if index is None else parse_index(index)
    return None if position is None else ObjectKey(ObjectId("d", digits, is_v1=True), position)


def _key_of(parsed: ObjectKey) -> str:
    return parsed.id.key if parsed.position is None else parsed.id.chunk_key(parsed.position, parsed.partition)


def _grouped(digits: str, groups: Sequence[int]) -> str:
    parts, at = [], 0
    for count in groups:
        parts.append(digits[at : at + count])
        at += count
    return "-".join(parts)


def _rotated(digits: str) -> str:
    """Each digit plus 8, modulo 16: the second half of a v2 root id."""
    return "".join(f"{(int(digit, 16) + 8) % 16:x}" for digit in digits)


def _md5(text: str) -> str:
    """The first digits of the md5 of an id: schema v1 spreads keys by them; nothing is protected."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[:5]
