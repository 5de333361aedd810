"""The physical space of frames: distances, units and places, from hints, summary and metadata of frames. Pure.

The first source that knows a distance wins: what was declared for the axis, the summary, the frames. A distance that
no source knows has no unit. See docs/decisions/025-space-of-frames.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from acqstream.arrays.even_spacing import even_distance
from acqstream.arrays.stage_affine import StageAffine, find_affine
from acqstream.model.axes import AxisValue
from acqstream.model.finite_number import finite_number
from acqstream.model.metadata import capture_time

TIME, Z = "time", "z"
UM, SECOND = "um", "s"
Distance = tuple[float, str]
"""Distance of two items, and its unit: um for lengths, s for times, "" if unknown."""

Place = tuple[float, float, float]
"""(z, y, x) in um: where the centre of the first item of an image or stack lies, along the axes of the image."""

ImageKey = tuple[AxisValue | None, ...]
"""Values of a frame along the axes that separate images: `position`, or position, row and column; None: it has none."""

StageAxes = Literal["", "affine", "parallel"]
"""Map from places on the stage to places of images: PixelSizeAffine, or parallel axes; "": none."""

_PIXEL_SIZE_KEYS = ("PixelSizeUm", "PixelSize_um")
UM_BY_UNIT = {
    "pm": 1e-6,
    "nm": 1e-3,
    "um": 1.0,
    "µm": 1.0,
    "μm": 1.0,
    "mm": 1e3,
    "cm": 1e4,
    "m": 1e6,
    "nanometer": 1e-3,
    "micrometer": 1.0,
    "micron": 1.0,
    "microns": 1.0,
    "millimeter": 1e3,
    "meter": 1e6,
}
_S_BY_UNIT = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "second": 1.0, "seconds": 1.0, "min": 60.0}
_MIN_TIMES = 3  # any two times are evenly spaced


@dataclass(frozen=True, slots=True)
class StageReading:
    """Place in um and times in s in the metadata of a frame; None if absent.

    time_s is that of the acquisition program since its start, capture_s what the producer gave, since 1970.
    """

    x_um: float | None = None
    y_um: float | None = None
    z_um: float | None = None
    time_s: float | None = None
    capture_s: float | None = None


@dataclass(frozen=True, slots=True)
class SpaceEvidence:
    """Frames that show the space of all. first: metadata of the first frame.

    stacks: some stacks, of each the z indices and readings of its frames; times: indices along `time` and readings;
    images: of each image the z index and reading of one frame.
    """

    first: Mapping[str, Any] = field(default_factory=dict)
    stacks: Sequence[Sequence[tuple[int, StageReading]]] = ()
    times: Sequence[tuple[int, StageReading]] = ()
    images: Mapping[ImageKey, tuple[int, StageReading]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FrameSpace:
    """pixel_um: side of a pixel. distances: along axes of the frames, positive; an axis that is absent is not known.

    places: of images. z_direction is -1 where planes run against the stage's z: places along z are minus those of the
    stage then.
    """

    pixel_um: float | None = None
    distances: Mapping[str, Distance] = field(default_factory=dict)
    places: Mapping[ImageKey, Place] = field(default_factory=dict)
    stage_axes: StageAxes = ""
    z_direction: int = 1

    def distance(self, axis: str) -> Distance:
        """Along an axis of the frames; (1.0, "") where it is not known."""
        return self.distances.get(axis, (1.0, ""))


def frame_space(
    declared: Sequence[Mapping[str, Any]],
    summary: Mapping[str, Any],
    evidence: SpaceEvidence | None = None,
    tile_step: Sequence[int] | None = None,
) -> FrameSpace:
    """The space that hints, summary and frames show. declared: axes of the request: `name`, maybe `scale`, `unit`.

    tile_step: (y, x) in pixels between neighbours, where images are tiles: their keys end with row and column.
    """
    evidence = evidence or SpaceEvidence()
    affine = find_affine(summary) or find_affine(evidence.first)
    pixel_um = _positive(summary, _PIXEL_SIZE_KEYS) or _positive(evidence.first, _PIXEL_SIZE_KEYS)
    if pixel_um is None and affine is not None:
        pixel_um = affine.pixel_size_um
    distances: dict[str, Distance] = {}
    slope_um = even_distance(
        [[(at, seen.z_um) for at, seen in stack if seen.z_um is not None] for stack in evidence.stacks], _z_tolerance
    )
    if slope_um is not None:
        distances[Z] = (abs(slope_um), UM)
    captures = [(at, seen.capture_s) for at, seen in evidence.times if seen.capture_s is not None]
    if len(captures) < len(evidence.times):  # two clocks are never mixed
        captures = [(at, seen.time_s) for at, seen in evidence.times if seen.time_s is not None]
    interval_s = even_distance(
        [captures],
        lambda distance: distance / 4,
        min_items=_MIN_TIMES,
    )
    if interval_s is not None and interval_s > 0:
        distances[TIME] = (interval_s, SECOND)
    distances.update(_stated_distances(declared, summary))
    direction = -1 if (slope_um or finite_number(summary.get("z-step_um")) or 0.0) < 0 else 1
    z_distance, z_unit = distances.get(Z, (0.0, ""))
    step_um = direction * z_distance if z_unit == UM else None
    found = {value: _place(*seen, step_um, pixel_um, affine) for value, seen in evidence.images.items()}
    places = {value: place for value, place in found.items() if place is not None}
    has_xy = pixel_um is not None and any(
        seen.x_um is not None and seen.y_um is not None for _, seen in evidence.images.values()
    )
    if tile_step is not None:
        places = place_tiles(places, evidence.images, [pixels * (pixel_um or 1.0) for pixels in tile_step])
    stage_axes: StageAxes = "" if not has_xy else "parallel" if affine is None else "affine"
    return FrameSpace(pixel_um, distances, places, stage_axes, direction)


def not_understood(summary: Mapping[str, Any]) -> str:
    """The text of a warning that names distances of a summary that are no numbers; empty without any."""
    keys = (*_PIXEL_SIZE_KEYS, "z-step_um", "Interval_ms")
    odd = [key for key in keys if summary.get(key) is not None and finite_number(summary[key]) is None]
    named = "; ".join(f"{key} {summary[key]!r:.40}" for key in odd)
    return f"the summary has distances that are not understood, and are not used: {named}; pass numbers" if odd else ""


def place_tiles(
    places: Mapping[ImageKey, Place], images: Mapping[ImageKey, tuple[int, StageReading]], step: Sequence[float]
) -> dict[ImageKey, Place]:
    """Return places for all tiles: where the stage shows none, by row and column from the first tile with a place.

    step: (y, x) between neighbours. A tile without an integer as row or column stays without a place.
    """
    numbers = {key: key[-2:] for key in images if all(type(value) is int for value in key[-2:])}
    on_stage = [key for key in numbers if images[key][1].x_um is not None and images[key][1].y_um is not None]
    first = next((key for key in on_stage if key in places), None)
    origin = (0, 0) if first is None else numbers[first]
    _, top, left = (0.0, 0.0, 0.0) if first is None else places[first]
    found = dict(places)
    for key, (row, column) in numbers.items():
        if first is None or key not in on_stage:
            z = places[key][0] if key in places else 0.0
            y, x = (row - origin[0]) * step[0], (column - origin[1]) * step[1]  # type: ignore[operator]
            found[key] = z, _rounded(top + y), _rounded(left + x)
    return found


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
    return StageReading(place("X"), place("Y"), place("Z"), time_s, capture_s)


def _stated_distances(declared: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> dict[str, Distance]:
    """From the hints, else from the summary."""
    found: dict[str, Distance] = {}
    step_um = finite_number(summary.get("z-step_um"))
    if step_um:
        found[Z] = (abs(step_um), UM)
    interval_ms = _positive(summary, ("Interval_ms",))
    if interval_ms is not None:
        found[TIME] = (interval_ms / 1000, SECOND)
    for axis in declared:
        name, unit = str(axis.get("name")), axis.get("unit")
        scale = finite_number(axis.get("scale"))
        if not scale or (not unit and name in found):
            continue
        text = unit if isinstance(unit, str) else ""
        for factors, ours in ((UM_BY_UNIT, UM), (_S_BY_UNIT, SECOND)):
            if text in factors:
                scale, text = float(f"{scale * factors[text]:.12g}"), ours
        found[name] = (abs(scale), text)
    return found


def _place(
    z_index: int, seen: StageReading, step_um: float | None, pixel_um: float | None, affine: StageAffine | None
) -> Place | None:
    """The place of the first item; None if unknown. step_um is negative where planes run against the stage's z."""
    z = y = x = None
    if step_um is not None and seen.z_um is not None:
        z = (-seen.z_um if step_um < 0 else seen.z_um) - z_index * abs(step_um)
    if pixel_um is not None and seen.x_um is not None and seen.y_um is not None:
        x, y = seen.x_um, seen.y_um
        if affine is not None:
            x, y = (pixel_um * pixels for pixels in affine.to_pixels(x, y))
    if z is None and x is None:
        return None
    return _rounded(z), _rounded(y), _rounded(x)


def _rounded(place_um: float | None) -> float:
    """Without the last digits of binary fractions: 1e-6 um is less than an atom."""
    return 0.0 if place_um is None else round(place_um, 6) + 0.0


def _z_tolerance(distance_um: float) -> float:
    """Focus drives report places with noise of some 0.05 um, whatever the step."""
    return min(max(distance_um / 10, 0.05), distance_um / 4)


def _positive(metadata: Mapping[str, Any], keys: Sequence[str]) -> float | None:
    for key in keys:
        number = finite_number(metadata.get(key))
        if number is not None and number > 0:
            return number
    return None


def _number(value: object) -> float | None:
    """A finite number, also as text, which hardware sequences of Micro-Manager write."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    return finite_number(value)
