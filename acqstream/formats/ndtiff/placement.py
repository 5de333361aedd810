"""The places of frames and pages in stack files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from acqstream.model.frame_header import FrameHeader, FrameRun

BLOCK_BYTES = 4096
"""Commits and groups start and end on this boundary: the unit of direct I/O and of what survives a torn write."""


def align_up(offset: int, step: int = BLOCK_BYTES) -> int:
    """The smallest multiple of `step` that is not below `offset`."""
    return -(-offset // step) * step


class Placement(NamedTuple):
    """The place of a frame, or of several back to back, in a stack file. Offsets are bytes from the start of the file.

    Frames are placed in groups: a group starts and ends on a block boundary and is written as one run of bytes. The
    offsets of directory and metadata of a packed frame are known when its group is closed (`NDTiffLayout.close`).
    """

    frames: FrameRun
    group_start: int
    position: int  # of the first frame in the group, from 0
    pixels: int  # of the first frame
    tail_bytes: int  # what directories and metadata after the pixels of the group take, these frames included
    group_end: int  # block boundary where the group ends if these frames are its last
    packed: bool  # more frames of the same kind may follow in the group

    @property
    def pixels_end(self) -> int:
        return self.pixels + self.frames.payload_bytes


@dataclass(frozen=True, slots=True)
class RollOver:
    """The frames do not fit into this stack file any more."""


class Page(NamedTuple):
    """One frame of a closed group: all offsets in the stack file, in bytes."""

    header: FrameHeader
    directory: int
    pixels: int
    metadata: int


@dataclass(frozen=True, slots=True)
class Pages:
    """The frames of a closed group: an offset per frame, as in `Page`, which it gives as a sequence."""

    frames: FrameRun
    directories: NDArray[np.int64]
    pixels: NDArray[np.int64]
    metadata: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, position: int) -> Page:
        offsets = (self.directories[position], self.pixels[position], self.metadata[position])
        return Page(self.frames[position], *map(int, offsets))
