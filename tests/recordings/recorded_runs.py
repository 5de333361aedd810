"""Runs whose bytes are recorded: frames, how they are sent, and which mirrors and exports are made of them."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Key = dict[str, Any]
MIRRORS = {"n5": ".n5", "ome-zarr": ".ome.zarr", "wkw": ".wkw", "precomputed": ".precomputed", "hsds": ".hsds"}
SUFFIXES = {**MIRRORS, "hdf5": ".h5", "ome-tiff": ".ome.tif", "tiff": ".tif", "table": ".csv"}


@dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """frames: sizes or values of axes, the last one fastest; or the axes of each frame, None for a skipped number.

    shapes and dtypes: of the frames, in turn. meta: a function of this module, for the metadata of each frame.
    sent: further arguments of `create`. live: its mirrors. ends: the status at `close`. resumed_at: the run is ended
    with an error before this frame, and resumed. source: a golden dataset or array in place of frames, below
    tests/golden. mirrors and exports: arguments of `acqstream mirror` and `export` after --to, one of a format.
    unordered: the end of a mirror's name whose chunks lie in files in the order in which threads finish them.
    """

    frames: Mapping[str, Any] | Sequence[Key | None] = ()
    shapes: Sequence[Sequence[int]] = ((40, 50),)
    dtypes: Sequence[str] = ("<u2",)
    bits: int | None = None
    meta: str = ""
    times_ns: bool = False
    sent: Mapping[str, Any] = field(default_factory=dict)
    display: Mapping[str, Any] = field(default_factory=dict)
    mirrors: Sequence[str] = ()
    live: Sequence[Mapping[str, Any]] = ()
    exports: Sequence[str] = ()
    ends: str = "completed"
    resumed_at: int | None = None
    source: str = ""
    unordered: str = ""

    @property
    def keys(self) -> Sequence[Key | None]:
        """The axes of each frame, in order; None: a skipped number."""
        if not isinstance(self.frames, Mapping):
            return self.frames
        lists = [range(values) if isinstance(values, int) else values for values in self.frames.values()]
        return [dict(zip(self.frames, key, strict=True)) for key in itertools.product(*lists)]

    def metadata_of(self, key: Key) -> Mapping[str, Any] | None:
        return METADATA[self.meta](key) if self.meta else None


def stage(key: Key) -> Mapping[str, Any]:
    """Planes 2 um apart, pixels of 0.5 um, sites and times that differ."""
    site = sum(map(ord, str(key.get("position", ""))))
    place = {"XPositionUm": 100.0 + site, "YPositionUm": 50.0 - site, "ZPositionUm": 7.0 + 2.0 * key.get("z", 0)}
    return {"PixelSizeUm": 0.5, **place, "ElapsedTime-ms": 5000.0 * key.get("time", 0)}


def turned(key: Key) -> Mapping[str, Any]:
    return {**stage(key), "PixelSizeAffine": "0;-0.5;0;0.5;0;0"}


def tile(key: Key) -> Mapping[str, Any]:
    return {"PixelSizeUm": 0.5, "XPositionUm": 15.0 * key["column"], "YPositionUm": 12.0 * key["row"]}


def uneven(key: Key) -> Mapping[str, Any]:
    return {"ElapsedTime-ms": 1000.0 * (0, 61.5, 127, 202)[key["time"]], "PixelSizeUm": 0.5, "note": math.nan}


METADATA = {function.__name__: function for function in (stage, turned, tile, uneven)}


def read_runs() -> dict[str, RecordedRun]:
    """From runs.json, by name."""
    content = json.loads((Path(__file__).parent / "runs.json").read_text(encoding="utf-8"))
    return {name: RecordedRun(**fields) for name, fields in content.items()}


RUNS = read_runs()
