"""Reads a mirror by reference as a server of HSDS does: by the documents, the chunk table and the link in the bucket.

It shares no code with acqstream: keys follow from the published schema, v2.
"""

from __future__ import annotations

import itertools
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_TYPES = {"U8": "u1", "U16": "u2", "I32": "i4", "I64": "i8", "F64": "f8"}


class Served:
    """The one domain in a bucket. root: the folder that the server is started on."""

    def __init__(self, root: Path, bucket: str = "acqstream", domain: str = "home/acq.h5") -> None:
        self.root, self.bucket = root, root / bucket
        self.domain = json.loads((self.bucket / domain / ".domain.json").read_bytes())
        self.group = self.document(self.domain["root"])
        self.links = {name: link["id"] for name, link in self.group["links"].items()}

    def folder(self, name: str) -> Path:
        """g- or d- and 8-8-4-6-6 digits."""
        kind, digits = name[0], name[2:]
        own, other = digits[:17], digits[18:]
        is_root = kind == "g" and "".join(f"{(int(d, 16) + 8) % 16:x}" for d in own.replace("-", "")) == other.replace(
            "-", ""
        )
        return self.bucket / "db" / own if is_root else self.bucket / "db" / own / kind / other

    def document(self, name: str) -> dict[str, Any]:
        file = ".group.json" if name.startswith("g-") else ".dataset.json"
        found: dict[str, Any] = json.loads((self.folder(name) / file).read_bytes())
        assert found["id"] == name
        return found

    def read(self, name: str) -> NDArray[Any]:
        """A dataset by its link in the root group, or `metadata/<name>`."""
        if "/" in name:
            group, _, link = name.partition("/")
            return self._read(self.document(self.document(self.links[group])["links"][link]["id"]))
        return self._read(self.document(self.links[name]))

    def shape(self, name: str = "level 0") -> list[int]:
        dims: list[int] = self.document(self.links[name])["shape"]["dims"]
        return dims

    def table(self) -> NDArray[Any]:
        """The entries, in the shape of the grid of chunks."""
        return self._read(self.document(self.document(self.links["level 0"])["layout"]["chunk_table"]))

    def _read(self, document: dict[str, Any]) -> NDArray[Any]:
        layout = document["layout"]
        assert layout == document["creationProperties"]["layout"]
        if layout["class"] == "H5D_CHUNKED_REF_INDIRECT":
            return self._referred(document)
        dtype, dims, steps = _dtype(document["type"]), document["shape"]["dims"], layout["dims"]
        found = np.empty([-(-size // step) * step for size, step in zip(dims, steps, strict=True)], dtype)
        found[...] = _fill(document, dtype)
        for position in itertools.product(*(range(-(-size // step)) for size, step in zip(dims, steps, strict=True))):
            path = self.folder(document["id"]) / "_".join(map(str, position))
            if path.exists():
                content = path.read_bytes()
                if document["creationProperties"].get("filters"):
                    content = zlib.decompress(content)
                part = tuple(slice(at * step, (at + 1) * step) for at, step in zip(position, steps, strict=True))
                found[part] = np.frombuffer(content, dtype).reshape(steps)
        return found[tuple(map(slice, dims))]

    def _referred(self, document: dict[str, Any]) -> NDArray[Any]:
        dtype, dims, steps = _dtype(document["type"]), document["shape"]["dims"], document["layout"]["dims"]
        table = self._read(self.document(document["layout"]["chunk_table"]))
        found = np.zeros(dims, dtype)
        for position, entry in np.ndenumerate(table):
            assert entry["file_uri"]
            if entry["size"]:
                path = self.root / entry["file_uri"].decode()
                with path.open("rb") as file:
                    file.seek(int(entry["offset"]))
                    content = file.read(int(entry["size"]))
                part = tuple(slice(at * step, (at + 1) * step) for at, step in zip(position, steps, strict=True))
                found[part] = np.frombuffer(content, dtype).reshape(steps)
        return found


def _fill(document: dict[str, Any], dtype: np.dtype[Any]) -> Any:
    value = document["creationProperties"].get("fillValue", 0)
    return np.array(tuple(value), dtype) if isinstance(value, list) else np.array(value).astype(dtype)


def _dtype(found: Any) -> np.dtype[Any]:
    if found["class"] == "H5T_COMPOUND":
        return np.dtype([(field["name"], _dtype(field["type"])) for field in found["fields"]])
    if found["class"] == "H5T_STRING":
        return np.dtype(f"S{found['length']}")
    name, order = found["base"].rpartition("_")[2][:-2], found["base"][-2:]
    return np.dtype(("<" if order == "LE" else ">") + _TYPES[name])
