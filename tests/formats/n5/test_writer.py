"""Containers that our writer makes: read back, grown, gone on with, interrupted."""

from __future__ import annotations

import errno
import pickle
from dataclasses import replace

import numpy as np
import pytest

import acqstream
from acqstream.errors import ConfigError, DatasetExists, DiskFull
from acqstream.formats.compression import N5_COMPRESSION
from acqstream.formats.n5 import FORMAT
from tests.checksum_files import is_list
from tests.formats.n5.n5_samples import (
    attributes_of,
    chunk_of,
    create,
    plan_levels,
    reduced,
    samples,
    spec_of,
    with_shape,
    write_array,
    write_levels,
    write_pyramid,
)
from tests.storage.scripted_disk import ScriptedDisk
from tests.storage.unforced_disk import UnforcedDisk

AXES_5D = ("time", "channel", "z", "y", "x")
DTYPES = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float32", "float64")


@pytest.mark.parametrize("compression", N5_COMPRESSION.kinds)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_and_codec_there_and_back(tmp_path, dtype, compression):
    array = samples((5, 9, 11), dtype)
    folder = write_array(tmp_path / "a.n5", array, ("z", "y", "x"), compression=compression, blocks=[2, 4, 8])
    with acqstream.open(folder) as ds:
        assert ds.dtype == array.dtype
        assert ds.dtype.isnative
        assert np.array_equal(ds.levels[0].read(), array)


@pytest.mark.parametrize("layout", ["bdv", "multiscale", "array"])
def test_every_layout_there_and_back(tmp_path, layout):
    array = samples((3, 2, 6, 20, 30), "uint16")
    fields = {
        "scale": (2.0, 1.0, 0.5, 0.2, 0.2),
        "units": ("s", "", "um", "um", "um"),
        "translation": (0.0, 0.0, -3.0, 100.0, 200.0),
        "labels": {"channel": ("DAPI", "GFP <&> é")},
        "attributes": {"exposure_ms": 10},
    }
    write_pyramid(tmp_path / "a.n5", array, AXES_5D, layout=layout, levels=3, blocks=[4, 8, 8], **fields)
    with acqstream.open(tmp_path / "a.n5") as ds:
        assert (ds.format, ds.complete, len(ds.levels)) == ("n5", True, 3)
        assert (ds.levels[0].axes, ds.shape) == (AXES_5D, array.shape)
        assert list(ds.axes["channel"]) == ["DAPI", "GFP <&> é"]
        assert ds.summary_metadata == {"exposure_ms": 10}
        for level in ds.levels:
            expected = reduced(array, replace(spec_of(array, AXES_5D), factors=level.factors, shape=level.shape))
            assert np.array_equal(level.read(), expected)
            assert level.missing_count == 0
        assert ds.levels[1].factors == (1, 1, 1, 2, 2)
        assert ds.levels[1].scale == pytest.approx((2.0, 1.0, 0.5, 0.4, 0.4))
        assert ds.levels[1].translation == pytest.approx((0.0, 0.0, -3.0, 100.1, 200.1))
        assert ds.levels[1].units == fields["units"]


@pytest.mark.parametrize(
    ("axes", "shape"), [(("y", "x"), (20, 30)), (("time", "y", "x"), (4, 20, 30)), (("y", "x", "c"), (9, 8, 3))]
)
@pytest.mark.parametrize("layout", ["bdv", "multiscale", "array"])
def test_planes_and_colours_there_and_back(tmp_path, layout, axes, shape):
    array = samples(shape, "uint8")
    moved = np.moveaxis(array, -1, 0) if "c" in axes else array
    options = FORMAT.parse_options({"layout": layout, "levels": 1})
    (level,) = plan_levels(spec_of(array, axes), options)
    write_levels(tmp_path / "a.n5", [moved.reshape(level.shape)], [level], options).finish([level])
    with acqstream.open(tmp_path / "a.n5") as ds:
        assert ds.levels[0].axes == level.axes
        assert np.array_equal(ds.levels[0].read(), moved.reshape(level.shape))


def test_the_attributes_are_those_that_the_viewers_look_for(tmp_path):
    array = samples((2, 6, 20, 30), "uint16")
    space = {"scale": (1.0, 0.5, 0.1, 0.1), "units": ("", "um", "um", "um")}
    write_pyramid(tmp_path / "a.n5", array, AXES_5D[1:], levels=2, blocks=[4, 8, 16], compression="gzip", **space)
    folder = tmp_path / "a.n5"
    assert attributes_of(folder)["n5"] == "4.0.0"
    factors = [[1, 1, 1], [2, 2, 1]]
    assert attributes_of(folder / "setup1") == {"downsamplingFactors": factors, "dataType": "uint16"}
    assert attributes_of(folder / "setup1" / "timepoint0") == {
        "downsamplingFactors": factors,
        "resolution": [0.1, 0.1, 0.5],
        "units": ["um", "um", "um"],
        "axes": ["x", "y", "z"],
        "multiScale": True,
    }
    assert attributes_of(folder / "setup1" / "timepoint0" / "s1") == {
        "dimensions": [15, 10, 6],
        "blockSize": [16, 8, 4],
        "dataType": "uint16",
        "compression": {"type": "gzip", "level": 6, "useZlib": False},
        "downsamplingFactors": [2, 2, 1],
        "pixelResolution": {"unit": "um", "dimensions": [0.1, 0.1, 0.5]},
    }


def test_end_blocks_are_written_in_full_size(tmp_path):
    folder = write_array(tmp_path / "a.n5", samples((3, 5), "uint8"), ("y", "x"), blocks=[1, 2, 4], compression="raw")
    assert {path.stat().st_size for path in folder.rglob("*") if path.name.isdecimal() and path.is_file()} == {16 + 8}


def store_new_layers(writer, number, whole, level, first):
    """All blocks of a level from this layer on."""
    for position in np.ndindex(*level.grid_shape):
        if position[0] >= first:
            writer.store(number, [(position, writer.encode(number, position, chunk_of(whole, level, position)))])


def test_an_array_grows_without_a_block_written_again(tmp_path):
    array = samples((7, 12, 10), "uint16")
    options = FORMAT.parse_options({"layout": "array", "blocks": [2, 8, 8], "levels": 2})
    final = plan_levels(spec_of(array, ("z", "y", "x")), options)
    begun = with_shape(final, (0, 12, 10))
    writer = create(tmp_path / "a.n5", begun, options, UnforcedDisk())
    ds = acqstream.open(tmp_path / "a.n5")
    assert (ds.shape, ds.complete) == ((0, 12, 10), False)
    for depth in (3, 6, 7):
        grown = with_shape(final, (depth, 12, 10))
        for number, (before, level) in enumerate(zip(begun, grown, strict=True)):
            store_new_layers(writer, number, reduced(array[:depth], level), level, before.shape[0] // 2)
            writer.grow(number, level.shape)
        begun = grown
        ds.refresh()
        assert np.array_equal(ds.levels[0].read(), array[:depth])
        assert np.array_equal(ds.levels[1].read(), reduced(array[:depth], grown[1]))
    writer.finish(begun)
    ds.refresh()
    assert ds.complete


def test_time_points_appear_as_they_come(tmp_path):
    array = samples((3, 2, 4, 8, 8), "uint8")
    options = FORMAT.parse_options({"blocks": [4, 8, 8]})
    (full,) = plan_levels(spec_of(array, AXES_5D), options)
    folder = tmp_path / "a.n5"
    (begun,) = with_shape([full], (0, *array.shape[1:]))
    writer = create(folder, [begun], options, UnforcedDisk())
    ds = acqstream.open(folder)
    for time in range(3):
        for position in np.ndindex(1, *full.grid_shape[1:]):
            place = (time, *position[1:])
            writer.store(0, [(place, writer.encode(0, place, chunk_of(array, full, place)))])
        assert ds.shape[0] == time
        writer.grow(0, (time + 1, *array.shape[1:]))
        ds.refresh()
        assert np.array_equal(ds.levels[0].read(), array[: time + 1])
        text = (tmp_path / "a.xml").read_text()
        assert f"<last>{time}</last>" in text
        assert text.count("<ViewRegistration ") == 2 * (time + 1)
    writer.grow(0, (2, *array.shape[1:]))  # as one that was restarted does
    ds.refresh()
    assert ds.shape[0] == 3


def test_an_axis_that_would_number_the_setups_anew_cannot_grow(tmp_path):
    axes, array = ("time", "position", "channel", "y", "x"), np.zeros((1, 2, 2, 4, 4), "uint8")
    for layout, allowed in (("bdv", False), ("multiscale", True), ("array", True)):
        options = FORMAT.parse_options({"layout": layout})
        (level,) = plan_levels(spec_of(array, axes), options)
        writer = create(tmp_path / f"{layout}.n5", [level], options, UnforcedDisk())
        writer.grow(0, (2, 3, 2, 1, 4, 4))
        if allowed:
            writer.grow(0, (2, 3, 3, 1, 4, 4))
            continue
        with pytest.raises(ConfigError, match="cannot get longer along 'channel'"):
            writer.grow(0, (2, 3, 3, 1, 4, 4))


def test_what_was_planned_and_did_not_come_is_taken_back(tmp_path):
    array = samples((2, 4, 8, 8), "uint8")
    options = FORMAT.parse_options({"blocks": [4, 8, 8]})
    (planned,) = plan_levels(spec_of(np.zeros((5, 9, 8, 8), "uint8"), AXES_5D[:1] + AXES_5D[2:]), options)
    writer = create(tmp_path / "a.n5", [planned], options, UnforcedDisk())
    for time in (0, 1):
        chunk = np.zeros(planned.chunk_shape, "uint8")
        chunk[:, :4] = array[time]
        writer.store(0, [((time, 0, 0, 0), writer.encode(0, (time, 0, 0, 0), chunk))])
    writer.finish(with_shape([planned], array.shape))
    with acqstream.open(tmp_path / "a.n5") as ds:
        assert np.array_equal(ds.levels[0].read(), array)
        assert ds.complete


def test_going_on_gives_the_same(tmp_path):
    array = samples((2, 6, 20, 30), "uint16")
    write_pyramid(tmp_path / "a.n5", array, AXES_5D[1:], levels=2, blocks=[4, 8, 16])
    write_pyramid(tmp_path / "b.n5", array, AXES_5D[1:], levels=2, blocks=[4, 8, 16], is_finished=False)
    with acqstream.open(tmp_path / "b.n5") as ds:
        assert not ds.complete
    (tmp_path / "b.n5" / "setup0" / "timepoint0" / "s0" / "0" / "0" / "1.new").write_bytes(b"torn")  # by a crash
    write_pyramid(tmp_path / "b.n5", array, AXES_5D[1:], levels=2, blocks=[4, 8, 16])
    first = {path.relative_to(tmp_path / "a.n5"): path for path in (tmp_path / "a.n5").rglob("*") if path.is_file()}
    second = {path.relative_to(tmp_path / "b.n5"): path for path in (tmp_path / "b.n5").rglob("*") if path.is_file()}
    first, second = ({key: path for key, path in found.items() if not is_list(key)} for found in (first, second))
    assert first.keys() == second.keys()
    assert all(path.read_bytes() == second[name].read_bytes() for name, path in first.items())
    assert (tmp_path / "a.xml").read_text().replace("a.n5", "b.n5") == (tmp_path / "b.xml").read_text()


@pytest.mark.parametrize("layout", ["bdv", "array"])
def test_a_writer_that_goes_on_does_not_shrink_what_is_there(tmp_path, layout):
    array = samples((3, 4, 8, 8), "uint8")
    axes, given = ("time", "z", "y", "x"), {"layout": layout, "levels": 1, "blocks": [2, 8, 8]}
    write_pyramid(tmp_path / "a.n5", array, axes, **given)
    options = FORMAT.parse_options(given)
    (level,) = plan_levels(spec_of(array, axes), options)
    writer = create(tmp_path / "a.n5", with_shape([level], (1, 2, 8, 8)), options, UnforcedDisk())
    chunk = chunk_of(array, level, (0, 0, 0, 0))
    writer.store(0, [((0, 0, 0, 0), writer.encode(0, (0, 0, 0, 0), chunk))])
    writer.grow(0, (2, 4, 8, 8))
    with acqstream.open(tmp_path / "a.n5") as ds:
        assert np.array_equal(ds.levels[0].read(), array)
        assert not ds.complete
    writer.finish(with_shape([level], (2, 4, 8, 8)))  # what is not wanted after all goes at the end
    with acqstream.open(tmp_path / "a.n5") as ds:
        assert np.array_equal(ds.levels[0].read(), array[:2])


class DyingDisk(UnforcedDisk):
    """Ends before the so many-th document is put in its place."""

    def __init__(self, fatal: int = 0) -> None:
        super().__init__()
        self.fatal, self.documents = fatal, 0
        self.error: BaseException = KeyboardInterrupt()

    def replace(self, source: str, target: str) -> None:
        self.documents += target.endswith((".json", ".xml"))
        if self.documents == self.fatal:
            raise self.error
        super().replace(source, target)


@pytest.mark.parametrize("layout", ["bdv", "array"])
def test_a_growth_that_was_interrupted_is_caught_up_with(tmp_path, layout):
    """Levels grow one after the other, and so do the attributes of their members."""
    array = samples((2, 8, 8, 8), "uint8")
    options = FORMAT.parse_options({"layout": layout, "levels": 3, "blocks": [2, 4, 4]})
    final = plan_levels(spec_of(array, ("time", "z", "y", "x")), options)
    arrays = [reduced(array, level) for level in final]

    def write(folder, disk, depths):
        writer = create(folder, with_shape(final, (0, 0, 8, 8)), options, disk)
        for depth in depths:
            for number, level in enumerate(with_shape(final, (2, depth, 8, 8))):
                for position in np.ndindex(*level.grid_shape):
                    chunk = chunk_of(arrays[number], final[number], position)
                    writer.store(number, [(position, writer.encode(number, position, chunk))])
                writer.grow(number, level.shape)
        writer.finish(final)

    undisturbed = DyingDisk()
    write(tmp_path / "undisturbed.n5", undisturbed, (4, 8))
    for fatal in range(1, undisturbed.documents + 1):
        folder = tmp_path / f"{fatal}.n5"
        with pytest.raises(KeyboardInterrupt):
            write(folder, DyingDisk(fatal), (4, 8))
        if not (folder / "attributes.json").exists():
            continue  # it is no container yet
        write(folder, UnforcedDisk(), (8,))
        with acqstream.open(folder) as ds:
            assert ds.complete
            for number, (level, expected) in enumerate(zip(ds.levels, arrays, strict=True)):
                assert level.shape == expected.shape, (fatal, number)
                assert np.array_equal(level.read(), expected)
        for path in (tmp_path / "undisturbed.n5").rglob("attributes.json"):
            again = folder / path.relative_to(tmp_path / "undisturbed.n5")
            assert again.read_bytes() == path.read_bytes(), (fatal, again)


@pytest.mark.parametrize("fatal", [1, 2, 3])
def test_a_growth_that_found_no_space_is_done_when_it_is_asked_for_again(tmp_path, fatal):
    array = samples((2, 8, 8, 8), "uint8")
    options = FORMAT.parse_options({"levels": 1, "blocks": [4, 8, 8]})
    (final,) = plan_levels(spec_of(array, ("time", "z", "y", "x")), options)
    disk = DyingDisk()
    writer = create(tmp_path / "a.n5", with_shape([final], (0, 0, 8, 8)), options, disk)
    for position in np.ndindex(*final.grid_shape):
        writer.store(0, [(position, writer.encode(0, position, chunk_of(array, final, position)))])
    disk.error, disk.fatal = (
        OSError(errno.ENOSPC, "no space"),
        disk.documents + fatal,
    )  # both time points, the container
    with pytest.raises(DiskFull):
        writer.grow(0, final.shape)
    writer.grow(0, final.shape)
    with acqstream.open(tmp_path / "a.n5") as ds:
        assert np.array_equal(ds.levels[0].read(), array)


def test_what_is_there_is_not_overwritten(tmp_path):
    array = samples((4, 8, 8), "uint8")
    axes = ("z", "y", "x")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("mine")
    with pytest.raises(DatasetExists, match="not a container of acqstream"):
        write_array(tmp_path / "other", array, axes)
    write_array(tmp_path / "a.n5", array, axes, blocks=[2, 8, 8], compression="gzip")
    for array_there, given, text in (
        (array, {"blocks": [2, 4, 8], "compression": "gzip"}, "holds blocks of"),
        (array, {"blocks": [2, 8, 8], "compression": "raw"}, "holds blocks of"),
        (array.astype("int8"), {"blocks": [2, 8, 8], "compression": "gzip"}, "holds blocks of"),
        (array, {"layout": "bdv", "blocks": [2, 8, 8], "compression": "gzip"}, "with layout bdv"),
        (array[None], {"blocks": [2, 8, 8], "compression": "gzip"}, "axes"),
    ):
        names = axes if array_there.ndim == 3 else ("time", *axes)
        with pytest.raises(DatasetExists, match=text):
            write_array(tmp_path / "a.n5", array_there, names, **given)
    with acqstream.open(tmp_path / "a.n5") as ds:
        assert np.array_equal(ds.levels[0].read(), array)


def test_a_full_disk_is_told_and_leaves_no_part(tmp_path):
    disk = ScriptedDisk()
    array = samples((1, 8, 8), "uint16")
    options = FORMAT.parse_options({"layout": "array", "levels": 1})
    (level,) = plan_levels(spec_of(array, ("z", "y", "x")), options)
    writer = create(tmp_path / "a.n5", [level], options, disk)
    encoded = writer.encode(0, (0, 0, 0), array)
    disk.fail("pwritev", 1, errno.ENOSPC, part="0")
    with pytest.raises(DiskFull, match="s0/0/0/0"):
        writer.store(0, [((0, 0, 0), encoded)])
    assert not list((tmp_path / "a.n5" / "s0" / "0" / "0").iterdir())
    writer.store(0, [((0, 0, 0), encoded)])
    with acqstream.open(tmp_path / "a.n5") as ds:
        assert np.array_equal(ds.levels[0].read(), array)


def test_chunks_of_another_shape_are_a_mistake(tmp_path):
    options = FORMAT.parse_options({"layout": "array", "levels": 1, "blocks": [2, 8, 8]})
    (level,) = plan_levels(spec_of(np.zeros((3, 9, 9), "u1"), ("z", "y", "x")), options)
    writer = create(tmp_path / "a.n5", [level], options, UnforcedDisk())
    with pytest.raises(ValueError, match=r"a chunk of shape \(1, 8, 8\)"):
        writer.encode(0, (1, 0, 0), np.zeros((1, 8, 8), "u1"))


def test_options_can_be_sent_to_another_process():
    options = FORMAT.parse_options({"compression": {"type": "blosc", "cname": "zstd"}})
    there = pickle.loads(pickle.dumps(options))  # noqa: S301
    assert there == options
    assert there.compression.named == options.compression.named == {"cname"}


LZ4_BYTES = {"type": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}


@pytest.mark.parametrize("asked", ["blosc", {"type": "blosc", "clevel": 5}, {"type": "blosc", "shuffle": 1}])
def test_a_container_keeps_the_parameters_that_the_user_does_not_name(tmp_path, asked):
    array = samples((4, 8, 8), "uint16")
    for compression in (LZ4_BYTES, asked):
        folder = write_array(tmp_path / "a.n5", array, ("z", "y", "x"), blocks=[2, 8, 8], compression=compression)
        assert attributes_of(folder)["compression"] == LZ4_BYTES


@pytest.mark.parametrize("asked", [{"type": "blosc", "shuffle": 2}, {"type": "blosc", "clevel": 1}, "zstd"])
def test_a_container_refuses_parameters_that_were_named(tmp_path, asked):
    array = samples((4, 8, 8), "uint16")
    write_array(tmp_path / "a.n5", array, ("z", "y", "x"), blocks=[2, 8, 8], compression=LZ4_BYTES)
    with pytest.raises(DatasetExists, match="holds blocks of"):
        write_array(tmp_path / "a.n5", array, ("z", "y", "x"), blocks=[2, 8, 8], compression=asked)


def test_a_container_with_an_unknown_codec_is_refused(tmp_path):
    array = samples((4, 8, 8), "uint16")
    folder = write_array(tmp_path / "a.n5", array, ("z", "y", "x"), blocks=[2, 8, 8])
    path = folder / "attributes.json"
    path.write_text(path.read_text().replace('"cname":', '"nthreads": 1, "cname":'))
    with pytest.raises(DatasetExists, match="blosc has no 'nthreads'"):
        write_array(tmp_path / "a.n5", array, ("z", "y", "x"), blocks=[2, 8, 8])
