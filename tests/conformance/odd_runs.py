"""Odd runs, and what each of them means: written down by hand, in um and s, from the frames that are sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acqstream.log.log import Log
from acqstream.log.state_file import read_state
from acqstream.model.acquisition_spec import AxisSpec
from tests.log.make_frames import Axes, Frame, frame_of, memory_of, spec_of
from tests.mirrors.mirror_cases import places_of

SHAPE = (20, 30)
MIDDLE = (9.5, 14.5)  # of an image, in pixels from its first one
Where = tuple[float, float, float]


@dataclass(frozen=True, kw_only=True)
class Image:
    """distances: those that every face must say, by axis; others are unknown.

    held: those that faces say which hold empty places, where frames did not come; arrived: that faces say which keep
    the order of arrival.
    first: (z, y, x) of the first pixel; stage: of the first plane; times: of the first frame of each time, as measured.
    None: not asked.
    """

    distances: Mapping[str, float] = field(default_factory=dict)
    held: Mapping[str, float] = field(default_factory=dict)
    arrived: Mapping[str, float] = field(default_factory=dict)
    first: Where | None = None
    stage: tuple[float, float] | None = None
    times: tuple[float, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class OddRun:
    """A run of a few frames. metadata: of each frame, by its axes; images: one for each place, what is said of it.

    without: places that get no frame. colors, windows: of each channel. ends: how the run ends.
    """

    order: tuple[str, ...] = ("time", "z")
    sizes: Mapping[str, int] = field(default_factory=lambda: {"time": 4, "z": 3})
    values: Mapping[str, Any] = field(default_factory=dict)
    without: Callable[[Axes], bool] = lambda place: False
    metadata: Callable[[Any], Mapping[str, Any]] | None = None
    summary: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    axes: tuple[AxisSpec, ...] = ()
    images: tuple[Image, ...] = (Image(),)
    channels: tuple[str, ...] = ()
    colors: tuple[str, ...] = ()
    windows: tuple[tuple[float, float], ...] = ()
    bits: int = 16
    dtype: str = "<u2"
    shape: tuple[int, ...] = SHAPE
    ends: str = "finished"

    def frames(self) -> list[Frame]:
        places = [place for place in places_of(self.order, self.sizes, self.values) if not self.without(place)]
        return [
            frame_of(
                number,
                self.shape,
                self.dtype,
                axes=place,
                bits=self.bits if self.bits not in (8, 16) else None,
                metadata=None if self.metadata is None else self.metadata(place),
            )
            for number, place in enumerate(places)
        ]

    def write(self, folder: Path) -> None:
        """Write the run into a dataset."""
        frames = self.frames()
        halves = [frames[: len(frames) // 2], frames[len(frames) // 2 :]] if self.ends == "resumed" else [frames]
        for number, part in enumerate(halves):
            spec = spec_of(axes=self.axes, summary=self.summary)
            resumed = read_state(str(folder)) if number else None
            with Log(folder, spec, memory=memory_of(), resume=resumed) as log:
                for frame in part:
                    log.append(frame.header, frame.image)
                if self.ends == "canceled":
                    log.begin_close("canceled", "canceled by Ctrl-C")
                elif number < len(halves) - 1:
                    log.begin_close("interrupted")
        if self.settings:
            (folder / "display_settings.txt").write_text(json.dumps(self.settings), encoding="utf-8")


def stage(place: Mapping[str, Any], *, pixel: float = 0.5, x: float = 100.0, y: float = 50.0, **more: Any) -> Any:
    """The usual metadata: pixels of 0.5 um, planes 2 um apart."""
    found = {"XPositionUm": x, "YPositionUm": y, "ZPositionUm": 7.0 + 2.0 * place.get("z", 0), **more}
    return found | ({"PixelSizeUm": pixel} if pixel else {})


def timed(*seconds: float) -> Any:
    return lambda place: {"ElapsedTime-ms": 1000.0 * seconds[place["time"]], "PixelSizeUm": 0.5}


def affine(text: str, x: float, y: float, stage_at: tuple[float, float] = (100.0, 50.0)) -> OddRun:
    """A camera of pixels of 0.5 um; x and y: where (100, 50) of the stage lies along the axes of the image."""
    first = (7.0, y - MIDDLE[0] * 0.5, x - MIDDLE[1] * 0.5)
    return OddRun(
        metadata=lambda place: stage(place, PixelSizeAffine=text),
        images=(Image(distances={"z": 2.0, **PIXELS}, first=first, stage=stage_at),),
    )


def at(x: float, y: float, *, z: float = 7, every: float | None = None, planes: bool = True, **more: Any) -> Image:
    """An image whose middle lies there, with planes 2 um apart, and times `every` s."""
    first = (z, y - MIDDLE[0] * 0.5, x - MIDDLE[1] * 0.5)
    outer = ({} if every is None else {"time": every}) | ({"z": 2.0} if planes else {})
    return Image(distances={**outer, **PIXELS}, first=first, stage=(x, y), **more)


PIXELS = {"y": 0.5, "x": 0.5}
ALL = {"z": 2.0, **PIXELS}
FIVE: Any = {"metadata": lambda place: stage(place, **{"ElapsedTime-ms": 5000.0 * place["time"]})}
WRONG = {"z-step_um": 0.3, "Interval_ms": 1000, "PixelSizeUm": 0.1}
TWO_SITES: Any = {"order": ("position", "z"), "sizes": {"z": 3}}
SITES = {"site-a": (100.0, 50.0), "site-b": (600.0, -50.0)}
WELLS = ["A2", "C5", "B1", "D6"]


def _pixels(*sizes: float) -> Image:
    return Image(distances=dict(zip(("y", "x"), sizes, strict=True)) if sizes else {})


def _wells(place: Mapping[str, Any]) -> Any:
    number = WELLS.index(place["position"])
    return stage(place, x=100.0 + 9000 * number, y=50.0)


def _own_plans(place: Mapping[str, Any]) -> Any:
    step, every = (2.0, 5.0) if place["position"] == "site-a" else (0.5, 20.0)
    return {
        "PixelSizeUm": 0.5,
        "XPositionUm": SITES[place["position"]][0],
        "YPositionUm": SITES[place["position"]][1],
        "ZPositionUm": 7.0 + step * place["z"],
        "ElapsedTime-ms": 1000.0 * every * place["time"],
    }


RUNS: dict[str, OddRun] = {
    # Evidence: none, one of each kind, and kinds that contradict each other.
    "nothing known": OddRun(),
    "frames say all": OddRun(
        **FIVE,
        images=(at(100, 50, every=5.0, times=(0.0, 5.0, 10.0, 15.0)),),
    ),
    "the frames contradict the summary": OddRun(**FIVE, summary=WRONG, images=(at(100, 50, every=5.0),)),
    "the summary alone": OddRun(summary=WRONG, images=(Image(distances={"z": 0.3, "time": 1.0, "y": 0.1, "x": 0.1}),)),
    "only the pixels of the summary": OddRun(summary={"PixelSizeUm": 0.1}, images=(_pixels(0.1, 0.1),)),
    "only the step of the summary": OddRun(summary={"z-step_um": 0.3}, images=(Image(distances={"z": 0.3}),)),
    "only the interval of the summary": OddRun(summary={"Interval_ms": 250}, images=(Image(distances={"time": 0.25}),)),
    "only places": OddRun(
        metadata=lambda place: stage(place, pixel=0), images=(Image(distances={"z": 2.0}, stage=(100.0, 50.0)),)
    ),
    "only times": OddRun(
        metadata=lambda place: {"ElapsedTime-ms": 700.0 * place["time"]},
        images=(Image(distances={"time": 0.7}, times=(0.0, 0.7, 1.4, 2.1)),),
    ),
    "an interval of nothing": OddRun(summary={"Interval_ms": 0, "PixelSizeUm": 0, "z-step_um": 0}),
    "sizes that are no numbers": OddRun(summary={"PixelSizeUm": "NaN", "z-step_um": None, "Interval_ms": "1 s"}),
    "declared": OddRun(
        metadata=stage,
        axes=(AxisSpec("time", 4, "ms", 250), AxisSpec("z", 3, "nm", 2500)),
        summary={"z-step_um": 9},
        images=(Image(distances={"z": 2.5, "time": 0.25, **PIXELS}),),
    ),
    "declared without a unit": OddRun(
        metadata=stage, axes=(AxisSpec("time", 4), AxisSpec("z", 3, None, 2500)), images=(Image(distances=ALL),)
    ),
    "declared in metres": OddRun(
        axes=(AxisSpec("time", 4, "min", 2), AxisSpec("z", 3, "mm", 0.003)),
        images=(Image(distances={"z": 3.0, "time": 120.0}),),
    ),
    "pixels change with the frames": OddRun(
        metadata=lambda place: stage(place, pixel=0.5), summary={"PixelSizeUm": 0.25}, images=(Image(distances=ALL),)
    ),
    # Times and planes that are even, and that are not.
    "uneven times": OddRun(
        metadata=timed(0, 61.5, 127, 202),
        images=(Image(distances=PIXELS, times=(0.0, 61.5, 127.0, 202.0)),),
        summary={"Interval_ms": 60000},
    ),
    "two phases": OddRun(
        metadata=timed(0, 0.2, 0.4, 1.4), images=(Image(distances=PIXELS, times=(0.0, 0.2, 0.4, 1.4)),)
    ),
    "late but even": OddRun(
        metadata=timed(0, 5, 10, 15.4),
        images=(Image(distances={"time": 5.12, **PIXELS}, times=(0.0, 5.0, 10.0, 15.4)),),
    ),
    "two times": OddRun(
        sizes={"time": 2, "z": 3},
        metadata=timed(0, 5),
        images=(Image(distances=PIXELS, times=(0.0, 5.0)),),
    ),
    "z uneven": OddRun(
        metadata=lambda place: {"ZPositionUm": float(place["z"] ** 2), "PixelSizeUm": 0.5},
        images=(Image(distances=PIXELS),),
    ),
    "z goes down": OddRun(
        metadata=lambda place: stage(place) | {"ZPositionUm": 7.0 - 2.0 * place["z"]},
        images=(Image(distances=ALL, first=(-7.0, 50 - MIDDLE[0] * 0.5, 100 - MIDDLE[1] * 0.5)),),
    ),
    # Indices: far apart, negative, late, and with holes.
    "far indices": OddRun(
        values={"z": [0, 100, 200]},
        metadata=lambda place: {"ZPositionUm": place["z"] * 0.01, "PixelSizeUm": 0.5},
        images=(Image(distances={"z": 1.0, **PIXELS}),),
    ),
    "far indices of the summary": OddRun(
        values={"z": [0, 100, 200]},
        summary={"z-step_um": 0.01, "PixelSizeUm": 0.5},
        images=(Image(distances={"z": 1.0, **PIXELS}),),
    ),
    "uneven indices": OddRun(
        values={"z": [0, 1, 5]},
        metadata=lambda place: {"ZPositionUm": place["z"] * 2.0, "PixelSizeUm": 0.5},
        images=(Image(distances=PIXELS, held=ALL),),
    ),
    "negative z": OddRun(
        values={"z": [-2, -1, 0]},
        metadata=lambda place: {"ZPositionUm": place["z"] * 0.5, "PixelSizeUm": 0.5},
        images=(Image(distances={"z": 0.5, **PIXELS}),),
    ),
    "late values": OddRun(
        values={"z": [1, 0, -1]},
        summary={"z-step_um": 0.5, "PixelSizeUm": 0.5},
        images=(Image(distances={"z": 0.5, **PIXELS}, arrived=PIXELS),),
    ),
    "a declared range": OddRun(
        values={"z": [0, 1, -1]},
        axes=(AxisSpec("z", 3, "um", 0.5, start=-1),),
        images=(Image(distances={"z": 0.5}),),
    ),
    "planes that never came": OddRun(
        **FIVE, without=lambda place: place["time"] == 1 and place["z"] != 0, images=(at(100, 50, every=5.0),)
    ),
    "a time that never came": OddRun(
        **FIVE,
        without=lambda place: place["time"] == 2,
        images=(Image(distances=ALL, held={**ALL, "time": 5.0}, times=(0.0, 5.0, 15.0)),),
    ),
    # Axes that are missing, and runs that end otherwise.
    "planes alone": OddRun(order=("z",), sizes={"z": 3}, metadata=stage, images=(at(100, 50),)),
    "times alone": OddRun(
        order=("time",),
        sizes={"time": 4},
        metadata=timed(0, 5, 10, 15),
        images=(Image(distances={"time": 5.0, **PIXELS}, times=(0.0, 5.0, 10.0, 15.0)),),
    ),
    "one frame": OddRun(
        order=("time",),
        sizes={"time": 1},
        metadata=stage,
        images=(at(100, 50, z=0, planes=False),),  # a plane lies at its own z in no stack
    ),
    "an axis of its own": OddRun(order=("dose", "z"), sizes={"dose": 3, "z": 2}, metadata=stage, images=(at(100, 50),)),
    "resumed": OddRun(**FIVE, ends="resumed", images=(at(100, 50, every=5.0, times=(0.0, 5.0, 10.0, 15.0)),)),
    "canceled": OddRun(**FIVE, ends="canceled", images=(at(100, 50, every=5.0, times=(0.0, 5.0, 10.0, 15.0)),)),
    # Orientations of the camera, with pixels of 0.5 um.
    "a camera turned left": affine("0;-0.5;0;0.5;0;0", 50.0, -100.0),
    "a camera turned right": affine("0;0.5;0;-0.5;0;0", -50.0, 100.0),
    "a camera upside down": affine("-0.5;0;0;0;-0.5;0", -100.0, -50.0),
    "a camera mirrored in y": affine("0.5;0;0;0;-0.5;0", 100.0, -50.0),
    "a camera mirrored in x": affine("-0.5;0;0;0;0.5;0", -100.0, 50.0),
    "a camera transposed": affine("0;0.5;0;0.5;0;0", 50.0, 100.0),
    "a camera at an angle": affine("0.3;-0.4;0;0.4;0.3;0", 100.0, -50.0),
    "the default affine, binned": affine("2;0;0;0;2;0", 100.0, 50.0),
    "the default affine alone": OddRun(
        metadata=lambda place: stage(place, pixel=0, PixelSizeAffine="1;0;0;0;1;0"),
        images=(Image(distances={"z": 2.0}, stage=(100.0, 50.0)),),
    ),
    "an affine of another size": affine("0;-1;0;1;0;0", 50.0, -100.0),
    "an affine that cannot be": affine("0;0;0;0;0;0", 100.0, 50.0),
    # Places.
    "two sites": OddRun(
        **TWO_SITES,
        values={"position": [*SITES]},
        metadata=lambda place: stage(place, x=SITES[place["position"]][0], y=SITES[place["position"]][1]),
        images=(at(100, 50), at(600, -50)),
    ),
    "a site without a place": OddRun(
        **TWO_SITES,
        values={"position": [*SITES]},
        metadata=lambda place: stage(place) if place["position"] == "site-a" else {"PixelSizeUm": 0.5},
        images=(at(100, 50), Image(distances=ALL)),
    ),
    "sites with plans of their own": OddRun(
        order=("position", "time", "z"),
        sizes={"time": 3, "z": 3},
        values={"position": [*SITES]},
        metadata=_own_plans,
        images=(
            Image(distances={**ALL, "time": 5.0}, first=(7.0, 45.25, 92.75), times=(0.0, 5.0, 10.0)),
            Image(distances={"z": 0.5, "time": 20.0, **PIXELS}, first=(7.0, -54.75, 592.75), times=(0.0, 20.0, 40.0)),
        ),
    ),
    "a plate with holes": OddRun(
        **TWO_SITES,
        values={"position": WELLS},
        without=lambda place: place["position"] in ("B1", "D6"),
        metadata=_wells,
        images=(at(100, 50), at(9100, 50)),
    ),
    # Channels and cameras.
    "channels by name": OddRun(
        order=("channel", "z"),
        sizes={"z": 2},
        values={"channel": ["DAPI", "GFP", "BF"]},
        channels=("DAPI", "GFP", "BF"),
        colors=("#4393ff", "#00ff00", "#ffffff"),
    ),
    "channels of Micro-Manager": OddRun(
        order=("channel", "z"),
        sizes={"z": 2},
        values={"channel": ["GFP", "DAPI"]},
        summary={"ChNames": ["DAPI", "GFP"], "ChColors": [-16776961, -16711936]},
        channels=("GFP", "DAPI"),
        colors=("#00ff00", "#0000ff"),
    ),
    "channels by number": OddRun(
        order=("channel", "z"),
        sizes={"channel": 2, "z": 2},
        summary={"ChNames": ["DAPI", "GFP"]},
        channels=("DAPI", "GFP"),
        colors=("#4393ff", "#00ff00"),
    ),
    "display settings": OddRun(
        order=("channel", "z"),
        sizes={"z": 2},
        values={"channel": ["DAPI", "GFP"]},
        settings={"DAPI": {"Color": -65281, "Min": 100, "Max": 600}, "GFP": {"Color": -256, "Min": 7, "Max": 4000}},
        channels=("DAPI", "GFP"),
        colors=("#ff00ff", "#ffff00"),
        windows=((100, 600), (7, 4000)),
        bits=12,
    ),
    "twelve bits": OddRun(order=("time", "z"), metadata=stage, bits=12, images=(at(100, 50),)),
    "eight bits": OddRun(metadata=stage, bits=8, dtype="|u1", images=(at(100, 50),)),
    "in colour": OddRun(
        order=("z",), sizes={"z": 3}, metadata=stage, bits=8, dtype="|u1", shape=(*SHAPE, 3), images=(at(100, 50),)
    ),
    "two cameras": OddRun(
        order=("camera", "z"),
        sizes={"z": 2},
        values={"camera": ["left", "right"]},
        metadata=lambda place: stage(place, Camera=place["camera"]),
        images=(at(100, 50),),
    ),
}
