"""Frames whose pixels follow from their number, and logs that write them."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from acqstream.log.log import Log
from acqstream.model.acquisition_spec import AcquisitionSpec
from acqstream.model.axes import AxisValue
from acqstream.model.frame_header import FrameHeader, pixel_type_of
from acqstream.model.metadata import frame_metadata
from acqstream.storage.page_memory import PageMemory
from tests.waiting import WAIT_S, until_notified

MIB = 2**20
LEAST_LIMIT_BYTES = 5_000_000 + 3 * MIB  # of a stack file: the margin of the format, and room for a few frames
Axes = dict[str, AxisValue]


@dataclass(frozen=True)
class Frame:
    """A frame to write, and what must be read back."""

    header: FrameHeader
    image: NDArray[Any]
    metadata: Mapping[str, Any]

    @property
    def axes(self) -> Axes:
        return self.header.axes


def image_of(number: int, shape: Sequence[int] = (32, 48), dtype: str = "<u2", bits: int | None = None) -> NDArray[Any]:
    """Pixels that tell the number: the same for the same arguments, different in nearly every pixel for others."""
    start = np.uint64(number * 0x9E3779B97F4A7C15 % 2**64)
    values = (np.arange(np.prod(shape), dtype=np.uint64) + start) * np.uint64(0xBF58476D1CE4E5B9) >> np.uint64(40)
    return (values % np.uint64(2 ** (bits or 8 * np.dtype(dtype).itemsize))).astype(dtype).reshape(shape)


def frame_of(
    number: int,
    shape: Sequence[int] = (32, 48),
    dtype: str = "<u2",
    *,
    axes: Axes | None = None,
    bits: int | None = None,
    metadata: Mapping[str, Any] | None = None,
    checksum: bool = True,
) -> Frame:
    """Frame `number`; its axes are {"time": number} where none are given. Three of four have a capture time.

    checksum: as from a producer that sends the checksums of pixels and metadata.
    """
    axes = {"time": number} if axes is None else axes
    image = image_of(number, shape, dtype, bits)
    pixel_type = pixel_type_of(np.dtype(dtype).str, tuple(shape), bits)
    digest = xxhash.xxh3_64_intdigest(image.data) if checksum else None
    time_ns = 1_790_000_000_000_000_000 + 12_345_678 * (number % 2**31) if number % 4 else None
    text = frame_metadata(metadata, axes, time_ns)
    metadata_digest = xxhash.xxh3_64_intdigest(text) if checksum else None
    kind = (pixel_type, shape[0], shape[1])
    header = FrameHeader(number, *kind, axes, text, digest, time_ns, metadata_checksum=metadata_digest)
    time = {} if time_ns is None else {"time_ns": time_ns}
    return Frame(header, image, {**(metadata or {}), **time, "Axes": axes})


def dim_frame(number: int, axes: Axes, shape: Sequence[int] = (40, 48), elapsed_ms: float = 0) -> Frame:
    """A frame of 12 bits with values from 100 to 611, as of most cameras in most samples."""
    frame = frame_of(number, shape, axes=axes, bits=12, metadata={"ElapsedTime-ms": elapsed_ms}, checksum=False)
    frame.image[...] = frame.image // 8 + 100
    return frame


def frames_of(count: int, shape: Sequence[int] = (32, 48), dtype: str = "<u2", *, first: int = 0) -> list[Frame]:
    return [frame_of(number, shape, dtype) for number in range(first, first + count)]


def mixed_frames(count: int) -> list[Frame]:
    """Small ones and large ones in turn: three small, one of 320 KiB."""
    return [frame_of(number, (320, 512) if number % 4 == 3 else (31, 33)) for number in range(count)]


def memory_of(size_bytes: int = 4 * MIB) -> memoryview:
    return PageMemory(size_bytes).view


def spec_of(name: str = "cells", **more: Any) -> AcquisitionSpec:
    return AcquisitionSpec(**{"dataset_id": uuid.UUID(int=7).hex, "name": name, **more})


def start_log(folder: Path, *, memory_bytes: int = 4 * MIB, disk: Any = None, limit: int = 2**32, **spec: Any) -> Log:
    """A log into `folder`, with stack files of at most `limit` bytes."""
    return Log(folder, spec_of(**spec), memory=memory_of(memory_bytes), disk=disk, stack_limit_bytes=limit)


def write_log(folder: Path, frames: Iterable[Frame], **more: Any) -> Log:
    """A finished log with these frames."""
    with start_log(folder, **more) as log:
        for frame in frames:
            log.append(frame.header, frame.image)
    return log


def append(log: Log, frames: Iterable[Frame], *, is_awaited: bool = True) -> None:
    """Append frames, and wait until readers see each."""
    for frame in frames:
        log.append(frame.header, frame.image)
        if is_awaited:
            assert log.wait_for_published(frame.header.number + 1)


def log_threads() -> list[str]:
    """Names of the threads that logs have started and not ended."""
    starts = ("write-", "commit-", "checksums-")
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(starts)]


def wait_for(log: Log, condition: Callable[[], bool], timeout_s: float = WAIT_S) -> None:
    """Until something holds that changes with the log's cursors or state."""
    with log._parts.state.changed:
        until_notified(log._parts.state.changed, condition, "a cursor or state of the log", timeout_s)
