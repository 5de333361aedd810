"""A virtual dataset: which object a key names, a document or a chunk of pixels. Pure, and knows no HTTP."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.formats.chunk_layout import BESIDE, ChunkLayout, Encoded
from acqstream.model.axes import PICTURE_AXES
from acqstream.web.data.virtual_layouts import VirtualLayout

_MAX_LISTED_MEMBERS = 100


@dataclass(frozen=True, slots=True)
class ServedChunk:
    """A chunk: its level and position in the grid; places along the axes of the frames; and pixels of the level,
    [first, stop) along y, x and the colour samples. It lies in one picture.
    """

    level: int
    position: Position
    outer: Mapping[str, int]
    y: tuple[int, int]
    x: tuple[int, int]
    samples: tuple[int, int]


@dataclass(frozen=True)
class VirtualArray:
    """kind: its entry in VIRTUAL_LAYOUTS. layout: with announced sizes. name: of the dataset. complete: no frame will
    come.
    """

    kind: VirtualLayout
    layout: ChunkLayout
    name: str
    complete: bool

    @property
    def full(self) -> ArraySpec:
        """The full resolution."""
        return self.layout.plan.full

    def document(self, key: str) -> bytes | None:
        """The document at a key; None if it has none. Documents of one array agree: all are of one snapshot."""
        found = self._documents.get(key)
        if found is not None:
            return found
        member = self.layout.member_of(key)
        if member is None or not self._has_member(member):
            return None
        return self.layout.member_documents(member).get(key)

    def chunk(self, key: str) -> ServedChunk | None:
        """The chunk at a key; None if the key names none inside the announced shape, or spells it in another way."""
        found = self.layout.parse_key(key)
        if found is None:
            return None
        level, position = found
        spec = self.layout.plan.levels[level]
        if not all(0 <= at < count for at, count in zip(position, spec.grid_shape, strict=True)):
            return None
        spans = {name: (part.start, part.stop) for name, part in zip(spec.axes, spec.region(position), strict=True)}
        outer = {name: first for name, (first, _) in spans.items() if name not in PICTURE_AXES}
        return ServedChunk(level, position, outer, spans["y"], spans["x"], spans.get("c", (0, 1)))

    def folder(self, key: str) -> list[str] | None:
        """The documents and folders of documents in a folder, names of folders with "/" at their end; None elsewhere.

        Chunks are not listed: there may be millions. Of many images, the first ones are, and each in its own folder.
        """
        prefix = f"{key}/" if key else ""
        keys = dict(self._documents)
        for member in itertools.islice(self.layout.plan.members(), _MAX_LISTED_MEMBERS):
            keys.update(self.layout.member_documents(member))
        own = self.layout.member_of(prefix)
        if own is not None and self._has_member(own):
            keys.update(self.layout.member_documents(own))
        rests = [one.removeprefix(prefix) for one in keys if one.startswith(prefix)]
        names = dict.fromkeys(name + sign for name, sign, _ in (rest.partition("/") for rest in rests))
        return [*names] or None

    def encode(self, place: ServedChunk, picture: NDArray[np.generic]) -> Encoded:
        """The bytes of a chunk. picture: its pixels (Y, X) or (Y, X, samples), all samples of the frame."""
        spec = self.layout.plan.levels[place.level]
        own = [name for name in spec.axes if name in PICTURE_AXES]
        if picture.ndim == 3:
            picture = picture[..., place.samples[0] : place.samples[1]]
        ordered = picture.transpose([PICTURE_AXES.index(name) for name in own])
        dtype = spec.dtype.newbyteorder(self.kind.byte_order)
        inside: list[int | slice] = [0] * len(spec.axes)
        for name, size in zip(own, ordered.shape, strict=True):
            inside[spec.axes.index(name)] = slice(0, size)
        if ordered.size == np.prod(spec.chunk_shape):
            chunk = ordered.astype(dtype, copy=False).reshape(spec.chunk_shape)
        else:  # at the end of the array: items beyond it are zeros
            chunk = np.zeros(spec.chunk_shape, dtype)
            chunk[tuple(inside)] = ordered
        return self.layout.encode(place.level, place.position, chunk)

    def frame_head(self, place: ServedChunk, frame_shape: tuple[int, ...]) -> bytes | None:
        """The bytes before the frame if the chunk is one frame of this shape as it is in memory; else None."""
        spec = self.layout.plan.levels[place.level]
        sides = dict(zip(spec.axes, spec.chunk_shape, strict=True))
        if place.level or (sides["y"], sides["x"], *((sides.get("c"),) if len(frame_shape) > 2 else ())) != frame_shape:
            return None
        if len(frame_shape) > 2 and spec.axes[-1] != "c":  # the samples of a pixel lie together in a frame
            return None
        if (place.y[1] - place.y[0], place.x[1] - place.x[0]) != frame_shape[:2]:
            return None
        return self.layout.raw_head(place.level, place.position)

    @cached_property
    def _documents(self) -> dict[str, bytes]:
        """Those of the container, and of the array if it is the only one."""
        found = {**self.layout.documents(complete=self.complete), **self.layout.listings(self.name)}
        if not self.layout.plan.member_axes:
            found.update(self.layout.member_documents(()))
        return {key: content for key, content in found.items() if not key.startswith(BESIDE)}

    def _has_member(self, member: Position) -> bool:
        return all(at < size for at, size in zip(member, self.layout.plan.member(self.full.shape), strict=True))
