"""Planes of an array in a chunk format: what frames are to a mirror of a log."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec
from acqstream.formats.chunk_format import ChunkArrayReader
from acqstream.model.axes import PICTURE_AXES


class ArrayPlanes:
    """Reads level 0 of a stored array plane by plane, as level 0 of another array has its axes (`spec`).

    Axes that only one of the two has are of extent 1. The chunks of the last plane stay in memory, up to `max_bytes`:
    its neighbours lie in them. Used by one thread.
    """

    def __init__(self, reader: ChunkArrayReader, spec: ArraySpec, max_bytes: int) -> None:
        stored = reader.spec
        self._reader = reader
        self._outer = [at for at, name in enumerate(stored.axes) if name not in PICTURE_AXES]
        places = [name for name in spec.axes if name not in PICTURE_AXES]
        self._places = [places.index(stored.axes[at]) if stored.axes[at] in places else None for at in self._outer]
        picture = [name for name in stored.axes if name in PICTURE_AXES]
        names = [name for name in spec.axes if name in picture]
        self._order = [picture.index(name) for name in names]
        self._shape = tuple(stored.shape[stored.axes.index(name)] for name in picture)
        self._added = [at for at, name in enumerate(n for n in spec.axes if n in PICTURE_AXES) if name not in picture]
        depth = math.prod(stored.chunk_shape[at] for at in self._outer)
        self._keeps_chunks = depth * math.prod(self._shape) * stored.dtype.itemsize <= max_bytes
        self._kept: tuple[tuple[int, ...], NDArray[Any] | None] | None = None

    def read(self, place: Sequence[int]) -> NDArray[Any] | None:
        """The plane at a place along the outer axes of `spec`, its axes in that order.

        None if no chunk of it is stored, and outside the array: slabs may be deeper.
        """
        stored = self._reader.spec
        at = [0 if number is None else place[number] for number in self._places]
        if any(here >= stored.shape[axis] for here, axis in zip(at, self._outer, strict=True)):
            return None
        steps = [stored.chunk_shape[axis] for axis in self._outer]
        group = tuple(here // step for here, step in zip(at, steps, strict=True))
        inside = tuple(here % step for here, step in zip(at, steps, strict=True))
        if self._keeps_chunks:
            if self._kept is None or self._kept[0] != group:
                self._kept = None  # its memory is free for the next ones
                self._kept = (group, self._load(group, [slice(0, step) for step in steps]))
            found = self._kept[1]
            plane = None if found is None else found[inside]
        else:
            found = self._load(group, [slice(here, here + 1) for here in inside])
            plane = None if found is None else found[(0,) * len(inside)]
        return None if plane is None else np.expand_dims(plane.transpose(self._order), self._added)

    def _load(self, group: Sequence[int], inside: Sequence[slice]) -> NDArray[Any] | None:
        """Parts of all chunks at this place of the grid along the outer axes; the axes of the picture come last."""
        spec = self._reader.spec
        picture = [axis for axis in range(len(spec.axes)) if axis not in self._outer]
        found: NDArray[Any] | None = None
        for across in itertools.product(*(range(spec.grid_shape[axis]) for axis in picture)):
            position = [0] * len(spec.axes)
            for axis, number in (*zip(self._outer, group, strict=True), *zip(picture, across, strict=True)):
                position[axis] = number
            chunk = self._reader.read_chunk(tuple(position))
            if chunk is None:
                continue
            part = chunk.transpose([*self._outer, *picture])[tuple(inside)]
            if found is None:
                found = np.zeros([*(some.stop - some.start for some in inside), *self._shape], spec.dtype)
            region = spec.region(tuple(position))
            depths = [slice(0, size) for size in part.shape[: len(inside)]]
            found[(*depths, *(region[axis] for axis in picture))] = part
        return found
