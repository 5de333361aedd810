"""What readers find while an array is written: what was announced, whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from acqstream.arrays.array_spec import ArraySpec
from acqstream.formats.wkw.foreign import open_array
from acqstream.formats.wkw.metadata import parse_options
from acqstream.storage.files.disk import LocalDisk
from acqstream.storage.stores.data_path import data_path_of
from tests.formats.wkw.wkw_data import begin, create_writer, noise, planned, read_all, store

U2 = np.dtype(np.uint16)
SPEC = ArraySpec(axes=("time", "channel", "z", "y", "x"), shape=(2, 2, 70, 40, 50), dtype=U2)
ROWS = [(time, channel, z) for time in range(2) for channel in range(2) for z in range(3)]


def boxes(path):
    """Depth of each layer that is announced, by dataset."""
    return {
        file.parent.name: {
            layer["name"]: layer["boundingBox"]["depth"] for layer in json.loads(file.read_text())["dataLayers"]
        }
        for file in sorted(path.rglob("datasource-properties.json"))
    }


def store_row(writer, spec, array, row, level=0):
    """All chunks of a row; row: (time, channel, z)."""
    skip = {position for position in np.ndindex(*spec.grid_shape) if position[:3] != row}
    store(writer, level, spec, array, list(skip))


def test_each_time_is_shown_when_every_level_has_it(tmp_path):
    levels = planned(SPEC, levels=2, cube=32)
    arrays = [noise(level.shape, U2, number) for number, level in enumerate(levels)]
    writer = begin(tmp_path / "a", [replace(level, shape=(0, *level.shape[1:])) for level in levels], levels=2, cube=32)
    readers = open_array(data_path_of(tmp_path / "a"))
    assert boxes(tmp_path / "a") == {}
    for time in range(2):
        for number, level in enumerate(levels):
            store(writer, number, level, arrays[number], [at for at in np.ndindex(*level.grid_shape) if at[0] != time])
            assert boxes(tmp_path / "a").keys() == {f"time{at:04}" for at in range(time)}
            writer.grow(number, (time + 1, *level.shape[1:]))
        assert boxes(tmp_path / "a") == {f"time{at:04}": {"C0": 70, "C1": 70} for at in range(time + 1)}
        for reader, array in zip(readers, arrays, strict=True):
            reader.refresh()
            assert np.array_equal(read_all(reader), array[: time + 1])
    assert not readers[0].complete
    shown = [path.stat().st_mtime_ns for path in sorted((tmp_path / "a").rglob("datasource-properties.json"))]
    writer.finish(levels)
    again = [path.stat().st_mtime_ns for path in sorted((tmp_path / "a").rglob("datasource-properties.json"))]
    assert shown == again, "what does not change is not written again"


def test_a_box_is_as_deep_as_every_level_is(tmp_path):
    spec = ArraySpec(axes=("z", "y", "x"), shape=(130, 40, 50), dtype=U2, units=("um",) * 3)
    levels = planned(spec, levels=2)
    arrays = [noise(level.shape, U2, number) for number, level in enumerate(levels)]
    writer = begin(tmp_path / "a", [replace(level, shape=(0, *level.shape[1:])) for level in levels], levels=2)
    assert [level.shape[0] for level in levels] == [130, 65]

    def put(level, row):
        skip = [position for position in np.ndindex(*levels[level].grid_shape) if position[0] != row]
        store(writer, level, levels[level], arrays[level], skip)
        writer.grow(level, (min(32 * row + 32, levels[level].shape[0]), *levels[level].shape[1:]))
        return boxes(tmp_path / "a").get("a", {}).get("C0", 0)

    assert [put(0, row) for row in range(4)] == [0] * 4
    assert put(1, 0) == 64
    assert put(0, 4) == 64
    assert put(1, 1) == 128
    assert put(1, 2) == 130
    readers = open_array(data_path_of(tmp_path / "a"))
    for reader, array in zip(readers, arrays, strict=True):
        assert np.array_equal(read_all(reader), array)


class LookingDisk(LocalDisk):
    """Writes large buffers in parts, and lets somebody look in between."""

    def __init__(self) -> None:
        super().__init__()
        self.look: Callable[[], None] = lambda: None

    def pwritev(self, fd, buffers, offset):
        view = memoryview(buffers[0]).cast("B")
        if len(view) > 4096:
            view = view[: len(view) // 2]
        written = super().pwritev(fd, [view], offset)
        self.look()
        return written


@pytest.mark.parametrize("compression", ["raw", "lz4"])
def test_nobody_reads_half_a_block(tmp_path, compression):
    options = {"levels": 1, "compression": compression, "cube": 32}
    spec = replace(SPEC, shape=(1, *SPEC.shape[1:]))
    (level,) = planned(spec, **options)
    array = noise(spec.shape, U2)
    disk = LookingDisk()
    begun = replace(level, shape=(0, 2, 0, 40, 50))
    writer = create_writer(tmp_path / "a", [begun], parse_options(options), disk)
    (reader,) = open_array(data_path_of(tmp_path / "a"))
    seen = []

    def look():
        for position in np.ndindex(*reader.spec.grid_shape):
            chunk = reader.read_chunk(position)
            seen.append(position)
            assert chunk is not None
            assert np.array_equal(chunk, array[reader.spec.region(position)])

    disk.look = look
    for z in range(3):
        for channel in range(2):
            store_row(writer, level, array, (0, channel, z))
            writer.sync()
        writer.grow(0, (1, 2, min(70, 32 * z + 32), 40, 50))
        reader.refresh()
        assert boxes(tmp_path / "a") == {"time0000": dict.fromkeys(["C0", "C1"], min(70, 32 * z + 32))}
    assert len(seen) > 100


def test_after_a_restart_it_goes_on_where_it_was(tmp_path):
    (level,) = planned(SPEC, levels=1, cube=32)
    array, begun = noise(SPEC.shape, U2), replace(level, shape=(0, *level.shape[1:]))
    writer = begin(tmp_path / "a", [begun], levels=1, cube=32)
    for row in ROWS[:6]:
        store_row(writer, level, array, row)
    writer.grow(0, (1, *level.shape[1:]))
    for row in ROWS[6:8]:
        store_row(writer, level, array, row)  # and it dies: they are not announced
    assert boxes(tmp_path / "a") == {"time0000": {"C0": 70, "C1": 70}}
    writer = begin(tmp_path / "a", [begun], levels=1, cube=32)
    (reader,) = open_array(data_path_of(tmp_path / "a"))
    assert len(list(reader.stored())) == 6 * 4
    for row in ROWS[6:]:
        store_row(writer, level, array, row)
    writer.grow(0, level.shape)
    reader.refresh()
    assert boxes(tmp_path / "a") == {f"time000{time}": {"C0": 70, "C1": 70} for time in range(2)}
    assert np.array_equal(read_all(reader), array)


def test_a_complete_array_stays_readable_when_its_writer_starts_again(tmp_path):
    (level,) = planned(SPEC, levels=1, cube=32)
    array = noise(SPEC.shape, U2)
    writer = begin(tmp_path / "a", [level], levels=1, cube=32)
    store(writer, 0, level, array)
    short = replace(level, shape=(2, 2, 64, 40, 50))
    writer.finish([short])
    again = begin(tmp_path / "a", [level], levels=1, cube=32)
    (reader,) = open_array(data_path_of(tmp_path / "a"))
    assert (reader.complete, reader.spec.shape) == (True, short.shape)
    store_row(again, level, array, (0, 0, 0))
    again.sync()
    reader.refresh()
    assert np.array_equal(read_all(reader), array[:, :, :64])
    again.grow(0, level.shape)  # there is more after all
    reader.refresh()
    assert (reader.complete, reader.spec.shape) == (False, level.shape)
    assert np.array_equal(read_all(reader)[:, :, :64], array[:, :, :64])
    store_row(again, level, array, (1, 1, 2))
    again.finish([level])
    reader.refresh()
    assert np.array_equal(read_all(reader), array)
