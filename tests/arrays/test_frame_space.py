"""Which source of a distance or place counts, and what is not known."""

from __future__ import annotations

from typing import Any

import pytest

from acqstream.arrays.frame_space import ImageKey, SpaceEvidence, StageReading, frame_space, stage_reading


def stack(step_um: float = 0.3, start_um: float = 5.0, count: int = 6) -> list[tuple[int, StageReading]]:
    return [(index, StageReading(z_um=start_um + step_um * index)) for index in range(count)]


STACK = SpaceEvidence(stacks=[stack()])


def test_hints_then_the_summary_then_the_frames() -> None:
    summary = {"z-step_um": 0.5, "Interval_ms": 1500, "PixelSizeUm": 0.1}
    hint = {"name": "z", "scale": 250, "unit": "nm"}
    assert frame_space([hint], summary, STACK).distances == {"z": (0.25, "um"), "time": (1.5, "s")}
    assert frame_space([], summary, STACK).distance("z") == (0.5, "um")
    assert frame_space([], {}, STACK).distance("z") == (0.3, "um")
    assert frame_space([], {}).distance("z") == (1.0, "")
    assert frame_space([], {"PixelSizeUm": 0.0}, SpaceEvidence({"PixelSizeUm": 0.2})).pixel_um == 0.2
    assert frame_space([], {"PixelSizeUm": 0.1}, SpaceEvidence({"PixelSizeUm": 0.2})).pixel_um == 0.1
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


def test_a_hint_without_a_unit_is_weaker_than_a_summary_with_one() -> None:
    assert frame_space([{"name": "z", "scale": 7}], {"z-step_um": 0.5}).distance("z") == (0.5, "um")


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


def test_times_of_capture() -> None:
    even = [(index, StageReading(time_s=0.5 * index + shift)) for index, shift in enumerate((0, 0.02, -0.01, 0.03))]
    distance, unit = frame_space([], {}, SpaceEvidence(times=even)).distance("time")
    assert unit == "s"
    assert distance == pytest.approx(0.5, rel=0.05)
    assert frame_space([], {}, SpaceEvidence(times=even[:2])).distance("time") == (1.0, "")


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
        ("0.5;0;0;0;0.5;0", "affine", [(20, 100), (20, 130), (60, 130)]),
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
