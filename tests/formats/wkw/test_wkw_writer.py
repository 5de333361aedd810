"""Arrays written as the engine does it, and read back: by us, by the reference library, and while they grow."""

from __future__ import annotations

import json
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from acqstream.arrays.array_spec import ArraySpec
from acqstream.errors import DatasetExists, StorageError
from acqstream.formats.check_report import CheckReport
from acqstream.formats.wkw import FORMAT
from acqstream.formats.wkw.foreign import open_array
from acqstream.formats.wkw.metadata import parse_options
from acqstream.storage.files.disk import LocalDisk
from acqstream.storage.stores.data_path import data_path_of
from tests.checksum_files import other_files, other_keys
from tests.formats.blocks import in_blocks
from tests.formats.wkw.wkw_data import begin, create_writer, noise, planned, read_all, store, write_array
from tests.host_system import allocated_bytes

U2 = np.dtype(np.uint16)
STACK = ArraySpec(axes=("z", "y", "x"), shape=(70, 90, 130), dtype=U2, scale=(0.5, 0.1, 0.1), units=("um",) * 3)
KINDS = [{"compression": "raw", "cube": 64}, {"compression": "lz4", "cube": 64}, {"compression": "lz4hc", "cube": 32}]


def properties(path):
    return json.loads((path / "datasource-properties.json").read_text())


def box(path, layer=0):
    found = properties(path)["dataLayers"][layer]["boundingBox"]
    return found["width"], found["height"], found["depth"]


def check(path):
    report = CheckReport()
    counts = FORMAT.check(data_path_of(path), report)
    assert (report.problems, report.notes) == ([], [])
    return counts


def tree(path):
    files = {file.relative_to(path).as_posix(): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}
    return other_files(files)


@pytest.mark.parametrize("options", KINDS, ids=lambda options: options["compression"])
@pytest.mark.parametrize("shape", [(70, 90, 130), (1, 1, 1), (32, 64, 64), (65, 33, 31)])
def test_a_stack_and_its_levels_come_back(tmp_path, options, shape):
    arrays = write_array(tmp_path / "a.wkw", replace(STACK, shape=shape), levels=3, **options)
    readers = open_array(data_path_of(tmp_path / "a.wkw"))
    assert [reader.spec.factors for reader in readers] == [(1, 1, 1), (1, 2, 2), (1, 4, 4)]
    for reader, array in zip(readers, arrays, strict=True):
        assert np.array_equal(read_all(reader), array)
        assert reader.complete
    counts = check(tmp_path / "a.wkw")
    assert (counts.arrays, counts.missing, counts.chunks > 0) == (3, 0, True)
    for mag, array in zip(("1", "2-2-1", "4-4-1"), arrays, strict=True):
        (reader,) = open_array(data_path_of(tmp_path / "a.wkw" / "C0" / mag))
        found = read_all(reader)  # webKNOSSOS counts a last voxel that covers a part
        assert np.array_equal(found[tuple(slice(size) for size in array.shape)], array)
        assert np.subtract(found.shape, array.shape).max() <= 1


@pytest.mark.oracle
@pytest.mark.parametrize("options", KINDS, ids=lambda options: options["compression"])
def test_what_is_written_is_what_the_reference_library_reads(tmp_path, options):
    wkw = pytest.importorskip("wkw")
    arrays = write_array(tmp_path / "a.wkw", STACK, levels=2, **options)
    for mag, array in zip(("1", "2-2-1"), arrays, strict=True):
        with wkw.Dataset.open(str(tmp_path / "a.wkw" / "C0" / mag)) as dataset:
            depth, height, width = array.shape
            found = dataset.read((0, 0, 0), (width + 5, height + 5, depth + 5))[0].transpose(2, 1, 0)
        assert np.array_equal(found[:depth, :height, :width], array)
        found[:depth, :height, :width] = 0
        assert not found.any()  # what lies beyond the array is zeros


def test_the_properties_are_what_webknossos_wants(tmp_path):
    write_array(tmp_path / "run1.wkw", STACK, levels=2, cube=64)
    axis_order = {"c": 0, "x": 1, "y": 2, "z": 3}
    assert properties(tmp_path / "run1.wkw") == {
        "id": {"name": "run1.wkw", "team": ""},
        "version": 1,
        "scale": {"factor": [0.1, 0.1, 0.5], "unit": "micrometer"},
        "dataLayers": [
            {
                "name": "C0",
                "category": "color",
                "dataFormat": "wkw",
                "elementClass": "uint16",
                "numChannels": 1,
                "boundingBox": {"topLeft": [0, 0, 0], "width": 130, "height": 90, "depth": 70},
                "mags": [
                    {"mag": [1, 1, 1], "path": "./C0/1", "cubeLength": 64, "axisOrder": axis_order},
                    {"mag": [2, 2, 1], "path": "./C0/2-2-1", "cubeLength": 64, "axisOrder": axis_order},
                ],
            }
        ],
    }


def test_a_layer_per_channel_and_a_dataset_per_time_and_position(tmp_path):
    spec = ArraySpec(
        axes=("position", "time", "channel", "z", "y", "x"),
        shape=(2, 2, 3, 33, 40, 20),
        dtype=np.dtype(np.uint8),
        labels={"channel": ("DAPI", "a b/ü", ""), "position": ("left", "right")},
        attributes={"who": "me", "list": (1, np.int64(2))},
    )
    (array,) = write_array(tmp_path / "a.wkw", spec, levels=1, cube=32)
    (reader,) = open_array(data_path_of(tmp_path / "a.wkw"))
    assert np.array_equal(read_all(reader), array)
    assert (reader.spec.axes, reader.spec.shape) == (spec.axes, spec.shape)
    assert reader.spec.labels == {"channel": ("DAPI", "a b/ü", ""), "position": ("left", "right")}
    assert reader.spec.attributes == {"who": "me", "list": [1, 2]}
    datasets = sorted(other_keys(path.name for path in (tmp_path / "a.wkw").iterdir() if path.is_dir()))
    assert datasets == [f"position000{p}_time000{t}" for p in range(2) for t in range(2)]
    one = tmp_path / "a.wkw" / "position0001_time0000"
    assert [layer["name"] for layer in properties(one)["dataLayers"]] == ["DAPI", "a_b__", "C2"]
    (stacked,) = open_array(data_path_of(one))
    assert stacked.spec.axes == ("channel", "z", "y", "x")
    assert stacked.spec.labels == {"channel": ("DAPI", "a_b__", "C2")}
    assert np.array_equal(read_all(stacked), array[1, 0])
    (layer,) = open_array(data_path_of(one / "a_b__"))
    assert np.array_equal(read_all(layer), array[1, 0, 1])
    assert check(tmp_path / "a.wkw").missing == 0


def test_without_z_time_is_the_depth(tmp_path):
    spec = ArraySpec(
        axes=("time", "channel", "y", "x"), shape=(40, 2, 30, 50), dtype=U2, scale=(2.0, 1, 0.2, 0.2),
        units=("s", "", "um", "um"),
    )  # fmt: skip
    (array,) = write_array(tmp_path / "a.wkw", spec, levels=1)
    (reader,) = open_array(data_path_of(tmp_path / "a.wkw"))
    assert (reader.spec.axes, reader.spec.shape) == (("channel", "time", "y", "x"), (2, 40, 30, 50))
    assert reader.spec.units == ("", "s", "um", "um")
    assert np.array_equal(read_all(reader), array)
    assert box(tmp_path / "a.wkw") == (50, 30, 40)
    assert properties(tmp_path / "a.wkw")["scale"] == {"factor": [0.2, 0.2, 1.0], "unit": "micrometer"}


@pytest.mark.parametrize(
    ("scale", "units", "expected"),
    [
        ((1.0, 0.2, 0.2), ("", "um", "um"), ([0.2, 0.2, 1.0], "micrometer")),
        ((2.0, 1.0, 1.0), ("um", "", ""), ([1.0, 1.0, 2.0], "micrometer")),
        ((500.0, 0.2, 0.2), ("nm", "um", "um"), ([0.2, 0.2, 0.5], "micrometer")),
        ((1.0, 1.0, 1.0), ("", "", ""), ([1.0, 1.0, 1.0], "nanometer")),
        ((0.0, 0.2, 0.2), ("micron", "micron", "micron"), ([0.2, 0.2, 1.0], "micrometer")),
    ],
)
def test_an_unknown_distance_is_1_and_the_note_names_it(tmp_path, scale, units, expected):
    spec = ArraySpec(axes=("z", "y", "x"), shape=(4, 30, 50), dtype=U2, scale=scale, units=units)
    write_array(tmp_path / "a.wkw", spec, levels=1)
    found = properties(tmp_path / "a.wkw")["scale"]
    assert (found["factor"], found["unit"]) == expected
    (reader,) = open_array(data_path_of(tmp_path / "a.wkw"))
    assert (reader.spec.units, reader.spec.scale) == (units, scale)


def test_a_single_plane_and_rgb(tmp_path):
    spec = ArraySpec(axes=("y", "x", "c"), shape=(70, 40, 3), dtype=np.dtype(np.uint8))
    (array,) = write_array(tmp_path / "a.wkw", spec, levels=1)
    (reader,) = open_array(data_path_of(tmp_path / "a.wkw"))
    assert (reader.spec.axes, reader.spec.shape) == (("z", "y", "x", "c"), (1, 70, 40, 3))
    assert np.array_equal(read_all(reader), array)
    (layer,) = properties(tmp_path / "a.wkw")["dataLayers"]
    assert (layer["elementClass"], layer["numChannels"]) == ("uint24", 3)
    assert (tmp_path / "a.wkw" / "C0" / "1" / "header.wkw").read_bytes()[7] == 3


@pytest.mark.parametrize("options", KINDS, ids=lambda options: options["compression"])
def test_what_is_announced_is_there_at_every_moment(tmp_path, options):
    path = tmp_path / "a.wkw"
    final = planned(replace(STACK, shape=(100, 40, 40)), levels=2, **options)
    levels = [replace(level, shape=(0, *level.shape[1:])) for level in final]
    arrays = [noise(level.shape, U2, seed) for seed, level in enumerate(final)]
    writer = begin(path, levels, levels=2, **options)
    readers = open_array(data_path_of(path))
    assert not (path / "datasource-properties.json").exists()
    assert [list(reader.stored()) for reader in readers] == [[], []]
    for done in range(0, 100, levels[0].chunk_shape[0]):
        for number, level in enumerate(final):
            part = replace(level, shape=(min(done + level.chunk_shape[0], 100), *level.shape[1:]))
            skip = {position for position in np.ndindex(*part.grid_shape) if position[0] * level.chunk_shape[0] < done}
            store(writer, number, part, arrays[number], skip)
            writer.grow(number, part.shape)
            for reader, array in zip(readers, arrays, strict=True):
                reader.refresh()
                assert np.array_equal(read_all(reader), array[: reader.spec.shape[0]])
                assert not reader.complete
            if (path / "datasource-properties.json").exists():
                assert box(path)[2] == min(reader.spec.shape[0] for reader in readers)
                assert [reader.spec.shape[0] for reader in open_array(data_path_of(path / "C0"))] == [box(path)[2]] * 2
            report = CheckReport()
            FORMAT.check(data_path_of(path), report)
            assert report.problems == []
    writer.finish(final)
    assert box(path) == (40, 40, 100)
    for reader, array in zip(readers, arrays, strict=True):
        reader.refresh()
        assert np.array_equal(read_all(reader), array)
        assert reader.complete


@pytest.mark.parametrize("options", KINDS, ids=lambda options: options["compression"])
def test_done_again_after_a_crash_the_bytes_are_the_same(tmp_path, options):
    levels = planned(STACK, levels=2, **options)
    arrays = [noise(level.shape, U2, seed) for seed, level in enumerate(levels)]
    growing = [replace(level, shape=(0, *level.shape[1:])) for level in levels]
    for name, torn in (("a", False), ("b", True)):
        if torn:
            writer = begin(tmp_path / name, growing, levels=2, **options)
            store(writer, 0, levels[0], arrays[0] // 2, skip={(1, 0, 0)})  # not what is to be there in the end
            writer.grow(0, (64, 90, 130))
            (tmp_path / name / "C0" / "1" / "z0" / "y0" / "x0.wkw.new").write_bytes(b"torn")
            (tmp_path / name / "acqstream-array.json.new").write_bytes(b"torn")
        writer = begin(tmp_path / name, growing, levels=2, **options)
        assert [reader.spec.shape[0] for reader in open_array(data_path_of(tmp_path / name))] == [64 if torn else 0, 0]
        for number, (level, array) in enumerate(zip(levels, arrays, strict=True)):
            store(writer, number, level, array)
        writer.finish(levels)
        (tmp_path / name / "C0" / "1" / "z0" / "y0" / "x0.wkw.new").unlink(missing_ok=True)
    once, again = tree(tmp_path / "a"), tree(tmp_path / "b")
    assert once.keys() == again.keys()
    different = [name for name in once if once[name].replace(b'"name": "a"', b'"name": "b"') != again[name]]
    assert different == []


def test_a_level_does_not_shrink_while_it_grows(tmp_path):
    levels = planned(STACK, levels=1)
    writer = begin(tmp_path / "a", [replace(levels[0], shape=(0, 90, 130))], levels=1)
    store(writer, 0, levels[0], noise(STACK.shape, U2))
    writer.grow(0, (70, 90, 130))
    writer.grow(0, (32, 90, 130))
    assert box(tmp_path / "a") == (130, 90, 70)


def test_a_shorter_end_than_planned_is_that_of_the_boxes(tmp_path):
    spec = ArraySpec(axes=("time", "z", "y", "x"), shape=(3, 20, 32, 32), dtype=U2)
    levels = planned(spec, levels=1)
    writer = begin(tmp_path / "a", [replace(levels[0], shape=(0, 20, 32, 32))], levels=1)
    store(writer, 0, levels[0], noise(spec.shape, U2), skip=[(1, 0, 0, 0), (2, 0, 0, 0)])
    writer.grow(0, (2, 20, 32, 32))
    assert box(tmp_path / "a" / "time0001") == (32, 32, 20)
    writer.finish([replace(levels[0], shape=(2, 10, 32, 32))])
    assert [box(tmp_path / "a" / f"time000{time}") for time in range(2)] == [(32, 32, 10)] * 2
    assert not (tmp_path / "a" / "time0002").exists()


def test_a_chunk_of_another_shape_is_refused(tmp_path):
    writer = begin(tmp_path / "a", planned(STACK, levels=1), levels=1)
    with pytest.raises(ValueError, match=r"a chunk of shape \(32, 32, 32\) at \(0, 0, 0\) of level 0, not"):
        writer.encode(0, (0, 0, 0), np.zeros((32, 32, 32), U2))


@pytest.mark.parametrize(
    ("changed", "options", "text"),
    [
        ({}, {"compression": "lz4", "cube": 512}, "RAW cubes of 128, .*, expected .* in LZ4 cubes of 512"),
        ({}, {"cube": 256}, "expected .* RAW cubes of 256"),
        ({"dtype": np.dtype(np.uint8)}, {}, "uint8"),
        ({"axes": ("time", "y", "x")}, {}, "expected .*time"),
        ({"shape": (70, 90, 131)}, {}, r"planes of \(90, 130\) pixels, expected \(90, 131\)"),
        ({}, {"levels": 3}, "levels"),
    ],
)
def test_another_array_is_not_gone_on_with(tmp_path, changed, options, text):
    begin(tmp_path / "a", planned(STACK, levels=2), levels=2)
    asked = {"levels": 2} | options
    with pytest.raises(DatasetExists, match=text):
        begin(tmp_path / "a", planned(replace(STACK, **changed), **asked), **asked)


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "notes.txt").write_text("mine")
    with pytest.raises(DatasetExists, match="is not a container of acqstream"):
        begin(tmp_path / "a", planned(STACK))
    assert tree(tmp_path / "a") == {"notes.txt": b"mine"}


@pytest.mark.parametrize("compression", ["raw", "lz4"])
def test_a_container_that_goes_away_is_an_error_with_its_path(tmp_path, compression):
    levels = planned(STACK, compression=compression, cube=64, levels=1)
    writer = begin(tmp_path / "a", levels, compression=compression, cube=64, levels=1)
    store(writer, 0, levels[0], noise(STACK.shape, U2))
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(StorageError, match=r"x0\.wkw"):
        store(writer, 0, levels[0], noise(STACK.shape, U2))


def test_raw_cubes_are_sparse_and_final_from_the_start(tmp_path):
    levels = planned(replace(STACK, shape=(0, 90, 130)), levels=1, cube=128)
    writer = begin(tmp_path / "a", levels, levels=1, cube=128)
    chunk = noise(levels[0].chunk_shape, U2)
    writer.store(0, [((0, 0, 0), writer.encode(0, (0, 0, 0), in_blocks(chunk, levels[0].block_shape)))])
    path = tmp_path / "a" / "C0" / "1" / "z0" / "y0" / "x0.wkw"
    assert path.stat().st_size == 16 + 128**3 * 2
    assert allocated_bytes(path) < path.stat().st_size / 2


class RecordingDisk(LocalDisk):
    """Notes which files were written and not forced yet, each time a file gets its name."""

    def __init__(self) -> None:
        super().__init__()
        self.paths: dict[int, str] = {}
        self.unforced: set[str] = set()
        self.named: list[tuple[str, set[str]]] = []

    def open(self, path, *, create, direct=False):
        fd = super().open(path, create=create, direct=direct)
        self.paths[fd] = path
        return fd

    def open_file_system(self, folder):
        return None  # each file is forced by a call of its own

    def pwritev(self, fd, buffers, offset):
        self.unforced.add(self.paths[fd])
        return super().pwritev(fd, buffers, offset)

    def fdatasync(self, fd):
        super().fdatasync(fd)
        self.unforced.discard(self.paths[fd])

    def replace(self, source, target):
        super().replace(source, target)
        if source in self.unforced:
            self.unforced = self.unforced - {source} | {target}
        self.named.append((target.removesuffix(".new"), set(self.unforced)))


@pytest.mark.parametrize("options", KINDS, ids=lambda options: options["compression"])
def test_nothing_is_announced_before_it_is_forced(tmp_path, options):
    disk = RecordingDisk()
    final = planned(STACK, levels=1, **options)
    levels = [replace(final[0], shape=(0, 90, 130))]
    writer = create_writer(tmp_path / "a", levels, parse_options({"levels": 1, **options}), disk)
    store(writer, 0, final[0], noise(STACK.shape, U2))
    writer.grow(0, STACK.shape)
    container = f"{tmp_path / 'a'}/"  # a killed mirror makes the checksums beside it again
    announced = [
        (name, {path for path in unforced if path.startswith(container)})
        for name, unforced in disk.named
        if name.startswith(container) and name.endswith(".json")
    ]
    assert [name.rpartition("/")[2] for name, _ in announced] == [
        "acqstream-array.json",
        "datasource-properties.json",
        "acqstream-array.json",
    ]
    assert all(not unforced for name, unforced in announced)
    assert all(name not in unforced for name, unforced in announced)
    order = [name.rpartition("/")[2] for name, _ in disk.named]
    assert order.index("header.wkw") < order.index("datasource-properties.json")


def test_blocks_wholly_beyond_the_plane_take_no_space(tmp_path):
    levels = planned(replace(STACK, shape=(0, 90, 130)), levels=1, cube=128)
    writer = begin(tmp_path / "a", levels, levels=1, cube=128)
    writer.store(0, [((0, 0, 1), writer.encode(0, (0, 0, 1), np.zeros(levels[0].memory_shape, U2)))])
    used = allocated_bytes(tmp_path / "a" / "C0" / "1" / "z0" / "y0" / "x1.wkw")
    assert 3 * 2**16 <= used < 4 * 2**16  # one block wide, three high


@pytest.mark.parametrize("options", KINDS[:2], ids=lambda options: options["compression"])
def test_chunks_come_from_several_threads_in_any_order(tmp_path, options):
    spec = ArraySpec(axes=("channel", "z", "y", "x"), shape=(3, 100, 100, 100), dtype=U2)
    levels = planned(spec, levels=1, **options)
    array = noise(spec.shape, U2)
    writer = begin(tmp_path / "a", levels, levels=1, **options)
    positions = list(np.ndindex(*levels[0].grid_shape))
    random.Random(1).shuffle(positions)

    def take(position):
        everything_else = set(positions) - {position}
        store(writer, 0, levels[0], array, everything_else)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(take, positions))
    writer.finish(levels)
    assert np.array_equal(read_all(open_array(data_path_of(tmp_path / "a"))[0]), array)


@pytest.mark.parametrize("options", KINDS[:2], ids=lambda options: options["compression"])
def test_a_complete_container_stays_as_it_is(tmp_path, options):
    """Not after a sync that comes behind the end, nor where a restarted mirror stores again what is there."""
    path, levels = tmp_path / "a", planned(STACK, levels=1, **options)
    writer = begin(path, levels, levels=1, **options)
    store(writer, 0, levels[0], noise(STACK.shape, U2))
    writer.finish(levels)
    complete = tree(path)
    writer.sync()
    assert tree(path) == complete
    again = begin(path, levels, levels=1, **options)
    store(again, 0, levels[0], noise(STACK.shape, U2))
    again.sync()
    assert tree(path) == complete
    again.finish(levels)
    again.sync()
    assert tree(path) == complete
