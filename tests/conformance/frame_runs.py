"""Kinds of runs, and the array that each makes up: stated by hand, after docs/arrays.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from acqstream.model.acquisition_spec import AxisSpec, TileSpec
from acqstream.model.axes import AxisValue
from tests.log.make_frames import Axes, Frame, frame_of

SHAPE = (20, 30)
BIG = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class FrameRun:
    """A run. keys are those of its frames in order of arrival, None for a frame number that is skipped.

    values are the expected values by axis, slowest axis first. homes are values that frames without an axis count as.
    units are the expected ones of axes with a distance, centres those of the places on an axis, or of the first pixels.
    refused_live: what the error says of each mirror that is made while the run goes on.
    """

    name: str
    keys: Sequence[Axes | None]
    values: Mapping[str, Sequence[AxisValue]]
    homes: Mapping[str, AxisValue] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    centres: Mapping[str, Sequence[float]] = field(default_factory=dict)
    missing: int = 0
    shape: tuple[int, ...] = SHAPE
    dtype: str = "<u2"
    spec: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    refused_live: str = ""

    @property
    def frames(self) -> list[Frame]:
        return [
            frame_of(number, self.shape, self.dtype, axes=key, metadata=self.metadata.get(number))
            for number, key in enumerate(self.keys)
            if key is not None
        ]


def grid(**values: Sequence[AxisValue]) -> list[Axes]:
    """All combinations, the last axis fastest."""
    found: list[Axes] = [{}]
    for name, some in values.items():
        found = [{**key, name: value} for key in found for value in some]
    return found


def without(keys: Sequence[Axes], *absent: Axes) -> list[Axes]:
    return [key for key in keys if key not in absent]


STAGE = [(1000.0, -300.0), (1010.0, -300.0)]
RUNS = (
    FrameRun(
        name="dense",
        keys=grid(time=[0, 1, 2], channel=[0, 1], z=[0, 1, 2, 3]),
        values={"time": [0, 1, 2], "channel": [0, 1], "z": [0, 1, 2, 3]},
        spec={"summary": {"PixelSizeUm": 0.5, "z-step_um": 2.0, "Interval_ms": 500}},
        units={"time": "s", "z": "um", "y": "um", "x": "um"},
        centres={"time": [0, 0.5, 1], "z": [0, 2, 4, 6], "x": [0, 0.5]},
    ),
    FrameRun(
        name="sparse z",
        keys=without(grid(channel=[0, 1], z=[0, 2, 4], time=[0, 6]), {"channel": 1, "z": 4, "time": 6}),
        values={"time": [0, 6], "channel": [0, 1], "z": [0, 2, 4]},
        missing=1,
        spec={"summary": {"z-step_um": 0.5}},
        units={"z": "um"},
        centres={"z": [0, 1, 2]},
    ),
    FrameRun(
        name="negative times",
        keys=grid(time=[0, -2, -1, 1], channel=[0]),
        values={"time": [-2, -1, 0, 1], "channel": [0]},
        spec={"summary": {"Interval_ms": 1000}},
        units={"time": "s"},
        centres={"time": [-2, -1, 0, 1]},
    ),
    FrameRun(
        name="late values",
        keys=[*grid(time=[0], z=[1, 2]), *grid(time=[1], z=[0, 1, 2, 3])],
        values={"time": [0, 1], "z": [0, 1, 2, 3]},
        missing=2,
    ),
    FrameRun(
        name="late axis",
        keys=[{"time": 0}, {"time": 1}, *grid(time=[2], channel=["b", "a"])],
        values={"time": [0, 1, 2], "channel": ["b", "a"]},
        homes={"channel": "b"},
        missing=2,
        refused_live="has the axis 'channel', others have time",
    ),
    FrameRun(
        name="axis of some",
        keys=[*grid(channel=["DAPI"], z=[-1, 0, 1]), {"channel": "BF"}],
        values={"channel": ["DAPI", "BF"], "z": [-1, 0, 1]},
        homes={"z": 0},
        missing=2,
    ),
    FrameRun(
        name="strings",
        keys=grid(time=[0, 1], channel=["GFP", "DAPI"], region=["r2", "r1"]),
        values={"region": ["r2", "r1"], "time": [0, 1], "channel": ["GFP", "DAPI"]},
    ),
    FrameRun(
        name="labels declared",
        keys=grid(time=[0, 1], channel=["c", "a"]),
        values={"time": [0, 1], "channel": ["a", "c"]},
        missing=2,
        spec={"axes": (AxisSpec("time"), AxisSpec("channel", labels=("a", "b", "c")))},
    ),
    FrameRun(
        name="RGB channels",
        keys=grid(channel=["BF", "Pol"], time=[0, 1]),
        values={"time": [0, 1], "channel": ["BF", "Pol"]},
        shape=(*SHAPE, 3),
        dtype="|u1",
    ),
    FrameRun(
        name="positions",
        keys=grid(time=[0, 1], position=["P1", "P0", "P2"], z=[0, 1]),
        values={"position": ["P1", "P0", "P2"], "time": [0, 1], "z": [0, 1]},
    ),
    FrameRun(
        name="tiles",
        keys=grid(row=[0, 1], column=[0, 1], channel=["a"]),
        values={"channel": ["a"]},
        spec={"tiles": TileSpec((0, 0), levels=0), "axes": (AxisSpec("row", 2), AxisSpec("column", 2))},
    ),
    FrameRun(
        name="stage places",
        keys=grid(position=[0, 1], z=[0, 1, 2]),
        values={"position": [0, 1], "z": [0, 1, 2]},
        units={"z": "um", "y": "um", "x": "um"},
        centres={"z": [0, 1.5, 3]},
        metadata={
            number: {
                "PixelSizeUm": 0.25,
                "XPositionUm": STAGE[number // 3][0],
                "YPositionUm": STAGE[number // 3][1],
                "ZPositionUm": 40 + 1.5 * (number % 3),
            }
            for number in range(6)
        },
    ),
    FrameRun(
        name="capture times",
        keys=grid(time=[0, 1, 2, 3]),
        values={"time": [0, 1, 2, 3]},
        units={"time": "s"},
        centres={"time": [0.007, 0.257, 0.507, 0.757]},
        metadata={number: {"ElapsedTime-ms": 250.0 * number + 7} for number in range(4)},
    ),
    FrameRun(
        name="declared order",
        keys=grid(time=[0, 1], channel=[0, 1], z=[0, 1, 2]),
        values={"z": [0, 1, 2], "channel": [0, 1], "time": [0, 1]},
        spec={"axes": (AxisSpec("z", 3), AxisSpec("channel", 2), AxisSpec("time"))},
    ),
    FrameRun(
        name="planned frames",
        keys=grid(time=[0, 1], z=[0, 1]),
        values={"time": [0, 1], "z": [0, 1]},
        missing=5 * 3 - 4,
        spec={"axes": (AxisSpec("time", 5), AxisSpec("z", 3), AxisSpec("channel", 2))},
    ),
    FrameRun(
        name="skipped frames",
        keys=[{"time": 0}, {"time": 1}, None, None, {"time": 4}],
        values={"time": [0, 1, 4]},
    ),
    FrameRun(
        name="duplicates",
        keys=[*grid(time=[0, 1], z=[0, 1]), {"time": 0, "z": 1}, {"time": 0, "z": 1}],
        values={"time": [0, 1], "z": [0, 1]},
        spec={"replace_duplicates": True},
    ),
    FrameRun(name="no axes", keys=[{}], values={}),
    FrameRun(name="uint8", keys=grid(time=[0, 1], z=[0, 1, 2]), values={"time": [0, 1], "z": [0, 1, 2]}, dtype="|u1"),
    FrameRun(
        name="big integers",
        keys=grid(time=[0, 1_000_000, BIG, 5], z=[-(2**31), 7]),
        values={"time": [0, 5, 1_000_000, BIG], "z": [-(2**31), 7]},
    ),
    FrameRun(
        name="mixed",
        keys=without(
            grid(z=[3, -1], round=["second", "first"], position=["P1", "P0"], channel=[1], time=[40_000, 0, 2]),
            {"z": -1, "round": "first", "position": "P0", "channel": 1, "time": 0},
            {"z": 3, "round": "second", "position": "P1", "channel": 1, "time": 2},
        ),
        values={
            "round": ["second", "first"],
            "position": ["P1", "P0"],
            "time": [0, 2, 40_000],
            "channel": [1],
            "z": [-1, 3],
        },
        missing=2,
        spec={"summary": {"PixelSizeUm": 0.25, "z-step_um": -0.5}},
        units={"z": "um", "y": "um", "x": "um"},
        centres={"z": [-0.5, 1.5], "y": [0, 0.25]},
    ),
)
