"""Runs to serve, and the arrays that viewers must see: made of the frames with numpy alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.model.acquisition_spec import AxisSpec
from tests.log.make_frames import Frame, frame_of
from tests.mirrors.mirror_cases import array_of, halved, places_of

SUMMARY = {"PixelSize_um": 0.5, "z-step_um": 2.0}


@dataclass(frozen=True)
class Case:
    """A run. order: axes of its array, slowest first, as OME-Zarr has them (time, channel, z)."""

    frames: Sequence[Frame]
    order: tuple[str, ...]
    chunk: int | None = None
    axes: tuple[AxisSpec, ...] = ()
    summary: Mapping[str, Any] | None = None

    @property
    def array(self) -> NDArray[Any]:
        """(axes of `order`, [c,] y, x); colour samples, which take the place of channels, before z."""
        found = array_of(self.frames, self.order)
        return found if "z" in self.order else np.squeeze(found, self.z_axis)

    @property
    def z_axis(self) -> int:
        """Of `array_of`, which always has z."""
        return -3

    def level(self, number: int) -> NDArray[Any]:
        """A lower level of `array`, each of means of the one above."""
        found = self.array
        for _ in range(number):
            found = halved(found, (*(1 for _ in found.shape[:-2]), 2, 2))
        return found


def case_of(
    sizes: Mapping[str, int],
    shape: Sequence[int] = (21, 26),
    dtype: str = "<u2",
    *,
    names: Mapping[str, Sequence[str]] | None = None,
    **more: Any,
) -> Case:
    places = places_of(tuple(sizes), sizes, names)
    frames = [frame_of(number, shape, dtype, axes=axes) for number, axes in enumerate(places)]
    order = tuple(name for name in ("time", "channel", "z") if name in sizes)
    return Case(frames, order, **more)


CASES: Mapping[str, Case] = {
    "five axes": case_of({"time": 3, "channel": 2, "z": 4}, names={"channel": ["DAPI", "GFP"]}),
    "bytes": case_of({"time": 2, "z": 3}, dtype="|u1"),
    "colour": case_of({"time": 2, "z": 2}, (20, 31, 3), "|u1"),
    "planes": case_of({"z": 3}),
    "times": case_of({"time": 5}, (64, 48)),
    "levels": case_of({"time": 2, "z": 2}, (1101, 700)),
    "colour levels": case_of({"time": 2}, (700, 1101, 3), "|u1"),
    "pieces": case_of({"time": 2, "z": 2}, (300, 517), chunk=64),
    "colour pieces": case_of({"time": 2}, (130, 150, 3), "|u1", chunk=64),
}
