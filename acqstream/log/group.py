"""A group: frames that are laid out, written and published together."""

from __future__ import annotations

import threading
from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass, field

from acqstream.errors import FrameRefused
from acqstream.formats.ndtiff.layout import BLOCK_BYTES, NDTiffLayout, Pages, Placement
from acqstream.log.memory import Span
from acqstream.model.frame_header import FrameHeader


@dataclass(slots=True, eq=False)
class Group:
    """Frames in one span of memory, from block boundary to block boundary of stack number `stack`.

    Until `close` the log adds frames; from then on the group belongs to the writer, whose threads only read it.

    A group of one large frame may have its pixels outside the span, in memory of the producer's. The span then has
    the bytes before them, and a block for the pixels after the last complete block.
    """

    stack: int
    span: Span
    placements: list[Placement] = field(default_factory=list)
    pages: Pages | None = None  # set by `fill`
    checksums: list[int] = field(default_factory=list)  # of the pixels
    metadata_checksums: list[int] = field(default_factory=list)
    checked: threading.Event = field(default_factory=threading.Event)
    refused: dict[int, FrameRefused] = field(default_factory=dict)  # by position, ascending: another checksum
    memory: memoryview = field(default_factory=lambda: memoryview(b""))
    is_written: bool = False
    is_checking: bool = False  # given to the checksum worker
    outside: memoryview | None = None  # empty once it was released

    @property
    def start(self) -> int:
        """File offset of the first byte."""
        return self.placements[0].group_start

    @property
    def end(self) -> int:
        """File offset after the last byte, a block boundary."""
        return self.placements[-1].group_end

    @property
    def first_number(self) -> int:
        return self.placements[0].frames.number

    @property
    def next_number(self) -> int:
        return self.placements[-1].frames.next_number

    @property
    def filled_pages(self) -> Pages:
        """The pages of a group that was filled."""
        assert self.pages is not None
        return self.pages

    @property
    def payload_bytes(self) -> int:
        return sum(placement.frames.payload_bytes for placement in self.placements)

    def frame(self, number: int) -> FrameHeader:
        """The frame of this number."""
        frames = next(one.frames for one in reversed(self.placements) if one.frames.number <= number)
        return frames[number - frames.number]

    def pixels_of(self, placement: Placement) -> memoryview:
        """The memory of the pixels, back to back."""
        if self.outside is not None:
            return self.outside
        start = placement.pixels - placement.group_start
        return self.span.memory[start : start + placement.frames.payload_bytes]

    def close(self) -> None:
        """No more frames: fix the bytes to write."""
        length = self.end - self.start if self.outside is None else self.placements[0].pixels - self.start
        self.memory = self.span.memory[:length]

    def fill(self, layout: NDTiffLayout) -> None:
        """Write directories, metadata and gaps around the pixels."""
        self.pages = layout.close(self.placements)
        layout.fill(self.memory, self.placements, self.pages)

    def pieces(self) -> Sequence[memoryview]:
        """The bytes from `start` to `end`, in complete blocks of block-aligned memory."""
        if self.outside is None:
            return [self.memory]
        whole = len(self.outside) - len(self.outside) % BLOCK_BYTES
        if whole == len(self.outside):
            return [self.memory, self.outside]
        start, remainder = len(self.memory), len(self.outside) - whole
        tail = self.span.memory[start : start + BLOCK_BYTES]
        tail[:remainder] = self.outside[whole:]
        tail[remainder:] = bytes(BLOCK_BYTES - remainder)
        return [self.memory, self.outside[:whole], tail]

    def release_outside(self) -> None:
        """The memory outside is not needed any more. Repeating it changes nothing."""
        if self.outside is not None:
            self.outside = memoryview(b"")  # a view would keep the producer's memory mapped

    def move(self, stack: int, start: int, layout: NDTiffLayout) -> None:
        """Lay the closed group out again at offset `start` of another stack file."""
        shift = start - self.start
        self.stack = stack
        self.placements = [
            placement._replace(
                group_start=placement.group_start + shift,
                pixels=placement.pixels + shift,
                group_end=placement.group_end + shift,
            )
            for placement in self.placements
        ]
        self.fill(layout)


MAX_GAP_REASONS = 4096  # of waiting gaps in a row; further ones share an entry
_SEVERAL = "several reasons"


@dataclass(slots=True, eq=False)
class Gap:
    """Frame numbers declared as never coming, or one that was refused; takes its place in the order of groups."""

    first_number: int
    count: int
    reason: str
    refused_bytes: int | None = None  # of a refused frame, as its producer counts them

    @property
    def is_refused(self) -> bool:
        return self.refused_bytes is not None

    @property
    def next_number(self) -> int:
        return self.first_number + self.count


def add_gap(entries: MutableSequence[Group | Gap], gap: Gap) -> None:
    """Append a gap to the waiting entries; merge it with the last one where it continues that, to keep them few."""
    last = entries[-1] if entries else None
    is_like = isinstance(last, Gap) and not (last.is_refused or gap.is_refused)  # these are as many as the window takes
    if is_like and isinstance(last, Gap) and (last.reason == gap.reason or len(entries) >= MAX_GAP_REASONS):
        last.count += gap.count
        if last.reason != gap.reason:
            last.reason = _SEVERAL
    else:
        entries.append(gap)
