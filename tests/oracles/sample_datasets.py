"""Datasets that the log writes for independent software to read, with what they must hold."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.formats.ndtiff.layout import LARGE_FRAME_BYTES, STACK_LIMIT_BYTES
from acqstream.log.log import Log
from acqstream.model.acquisition_spec import AcquisitionSpec
from acqstream.model.axes import AxisValue
from acqstream.model.frame_header import FrameHeader, pixel_type_of
from acqstream.model.metadata import frame_metadata
from acqstream.simulate import pattern
from acqstream.storage.page_memory import PageMemory

MEMORY_BYTES = 2**25
LOW_LIMIT_BYTES = 7_500_000  # 2.5 MB a stack: it ends 5 MB below the limit, and 2 MiB are kept for the summary
NAME = "cells"
SUMMARY = {
    "PixelSizeUm": 0.65,
    "Prefix": NAME,
    "note": "3 µm, größer, 細胞 🔬",
    "nested": {"list": [1, 2.5, None, True]},
}
CHANNELS = ("DAPI", "GFP-α", "赤")  # not in alphabetical order of their code points by chance only

Shape = tuple[int, ...]
SMALL, SMALL_RGB = (31, 45), (31, 45, 3)
LARGE_8, LARGE_16, LARGE_RGB = (513, 517), (301, 443), (301, 297, 3)
assert min(513 * 517, 301 * 443 * 2, 301 * 297 * 3) >= LARGE_FRAME_BYTES
KINDS = {"uint8": 8, "uint16": 16, "10bit": 10, "11bit": 11, "12bit": 12, "14bit": 14, "rgb": 8}


@dataclass(frozen=True, slots=True)
class Frame:
    """What one frame must be for every reader. pixels: (Y, X) or (Y, X, 3)."""

    axes: dict[str, AxisValue]
    pixels: NDArray[Any]
    metadata: dict[str, Any]  # as the file has it, `Axes` included
    bits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A dataset to write. shapes repeat from frame to frame; axes are those of the frames in order.

    copy_after: also copy the folder when so many frames are published, while the log is open.
    """

    name: str
    axes: Sequence[dict[str, AxisValue]]
    shapes: Sequence[Shape] = (SMALL,)
    bits: int = 16
    stack_limit_bytes: int = STACK_LIMIT_BYTES
    copy_after: int | None = None
    replace_duplicates: bool = False

    def frames(self) -> Iterator[Frame]:
        dtype = "uint8" if self.bits == 8 else "uint16"
        for number, (axes, shape) in enumerate(zip(self.axes, itertools.cycle(self.shapes), strict=False)):
            metadata = {**metadata_of(number), "Axes": axes}
            yield Frame(axes, pattern.frame(number, shape, dtype, self.bits), metadata, self.bits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A dataset on disk and its frames, in the order they were sent. growing: copied in the middle of the run."""

    path: Path
    frames: Sequence[Frame]
    growing: bool = False

    @property
    def stacks(self) -> list[Path]:
        """All stack files, in the order of their numbers."""
        names = itertools.chain(
            [f"{NAME}_NDTiffStack.tif"], (f"{NAME}_NDTiffStack_{i}.tif" for i in itertools.count(1))
        )
        found = list(itertools.takewhile(Path.exists, (self.path / name for name in names)))
        assert len(found) == len(list(self.path.glob("*.tif")))
        return found

    @property
    def latest(self) -> list[Frame]:
        """The frame that counts for each key: the last one sent."""
        return list({key_of(frame.axes): frame for frame in self.frames}.values())

    @property
    def is_uniform(self) -> bool:
        return len({frame.pixels.shape for frame in self.frames}) == 1


def metadata_of(number: int) -> dict[str, Any]:
    """Metadata with everything JSON has; its length varies, so that metadata lie at odd and even offsets."""
    text = 'µm – 日本語 😀 "quoted" \\ \u2028'[: 3 + number % 20]
    return {
        "number": number,
        "note": text,
        "exposure_ms": 10.25,
        "time_ns": 1_700_000_000_123_456_789 + number,
        "nested": {"größe": [1, -2.5e-3, None, True], "empty": {}},
    }


def grid(**values: Sequence[AxisValue]) -> list[dict[str, AxisValue]]:
    """All combinations, the last axis fastest."""
    return [dict(zip(values, combination, strict=True)) for combination in itertools.product(*values.values())]


def _plans() -> Iterator[Plan]:
    strings, integers = grid(time=range(3), channel=CHANNELS), grid(time=range(2), z=range(-1, 2))
    for kind, bits in KINDS.items():
        small: Shape = SMALL_RGB if kind == "rgb" else SMALL
        large: Shape = LARGE_RGB if kind == "rgb" else LARGE_8 if bits == 8 else LARGE_16
        yield Plan(name=f"{kind}_packed", bits=bits, shapes=[small], axes=strings)
        yield Plan(name=f"{kind}_large", bits=bits, shapes=[large], axes=integers)
    low: dict[str, Any] = {"stack_limit_bytes": LOW_LIMIT_BYTES}
    yield Plan(
        name="rollover_large", shapes=[LARGE_16], axes=grid(time=range(8), channel=CHANNELS), copy_after=12, **low
    )
    yield Plan(name="rollover_packed", shapes=[(200, 201)], axes=grid(z=range(3), time=range(25)), copy_after=40, **low)
    yield Plan(name="rollover_rgb", bits=8, shapes=[(200, 201, 3)], axes=grid(position=range(50)), copy_after=30, **low)
    yield Plan(name="packed_groups", shapes=[(64, 64)], axes=grid(time=range(100), z=range(12)), copy_after=700)
    yield Plan(name="mixed_shapes", shapes=[SMALL, LARGE_16, SMALL, (1, 1), (64, 3)], axes=grid(time=range(20)))
    yield Plan(name="one_frame", axes=grid(time=[7]), copy_after=1)
    yield Plan(name="tiles", axes=grid(row=range(-2, 1), column=range(3), channel=CHANNELS[:2]), copy_after=5)
    yield Plan(name="replaced", axes=grid(time=range(4)) + grid(time=range(2)), replace_duplicates=True)


PLANS = {plan.name: plan for plan in _plans()}
GROWING = {f"{plan.name}_growing": plan for plan in PLANS.values() if plan.copy_after is not None}
NAMES = [*PLANS, *GROWING]
ROLLOVERS = [name for name in PLANS if name.startswith("rollover")]


def write_all(folder: Path) -> Mapping[str, Sample]:
    """Write every plan below `folder`; the samples by their names (`NAMES`)."""
    memory = PageMemory(MEMORY_BYTES).view
    samples: dict[str, Sample] = {}
    for plan in PLANS.values():
        sample, growing = write(plan, folder / plan.name, memory)
        samples[plan.name] = sample
        if growing is not None:
            samples[growing.path.name] = growing
    assert sorted(samples) == sorted(NAMES)
    return samples


def write(plan: Plan, path: Path, memory: memoryview) -> tuple[Sample, Sample | None]:
    """The dataset, and the copy from the middle of its run if the plan wants one."""
    spec = AcquisitionSpec(
        dataset_id=f"{0:032x}", name=NAME, summary=SUMMARY, replace_duplicates=plan.replace_duplicates
    )
    sample = Sample(path=path, frames=list(plan.frames()))
    growing = None
    with Log(path, spec, memory=memory, stack_limit_bytes=plan.stack_limit_bytes) as log:
        for number, frame in enumerate(sample.frames):
            if number == plan.copy_after:
                growing = copy_open_dataset(log, sample, number)
            log.append(header_of(number, frame), frame.pixels)
        if len(sample.frames) == plan.copy_after:
            growing = copy_open_dataset(log, sample, plan.copy_after)
    assert log.receipt is not None
    assert log.receipt.stored == len(sample.frames)
    return sample, growing


def copy_open_dataset(log: Log, sample: Sample, count: int) -> Sample:
    assert log.wait_for_published(count)
    path = sample.path.with_name(f"{sample.path.name}_growing")
    shutil.copytree(sample.path, path)
    return replace(sample, path=path, frames=sample.frames[:count], growing=True)


def header_of(number: int, frame: Frame) -> FrameHeader:
    height, width = frame.pixels.shape[:2]
    kind = pixel_type_of(frame.pixels.dtype.str, frame.pixels.shape, frame.bits)
    return FrameHeader(number, kind, height, width, frame.axes, frame_metadata(frame.metadata, frame.axes))


def key_of(axes: Mapping[str, Any]) -> frozenset[tuple[str, Any]]:
    return frozenset(axes.items())


def assert_same_pixels(found: NDArray[Any], frame: Frame) -> None:
    assert (found.shape, found.dtype) == (frame.pixels.shape, frame.pixels.dtype)
    assert np.array_equal(found, frame.pixels), f"pixels of the frame at {frame.axes} differ"
