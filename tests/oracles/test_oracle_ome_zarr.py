"""tensorstore, zarr-python 3 and ome-zarr-models read what our OME-Zarr mirrors hold, finished and growing."""

from __future__ import annotations

import importlib
import json
import subprocess
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import acqstream
from acqstream.arrays.array_spec import ArraySpec
from acqstream.formats.ome_zarr import FORMAT
from acqstream.mirrors.mirror_container import open_publisher
from acqstream.views.view_run import ViewState
from tests.formats.blocks import in_blocks
from tests.log.make_frames import Frame, start_log, write_log
from tests.mirrors.mirror_cases import declared, finish, frames_at, halved, places_of, run_of
from tests.mirrors.test_separate_tiles import AXES as TILE_AXES
from tests.mirrors.test_separate_tiles import COLUMNS, PIXEL_UM, ROWS, TILES, stage_place
from tests.mirrors.test_separate_tiles import SUMMARY as TILE_SUMMARY
from tests.mirrors.test_separate_tiles import mirror as mirror_tiles
from tests.mirrors.test_separate_tiles import tiles as separate_tiles
from tests.oracles.webknossos_package import PYTHON, needs_environment
from tests.storage.unforced_disk import UnforcedDisk

pytestmark = pytest.mark.oracle
PROGRAM = Path(__file__).with_name("ome_zarr_program.py")
needs_zarr = needs_environment("zarr 3")

VARIANTS: dict[str, dict[str, Any]] = {
    "raw": {"compression": "none"},
    "raw, deep chunks": {"compression": "none", "chunks": [2, 16, 16]},
    "blosc": {},
    "blosc-bytes": {"compression": {"type": "blosc", "shuffle": "shuffle"}},
    "blosc-zstd": {"compression": {"type": "blosc", "cname": "zstd", "shuffle": "bitshuffle", "clevel": 1}},
    "zstd": {"compression": "zstd"},
    "gzip": {"compression": {"type": "gzip", "level": 1}},
    "unsharded": {"shards": False},
    "unsharded raw": {"shards": False, "compression": "none"},
}
DTYPES = ("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int64", "float32", "float64")
SIZES = {"time": 3, "channel": 2, "z": 5}


def settings_of(options: Mapping[str, Any]) -> dict[str, Any]:
    return {"format": "ome-zarr", "chunks": [1, 16, 16], "levels": 2, **options}


def write(folder: Path, frames: Sequence[Frame], options: Mapping[str, Any], **spec: Any) -> Path:
    """Write the frames and mirror them afterwards; the container."""
    with start_log(folder, **spec) as log:
        for frame in frames:
            log.append(frame.header, frame.image)
    finish(run_of(folder, settings_of(options), name="ome-zarr"))
    return folder.with_name(f"{folder.name}.ome.zarr")


def expected(frames: Sequence[Frame], order: Sequence[str]) -> NDArray[Any]:
    """The pixels by (`order`, y, x); axes are numbered from 0."""
    sizes = [1 + max(int(frame.axes[name]) for frame in frames) for name in order]
    found = np.zeros((*sizes, *frames[0].image.shape), frames[0].image.dtype)
    for frame in frames:
        found[tuple(int(frame.axes[name]) for name in order)] = frame.image
    return found


def read_tensorstore(array: Path) -> NDArray[Any]:
    tensorstore = pytest.importorskip("tensorstore")
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(array)}}
    found: NDArray[Any] = tensorstore.open(spec, read=True).result().read().result()
    return found


def read_zarr(container: Path, out: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """All arrays of a container by zarr 3, and what it and ome-zarr-models say."""
    out.mkdir()
    done = subprocess.run(
        [PYTHON, "-I", "-W", "ignore", PROGRAM, container, out],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {path.stem.replace("_", "/"): np.load(path) for path in out.iterdir()}, told


@pytest.mark.parametrize("variant", VARIANTS)
def test_tensorstore_reads_every_level(tmp_path: Path, variant: str) -> None:
    frames = frames_at(places_of(("time", "channel", "z"), SIZES), (37, 50))
    container = write(tmp_path / "cells", frames, VARIANTS[variant])
    full = expected(frames, ("time", "channel", "z"))
    assert np.array_equal(read_tensorstore(container / "0"), full)
    assert np.array_equal(read_tensorstore(container / "1"), halved(full, (1, 1, 1, 2, 2)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variant", ["raw", "blosc"])
def test_tensorstore_reads_every_dtype(tmp_path: Path, variant: str, dtype: str) -> None:
    image = np.random.default_rng(5).integers(0, 120, (5, 20, 33)).astype(dtype)
    options = FORMAT.parse_options({"chunks": [1, 16, 16], "levels": 1, **VARIANTS[variant]})
    cut = FORMAT.plan(ArraySpec(axes=("z", "y", "x"), shape=image.shape, dtype=image.dtype), options)
    writer = open_publisher(FORMAT, tmp_path / "a.ome.zarr", cut, options, UnforcedDisk())
    spec = cut.full
    for position in np.ndindex(*spec.grid_shape):
        chunk = np.zeros(spec.chunk_shape, spec.dtype)
        part = image[spec.region(position)]
        chunk[tuple(slice(0, size) for size in part.shape)] = part
        writer.store(0, [(position, writer.encode(0, position, in_blocks(chunk, spec.block_shape)))])
    writer.finish(cut.levels)
    assert np.array_equal(read_tensorstore(tmp_path / "a.ome.zarr" / "0"), image)


@needs_zarr
@pytest.mark.parametrize("variant", VARIANTS)
def test_zarr_reads_it_and_the_models_accept_it(tmp_path: Path, variant: str) -> None:
    frames = frames_at(places_of(("time", "channel", "z"), SIZES), (37, 50))
    container = write(tmp_path / "cells", frames, VARIANTS[variant])
    arrays, told = read_zarr(container, tmp_path / "out")
    full = expected(frames, ("time", "channel", "z"))
    assert np.array_equal(arrays["0"], full)
    assert np.array_equal(arrays["1"], halved(full, (1, 1, 1, 2, 2)))
    assert told["groups"] == {"": "Image"}
    assert told["arrays"]["0"]["names"] == ["t", "c", "z", "y", "x"]
    assert (told["arrays"]["0"]["shards"] is None) == variant.startswith("unsharded")


@needs_zarr
@pytest.mark.parametrize("variant", ["raw", "raw, deep chunks", "blosc"])
def test_shards_of_parts_of_a_plane_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variant: str) -> None:
    """Of large frames and mosaics; here planes of 3 x 4 chunks in shards of 2 x 2."""
    monkeypatch.setattr(importlib.import_module("acqstream.formats.ome_zarr.plan"), "MAX_SHARD_PLANE_BYTES", 2048)
    frames = frames_at(places_of(("time", "z"), SIZES), (37, 50))
    container = write(tmp_path / "cells", frames, VARIANTS[variant])
    full = expected(frames, ("time", "z"))
    right = [full, halved(full, (1, 1, 2, 2))]
    arrays, told = read_zarr(container, tmp_path / "out")
    assert told["arrays"]["0"]["shards"][2:] == [32, 32]
    for number, level in enumerate(right):
        assert np.array_equal(arrays[str(number)], level)
        assert np.array_equal(read_tensorstore(container / str(number)), level)


@needs_zarr
def test_positions_are_images_of_a_collection(tmp_path: Path) -> None:
    sizes = {"position": 3, "time": 2, "z": 2}
    frames = frames_at(places_of(("time", "position", "z"), sizes), (20, 30))
    container = write(tmp_path / "cells", frames, {})
    arrays, told = read_zarr(container, tmp_path / "out")
    full = expected(frames, ("position", "time", "z"))
    for position in range(3):
        assert np.array_equal(arrays[f"{position}/0"], full[position])
        assert told["groups"][str(position)] == "Image"
    listed = json.loads((container / "OME" / "zarr.json").read_text())["attributes"]["ome"]["series"]
    assert listed == ["0", "1", "2"]
    assert (container / "OME" / "METADATA.ome.xml").is_file()


@needs_zarr
def test_separate_tiles_are_images_with_translations(tmp_path: Path) -> None:
    """Each image of the collection is one tile, and lies where the stage was."""
    frames = separate_tiles()
    write_log(tmp_path / "cells", frames, tiles=TILES, axes=TILE_AXES, summary=TILE_SUMMARY)
    container = mirror_tiles(tmp_path / "cells", "ome-zarr")
    arrays, told = read_zarr(container, tmp_path / "out")
    for row, column in np.ndindex(ROWS, COLUMNS):
        number = row * COLUMNS + column
        own = [frame for frame in frames if (frame.axes["row"], frame.axes["column"]) == (row, column)]
        for frame in own:
            assert np.array_equal(arrays[f"{number}/0"][int(frame.axes["time"]), int(frame.axes["z"])], frame.image)
        assert told["groups"][str(number)] == "Image"
        ome = json.loads((container / str(number) / "zarr.json").read_text())["attributes"]["ome"]
        steps = ome["multiscales"][0]["datasets"][0]["coordinateTransformations"]
        assert steps[1]["translation"] == [0.0, 7.0, *stage_place(row, column)]
        assert steps[0]["scale"][-2:] == [PIXEL_UM, PIXEL_UM]


@needs_zarr
def test_colours_take_the_place_of_channels(tmp_path: Path) -> None:
    frames = frames_at(places_of(("time",), {"time": 2}), (20, 30, 3), "|u1")
    container = write(tmp_path / "cells", frames, {})
    arrays, told = read_zarr(container, tmp_path / "out")
    assert np.array_equal(arrays["0"], np.stack([np.moveaxis(frame.image, 2, 0) for frame in frames]))
    assert told["groups"] == {"": "Image"}
    ome = json.loads((container / "zarr.json").read_text())["attributes"]["ome"]
    assert [channel["label"] for channel in ome["omero"]["channels"]] == ["R", "G", "B"]


@pytest.mark.parametrize("is_declared", [False, True], ids=["growing", "declared"])
@pytest.mark.parametrize("variant", ["raw", "blosc", "unsharded"])
def test_what_is_announced_can_be_read_while_it_grows(tmp_path: Path, variant: str, is_declared: bool) -> None:
    """After each frame tensorstore opens the array anew: what the shape names has the pixels of its frames."""
    frames = frames_at(places_of(("time",), {"time": 30}), (37, 50))
    spec: dict[str, Any] = {"axes": declared(("time",), {"time": 30})} if is_declared else {}
    folder, container = tmp_path / "cells", tmp_path / "cells.ome.zarr"
    largest = 0
    with start_log(folder, **spec) as log:
        log.append(frames[0].header, frames[0].image)
        assert log.wait_for_published(1)
        run = run_of(folder, settings_of({**VARIANTS[variant], "levels": 1}), name="ome-zarr")
        for count, frame in enumerate(frames[1:], 2):
            log.append(frame.header, frame.image)
            assert log.wait_for_published(count)
            run.step()
            while run.progress().state is not ViewState.WAITING:
                run.step()
            if not (container / "0" / "zarr.json").exists():
                continue
            found = read_tensorstore(container / "0")
            largest = max(largest, found.shape[0])
            for number, image in enumerate(found):
                is_zero = is_declared and not image.any()  # a planned shape is announced at birth
                assert is_zero or np.array_equal(image, frames[number].image), number
    finish(run)
    assert np.array_equal(read_tensorstore(container / "0"), np.stack([frame.image for frame in frames]))
    assert largest > 1 or variant == "blosc"  # its only shard is stored at the end


def test_arrays_of_tensorstore_are_read(tmp_path: Path) -> None:
    """Sharded by another writer, with other codecs and an index at the start; opened through our own codecs."""
    tensorstore = pytest.importorskip("tensorstore")
    image = np.random.default_rng(3).integers(0, 60_000, (5, 33, 40)).astype("uint16")
    inner = [{"name": "bytes", "configuration": {"endian": "big"}}, {"name": "zstd", "configuration": {"level": 1}}]
    index = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
    sharding = {"chunk_shape": [1, 16, 8], "codecs": inner, "index_codecs": index, "index_location": "start"}
    metadata = {
        "shape": list(image.shape),
        "data_type": "uint16",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 32, 24]}},
        "codecs": [{"name": "sharding_indexed", "configuration": sharding}],
        "dimension_names": ["z", "y", "x"],
    }
    kvstore = {"driver": "file", "path": str(tmp_path / "a")}
    spec = {"driver": "zarr3", "kvstore": kvstore, "metadata": metadata, "create": True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensorstore.open(spec).result().write(image).result()
    from acqstream.formats.ome_zarr.chunk_store import ChunkStore, IndexCache
    from acqstream.formats.ome_zarr.zarr_json import parse_array
    from acqstream.storage.stores.data_path import data_path_of

    array = parse_array((tmp_path / "a" / "zarr.json").read_bytes(), "a")
    chunks = ChunkStore(
        data_path_of(tmp_path / "a").store(follows_links=False), "", array, IndexCache(may_change=False)
    )
    found = np.zeros_like(image)
    for position in np.ndindex(*array.grid_shape):
        chunk = chunks.read(position)
        assert chunk is not None
        at = tuple(slice(n * step, (n + 1) * step) for n, step in zip(position, array.chunk_shape, strict=True))
        part = found[at]
        part[...] = chunk[tuple(slice(0, size) for size in part.shape)]
    assert np.array_equal(found, image)


def test_our_reader_gives_the_axes_of_the_dataset(tmp_path: Path) -> None:
    frames = frames_at(places_of(("time", "position", "z"), {"position": 3, "time": 2, "z": 2}), (20, 30))
    container = write(tmp_path / "cells", frames, {})
    with acqstream.open(container) as ds, acqstream.open(tmp_path / "cells") as log:
        assert ds.format == "ome-zarr"
        assert ds.levels[0].axes == log.levels[0].axes
        assert np.array_equal(ds.levels[0].read(), log.levels[0].read())
