"""Place and times in the metadata of a frame, in the words of the programs that acquire. Pure."""

from __future__ import annotations

from collections.abc import Mapping
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
