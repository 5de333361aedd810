"""Small NDTiff datasets for tests, built byte by byte from the published description."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from acqstream.storage.files.read_file import ReadFile

GOLDEN = Path(__file__).parents[2] / "golden" / "ndtiff"
STACK = "a_NDTiffStack.tif"


class BytesFile(ReadFile):
    """Bytes in memory, read as those of a file."""

    __slots__ = ("_content",)

    def __init__(self, path: Path, content: bytes) -> None:
        self.path, self._descriptor, self._content = path, -1, content

    def __new__(cls, path: Path, _content: bytes) -> BytesFile:
        return object.__new__(cls)

    def size(self) -> int:
        return len(self._content)

    def read(self, offset: int, count: int) -> bytes:
        return self._content[offset : offset + count]


def entry(
    axes: Mapping[str, Any] | bytes, numbers: tuple[int, ...] = (200, 4, 3, 1, 0, 300, 0, 0), name: str = STACK
) -> bytes:
    """One index entry; numbers as in the file: offset, width, height, type, compression, metadata."""
    text = axes if isinstance(axes, bytes) else json.dumps(axes).encode()
    stack = name.encode()
    return (
        struct.pack("<I", len(text)) + text + struct.pack("<I", len(stack)) + stack + struct.pack("<IiiiiIii", *numbers)
    )


def header(summary: Mapping[str, Any], order: str = "<", version: tuple[int, ...] = (3, 3)) -> bytes:
    """A stack header; version (2,) or (3, minor)."""
    text = json.dumps(summary).encode()
    start = 20 + 4 * len(version)
    first = start + len(text) + (start + len(text)) % 2
    mark = b"II" if order == "<" else b"MM"
    fixed = mark + struct.pack(f"{order}HII", 42, first, 483729) + struct.pack(f"{order}{len(version)}I", *version)
    return (fixed + struct.pack(order + "II", 2355492, len(text)) + text).ljust(first, b"\0")


@dataclass
class Folder:
    """A flat dataset in `path` that grows frame by frame: pages first, then index entries."""

    path: Path
    summary: dict[str, Any] = field(default_factory=dict)
    order: Literal["<", ">"] = "<"
    version: tuple[int, ...] = (3, 3)
    stack: str = STACK

    def __post_init__(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / "NDTiff.index").touch()
        self.start_stack(self.stack)

    def start_stack(self, name: str) -> None:
        self.stack = name
        self._pointer_at = 4
        (self.path / name).write_bytes(header(self.summary, self.order, self.version))

    def add(self, axes: Mapping[str, Any], image: NDArray[Any], *, metadata: Any = None, publish: bool = True) -> bytes:
        """Append a page with `image`, uint8 or uint16, and publish it; its index entry."""
        text = json.dumps({"Axes": dict(axes)} if metadata is None else metadata).encode()
        numbers = self.add_page(image, text)
        data = entry(axes, numbers, self.stack)
        if publish:
            self.publish(data)
        return data

    def publish(self, data: bytes) -> None:
        with (self.path / "NDTiff.index").open("ab") as file:
            file.write(data)

    def add_page(self, image: NDArray[Any], metadata: bytes) -> tuple[int, ...]:
        samples = 3 if image.ndim == 3 else 1
        height, width = image.shape[:2]
        with (self.path / self.stack).open("r+b") as file:
            end = file.seek(0, 2)
            directory = end + end % 2
            pixels = directory + 162 + (6 if samples == 3 else 0) + 16
            after = pixels + image.nbytes
            bits = image.itemsize * 8 if samples == 1 else directory + 162
            meaning = 2 if samples == 3 else 1  # RGB, or black is zero
            tags = [
                *(
                    (256, 4, 1, width),
                    (257, 4, 1, height),
                    (258, 3, samples, bits),
                    (259, 3, 1, 1),
                    (262, 3, 1, meaning),
                ),
                *((273, 4, 1, pixels), (277, 3, 1, samples), (278, 4, 1, height), (279, 4, 1, image.nbytes)),
                *((282, 5, 1, pixels - 16), (283, 5, 1, pixels - 8), (296, 3, 1, 3), (51123, 2, len(metadata), after)),
            ]
            file.write(b"\0" * (directory - end) + struct.pack(self.order + "H", len(tags)))
            file.write(b"".join(self._tag(*tag) for tag in tags) + struct.pack(self.order + "I", 0))
            file.write(struct.pack(self.order + "HHH", 8, 8, 8) if samples == 3 else b"")
            file.write(struct.pack(self.order + "IIII", 1, 1, 1, 1))
            file.write(image.astype(image.dtype.newbyteorder(self.order)).tobytes() + metadata)
            file.seek(self._pointer_at)
            file.write(struct.pack(self.order + "I", directory))
        self._pointer_at = directory + 158
        kind = 2 if samples == 3 else image.itemsize - 1
        return pixels, width, height, kind, 0, after, len(metadata), 0

    def _tag(self, tag: int, kind: int, count: int, value: int) -> bytes:
        short = kind == 3 and count == 1
        return struct.pack(self.order + ("HHIHxx" if short else "HHII"), tag, kind, count, value)

    def set_state(self, state: str) -> None:
        new = self.path / "acqstream.json.new"
        new.write_text(json.dumps({"format": "acqstream", "version": 1, "state": state}))
        new.replace(self.path / "acqstream.json")


def image(seed: int, shape: tuple[int, ...] = (3, 4), dtype: str = "<u2") -> NDArray[Any]:
    """Random pixels."""
    return np.random.default_rng(seed).integers(0, np.iinfo(dtype).max, shape).astype(dtype)


def overwrite(path: Path, offset: int, content: bytes) -> None:
    """Replace bytes of a file."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)
