"""Which source of a distance or place counts, and what is not known."""

from __future__ import annotations

from typing import Any

import pytest

from acqstream.description.space import ImageKey, SpaceEvidence, frame_space
from acqstream.description.stage import StageReading, stage_reading


def stack(step_um: float = 0.3, start_um: float = 5.0, count: int = 6) -> list[tuple[int, StageReading]]:
    return [(index, StageReading(z_um=start_um + step_um * index)) for index in range(count)]


def assert_is(found: tuple[float, str], expected: tuple[float, str]) -> None:
    assert found[1] == expected[1]
    assert found[0] == pytest.approx(expected[0])


STACK = SpaceEvidence(stacks=[stack()])


SUMMARY = {"z-step_um": 0.5, "Interval_ms": 1500, "PixelSizeUm": 0.1}
HINT = {"name": "z", "scale": 250, "unit": "nm"}


@pytest.mark.parametrize(
    ("hints", "summary", "evidence", "distance", "warnings"),
    [
        ([HINT], SUMMARY, SpaceEvidence(), (0.25, "um"), []),
        ([HINT], SUMMARY, STACK, (0.25, "um"), ["the axis is declared with 0.25 um, the frames show 0.3 um"]),
        ([{"name": "z", "scale": 0.31, "unit": "um"}], {}, STACK, (0.31, "um"), []),
        ([], SUMMARY, STACK, (0.3, "um"), ["the summary says 0.5 um, the frames show 0.3 um"]),
        ([], {"z-step_um": 0.31}, STACK, (0.3, "um"), []),
        ([{"name": "z", "scale": 7}], SUMMARY, STACK, (0.3, "um"), ["the summary says 0.5 um"]),
        ([], SUMMARY, SpaceEvidence(stacks=[stack(0.0)]), (0.5, "um"), []),  # a drive that does not report
        ([], SUMMARY, SpaceEvidence(stacks=[stack(), stack(1.0)]), (1.0, ""), ["the frames lie unevenly"]),
        ([], SUMMARY, SpaceEvidence(), (0.5, "um"), []),
        ([], {}, STACK, (0.3, "um"), []),
        ([], {}, SpaceEvidence(), (1.0, ""), []),
    ],
)
def test_what_was_declared_then_the_frames_then_the_summary(
    hints: list[Any], summary: dict[str, Any], evidence: SpaceEvidence, distance: tuple[float, str], warnings: list[str]
) -> None:
    space = frame_space(hints, summary, evidence)
    assert space.distance("z") == distance
    assert len(space.warnings) == len(warnings)
    assert all(words in text for text, words in zip(space.warnings, warnings, strict=True))


@pytest.mark.parametrize(
    ("times", "interval_ms", "expected", "words"),
    [
        ((0, 5, 10, 15), 1000, (5.0, "s"), "the summary says 1 s, the frames show 5 s"),
        ((0, 5, 10, 15.4), None, (5.12, "s"), ""),
        ((0, 61.5, 127, 202), 60_000, (1.0, ""), "the summary says 60 s, the frames lie unevenly"),
        ((0, 0.2, 0.4, 0.9), None, (1.0, ""), ""),
        ((0, 5), 1000, (1.0, "s"), ""),  # two times are always even
        ((3, 3, 3), 1000, (1.0, "s"), ""),  # a clock that stands still
        ((5, 4, 3), None, (1.0, ""), ""),
        (tuple(5 * at + 0.06 * at * at for at in range(8)), None, (5.42, "s"), ""),
        (tuple(5 * at + 0.0004 * at * at for at in range(250)), None, (1.0, ""), ""),  # drifts by more than half a step
    ],
)
def test_times(times: tuple[float, ...], interval_ms: float | None, expected: tuple[float, str], words: str) -> None:
    seen = SpaceEvidence(times=[(at, StageReading(time_s=float(time))) for at, time in enumerate(times)])
    space = frame_space([], {} if interval_ms is None else {"Interval_ms": interval_ms}, seen)
    assert_is(space.distance("time"), expected)
    assert len(space.warnings) == bool(words)
    assert words in "".join(space.warnings)


@pytest.mark.parametrize(
    ("values", "distance", "start"),
    [
        ([0, 100, 200, 300], (30.0, "um"), 0.0),
        ([100, 200], (30.0, "um"), 30.0),
        ([-3, -2, -1, 0], (0.3, "um"), -0.9),
        ([0, None, 2], (0.3, "um"), 0.0),  # a place without frames
        ([5], (0.3, "um"), 1.5),
        ([0, 1, 5], (1.0, ""), 0.0),
        ([0, 1, -1], (1.0, ""), 0.0),  # in order of arrival
    ],
)
def test_the_distance_is_that_of_items_that_lie_side_by_side(
    values: list[int | None], distance: tuple[float, str], start: float
) -> None:
    space = frame_space([], {"z-step_um": 0.3}, values={"z": values})
    assert_is(space.distance("z"), distance)
    assert space.starts.get("z", 0.0) == pytest.approx(start)
    measured = [(value, StageReading(z_um=0.3 * value)) for value in values if value is not None]
    shown = frame_space([], {}, SpaceEvidence(stacks=[measured], images={(): measured[0]}), values={"z": values})
    if len(measured) > 1:
        assert_is(shown.distance("z"), distance)
    if distance[1] and len(measured) > 1:
        assert shown.places[()][0] == pytest.approx(measured[0][0] * 0.3)


def test_pixel_sizes_of_frames_summary_and_affine() -> None:
    assert frame_space([], {"PixelSizeUm": 0.0}, SpaceEvidence({"PixelSizeUm": 0.2})).pixel_um == 0.2
    space = frame_space([], {"PixelSizeUm": 0.1}, SpaceEvidence({"PixelSizeUm": 0.2}))
    assert space.pixel_um == 0.2
    assert "the summary says pixels of 0.1 um, the frames 0.2 um" in space.warnings[0]
    space = frame_space([], {"PixelSizeUm": 0.1, "PixelSizeAffine": "0;0.5;0;0.5;0;0"}, SpaceEvidence(images=SEEN))
    assert (space.pixel_um, space.places[(0,)]) == (0.1, (0.0, 100.0, 20.0))  # um of the stage are um
    assert "pixels of 0.5 um, the pixel size 0.1 um, which is kept" in space.warnings[0]
    assert frame_space([], {"PixelSizeAffine": "2;0;0;0;2;0"}).pixel_um is None
    assert frame_space([], {"PixelSizeAffine": "0;0.5;0;0.5;0;0"}).pixel_um == 0.5
    assert frame_space([], {}).pixel_um is None


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        ({"name": "z", "scale": 2, "unit": "µm"}, (2.0, "um")),
        ({"name": "z", "scale": -2, "unit": "micron"}, (2.0, "um")),
        ({"name": "time", "scale": 40, "unit": "ms"}, (0.04, "s")),
        ({"name": "angle", "scale": 5.0, "unit": "deg"}, (5.0, "deg")),
        ({"name": "z", "scale": 0.4}, (0.4, "")),
        ({"name": "z", "scale": 0, "unit": "um"}, (1.0, "")),
        ({"name": "z", "scale": None, "unit": "um"}, (1.0, "")),
        ({"name": "z", "scale": "1", "unit": "um"}, (1.0, "")),
    ],
)
def test_hints(hint: dict[str, Any], expected: tuple[float, str]) -> None:
    assert frame_space([hint], {}).distance(hint["name"]) == expected


def test_a_stack_that_goes_down_has_coordinates_along_its_planes() -> None:
    there: dict[ImageKey, tuple[int, StageReading]] = {
        ("a",): (0, StageReading(z_um=10.0)),
        ("b",): (2, StageReading(z_um=11.4)),
    }
    space = frame_space([], {}, SpaceEvidence(stacks=[stack(-0.3, 10.0)], images=there))
    assert (space.distance("z"), space.z_direction) == ((0.3, "um"), -1)
    assert space.places == {("a",): (-10.0, 0.0, 0.0), ("b",): (-12.0, 0.0, 0.0)}
    assert frame_space([], {"z-step_um": -2}).z_direction == -1


def test_uneven_stacks_have_no_distance_and_no_place() -> None:
    uneven = [(index, StageReading(z_um=float(place))) for index, place in enumerate((0, 1, 3, 7))]
    space = frame_space([], {}, SpaceEvidence(stacks=[uneven], images={(None,): uneven[1]}))
    assert (space.distances, space.places) == ({}, {})


def test_noise_of_a_focus_drive_is_no_unevenness() -> None:
    noise = (0.0, 0.03, -0.02, 0.04, 0.0, -0.03, 0.02, 0.01)
    noisy = [(index, StageReading(z_um=0.3 * index + shift)) for index, shift in enumerate(noise)]
    distance, unit = frame_space([], {}, SpaceEvidence(stacks=[noisy])).distance("z")
    assert unit == "um"
    assert distance == pytest.approx(0.3, rel=0.05)


SEEN: dict[ImageKey, tuple[int, StageReading]] = {
    (0,): (0, StageReading(100.0, 20.0)),
    (1,): (0, StageReading(130.0, 20.0)),
    (2,): (0, StageReading(130.0, 60.0)),
    (3,): (0, StageReading(None, 60.0)),
}


@pytest.mark.parametrize(
    ("affine", "axes", "expected"),
    [
        (None, "parallel", [(20, 100), (20, 130), (60, 130)]),
        ("1;0;0;0;1;0", "parallel", [(20, 100), (20, 130), (60, 130)]),
        ("0;0;0;0;0;0", "parallel", [(20, 100), (20, 130), (60, 130)]),
        ("0.5;0;0;0;0.5;0", "parallel", [(20, 100), (20, 130), (60, 130)]),  # a default, times the binning
        ("0;-0.5;0;0.5;0;0", "affine", [(-100, 20), (-130, 20), (-130, 60)]),  # x of the image is y of the stage
        ("-0.5;0;7;0;0.5;9", "affine", [(20, -100), (20, -130), (60, -130)]),
    ],
)
def test_from_the_stage_to_the_image(affine: str | None, axes: str, expected: list[tuple[float, float]]) -> None:
    summary = {"PixelSizeUm": 0.5, **({"PixelSizeAffine": affine} if affine else {})}
    space = frame_space([], summary, SpaceEvidence(images=SEEN))
    assert space.stage_axes == axes
    assert space.places == {(number,): (0.0, *map(float, place)) for number, place in enumerate(expected)}
    of_frames = SpaceEvidence({"PixelSizeAffine": affine}, images=SEEN)
    assert frame_space([], {"PixelSizeUm": 0.5}, of_frames).places == space.places


def test_without_a_pixel_size_no_image_has_a_place() -> None:
    space = frame_space([], {}, SpaceEvidence(images=SEEN))
    assert (space.places, space.stage_axes) == ({}, "")


@pytest.mark.parametrize(
    "metadata",
    [
        {"XPositionUm": 1.0, "YPositionUm": 2.0, "ZPositionUm": 3.0, "ElapsedTime-ms": 4.0},
        {"XPosition_um": 1, "YPosition_um": 2, "ZPosition_um": 3, "ElapsedTime-ms": 4, "XPosition_um_Intended": 9},
        {f"{axis}Position_um_Intended": str(number) for axis, number in zip("XYZ", (1, 2, 3), strict=True)}
        | {"ElapsedTime-ms": "4.0"},
        {"position": {"x": 1.0, "y": 2.0, "z": 3.0}, "ElapsedTime-ms": 4.0},
    ],
)
def test_what_frames_of_each_program_say(metadata: dict[str, Any]) -> None:
    assert stage_reading(metadata) == StageReading(1.0, 2.0, 3.0, 0.004)


@pytest.mark.parametrize("value", [None, "x", True, float("nan"), float("inf"), 10**400, [], {}])
def test_what_is_no_place(value: object) -> None:
    names = ("XPositionUm", "YPositionUm", "ZPositionUm", "ElapsedTime-ms", "position")
    assert stage_reading(dict.fromkeys(names, value)) == StageReading()
