"""OME-TIFF exports: tifffile reads every plane and level equal, and the OME-XML says what the dataset knows."""

from __future__ import annotations

import errno
import importlib.util
import itertools
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
import tifffile

import acqstream
from acqstream.codecs.streams import decode_zstd
from acqstream.errors import ConfigError, DiskFull, UnsupportedFeature
from acqstream.export.ome_images import NAMESPACE, OmeChannel, OmeImage, OmePixels, ome_xml, pixel_type
from acqstream.formats.ndtiff.folders import NOTES_NAME
from acqstream.grid.block_mean import BlockMean
from acqstream.model.run_note import RunNote
from tests.command import command
from tests.export.sample_exports import export, write_cells
from tests.export.test_plane_levels import rounded_mean
from tests.formats.ndtiff.ndtiff_bytes import Folder, image
from tests.storage.scripted_disk import ScriptedDisk
from tests.storage.unforced_disk import UnforcedDisk

OME = {"ome": NAMESPACE}


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    path = tmp_path_factory.mktemp("ome") / "cells"
    return path, write_cells(path)


def document(path: Path | str) -> ET.Element:
    with tifffile.TiffFile(path) as file:
        assert file.ome_metadata is not None
        return ET.fromstring(file.ome_metadata)


def test_notes_are_comments_of_the_first_image(cells: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    path = tmp_path / "cells"
    shutil.copytree(cells[0], path)
    assert (
        document(export(path, "ome-tiff", tmp_path / "a.ome.tif").path).find("ome:StructuredAnnotations", OME) is None
    )
    (path / NOTES_NAME).write_bytes(RunNote("drug added", 0, 3, id="id-1", values={"ul": 5}).line())
    root = document(export(path, "ome-tiff", tmp_path / "b.ome.tif").path)
    (comment,) = root.findall("ome:StructuredAnnotations/ome:CommentAnnotation", OME)
    assert [one.text for one in comment] == ["1970-01-01 00:00:00+00:00, before frame 3 (run)", "drug added (ul=5)"]
    assert [one.attrib["ID"] for one in root.findall("ome:Image/ome:AnnotationRef", OME)] == [comment.attrib["ID"]]


@pytest.mark.parametrize("compression", ["none", "zlib"])
@pytest.mark.parametrize("tile", [16, 512])
def test_every_plane_is_equal(cells: tuple[Path, np.ndarray], tmp_path: Path, compression: str, tile: int) -> None:
    path, array = cells
    report = export(path, "ome-tiff", tmp_path / "a.ome.tif", compression=compression, tile=tile)
    assert (report.images, report.levels, report.missing) == (1, ((40, 70),), 1)
    with tifffile.TiffFile(report.path) as file:
        assert file.is_bigtiff
        assert file.is_ome
        assert len(file.series) == 1
        assert file.series[0].axes == "TCZYX"
        np.testing.assert_array_equal(file.series[0].asarray(), array)
        first = file.pages.first
        assert (first.tilelength, first.tilewidth) == (min(tile, 48), min(tile, 80))


def test_zstd_tiles_are_equal(cells: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    """Decoded here: tifffile itself needs imagecodecs for it."""
    path, array = cells
    report = export(path, "ome-tiff", tmp_path / "a.ome.tif", compression="zstd", tile=512)
    data = Path(report.path).read_bytes()
    with tifffile.TiffFile(report.path) as file:
        for page, plane in zip(file.pages, array.reshape(-1, 40, 70), strict=True):
            assert page.compression == 50000
            (offset,), (count,) = page.dataoffsets, page.databytecounts
            tile = np.frombuffer(decode_zstd(data[offset : offset + count], 48 * 80 * 2), "<u2").reshape(48, 80)
            np.testing.assert_array_equal(tile[:40, :70], plane)
            assert not tile[40:].any()
            assert not tile[:, 70:].any()


def test_the_document_of_a_run(cells: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    report = export(cells[0], "ome-tiff", tmp_path / "a.ome.tif")
    root = document(report.path)
    pixels = root.find("ome:Image/ome:Pixels", OME)
    assert pixels is not None
    expected = {
        "SizeX": "70",
        "SizeY": "40",
        "SizeZ": "4",
        "SizeC": "2",
        "SizeT": "3",
        "Type": "uint16",
        "DimensionOrder": "XYZCT",
        "BigEndian": "false",
        "ID": "Pixels:0",
        "PhysicalSizeX": "0.5",
        "PhysicalSizeY": "0.5",
        "PhysicalSizeZ": "2.0",
        "TimeIncrement": "0.1",
        "PhysicalSizeXUnit": "µm",
        "PhysicalSizeYUnit": "µm",
        "PhysicalSizeZUnit": "µm",
        "TimeIncrementUnit": "s",
    }
    assert pixels.attrib == expected
    assert [channel.get("Name") for channel in pixels.findall("ome:Channel", OME)] == ["DAPI", "GFP"]
    with tifffile.TiffFile(report.path) as file:
        assert file.pages.first.tags["XResolution"].value == (20000, 1)  # pixels per centimetre
        assert file.pages.first.tags["ResolutionUnit"].value == 3


def test_places_are_those_of_the_stage(cells: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    def place(*select: str) -> list[str | None]:
        report = export(cells[0], "ome-tiff", tmp_path / "a.ome.tif", *select, is_replaced=True)
        label = document(report.path).find("ome:Image/ome:StageLabel", OME)
        assert label is not None
        return [label.get(name) for name in ("Z", "Y", "X", "XUnit")]

    assert place() == ["7.0", "50.0", "100.0", "µm"]
    assert place("z=2:", "y=4:", "x=10:20") == ["11.0", "50.0", "100.0", "µm"]  # the stage did not move


def test_lower_levels_are_rounded_means(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "cells")
    frames = [image(number, (1100, 1301), "u1") for number in range(2)]
    for number, frame in enumerate(frames):
        folder.add({"time": number}, frame)
    report = export(folder.path, "ome-tiff", tile=256)
    assert report.levels == ((1100, 1301), (550, 650), (275, 325))
    with tifffile.TiffFile(report.path) as file:
        levels = file.series[0].levels
        assert [level.shape for level in levels] == [(2, *shape) for shape in report.levels]
        expected = frames
        for level in levels:
            np.testing.assert_array_equal(level.asarray(), np.stack(expected))
            expected = [np.asarray(quick_mean(frame)) for frame in expected]
        assert [level.keyframe.subfiletype for level in levels] == [0, 1, 1]
    np.testing.assert_array_equal(quick_mean(frames[0][:20, :21]), rounded_mean(frames[0][:20, :21]))


def quick_mean(plane: np.ndarray) -> np.ndarray:
    height, width = plane.shape[0] // 2, plane.shape[1] // 2
    blocks = plane[: 2 * height, : 2 * width].reshape(height, 2, width, 2).astype(int)
    return ((blocks.sum(axis=(1, 3)) + 2) // 4).astype(plane.dtype)


def test_levels_of_the_dataset_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(tmp_path / "cells", {"PixelSizeUm": 0.5, "z-step_um": 2.0})
    for z in range(3):
        folder.add({"z": z}, image(z, (1100, 1100), "u1"))
    assert command("mirror", folder.path, "--to", "n5") == 0

    def compute(*_arguments: object) -> None:
        raise AssertionError("a level was computed although the dataset has it")

    monkeypatch.setattr(BlockMean, "mean", compute)
    report = export(tmp_path / "cells.n5", "ome-tiff", tmp_path / "a.ome.tif")
    with acqstream.open(tmp_path / "cells.n5") as ds, tifffile.TiffFile(report.path) as file:
        levels = file.series[0].levels
        assert [level.shape for level in levels] == [(3, 1100, 1100), (3, 550, 550), (3, 275, 275)]
        for own, stored in zip(levels, ds.levels, strict=False):
            np.testing.assert_array_equal(own.asarray(), stored.read())
    monkeypatch.undo()
    part = export(tmp_path / "cells.n5", "ome-tiff", tmp_path / "part.ome.tif", "x=1:", "z=2")
    with tifffile.TiffFile(part.path) as file:  # its halves lie between the stored pixels
        np.testing.assert_array_equal(
            file.series[0].levels[1].asarray(), quick_mean(image(2, (1100, 1100), "u1")[:, 1:])
        )


def write_positions(path: Path, names: list[str]) -> dict[str, np.ndarray]:
    folder = Folder(path, {"PixelSizeUm": 0.5, "ChNames": ["red", "green"]})
    frames = {}
    for number, (name, channel) in enumerate(itertools.product(names, range(2))):
        metadata = {"XPositionUm": 10.0 * number, "YPositionUm": 5.0, "ZPositionUm": 1.0}
        folder.add({"position": name, "channel": channel}, image(number, (6, 8)), metadata=metadata)
        frames[f"{name} {channel}"] = image(number, (6, 8))
    return frames


def test_positions_are_images_with_names_and_places(tmp_path: Path) -> None:
    names = ["left", "right µ"]
    frames = write_positions(tmp_path / "cells", names)
    report = export(tmp_path / "cells", "ome-tiff")
    assert report.images == 2
    root = document(report.path)
    images = root.findall("ome:Image", OME)
    assert [image_of.get("Name") for image_of in images] == names
    assert root.find("ome:Plate", OME) is None
    channels = images[0].findall("ome:Pixels/ome:Channel", OME)
    assert [channel.get("Name") for channel in channels] == ["red", "green"]
    labels = [image_of.find("ome:StageLabel", OME) for image_of in images]
    assert [label.get("X") for label in labels if label is not None] == ["0.0", "20.0"]
    planes = [image_of.find("ome:Pixels/ome:Plane", OME) for image_of in images]
    assert [plane.get("PositionX") for plane in planes if plane is not None] == ["0.0", "20.0"]
    with tifffile.TiffFile(report.path) as file:
        assert [series.name for series in file.series] == names
        for series, name in zip(file.series, names, strict=True):
            np.testing.assert_array_equal(series.asarray(), np.stack([frames[f"{name} {at}"] for at in range(2)]))


def test_names_of_wells_make_a_plate(tmp_path: Path) -> None:
    write_positions(tmp_path / "cells", ["A1_0", "A1_1", "B12_0"])
    root = document(export(tmp_path / "cells", "ome-tiff").path)
    wells = root.findall("ome:Plate/ome:Well", OME)
    assert [(well.get("Row"), well.get("Column")) for well in wells] == [("0", "0"), ("1", "11")]
    references = [[one.get("ID") for one in well.findall("ome:WellSample/ome:ImageRef", OME)] for well in wells]
    assert references == [["Image:0", "Image:1"], ["Image:2"]]


def test_colours(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "cells")
    frames = [image(number, (700, 30, 3), "u1") for number in range(2)]
    for number, frame in enumerate(frames):
        folder.add({"z": number}, frame)
    report = export(folder.path, "ome-tiff", compression="zlib")
    with tifffile.TiffFile(report.path) as file:
        assert file.series[0].axes == "ZYXS"
        np.testing.assert_array_equal(file.series[0].asarray(), np.stack(frames))
        np.testing.assert_array_equal(file.series[0].levels[1].asarray()[1], rounded_mean(frames[1]))


def test_axes_without_a_place_in_ome_count_images(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "cells")
    for angle, time in itertools.product(range(3), range(2)):
        folder.add({"angle": angle, "time": time}, image(2 * angle + time))
    report = export(folder.path, "ome-tiff", None, "angle=1:")
    assert [one.get("Name") for one in document(report.path).findall("ome:Image", OME)] == ["angle 1", "angle 2"]
    with tifffile.TiffFile(report.path) as file:
        np.testing.assert_array_equal(file.series[1].asarray(), np.stack([image(4), image(5)]))


def test_a_full_disk_leaves_nothing(cells: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    for nth in (1, 20, 200):
        disk = ScriptedDisk(UnforcedDisk())
        disk.fail("pwritev", nth, errno.ENOSPC, for_good=True)
        with pytest.raises(DiskFull, match=r"a\.ome\.tif"):
            export(cells[0], "ome-tiff", tmp_path / "a.ome.tif", disk=disk, tile=16)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"compression": "lzw"}, "has no compression 'lzw'; it has none, zlib, zstd"),
        ({"tile": 100}, "multiple of 16"),
        ({"is_copy": True}, "--copy is for hdf5"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        export(Path("cells"), "ome-tiff", **options)


def test_types_that_ome_lacks() -> None:
    with pytest.raises(UnsupportedFeature, match="no pixels of dtype uint64"):
        pixel_type(np.dtype("u8"))


def test_names_with_control_characters_stay_xml() -> None:
    pixels = OmePixels((4, 5), np.dtype("u1"), 1, 1, [OmeChannel("a\x00\x1b<&", "#ff0000")], {"X": (0.0, "um")})
    root = ET.fromstring(ome_xml([OmeImage("\ud800\U0001f52c", [0])], pixels, "test"))
    assert [one.get("Name") for one in root] == ["\U0001f52c"]
    channel = root.find("ome:Image/ome:Pixels/ome:Channel", OME)
    assert channel is not None
    assert channel.get("Name") == "a<&"
    assert channel.get("Color") == str(0xFF0000FF - 2**32)


@pytest.mark.parametrize(
    ("role", "step", "expected"),
    [
        ("X", (650.0, "nm"), {"PhysicalSizeX": "0.65", "PhysicalSizeXUnit": "µm"}),
        ("Z", (2.0, "micron"), {"PhysicalSizeZ": "2.0", "PhysicalSizeZUnit": "µm"}),
        ("T", (500.0, "ms"), {"TimeIncrement": "0.5", "TimeIncrementUnit": "s"}),
        ("Z", (2.0, "s"), {}),
        ("Y", (2.0, "pixel"), {}),
    ],
)
def test_lengths_are_in_um_and_times_in_s(role: str, step: tuple[float, str], expected: dict[str, str]) -> None:
    pixels = OmePixels((4, 5), np.dtype("u1"), 1, 1, [OmeChannel("a", "#ff0000")], {role: step})
    given = ET.fromstring(ome_xml([OmeImage("a", [0])], pixels, "test")).find("ome:Image/ome:Pixels", OME)
    assert given is not None
    assert {name: text for name, text in given.attrib.items() if name.startswith(("Physical", "Time"))} == expected


@pytest.mark.parametrize("channels", [1, 2])
def test_planes_without_a_frame_share_a_blank_page(tmp_path: Path, channels: int) -> None:
    folder = Folder(tmp_path / "cells")
    array = np.zeros((2, 10, channels, 3, 20, 30), "<u2")
    stored = [(0, 0, 0, 1), (0, 0, 0, 2), (0, 4, channels - 1, 0), (1, 0, 0, 0), (1, 9, channels - 1, 2)]
    for number, at in enumerate(stored):
        array[at] = image(number + 1, (20, 30))
        folder.add(dict(zip(("position", "time", "channel", "z"), at, strict=True)), array[at])
    times = sorted({at[1] for at in stored})
    names = sorted({at[2] for at in stored})
    report = export(tmp_path / "cells", "ome-tiff")
    with tifffile.TiffFile(report.path) as file:
        assert len(file.pages) == len(stored) + 2  # one blank page in each image
        for position in (0, 1):
            expected = array[position][times][:, names]
            np.testing.assert_array_equal(file.series[position].asarray().reshape(expected.shape), expected)
    assert report.missing == array[:, times][:, :, names].size // 600 - len(stored)


def test_a_sparse_run_takes_few_bytes_for_each_absent_frame(tmp_path: Path) -> None:
    """Each position has frames at one time, and all lie at places of their own."""
    places = [{"position": at, "time": at, "z": at} for at in range(12)]
    for name, count in (("few", 6), ("many", 12)):
        folder = Folder(tmp_path / name)
        for number, at in enumerate(places[:count]):
            folder.add(at, image(number, (32, 32)))
    kinds: dict[str, Any] = {"ome-tiff": {}, "hdf5": {"is_copy": True}, "table": {}}
    if importlib.util.find_spec("h5py") is None:
        kinds.pop("hdf5")
    for kind, options in kinds.items():
        few, many = (
            export(tmp_path / name, kind, tmp_path / f"{name}{kind}.csv", **options).size_bytes  # type: ignore[arg-type]
            for name in ("few", "many")
        )
        assert many - few < 200 * (12**3 - 6**3 - 6) + 6 * (2048 + 2000), kind
