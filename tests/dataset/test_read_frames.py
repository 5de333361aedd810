"""Many frames read together are those that are read one by one: by place, by axes, and as parts of levels."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import acqstream
from acqstream.errors import CorruptDataset, DatasetError, FrameNotFound, UnsupportedFeature
from acqstream.formats.ndtiff import read_ahead, reader
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.frames import frame_region
from tests.formats.ndtiff.ndtiff_bytes import STACK, Folder, entry, image

SHAPE = (5, 4)
AT_ONCE = [(reader, "_FEW_BYTES", 0), (frame_region, "_MANY_FRAMES", 1), (read_ahead, "PIECE_BYTES", 4096)]


@pytest.fixture(autouse=True)
def together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few small frames count as many, in several pieces."""
    for module, name, value in AT_ONCE:
        monkeypatch.setattr(module, name, value)


def written(folder: Folder, count: int, shape: tuple[int, ...] = SHAPE, dtype: str = "<u2") -> list[NDArray[Any]]:
    """Frames with axes time and z, in several stack files; some are written again."""
    frames = [image(number, shape, dtype) for number in range(count)]
    for number, frame in enumerate(frames):
        if number % 23 == 22:
            folder.start_stack(f"a_NDTiffStack_{number}.tif")
        folder.add({"time": number // 3, "z": number % 3}, frame)
    for number in range(0, count, 17):
        frames[number] = image(1000 + number, shape, dtype)
        folder.add({"time": number // 3, "z": number % 3}, frames[number])
    return frames


@pytest.mark.parametrize(("shape", "dtype"), [(SHAPE, "<u2"), (SHAPE, "|u1"), ((3, 4, 3), "|u1"), ((50, 70), "<u2")])
@pytest.mark.parametrize("order", ["<", ">"])
def test_places_and_axes(tmp_path: Path, shape: tuple[int, ...], dtype: str, order: Any) -> None:
    written(folder := Folder(tmp_path / "data", order=order), 60, shape, dtype)
    with acqstream.open(folder.path) as dataset:
        keys = [key for key, _ in dataset.frames()]
        one_by_one = np.stack([dataset.read_frame(key) for key in keys])
        for places in (slice(None), slice(3, 40, 5), slice(None, None, -1), range(50, 9, -7), range(1)):
            found = dataset.read_frames(places)
            assert found.dtype == one_by_one.dtype
            assert np.array_equal(found, one_by_one[places])
            assert found.flags.writeable
        shuffled = [keys[number * 37 % 60] for number in range(80)]  # some twice
        expected = np.stack([dataset.read_frame(key) for key in shuffled])
        assert np.array_equal(dataset.read_frames(shuffled), expected)
        assert np.array_equal(dataset.read_frames(iter(shuffled[:2])), expected[:2])
        memory = np.empty_like(expected)
        assert dataset.read_frames(shuffled, out=memory) is memory
        assert np.array_equal(memory, expected)
        for wrong in (memory[:-1], memory.astype("f4"), memory[:, ::-1], np.moveaxis(memory, 0, -1)):
            with pytest.raises(ValueError, match="out must be a C-contiguous array"):
                dataset.read_frames(shuffled, out=wrong)
        for nothing in ((), slice(5, 5), range(0)):
            assert dataset.read_frames(nothing).shape == (0, *shape)
            with pytest.raises(ValueError, match="out must be"):
                dataset.read_frames(nothing, out=memory)
    with pytest.raises(DatasetError, match="closed"):
        dataset.read_frames(())


def test_few_frames_are_read_without_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    frames = written(folder := Folder(tmp_path / "data"), 5)
    monkeypatch.setattr(read_ahead, "ThreadPoolExecutor", None)
    with acqstream.open(folder.path) as dataset:
        found = dataset.read_frames([{"time": 0, "z": 0}, {"time": 1, "z": 1}])
        assert np.array_equal(found, [frames[0], frames[4]])


def test_what_is_missing_or_unlike_is_named(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    with acqstream.open(folder.path) as dataset, pytest.raises(DatasetError, match="no frame yet"):
        dataset.read_frames()
    written(folder, 6)
    folder.add({"time": 9, "z": 0}, image(0, (2, 3)))
    folder.publish(entry({"time": 10, "z": 0}, (2**31, 4, 5, 1, 0, 300, 0, 0)))
    with acqstream.open(folder.path) as dataset:
        assert len(dataset.read_frames(range(6))) == 6
        with pytest.raises(FrameNotFound, match="time=7"):
            dataset.read_frames([{"time": 0, "z": 0}, {"time": 7, "z": 0}])
        with pytest.raises(DatasetError, match=r"frame {'time': 9, 'z': 0} has shape \(2, 3\)"):
            dataset.read_frames()
        with pytest.raises(CorruptDataset, match="beyond the end"):
            dataset.read_frames([{"time": 0, "z": 0}, {"time": 10, "z": 0}])
        with pytest.raises(IndexError):
            dataset.read_frames(range(3, 20))
        with pytest.raises(TypeError, match="named by its axes"):
            dataset.read_frames([0, 1])  # type: ignore[list-item]


def test_a_damaged_index_cannot_ask_for_memory(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    for time in range(10_000):  # 320 GB
        folder.publish(entry({"time": time}, (2**31, 4096, 4096, 1, 0, 300, 0, 0)))
    with (folder.path / STACK).open("r+b") as file:
        file.truncate(2**26)
    folder.publish(entry({"time": 10_000}, (512, 4096, 4096, 1, 0, 300, 0, 0)))
    with acqstream.open(folder.path) as dataset:
        with pytest.raises(CorruptDataset, match="beyond the end"):
            dataset.read_frames()
        with pytest.raises(CorruptDataset, match="beyond the end"):
            dataset.levels[0].read()


def test_a_folder_that_was_replaced_shows_its_own_frames(tmp_path: Path) -> None:
    frames = written(folder := Folder(tmp_path / "data"), 20)
    with acqstream.open(folder.path) as dataset:
        dataset.read_frame(time=0, z=0)
        folder.path.rename(tmp_path / "old")
        written(Folder(tmp_path / "data"), 20, dtype="|u1")
        assert np.array_equal(dataset.levels[0].read((0,)), frames[:3])
        keys = [{"time": number // 3, "z": number % 3} for number in range(20)]
        assert np.array_equal(dataset.read_frames(keys), frames)
        for file in (tmp_path / "data").iterdir():
            file.unlink()
        assert np.array_equal(dataset.read_frames(keys), frames)


def test_frames_that_come_meanwhile_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread refreshes while a level is read; a new axis has no place in the array that is read."""
    frames = written(folder := Folder(tmp_path / "data"), 20)
    with acqstream.open(folder.path) as dataset:
        level, columns_of = dataset.levels[0], NDTiffReader.key_columns

        def grow_and_read(reader: NDTiffReader, rows: range) -> Any:
            columns = columns_of(reader, rows)
            folder.add({"time": 100 + len(reader), "z": 0}, frames[0])
            folder.add({"time": 0, "z": 0, "channel": "late"}, frames[5])
            dataset.refresh()
            return columns

        array = level.as_array()
        folder.add({"time": 0, "z": 1, "channel": "first"}, frames[5])
        dataset.refresh()
        monkeypatch.setattr(NDTiffReader, "key_columns", grow_and_read)
        layout = array.layout
        rows = frame_region._RowsByPlace(level.source.reader)  # type: ignore[attr-defined]
        frame_array = frame_region.replace(level.source.frame_array(), values=layout.values)  # type: ignore[attr-defined]
        found = rows.rows(frame_array, [range(7), range(3)])
        assert found[:2].tolist() == [20, 1]  # frame 0 was written again; "first" lies elsewhere


def test_compressed_frames_are_read_as_well(tmp_path: Path) -> None:
    golden = next(path for path in (Path(__file__).parents[1] / "golden" / "ndtiff").iterdir() if path.is_dir())
    with acqstream.open(golden) as dataset:
        keys = [key for key, _ in dataset.frames()]
        assert np.array_equal(dataset.read_frames(), [dataset.read_frame(key) for key in keys])


SIZES = (7, 3, *SHAPE)
PARTS = st.tuples(*(st.one_of(st.slices(size), st.integers(0, size - 1)) for size in SIZES))


@pytest.fixture(scope="module")
def holed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, NDArray[Any]]:
    folder = Folder(tmp_path_factory.mktemp("holed") / "data")
    array = np.zeros(SIZES, "<u2")
    for number, (time, z) in enumerate(itertools.product(range(SIZES[0]), range(SIZES[1]))):
        if (time, z) != (4, 1):
            folder.add({"time": time - 2, "z": z}, image(99, SHAPE))
            array[time, z] = image(number, SHAPE)
            folder.add({"time": time - 2, "z": z}, array[time, z])
    return folder.path, array


@given(part=PARTS, few=st.sampled_from([1, 10**6]), at_once=st.sampled_from([40, 2**20]))
def test_parts_of_a_level(holed: tuple[Path, NDArray[Any]], part: Any, few: int, at_once: int) -> None:
    path, array = holed
    with pytest.MonkeyPatch.context() as patch, acqstream.open(path) as dataset:
        for module, name, value in [
            *AT_ONCE,
            (frame_region, "_LOOKED_UP", few),
            (frame_region, "_TOGETHER_BYTES", at_once),
        ]:
            patch.setattr(module, name, value)
        assert np.array_equal(dataset.levels[0].read(part), array[part])


def test_parts_of_large_frames_read_their_rows_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(tmp_path / "data")
    frames = [image(number, (200, 100)) for number in range(20)]
    for time, frame in enumerate(frames):
        folder.add({"time": time}, frame)
    with acqstream.open(folder.path) as dataset:
        assert np.array_equal(dataset.levels[0].read(), frames)
        monkeypatch.setattr(reader, "read_together", None)
        assert np.array_equal(dataset.levels[0].read((..., slice(2, 4), slice(None))), np.stack(frames)[:, 2:4])


def test_arrays_in_chunks_have_no_frames(tmp_path: Path) -> None:
    from tests.formats.n5.n5_samples import make_dataset

    with acqstream.open(make_dataset(tmp_path / "a.n5", (4, 4), (2, 2))) as dataset:
        with pytest.raises(UnsupportedFeature, match=r"levels\[0\].read"):
            dataset.read_frames()
