"""Runs whose bytes are recorded: frames, how they are sent, and which mirrors and exports are made of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Key = dict[str, Any]
MIRRORS = {"n5": ".n5", "ome-zarr": ".ome.zarr", "wkw": ".wkw", "precomputed": ".precomputed", "hsds": ".hsds"}
SUFFIXES = {**MIRRORS, "hdf5": ".h5", "ome-tiff": ".ome.tif", "tiff": ".tif", "table": ".csv"}


@dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """keys: the axes of each frame, in order; None: a skipped number. shapes and dtypes: of the frames, in turn.

    sent: further arguments of `create`. live: its mirrors. ends: the status at `close`. resumed_at: the run is ended
    with an error before this frame, and resumed. source: a golden dataset or array in place of frames, below
    tests/golden. mirrors and exports: arguments of `acqstream mirror` and `export` after --to, one of a format.
    unordered: the end of a mirror's name whose chunks lie in files in the order in which threads finish them.
    """

    keys: Sequence[Key | None] = ()
    shapes: Sequence[tuple[int, ...]] = ((40, 50),)
    dtypes: Sequence[str] = ("<u2",)
    bits: int | None = None
    meta: Callable[[Key], Mapping[str, Any]] | None = None
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


def grid(**values: Sequence[Any] | int) -> list[Key]:
    """All combinations, the last axis fastest."""
    lists = [range(some) if isinstance(some, int) else some for some in values.values()]
    return [dict(zip(values, key, strict=True)) for key in itertools.product(*lists)]


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


def axes(**sizes: Any) -> list[dict[str, Any]]:
    """Declared axes: a size, names, or a map of what else is declared."""
    kinds = {int: lambda some: {"size": some}, list: lambda some: {"labels": some}, dict: lambda some: some}
    return [{"name": name, **kinds[type(some)](some)} for name, some in sizes.items()]


ALL = tuple(MIRRORS)
COPIES = ("n5", "ome-zarr", "wkw", "precomputed", "hsds --option pixels=copy")
RAW = (
    "n5 --compression raw --option layout=array --blocks 2,16,32",
    "ome-zarr --compression none --chunks 2,16,32",
    "wkw --option cube=32",
    "precomputed --chunks 2,16,32",
    "hsds --option pixels=copy --compression none --chunks 2,16,32",
)
EXPORTS = ("hdf5 --copy", "ome-tiff", "tiff", "table")
WELLS = ["A2", "C5", "B1"]
BIG = ((300, 420),)

RUNS: dict[str, RecordedRun] = {
    # Kinds of arrays (docs/arrays.md).
    "stack": RecordedRun(keys=grid(z=6), meta=stage, mirrors=ALL, exports=EXPORTS),
    "no_axes": RecordedRun(keys=[{}], mirrors=COPIES, exports=("ome-tiff", "table")),
    "declared": RecordedRun(
        keys=grid(time=2, channel=["DAPI", "GFP"], z=4),
        meta=stage,
        sent={"axes": axes(time={"size": 2, "unit": "s", "scale": 5}, channel=["DAPI", "GFP"], z=4), "expect": 16},
        mirrors=RAW,
        exports=(*EXPORTS, "hdf5 {}.ref.h5"),
    ),
    "undeclared": RecordedRun(keys=grid(time=3, channel=2, z=3), mirrors=RAW),
    "other_order": RecordedRun(
        keys=grid(time=2, channel=2, z=3), sent={"axes": axes(z=3, channel=2, time={})}, mirrors=COPIES
    ),
    "late_axis": RecordedRun(keys=[*grid(time=2), *grid(time=[2], z=3)], mirrors=COPIES, exports=("hdf5 --copy",)),
    "holes": RecordedRun(
        keys=[key for key in grid(time=3, z=3) if key not in ({"time": 1, "z": 1}, {"time": 2, "z": 0})],
        mirrors=COPIES,
        exports=("tiff", "table"),
    ),
    "skips": RecordedRun(keys=[{"time": 0}, None, None, {"time": 3}, *[None] * 20, {"time": 24}], mirrors=RAW),
    "planned": RecordedRun(keys=grid(time=2, z=2), sent={"axes": axes(time=5, z=3, channel=2)}, mirrors=COPIES),
    "duplicates": RecordedRun(
        keys=[*grid(time=2, z=2), {"time": 0, "z": 1}, {"time": 0, "z": 1}],
        sent={"duplicates": "replace"},
        mirrors=RAW,
    ),
    "late_values": RecordedRun(keys=grid(time=2, z=[1, 0, -1]), sent={"summary": {"z-step_um": 0.5}}, mirrors=RAW),
    "far_values": RecordedRun(keys=grid(time=[0, 1_000_000, 5], z=[-(2**31), 7]), mirrors=COPIES),
    "negative_start": RecordedRun(
        keys=grid(z=[0, 1, -1]),
        sent={"axes": axes(z={"size": 3, "start": -1, "unit": "um", "scale": 0.5})},
        mirrors=RAW,
    ),
    "own_axes": RecordedRun(keys=grid(round=["second", "first"], angle=[90, 0], z=2), mirrors=COPIES),
    "wells": RecordedRun(
        keys=grid(position=WELLS, channel=["GFP", "BF"], z=2),
        meta=stage,
        mirrors=COPIES,
        exports=("ome-tiff", "hdf5 --copy"),
    ),
    "wells_apart": RecordedRun(
        keys=grid(position=WELLS, z=2),
        meta=stage,
        mirrors=("ome-zarr --option plate=false", "n5 --option layout=multiscale"),
    ),
    "sites": RecordedRun(keys=grid(position=2, time=2, z=2), meta=turned, mirrors=COPIES),
    "uneven_times": RecordedRun(
        keys=grid(time=4), meta=uneven, times_ns=True, mirrors=COPIES, exports=("table", "tiff")
    ),
    # Kinds of frames.
    "bytes_8": RecordedRun(keys=grid(time=2, z=3), dtypes=("|u1",), mirrors=RAW, exports=EXPORTS),
    "bits_12": RecordedRun(keys=grid(channel=2, z=3), bits=12, mirrors=("n5", "precomputed --option encoding=png")),
    "rgb": RecordedRun(keys=grid(time=2, z=2), shapes=((40, 50, 3),), dtypes=("|u1",), mirrors=COPIES, exports=EXPORTS),
    "rgb_jpeg": RecordedRun(
        keys=grid(z=2),
        shapes=((40, 50, 3),),
        dtypes=("|u1",),
        mirrors=("precomputed --option encoding=jpeg --option jpeg_quality=80",),
    ),
    "mixed_shapes": RecordedRun(
        keys=grid(time=4), shapes=((40, 50), (41, 31)), mirrors=("n5", "wkw"), exports=("tiff", "table")
    ),
    "mixed_types": RecordedRun(
        keys=grid(time=4), dtypes=("<u2", "|u1"), mirrors=("ome-zarr", "hsds --option pixels=copy")
    ),
    "large_frames": RecordedRun(
        keys=grid(z=3), shapes=((400, 500), (400, 500)), mirrors=("hsds", "n5 --compression raw")
    ),
    # Options: compression, levels, chunks, shards.
    "levels": RecordedRun(
        keys=grid(channel=2, z=4),
        shapes=BIG,
        meta=stage,
        mirrors=(
            "n5 --blocks 2,64,64 --option downsample=xy --option levels=3",
            "ome-zarr --chunks 2,64,64 --option levels=3",
            "wkw --compression lz4 --option cube=64 --option levels=3",
            (
                "precomputed --chunks 2,64,64 --option levels=3"
                ' --option shards={"minishard_index_encoding":"raw","data_encoding":"gzip"}'
            ),
            "hsds --chunks 2,64,64 --option levels=3 --compression zlib",
        ),
        exports=("ome-tiff --tile 64 --compression zlib",),
        unordered=".precomputed",
    ),
    "files": RecordedRun(
        keys=grid(time=2, z=4),
        shapes=BIG,
        meta=stage,
        sent={"axes": axes(time=2, z=4)},
        mirrors=(
            "n5 --compression gzip --blocks 4,128,128 --option layout=multiscale",
            "ome-zarr --compression zstd --chunks 1,128,128 --option shards=false",
            "wkw --compression lz4hc --option cube=32 --option downsample=xy",
            (
                "precomputed --chunks 4,512,512"
                ' --option shards={"hash":"murmurhash3_x86_128","minishard_bits":2,"shard_bits":2,"preshift_bits":1}'
            ),
            "hsds --compression zstd --option levels=2",
        ),
        exports=("ome-tiff --tile 128 --compression zstd", "hdf5 --copy --compression zlib"),
    ),
    "codecs_1": RecordedRun(
        keys=grid(z=3),
        mirrors=(
            "n5 --compression bzip2",
            "ome-zarr --compression gzip",
            "precomputed --chunks 3,64,64 --option encoding=png --option shards=true",
        ),
    ),
    "codecs_2": RecordedRun(
        keys=grid(z=3),
        mirrors=(
            'n5 --compression {"type":"blosc","cname":"zstd","clevel":3}',
            'ome-zarr --compression {"type":"blosc","cname":"lz4hc","clevel":5,"shuffle":"shuffle"}',
        ),
    ),
    "codecs_3": RecordedRun(
        keys=grid(z=3), mirrors=("n5 --compression lz4", 'ome-zarr --compression {"type":"zstd","level":5}')
    ),
    "codecs_4": RecordedRun(keys=grid(z=3), mirrors=("n5 --compression xz",)),
    "codecs_5": RecordedRun(keys=grid(z=3), mirrors=("n5 --compression zstd",)),
    # Tiles.
    "tiles": RecordedRun(
        keys=grid(row=3, column=3),
        sent={"tiles": {"overlap": (10, 12)}},
        meta=tile,
        mirrors=COPIES,
        exports=("ome-tiff", "hdf5 --copy", "table"),
    ),
    "tiles_declared": RecordedRun(
        keys=grid(time=2, row=2, column=3),
        sent={"tiles": {"overlap": (4, 6)}, "axes": axes(row=2, column=3)},
        meta=tile,
        mirrors=RAW,
    ),
    "tiles_apart": RecordedRun(
        keys=grid(row=2, column=2, channel=["GFP", "BF"]),
        sent={"tiles": {"overlap": (10, 12)}},
        meta=tile,
        mirrors=tuple(f"{name} --tiles separate" for name in COPIES),
    ),
    "tiles_without_overlap": RecordedRun(
        keys=grid(row=[0, -1], column=[1, 0, -1]), sent={"tiles": {"overlap": (0, 0)}, "levels": 1}, mirrors=COPIES
    ),
    "tiles_with_holes": RecordedRun(
        keys=[{"row": 0, "column": 0}, {"row": 2, "column": 1}, {"row": 0, "column": 3}, {"row": 0, "column": 0}],
        sent={"tiles": {"overlap": (10, 12)}, "levels": 2},
        mirrors=RAW,
    ),
    "tiles_rgb": RecordedRun(
        keys=grid(row=2, column=2),
        shapes=((40, 50, 3),),
        dtypes=("|u1",),
        sent={"tiles": {"overlap": (10, 12)}},
        mirrors=("n5", "ome-zarr", "precomputed"),
    ),
    # How runs end, what is said of them, and mirrors made meanwhile.
    "canceled": RecordedRun(keys=grid(time=2, z=2), ends="canceled", mirrors=("n5", "ome-zarr")),
    "error": RecordedRun(keys=grid(time=2, z=2), ends="error", mirrors=("wkw", "hsds")),
    "resumed": RecordedRun(
        keys=grid(time=3, z=2), resumed_at=3, sent={"summary": {"Interval_ms": 100}}, mirrors=COPIES
    ),
    "Zellen 細胞": RecordedRun(
        keys=grid(channel=["GFP", "µ-Kanal"], z=2),
        sent={"summary": {"ChColors": [-16776961, -16711936], "ChNames": ["GFP", "µ-Kanal"], "PixelSizeUm": 0.1}},
        display={"GFP": {"Color": -1, "Min": 5, "Max": 900}},
        mirrors=COPIES,
        exports=("ome-tiff", "table"),
    ),
    "micromanager": RecordedRun(
        keys=grid(channel=["GFP", "DAPI"], z=2),
        sent={"summary": {"ChNames": ["DAPI", "GFP"]}, "micromanager": True},
        mirrors=("n5", "ome-zarr"),
    ),
    "live": RecordedRun(
        keys=grid(time=2, channel=2, z=4),
        sent={"axes": axes(time=2, channel=2, z=4)},
        live=(
            {"format": "n5", "compression": "raw"},
            {"format": "ome-zarr", "compression": "none", "shards": False},
            {"format": "wkw"},
            {"format": "precomputed"},
            {"format": "hsds"},
        ),
    ),
    # Datasets and arrays of other programs.
    "java_rgb": RecordedRun(source="ndtiff/java_rgb/data", mirrors=("n5", "ome-zarr")),
    "py_negative": RecordedRun(source="ndtiff/py_negative_axes/data", mirrors=("wkw", "hsds")),
    "java_pyramid": RecordedRun(source="ndtiff/java_pyramid_u16/data", mirrors=("precomputed", "n5")),
    "array_u32": RecordedRun(
        source="wkw/raw_u32_b4_f4", mirrors=("n5", "precomputed --option encoding=compressed_segmentation", "ome-zarr")
    ),
    "array_f32": RecordedRun(source="wkw/raw_f32_b4_f2", mirrors=("n5", "ome-zarr", "precomputed")),
    "array_i16": RecordedRun(source="wkw/lz4_i16_b4_f2", mirrors=("n5", "hsds --option pixels=copy")),
}
