"""Our WKW containers through the webknossos package: layers, magnifications, extents and voxels, also while they grow.

The package needs older versions of what other tests use, so it has an environment of its own, which tools/run.py makes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec
from acqstream.formats.wkw.foreign import open_array
from acqstream.formats.wkw.header import VOXEL_TYPES
from acqstream.storage.stores.data_path import data_path_of
from tests.formats.wkw.wkw_data import begin, noise, planned, read_all, store, write_array
from tests.log.make_frames import write_log
from tests.mirrors.mirror_cases import array_of, finish, frames_at, halved, places_of, run_of
from tests.oracles.webknossos_package import WebknossosError, WebknossosPackage, needs_environment

pytestmark = [
    pytest.mark.oracle,
    needs_environment("the webknossos package"),
]

U2 = np.dtype(np.uint16)
SPEC = ArraySpec(
    axes=("channel", "z", "y", "x"), shape=(2, 70, 90, 130), dtype=U2, scale=(1, 0.5, 0.1, 0.1),
    units=("", "um", "um", "um"), labels={"channel": ("DAPI", "GFP")},
)  # fmt: skip


@pytest.fixture(scope="module")
def webknossos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebknossosPackage]:
    with WebknossosPackage(tmp_path_factory.mktemp("webknossos")) as package:
        yield package


def check_voxels(mag: Mapping[str, Any], array: NDArray[Any]) -> None:
    """array: (z, y, x[, c]). The package reads up to the end of the bounding box: there may be zeros behind."""
    array = array.reshape(*array.shape[:3], -1)
    found = mag["voxels"]
    assert found.dtype == array.dtype
    assert np.subtract(found.shape, array.shape).max() <= 1
    inside = tuple(slice(size) for size in array.shape)
    assert np.array_equal(found[inside], array)
    found[inside] = 0
    assert not found.any()


@pytest.mark.parametrize("compression", ["raw", "lz4", "lz4hc"])
def test_layers_and_magnifications_are_found_with_their_voxels(tmp_path, webknossos, compression):
    arrays = write_array(tmp_path / "a", SPEC, levels=4, compression=compression, cube=64)
    found = webknossos.read(tmp_path / "a")
    assert found["voxel_size"] == pytest.approx((0.1, 0.1, 0.5))
    assert found["unit"] == "micrometer"
    assert list(found["layers"]) == ["DAPI", "GFP"]
    for channel, layer in enumerate(found["layers"].values()):
        assert (layer["category"], layer["dtype"], layer["channels"]) == ("color", "uint16", 1)
        assert (layer["corner"], layer["size"]) == ([0, 0, 0], [130, 90, 70])
        assert list(layer["mags"]) == ["1", "2-2-1", "4-4-1", "8-8-2"]
        for mag, array in zip(layer["mags"].values(), arrays, strict=True):
            assert (mag["block"], mag["cube"]) == ([32] * 3, [64] * 3)
            assert (mag["compressed"], mag["dtype"]) == (compression != "raw", "uint16")
            check_voxels(mag, array[channel])


@pytest.mark.parametrize(
    ("scale", "mags"),
    [
        ((1.0, 1.0, 1.0), ["1", "2", "4"]),
        ((0.25, 1.0, 1.0), ["1", "1-1-2", "1-1-4"]),
        ((28.0, 11.24, 11.24), ["1", "2-2-1", "4-4-2"]),
        ((4.0, 2.0, 1.0), ["1", "2-1-1", "4-2-1"]),
    ],
)
def test_voxels_of_any_proportions(tmp_path, webknossos, scale, mags):
    spec = ArraySpec(axes=("z", "y", "x"), shape=(40, 33, 50), dtype=U2, scale=scale, units=("nm",) * 3)
    arrays = write_array(tmp_path / "a", spec, levels=3)
    found = webknossos.read(tmp_path / "a")
    assert found["voxel_size"] == pytest.approx(scale[::-1])
    assert found["unit"] == "nanometer"
    assert list(found["layers"]["C0"]["mags"]) == mags
    for mag, array in zip(found["layers"]["C0"]["mags"].values(), arrays, strict=True):
        check_voxels(mag, array)


@pytest.mark.parametrize("dtype", VOXEL_TYPES.values(), ids=str)
def test_every_voxel_type(tmp_path, webknossos, dtype):
    spec = ArraySpec(axes=("z", "y", "x"), shape=(33, 20, 40), dtype=dtype)
    (array,) = write_array(tmp_path / "a", spec, levels=1)
    layer = webknossos.read(tmp_path / "a")["layers"]["C0"]
    assert (layer["dtype"], layer["mags"]["1"]["dtype"]) == (str(dtype), str(dtype))
    check_voxels(layer["mags"]["1"], array)


def test_rgb_and_every_time_point(tmp_path, webknossos):
    spec = ArraySpec(axes=("time", "z", "y", "x", "c"), shape=(2, 33, 40, 50, 3), dtype=np.dtype(np.uint8))
    (array,) = write_array(tmp_path / "a", spec, levels=1)
    for time in range(2):
        (layer,) = webknossos.read(tmp_path / "a" / f"time000{time}")["layers"].values()
        assert (layer["channels"], layer["dtype"]) == (3, "uint8")
        check_voxels(layer["mags"]["1"], array[time])


def test_a_mirror(tmp_path, webknossos):
    frames = frames_at(places_of(("time", "channel", "z"), {"time": 2, "channel": 2, "z": 37}), (70, 90))
    write_log(tmp_path / "cells", frames)
    finish(run_of(tmp_path / "cells", {"format": "wkw", "levels": 2}, name="wkw"))
    array = array_of(frames)
    for time in range(2):
        found = webknossos.read(tmp_path / "cells.wkw" / f"time000{time}")
        assert list(found["layers"]) == ["C0", "C1"]
        for channel, layer in enumerate(found["layers"].values()):
            assert layer["size"] == [90, 70, 37]
            check_voxels(layer["mags"]["1"], array[time, channel])
            check_voxels(layer["mags"]["2-2-1"], halved(array[time, channel], (1, 2, 2)))


def growing(levels: Sequence[ArraySpec]) -> list[ArraySpec]:
    return [replace(level, shape=(2, 0, *level.shape[2:])) for level in levels]


def grow(writer: Any, levels: Sequence[ArraySpec], arrays: Sequence[NDArray[Any]], depth: int) -> None:
    """Store the chunks of the last 32 planes up to this depth, and announce them."""
    for number, level in enumerate(levels):
        part = replace(level, shape=(2, depth, *level.shape[2:]))
        skip = {position for position in np.ndindex(*part.grid_shape) if position[1] != (depth - 1) // 32}
        store(writer, number, part, arrays[number], list(skip))
        writer.grow(number, part.shape)


def test_the_dataset_opens_at_every_step_of_growing(tmp_path, webknossos):
    final = planned(SPEC, levels=2, cube=64)
    writer = begin(tmp_path / "a", growing(final), levels=2, cube=64)
    arrays = [noise(level.shape, U2, seed) for seed, level in enumerate(final)]
    for depth in (32, 64, 70):
        grow(writer, final, arrays, depth)
        for channel, layer in enumerate(webknossos.read(tmp_path / "a")["layers"].values()):
            assert layer["size"] == [130, 90, depth]
            for mag, array in zip(layer["mags"].values(), arrays, strict=True):
                check_voxels(mag, array[channel, :depth])


def test_whoever_opens_it_while_it_grows_finds_whole_blocks(tmp_path, webknossos):
    spec = replace(SPEC, shape=(2, 32 * 24, 90, 130))
    final = planned(spec, levels=2, cube=64)
    arrays = [noise(level.shape, U2, seed) for seed, level in enumerate(final)]
    writer = begin(tmp_path / "a", growing(final), levels=2, cube=64)
    grow(writer, final, arrays, 32)

    def write() -> None:
        for depth in range(64, spec.shape[1] + 1, 32):
            grow(writer, final, arrays, depth)
        writer.finish(final)

    thread = threading.Thread(target=write)
    thread.start()
    depths: list[int] = []
    is_done = False
    try:
        while not is_done:
            is_done = not thread.is_alive()
            found = webknossos.read(tmp_path / "a")
            depths.append(found["layers"]["GFP"]["size"][2])
            for channel, layer in enumerate(found["layers"].values()):
                for mag, array in zip(layer["mags"].values(), arrays, strict=True):
                    check_voxels(mag, array[channel, : depths[-1]])
    finally:
        thread.join()
    assert depths == sorted(depths)
    assert depths[-1] == spec.shape[1]
    assert len(set(depths)) > 2  # it did look on


def test_a_dataset_of_the_package_is_read(tmp_path, webknossos):
    array = noise((40, 50, 60), np.uint16)
    webknossos.write(tmp_path / "a", array, "4-4-2")
    readers = open_array(data_path_of(tmp_path / "a"))
    assert [reader.spec.factors for reader in readers] == [(1, 1, 1), (1, 2, 2), (2, 4, 4)]
    assert np.array_equal(read_all(readers[0]), array)
    assert readers[0].spec.units == ("nm",) * 3
    for reader, mag in zip(readers, webknossos.read(tmp_path / "a")["layers"]["color"]["mags"].values(), strict=True):
        assert np.array_equal(mag["voxels"][..., 0], read_all(reader))


def test_what_is_not_there_is_the_packages_error(tmp_path: Path, webknossos) -> None:
    with pytest.raises(WebknossosError):
        webknossos.read(tmp_path)
