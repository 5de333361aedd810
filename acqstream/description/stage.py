"""Stage position and times in the metadata of a frame, and the map from pixels of the camera to the stage. Pure.

Micro-Manager measures the map when a pixel size is calibrated. Its six numbers are the rows of a 2 x 3 matrix; the
third column, a shift, does not matter for positions of images relative to each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from acqstream.model.metadata import capture_time, finite_number


@dataclass(frozen=True, slots=True)
class StageReading:
    """Place in um and times in s in the metadata of a frame; None if absent.

    time_s is that of the acquisition program since its start, capture_s what the producer gave, since 1970. pixels:
    (Y, X) of the frame. shift: (y, x) of its first pixel in the picture of its tiles, whose tile (0, 0) begins at 0.
    """

    x_um: float | None = None
    y_um: float | None = None
    z_um: float | None = None
    time_s: float | None = None
    capture_s: float | None = None
    exposure_ms: float | None = None
    pixels: tuple[int, int] = (1, 1)
    shift: tuple[int, int] = (0, 0)


def stage_reading(metadata: Mapping[str, Any]) -> StageReading:
    """From metadata of a frame: places as measured, else as intended.

    Source: Micro-Manager and Pycro-Manager write XPositionUm, XPosition_um or XPosition_um_Intended, pymmcore-plus a
    map `position`; all of them ElapsedTime-ms.
    """
    value = metadata.get("position")
    position = value if isinstance(value, Mapping) else {}

    def place(axis: str) -> float | None:
        names = (f"{axis}PositionUm", f"{axis}Position_um", f"{axis}Position_um_Intended")
        found = (_number(metadata.get(name)) for name in names)
        return next((number for number in found if number is not None), _number(position.get(axis.lower())))

    time_ns, elapsed_ms = capture_time(metadata), _number(metadata.get("ElapsedTime-ms"))
    time_s, capture_s = (
        None if time is None else time / factor for time, factor in ((elapsed_ms, 1e3), (time_ns, 1e9))
    )
    exposures = (_number(metadata.get(name)) for name in ("Exposure-ms", "exposure_ms", "Exposure"))
    exposure_ms = next((value for value in exposures if value is not None), None)
    return StageReading(place("X"), place("Y"), place("Z"), time_s, capture_s, exposure_ms)


def _number(value: object) -> float | None:
    """A finite number, also as text, which hardware sequences of Micro-Manager write."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    return finite_number(value)


_KEYS = ("PixelSizeAffine", "pixel_size_affine", "AffineTransform")
_MIN_DETERMINANT = 1e-12  # of micrometres squared per pixel: a pixel is larger than a nanometre
_MAX_STRETCH = 1e3  # ratio of the two singular values; more is a matrix of rank one


@dataclass(frozen=True, slots=True)
class StageAffine:
    """(x, y) of the stage in um = ((xx, xy), (yx, yy)) (column, row) of a pixel."""

    xx: float
    xy: float
    yx: float
    yy: float

    @property
    def pixel_size_um(self) -> float:
        """Side of a square pixel of the same area."""
        return math.sqrt(abs(self._determinant))

    def to_stage(self, column: float, row: float) -> tuple[float, float]:
        """(x, y) on the stage in um of a place in the image in pixels."""
        return self.xx * column + self.xy * row, self.yx * column + self.yy * row

    def to_pixels(self, x_um: float, y_um: float) -> tuple[float, float]:
        """(column, row) in pixels of a place on the stage."""
        column = (self.yy * x_um - self.xy * y_um) / self._determinant
        row = (self.xx * y_um - self.yx * x_um) / self._determinant
        return column, row

    @property
    def _determinant(self) -> float:
        return self.xx * self.yy - self.xy * self.yx

    @property
    def _is_known(self) -> bool:
        """False for matrices that cannot be inverted, and for multiples of the identity.

        The identity is Micro-Manager's default, and its core multiplies the default by the binning: no calibration.
        """
        if self.xx == self.yy > 0 and self.xy == self.yx == 0:
            return False
        size = self.xx**2 + self.xy**2 + self.yx**2 + self.yy**2
        area = abs(self._determinant)
        return math.isfinite(size) and area > _MIN_DETERMINANT and size < _MAX_STRETCH * area


def find_affine(metadata: Mapping[str, Any]) -> StageAffine | None:
    """The map that metadata of a frame or a summary hold; None where it is absent, the default, or not invertible.

    Source: Micro-Manager writes "a;b;c;d;e;f" (rows of 2 x 3), AcqEngJ "a_b_c_d" (columns of 2 x 2, Java's order), and
    pymmcore-plus a list of six, in `image_infos` of the summary.
    """
    for key in _KEYS:
        found = _parse(metadata.get(key))
        if found is not None:
            return found
    images = metadata.get("image_infos")
    if isinstance(images, list) and images and isinstance(images[0], Mapping):
        return _parse(images[0].get("pixel_size_affine"))
    return None


def _parse(given: object) -> StageAffine | None:
    if isinstance(given, str):
        by_columns = "_" in given
        numbers = _numbers(given.split("_" if by_columns else ";"))
    elif isinstance(given, Sequence):
        by_columns, numbers = False, _numbers(given)
    else:
        return None
    if by_columns and len(numbers) == 4:
        found = StageAffine(numbers[0], numbers[2], numbers[1], numbers[3])
    elif not by_columns and len(numbers) == 6:
        found = StageAffine(numbers[0], numbers[1], numbers[3], numbers[4])
    else:
        return None
    return found if found._is_known else None


def _numbers(given: Sequence[object]) -> list[float]:
    """Finite numbers; empty if one is not."""
    numbers: list[float] = []
    for value in given[:7]:
        try:
            number = finite_number(float(value) if isinstance(value, str) else value)
        except ValueError:
            number = None
        if number is None:
            return []
        numbers.append(number)
    return numbers
