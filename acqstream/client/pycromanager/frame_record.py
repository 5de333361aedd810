"""Axes and metadata to store with a frame, with corrections of wrong entries by Pycro-Manager."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.client.capture_time import CaptureClock
from acqstream.client.plain_metadata import plain_scalar
from acqstream.errors import ProtocolError
from acqstream.model.frame_header import SIGNIFICANT_BITS

AXES_KEY = "Axes"
ELAPSED_KEY = "ElapsedTime-ms"
RECEIVED_KEY = "TimeReceivedByCore"
# Numbers that the core gives as text in hardware sequences.
_NUMBER_KEYS = frozenset({"Binning", "BitDepth", "ImageNumber", "ROI-X-start", "ROI-Y-start"})


@dataclass(frozen=True, slots=True)
class FrameRecord:
    """One frame as `Run.put` takes it: image is (Y, X) or (Y, X, 3), time_ns since 1970."""

    image: NDArray[Any]
    axes: Mapping[Any, Any]
    metadata: dict[str, Any]
    bits: int | None
    time_ns: int


class FrameRecorder:
    """Makes the records of one acquisition."""

    def __init__(self) -> None:
        self._clock = CaptureClock()
        self._first_ns: int | None = None

    def record(self, image: object, metadata: Mapping[str, Any]) -> FrameRecord:
        """The record of the next frame. Raises ProtocolError if the metadata have no axes."""
        axes = metadata.get(AXES_KEY)
        if not isinstance(axes, Mapping):
            raise ProtocolError(f"the image's metadata[{AXES_KEY!r}] is {axes!r:.60}; expected a map of its axes")
        pixels = np.asarray(image)
        stored = {
            str(key): plain_scalar(value) for key, value in metadata.items() if key != AXES_KEY and value is not None
        }
        for key in _NUMBER_KEYS & stored.keys():
            stored[key] = _number(stored[key])
        # Text in hardware sequences, and without pixel type for snaps, so the array decides.
        stored.update(_pixel_keys(pixels))
        stored = {**_viewer_keys(stored), **stored}
        time_ns = self._set_times(stored)
        return FrameRecord(pixels, axes, stored, _significant_bits(stored.get("BitDepth"), pixels), time_ns)

    def _set_times(self, stored: dict[str, Any]) -> int:
        """Capture time in ns; corrects the elapsed time in `stored`, which is the same for all frames of a sequence."""
        time_ns = self._clock.now_ns()
        if self._first_ns is None:
            self._first_ns = time_ns
        if RECEIVED_KEY in stored or ELAPSED_KEY not in stored:
            stored[ELAPSED_KEY] = (time_ns - self._first_ns) / 1e6
        return time_ns


def _viewer_keys(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Pixel size and stage positions, as measured or else as intended, under the names that viewers look for."""
    sources: dict[str, tuple[str, ...]] = {"PixelSizeUm": ("PixelSize_um",)}
    for axis in "XYZ":
        sources[f"{axis}PositionUm"] = (f"{axis}Position_um", f"{axis}Position_um_Intended")
    keys = {key: next((stored[name] for name in names if name in stored), None) for key, names in sources.items()}
    return {key: value for key, value in keys.items() if value is not None}


def _pixel_keys(image: NDArray[Any]) -> dict[str, Any]:
    if image.ndim < 2:
        return {}
    kind = "RGB32" if image.ndim == 3 else f"GRAY{image.dtype.itemsize * 8}"
    return {"Width": image.shape[1], "Height": image.shape[0], "PixelType": kind}


def _number(value: Any) -> Any:
    """An integer for its text; other values ("2x2") unchanged."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def _significant_bits(depth: object, image: NDArray[Any]) -> int | None:
    """The camera's bit depth, where the array can hold it."""
    fits = image.ndim == 2 and depth in SIGNIFICANT_BITS.get(image.dtype.str, ())
    return depth if fits and isinstance(depth, int) else None
