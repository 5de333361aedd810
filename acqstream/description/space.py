"""The physical space of frames: distances, units and places, from hints, summary and metadata of frames. Pure.

The order of evidence: what was declared for the axis with a unit; what the frames show; the summary. What is not known
has no unit, and what the frames contradict is not known. See docs/decisions/079-one-order-of-evidence.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from acqstream.description.spacing import MIN_TIMES, PlacedValues, even_distance, even_times, has_moved
from acqstream.description.stage import StageAffine, StageReading, find_affine
from acqstream.model.axes import TIME, AxisValue, Z
from acqstream.model.metadata import finite_number

UM, SECOND = "um", "s"
Distance = tuple[float, str]
"""Distance of two items that are stored side by side, and its unit: um for lengths, s for times, "" if unknown."""

Coordinates = tuple[str, tuple[float | None, ...]]
"""A unit, and where each item along an axis lies, None where that is not known."""

OwnSpacing = tuple[float, float, str]
"""Where the first item of an image lies along an axis, the distance of two items, and the unit of both."""

Place = tuple[float, float, float]
"""(z, y, x) in um: where the centre of the first item of an image or stack lies, along the axes of the image."""

ImageKey = tuple[AxisValue | None, ...]
"""Values of a frame along the axes that separate images: `position`, or position, row and column; None: it has none."""

StageAxes = Literal["", "affine", "parallel"]
"""Map from places on the stage to places of images: PixelSizeAffine, or parallel axes; "": none."""

Evidence = Literal["declared", "frames", "summary"]
"""Who says what the distance along an axis is."""

_PIXEL_SIZE_KEYS = ("PixelSizeUm", "PixelSize_um")
_UM_NAMES = {
    1e-6: "pm picometer",
    1e-3: "nm nanometer",
    1.0: "um µm μm micrometer micron microns",
    1e3: "mm millimeter",
    1e4: "cm centimeter",
    1e6: "m meter",
}
UM_BY_UNIT = {name: um for um, names in _UM_NAMES.items() for name in names.split()}
S_BY_UNIT = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
S_BY_UNIT |= {"second": 1.0, "seconds": 1.0, "millisecond": 1e-3, "minute": 60.0, "hour": 3600.0}
MAX_COORDINATES = 4096  # of an axis, in notes
_SAME = 0.1  # a wish and what the frames show may differ by this share


Readings = Sequence[tuple[int, StageReading]]
"""Frames along an axis, by their integers."""


@dataclass(frozen=True, slots=True)
class SpaceEvidence:
    """Frames that show the space of all. first: metadata of the first frame.

    stacks: some stacks, of each the z indices and readings of its frames; times: indices along `time` and readings;
    images: of each image the z index and reading of one frame. positions: of each value of `position`, where there are
    several, a stack and times as above.
    """

    first: Mapping[str, Any] = field(default_factory=dict)
    stacks: Sequence[Readings] = ()
    times: Readings = ()
    images: Mapping[ImageKey, tuple[int, StageReading]] = field(default_factory=dict)
    positions: Mapping[AxisValue, tuple[Readings, Readings]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FrameSpace:
    """pixel_um: side of a pixel. distances: along axes of the frames, positive; an axis that is absent is not known.

    starts: where the first item lies along an axis whose values are not counted from 0. own: spacings of positions, by
    value and axis, where their frames show other ones than those of the others. coordinates: of axes whose
    items are not even, for faces that can say so. places: of images. z_direction is -1 where
    planes run against the stage's z: places along z are minus those of the stage then. evidence: where the distance
    along an axis comes from. warnings: wishes that the frames contradict, with both numbers.
    """

    pixel_um: float | None = None
    distances: Mapping[str, Distance] = field(default_factory=dict)
    starts: Mapping[str, float] = field(default_factory=dict)
    own: Mapping[AxisValue, Mapping[str, OwnSpacing]] = field(default_factory=dict)
    coordinates: Mapping[str, Coordinates] = field(default_factory=dict)
    places: Mapping[ImageKey, Place] = field(default_factory=dict)
    stage_axes: StageAxes = ""
    z_direction: int = 1
    evidence: Mapping[str, Evidence] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def distance(self, axis: str) -> Distance:
        """Along an axis of the frames; (1.0, "") where it is not known."""
        return self.distances.get(axis, (1.0, ""))

    def places_from(self, top: int, left: int) -> dict[ImageKey, Place]:
        """Places of pictures that begin at this pixel, counted from tile (0, 0)."""
        pixel = self.pixel_um or 1.0
        return {key: (z, y + top * pixel, x + left * pixel) for key, (z, y, x) in self.places.items()}


def frame_space(
    declared: Sequence[Mapping[str, Any]],
    summary: Mapping[str, Any],
    evidence: SpaceEvidence | None = None,
    tile_step: Sequence[int] | None = None,
    values: Mapping[str, Sequence[AxisValue | None]] | None = None,
) -> FrameSpace:
    """The space that hints, summary and frames show. declared: axes of the request: `name`, maybe `scale`, `unit`.

    tile_step: (y, x) in pixels between neighbours, where images are tiles: their keys end with row and column.
    values: those at each place along an axis, None for a place without frames; by default integers count from 0.
    """
    evidence = evidence or SpaceEvidence()
    placed = {name: PlacedValues.of((values or {}).get(name)) for name in (TIME, Z)}
    warnings: list[str] = []
    affine = find_affine(evidence.first) or find_affine(summary)
    pixel_um = _pixel_size(evidence.first, summary, affine, warnings)
    has_said = _positive(evidence.first, _PIXEL_SIZE_KEYS) is not None
    of_pixels: Evidence = "frames" if has_said or _positive(summary, _PIXEL_SIZE_KEYS) is None else "summary"
    sources: dict[str, Evidence] = dict.fromkeys(("y", "x"), of_pixels) if pixel_um is not None else {}
    plans = _shown_plans(evidence, placed)
    hints, wishes = _hints(declared), _wishes(summary)
    distances: dict[str, Distance] = {}
    starts: dict[str, float] = {}
    coordinates: dict[str, Coordinates] = {}
    for axis in dict.fromkeys([*hints, *wishes, *plans.shown]):
        of_axis = (values or {}).get(axis)
        along = placed.get(axis) or PlacedValues.of(of_axis)
        said = _AxisEvidence(hints.get(axis), plans.shown.get(axis), wishes.get(axis), of_axis, along)
        warnings += [f"along {axis} {doubt}"] if (doubt := said.doubt()) else []
        if (found := said.distance()) is not None:
            distances[axis], source = found
            own_start = said.shown.start if said.shown is not None and source == "frames" else None
            starts[axis] = along.start(distances[axis][0]) if own_start is None else own_start
            sources |= {axis: source} if distances[axis][1] else {}
        elif uneven := said.uneven():
            coordinates[axis] = uneven
    direction = -1 if (plans.slope_um or finite_number(summary.get("z-step_um")) or 0.0) < 0 else 1
    own = plans.own_along([axis for axis in plans.shown if axis not in distances])
    z_distance, z_unit = distances.get(Z, (0.0, ""))
    frame = _ImageFrame(direction * z_distance if z_unit == UM else None, starts.get(Z, 0.0), pixel_um, affine)
    places: dict[ImageKey, Place] = {}
    for key, (z, seen) in evidence.images.items():
        plan = own.get(key[0], {}) if key and key[0] is not None else {}
        its = replace(frame, z_start_um=plan[Z][0], step_um=direction * plan[Z][1]) if Z in plan else frame
        if (place := its.place(placed[Z].place(z), seen)) is not None:
            places[key] = place
    has_xy = pixel_um is not None and any(
        seen.x_um is not None and seen.y_um is not None for _, seen in evidence.images.values()
    )
    if tile_step is not None:
        places = place_tiles(places, evidence.images, [pixels * (pixel_um or 1.0) for pixels in tile_step])
    stage_axes: StageAxes = "" if not has_xy else "parallel" if affine is None else "affine"
    return FrameSpace(
        pixel_um, distances, starts, own, coordinates, places, stage_axes, direction, sources, tuple(warnings)
    )


@dataclass(frozen=True, slots=True)
class _FrameSpacing:
    """What frames show of an axis. distance: None where they lie unevenly; uneven: where they lie then, by place.

    start: where the first place lies, None: by its integer. is_own: positions have spacings of their own. is_few: they
    are too few to show a distance.
    """

    distance: Distance | None
    uneven: Mapping[int, float] = field(default_factory=dict)
    unit: str = SECOND
    start: float | None = None
    is_own: bool = False
    is_few: bool = False


@dataclass(frozen=True, slots=True)
class _FrameSpacings:
    """What frames show along z and time. own: spacings of positions, by axis and value, where these differ.

    slope_um: the signed distance of planes on the stage.
    """

    shown: Mapping[str, _FrameSpacing | None]
    own: Mapping[str, Mapping[AxisValue, OwnSpacing]]
    slope_um: float | None

    def own_along(self, axes: Sequence[str]) -> dict[AxisValue, dict[str, OwnSpacing]]:
        """By value and axis, of these axes."""
        found: dict[AxisValue, dict[str, OwnSpacing]] = {}
        for axis in axes:
            for value, spacing in self.own.get(axis, {}).items():
                found.setdefault(value, {})[axis] = spacing
        return found


def _shown_plans(evidence: SpaceEvidence, placed: Mapping[str, PlacedValues]) -> _FrameSpacings:
    positions = evidence.positions
    slope_um, z_shown = _z_slope([*evidence.stacks, *(stack for stack, _ in positions.values())], placed[Z])
    own_z: dict[AxisValue, OwnSpacing] = {}
    for value, (stack, _) in positions.items() if z_shown is not None and slope_um is None else ():
        own_um, _ = _z_slope([stack], placed[Z])
        at, z_um = next((placed[Z].place(z) or 0, seen.z_um or 0.0) for z, seen in stack) if stack else (0, 0.0)
        if own_um is not None and own_um * (slope_um or own_um) > 0:  # places along z have one direction
            slope_um = slope_um or own_um
            own_z[value] = (_rounded(math.copysign(z_um, z_um * own_um) - at * abs(own_um)), abs(own_um), UM)
    first = next((seen.capture_s for _, seen in evidence.times), None)
    interval = _interval(evidence.times, placed[TIME], first)
    times = {value: _interval(own, placed[TIME], first) for value, (_, own) in positions.items()}
    known = [one for one in (interval, *times.values()) if one is not None and not one.is_few]
    interval = known[0] if known else interval
    own_times: dict[AxisValue, OwnSpacing] = {}
    if any(one.distance for one in known) and any(_differ(one.distance, known[0].distance) for one in known):
        own_times = {
            value: (one.start or 0.0, *one.distance) for value, one in times.items() if one and one.distance is not None
        }
        interval = _FrameSpacing(None, is_own=True)
    shown = {Z: replace(z_shown, is_own=True) if z_shown and own_z else z_shown, TIME: interval}
    return _FrameSpacings(shown, {Z: own_z, TIME: own_times}, slope_um)


@dataclass(frozen=True, slots=True)
class _AxisEvidence:
    """All that is said of one axis. hint and wish are distances of neighbouring integers; values: see `frame_space`."""

    hint: Distance | None
    shown: _FrameSpacing | None
    wish: Distance | None
    values: Sequence[AxisValue | None] | None
    along: PlacedValues

    def distance(self) -> tuple[Distance, Evidence] | None:
        """The order of evidence; None if the axis has no one distance."""
        if self._is_declared:
            return None if self._asked_here is None else (self._asked_here, "declared")
        if self.shown is not None and not self.shown.is_few:
            return None if self.shown.distance is None else (self.shown.distance, "frames")
        if self._asked is not None:
            return None if self._asked_here is None else (self._asked_here, "summary")
        return None if self.hint is None else (self.hint, "declared")

    def doubt(self) -> str:
        """What the frames contradict, with both numbers; else empty."""
        if (
            self.shown is None
            or self.shown.is_few
            or self._asked is None
            or not _differ(self.shown.distance, self._asked_here)
        ):
            return ""
        who = "the axis is declared with" if self._is_declared else "the summary says"
        uneven = "lie unevenly" if not self.shown.is_own else "differ between positions"
        seen = uneven if self.shown.distance is None else f"show {_words(self.shown.distance)}"
        kept = "what was declared is kept" if self._is_declared else "the summary is not believed"
        return f"{who} {_words(self._asked_here or self._asked)}, the frames {seen}: {kept}"

    def uneven(self) -> Coordinates | None:
        """Where each item lies along an axis without one distance: as measured, or by its integer."""
        values, asked = self.values, self._asked
        if self.hint is None and self.shown is not None:
            # Of more times than are read, those in between are not known here: the frames have them.
            known = self.shown.uneven
            count = max(known, default=-1) + 1
            is_whole = values is None or len(known) == sum(value is not None for value in values)
            return (self.shown.unit, tuple(known.get(at) for at in range(count))) if count and is_whole else None
        if asked is None or values is None or len(values) > MAX_COORDINATES:
            return None
        return asked[1], tuple(value * asked[0] if isinstance(value, int) else None for value in values)

    @property
    def _is_declared(self) -> bool:
        return self.hint is not None and bool(self.hint[1])

    @property
    def _asked(self) -> Distance | None:
        return self.hint if self._is_declared else self.wish

    @property
    def _asked_here(self) -> Distance | None:
        """Of items that lie side by side."""
        gap, asked = self.along.gap, self._asked
        return None if asked is None or gap is None else (float(f"{asked[0] * gap:.12g}"), asked[1])


def _differ(shown: Distance | None, asked: Distance | None) -> bool:
    if shown is None or asked is None or shown[1] != asked[1]:
        return True
    return abs(shown[0] - asked[0]) > _SAME * max(shown[0], asked[0])


def _words(distance: Distance) -> str:
    return f"{distance[0]:.6g} {distance[1]}".rstrip()


def _pixel_size(
    first: Mapping[str, Any], summary: Mapping[str, Any], affine: StageAffine | None, warnings: list[str]
) -> float | None:
    """Of the first frame, else of the summary, else by the area of the affine."""
    of_frame, wished = _positive(first, _PIXEL_SIZE_KEYS), _positive(summary, _PIXEL_SIZE_KEYS)
    found = of_frame or wished
    if of_frame is not None and wished is not None and _differ((of_frame, UM), (wished, UM)):
        warnings.append(
            f"the summary says pixels of {wished:g} um, the frames {of_frame:g} um: the frames are believed"
        )
    if affine is None:
        return found
    if found is not None and _differ((affine.pixel_size_um, UM), (found, UM)):
        size = f"{affine.pixel_size_um:.6g}"
        warnings.append(
            f"the affine of the camera says pixels of {size} um, the pixel size {found:g} um, which is kept"
        )
    return found or affine.pixel_size_um


def _z_slope(found: Sequence[Readings], along: PlacedValues) -> tuple[float | None, _FrameSpacing | None]:
    """The signed distance of planes on the stage, and what it says of the axis; None where nothing moved."""
    stacks = [
        [(at, seen.z_um) for z, seen in stack if seen.z_um is not None and (at := along.place(z)) is not None]
        for stack in found
    ]
    if not has_moved(stacks, 2):
        return None, None
    slope = even_distance(stacks, _z_tolerance)
    if slope is None:
        uneven = dict(stacks[0]) if all(stack == stacks[0] for stack in stacks) else {}
        return None, _FrameSpacing(None, uneven, UM)
    return slope, _FrameSpacing((abs(slope), UM))


def _interval(seen_times: Readings, along: PlacedValues, first: float | None) -> _FrameSpacing | None:
    """Two clocks are never mixed: capture times if all frames have one, else those of the acquisition program.

    first: capture time of the first frame.
    """
    captures = [(z, seen.capture_s) for z, seen in seen_times if seen.capture_s is not None]
    has_captures = bool(captures) and len(captures) == len(seen_times)
    read = captures if has_captures else [(at, seen.time_s) for at, seen in seen_times if seen.time_s is not None]
    times = [(at, time) for value, time in read if (at := along.place(value)) is not None]
    if not has_moved([times], 2):
        return None
    is_few = not has_moved([times], MIN_TIMES)
    interval = None if is_few else even_times(times)
    begin = (read[0][1] if first is None else first) if has_captures else 0.0  # since 1970
    if interval is None:
        return _FrameSpacing(None, {at: round(time - begin, 9) for at, time in times}, is_few=is_few)
    first, start = min(times)
    return _FrameSpacing((interval, SECOND), start=round(start - begin - first * interval, 9))


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


def _wishes(summary: Mapping[str, Any]) -> dict[str, Distance]:
    """What the summary asks for."""
    found: dict[str, Distance] = {}
    step_um = finite_number(summary.get("z-step_um"))
    if step_um:
        found[Z] = (abs(step_um), UM)
    interval_ms = _positive(summary, ("Interval_ms",))
    if interval_ms is not None:
        found[TIME] = (interval_ms / 1000, SECOND)
    return found


def _hints(declared: Sequence[Mapping[str, Any]]) -> dict[str, Distance]:
    """What was declared for the axes."""
    found: dict[str, Distance] = {}
    for axis in declared:
        unit, scale = axis.get("unit"), finite_number(axis.get("scale"))
        if not scale:
            continue
        text = unit if isinstance(unit, str) else ""
        for factors, ours in ((UM_BY_UNIT, UM), (S_BY_UNIT, SECOND)):
            if text in factors:
                scale, text = float(f"{scale * factors[text]:.12g}"), ours
        found[str(axis.get("name"))] = (abs(scale), text)
    return found


@dataclass(frozen=True, slots=True)
class _ImageFrame:
    """How places on the stage become places of images. step_um is negative where planes run against the stage's z."""

    step_um: float | None
    z_start_um: float
    pixel_um: float | None
    affine: StageAffine | None

    def place(self, z_at: int | None, seen: StageReading) -> Place | None:
        """The place of the first item; None if unknown.

        The stage's place is that of the middle of the image: every producer means that.
        """
        z = y = x = None
        if self.step_um is not None and seen.z_um is not None:
            z = (-seen.z_um if self.step_um < 0 else seen.z_um) - (z_at or 0) * abs(self.step_um)
        pixel_um, affine = self.pixel_um, self.affine
        if pixel_um is not None and seen.x_um is not None and seen.y_um is not None:
            x, y = seen.x_um, seen.y_um
            if affine is not None:
                x, y = (affine.pixel_size_um * pixels for pixels in affine.to_pixels(x, y))
            firsts = (shift + (count - 1) / 2 for shift, count in zip(seen.shift, seen.pixels, strict=True))
            y, x = (middle - pixels * pixel_um for middle, pixels in zip((y, x), firsts, strict=True))
        if z is None and x is None:
            return None
        return _rounded(self.z_start_um if z is None else z), _rounded(y), _rounded(x)


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
