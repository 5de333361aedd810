"""HDF5 exports: h5py reads every frame equal, by reference and copied, from anywhere."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
from datetime import UTC
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import acqstream
from acqstream.dataset.level_array import LevelArray
from acqstream.dataset.xarray_arrays import coordinates
from acqstream.errors import ConfigError, CorruptDataset, DatasetError, DatasetExists, DiskFull, UnsupportedFeature
from acqstream.export.exporter import ABSOLUTE_TEXT, GROWING_TEXT
from acqstream.export.frame_references import runs
from acqstream.export.hdf5 import MAX_NOTES, dimension_of
from acqstream.formats.ndtiff.folders import NOTES_NAME
from acqstream.model.run_note import RunNote
from tests.export.many_frames import write_many
from tests.export.sample_exports import CHANNELS, MISSING, SUMMARY, export, write_cells
from tests.formats.ndtiff.ndtiff_bytes import Folder, image
from tests.host_system import make_link
from tests.storage.scripted_disk import ScriptedDisk
from tests.storage.unforced_disk import UnforcedDisk

h5py = pytest.importorskip("h5py")

COPIES = pytest.mark.parametrize("is_copy", [False, True], ids=["reference", "copy"])


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    path = tmp_path_factory.mktemp("hdf5") / "cells"
    return path, write_cells(path)


@COPIES
def test_every_frame_is_equal(cells: tuple[Path, np.ndarray], tmp_path: Path, is_copy: bool) -> None:
    path, array = cells
    report = export(path, "hdf5", tmp_path / "a.h5", is_copy=is_copy)
    assert (report.shape, report.dtype, report.missing) == (array.shape, "uint16", 1)
    assert (report.references, ABSOLUTE_TEXT in report.notes) == ((0, False) if is_copy else (1, True))
    with h5py.File(report.path) as file:
        image_of = file["image"]
        assert image_of.dtype == np.dtype("<u2")
        for at in np.ndindex(array.shape[:3]):
            np.testing.assert_array_equal(image_of[at], array[at])
        np.testing.assert_array_equal(image_of[:, 1, ::2, 3:9], array[:, 1, ::2, 3:9])
        assert bool(image_of.is_virtual) is not is_copy


@COPIES
def test_notes_are_an_attribute(cells: tuple[Path, np.ndarray], tmp_path: Path, is_copy: bool) -> None:
    path = tmp_path / "cells"
    shutil.copytree(cells[0], path)
    with h5py.File(export(path, "hdf5", tmp_path / "none.h5", is_copy=is_copy).path) as file:
        assert "notes" not in file["image"].attrs
    notes = [
        RunNote(f"note é {n}", 10**9 * n, n, id=f"note-{n}", values={"x": "y" * 500}) for n in range(MAX_NOTES + 1)
    ]
    (path / NOTES_NAME).write_bytes(b"".join(one.line() for one in notes))
    report = export(path, "hdf5", tmp_path / "notes.h5", is_copy=is_copy)
    with h5py.File(report.path) as file:
        assert [*file["image"].attrs["notes"]] == [one.sentence(UTC) for one in notes[:MAX_NOTES]]
        assert file["image"].attrs["notes"][1].startswith("1970-01-01 00:00:01+00:00, before frame 1 (run): note é 1")
    assert any("1 notes on the run are left out" in one for one in report.notes)


def test_damaged_notes_are_left_out(cells: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    path = tmp_path / "cells"
    shutil.copytree(cells[0], path)
    (path / NOTES_NAME).write_bytes(b"rubbish\n" * 2)
    report = export(path, "hdf5", tmp_path / "notes.h5")
    assert any("line 1 is not a note" in one for one in report.notes)


@COPIES
def test_axes_and_coordinates_are_those_of_the_dataset(
    cells: tuple[Path, np.ndarray], tmp_path: Path, is_copy: bool
) -> None:
    path, _ = cells
    export(path, "hdf5", tmp_path / "a.h5", is_copy=is_copy)
    with acqstream.open(path) as ds, h5py.File(tmp_path / "a.h5") as file:
        source = ds.levels[0].source
        expected = coordinates(source, LevelArray(source))
        dims = file["image"].dims
        assert tuple(dim.label for dim in dims) == ds.levels[0].axes
        assert [dim[0].name for dim in dims] == [f"/{name}" for name in ds.levels[0].axes]
        for name, (dimension, values, *attributes) in expected.items():
            stored = file[name].asstr()[:] if file[name].dtype.kind == "O" else file[name][:]
            np.testing.assert_array_equal(stored, values)
            assert file[name].attrs.get("units", "") == (attributes[0] if attributes else {}).get("units", "")
            if name != dimension:
                assert [dim[0].name for dim in file[name].dims] == [f"/{one}" for one in dimension]
        assert set(file["image"].attrs["coordinates"].split()) == {"time_s", "z_um"}


def test_metadata_of_the_run_and_of_its_frames(cells: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    path, array = cells
    export(path, "hdf5", tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5") as file:
        assert json.loads(file["summary_metadata"].asstr()[()]) == SUMMARY
        assert file.attrs["PixelSizeUm"] == 0.5
        assert file.attrs["Comment"] == "µ"
        assert file.attrs["source"] == str(path)
        assert sorted(file["metadata"]) == ["Exposure", "XPositionUm", "YPositionUm", "ZPositionUm"]
        exposure = file["metadata/Exposure"]
        expected = np.arange(24.0).reshape(array.shape[:3])
        expected[MISSING[0], CHANNELS.index(MISSING[1]), MISSING[2]] = np.nan
        np.testing.assert_array_equal(exposure[:], expected)
        assert [dim[0].name for dim in exposure.dims] == ["/time", "/channel", "/z"]


def test_a_long_summary_fits(tmp_path: Path) -> None:
    summary = {f"key {number}": "text" * 100 for number in range(500)}
    Folder(tmp_path / "cells", summary).add({"time": 0}, image(0))
    export(tmp_path / "cells", "hdf5")
    with h5py.File(tmp_path / "cells.h5") as file:
        assert json.loads(file["summary_metadata"].asstr()[()]) == summary
        assert 0 < len(file.attrs) < 500


@COPIES
def test_colours_and_names_that_are_ours(tmp_path: Path, is_copy: bool) -> None:
    folder = Folder(tmp_path / "cells")
    frames = [image(number, (6, 7, 3), "u1") for number in range(2)]
    for number, frame in enumerate(frames):
        folder.add({"image": number}, frame)
    export(folder.path, "hdf5", is_copy=is_copy)
    with h5py.File(tmp_path / "cells.h5") as file:
        np.testing.assert_array_equal(file["image"][:], np.stack(frames))
        assert [dim.label for dim in file["image"].dims] == ["image_axis", "y", "x", "c"]
    assert dimension_of("a/b") == "a_b"


def test_a_single_frame_without_axes(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "cells")
    folder.add({}, image(1))
    for is_copy in (False, True):
        export(folder.path, "hdf5", is_copy=is_copy, is_replaced=True)
        with h5py.File(tmp_path / "cells.h5") as file:
            np.testing.assert_array_equal(file["image"][:], image(1))


def test_the_last_of_frames_with_equal_axes_counts(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "cells")
    for seed in range(3):
        folder.add({"time": seed % 2}, image(seed))
    export(folder.path, "hdf5")
    with h5py.File(tmp_path / "cells.h5") as file:
        np.testing.assert_array_equal(file["image"][:], np.stack([image(2), image(1)]))


@COPIES
def test_chosen_frames(cells: tuple[Path, np.ndarray], tmp_path: Path, is_copy: bool) -> None:
    path, array = cells
    report = export(path, "hdf5", tmp_path / "a.h5", "time=1:", "channel=GFP", is_copy=is_copy)
    assert report.missing == 1
    with h5py.File(report.path) as file:
        np.testing.assert_array_equal(file["image"][:], array[1:, 1:])
        assert list(file["time"][:]) == [1, 2]
        assert file["metadata/Exposure"].shape == (2, 1, 4)


def test_a_part_of_the_picture_needs_a_copy(cells: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    path, array = cells
    with pytest.raises(UnsupportedFeature, match="a part of the picture cannot be referenced"):
        export(path, "hdf5", tmp_path / "a.h5", "y=10:20")
    export(path, "hdf5", tmp_path / "a.h5", "y=10:20", "x=5:", is_copy=True, compression="zlib")
    with h5py.File(tmp_path / "a.h5") as file:
        np.testing.assert_array_equal(file["image"][:], array[..., 10:20, 5:])
        assert file["image"].compression == "gzip"
        assert list(file["y"][:]) == [40.25 + 0.5 * at for at in range(10, 20)]


READ_SUM = "import h5py, sys; print(h5py.File(sys.argv[1])['image'][:].sum(dtype='u8'))"


def read_sum(path: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """The sum of all pixels as another process in `folder` reads them."""
    command = [sys.executable, "-c", READ_SUM, str(path)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)


def test_references_are_read_from_another_folder_but_not_after_a_move(tmp_path: Path) -> None:
    array = write_cells(tmp_path / "data" / "cells")
    export(tmp_path / "data" / "cells", "hdf5")
    export(tmp_path / "data" / "cells", "hdf5", tmp_path / "data" / "copy.h5", is_copy=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    total = str(array.sum(dtype="u8"))
    assert read_sum(tmp_path / "data" / "cells.h5", elsewhere).stdout.strip() == total
    shutil.copy(tmp_path / "data" / "cells.h5", elsewhere)  # the file alone may move
    assert read_sum(Path("cells.h5"), elsewhere).stdout.strip() == total

    (tmp_path / "data").rename(tmp_path / "moved")
    broken = read_sum(tmp_path / "moved" / "cells.h5", elsewhere)
    assert broken.returncode != 0
    assert "unable to open" in broken.stderr  # rather than zeros
    assert read_sum(tmp_path / "moved" / "copy.h5", elsewhere).stdout.strip() == total
    export(tmp_path / "moved" / "cells", "hdf5", is_replaced=True)
    assert read_sum(tmp_path / "moved" / "cells.h5", elsewhere).stdout.strip() == total


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.timeout_s(600)
def test_a_hundred_thousand_frames(tmp_path: Path) -> None:
    """50 external datasets; every frame is read equal, and others than the first 2,000 alone."""
    count, shape = 100_000, (8, 8)
    pixels = write_many(tmp_path / "many", count, shape)
    report = export(tmp_path / "many", "hdf5")
    assert (report.references, report.shape) == (50, (count, *shape))
    with h5py.File(report.path) as file:
        assert all(len(frames) == 2000 for frames in file["frames"].values())
        for at in (0, 1999, 2000, 99_999):
            np.testing.assert_array_equal(file["image"][at], pixels[at])
        np.testing.assert_array_equal(file["image"][:], pixels)
        np.testing.assert_array_equal(file["time"][:], np.arange(count))


@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.tuples(*(st.integers(0, 4) for _ in range(n))), unique=True)))
def test_runs_are_the_positions(positions: list[tuple[int, ...]]) -> None:
    positions = sorted(positions)
    found = runs(positions)
    assert [(*first[:-1], first[-1] + step) for first, count in found for step in range(count)] == positions
    starts = {(*first[:-1], first[-1] + count) for first, count in found}
    assert not starts & set(positions)  # no run could be longer


def test_gaps_of_all_kinds(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    folder = Folder(tmp_path / "cells")
    expected = np.zeros((5, 6, 7, 3, 4), "<u2")
    for number, at in enumerate(np.ndindex(5, 6, 7)):
        if random.random() < 0.6 or number == 0:
            expected[at] = image(number)
            folder.add(dict(zip(("time", "channel", "z"), map(int, at), strict=True)), image(number))
    export(folder.path, "hdf5")
    with acqstream.open(folder.path) as ds, h5py.File(tmp_path / "cells.h5") as file:
        assert ds.shape == expected.shape
        np.testing.assert_array_equal(file["image"][:], expected)


def test_what_cannot_be_referenced_says_why(cells: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    big_endian = Folder(tmp_path / "big", order=">")
    big_endian.add({"time": 0}, image(0))
    with pytest.raises(UnsupportedFeature, match="big endian and cannot be referenced: export it with --copy"):
        export(big_endian.path, "hdf5")
    export(big_endian.path, "hdf5", is_copy=True)
    with h5py.File(tmp_path / "big.h5") as file:
        np.testing.assert_array_equal(file["image"][0], image(0))

    uneven = Folder(tmp_path / "uneven")
    uneven.add({"time": 0}, image(0))
    uneven.add({"time": 1}, image(0, (5, 5)))
    with pytest.raises(UnsupportedFeature, match=r"\(5, 5\).*cannot be referenced"):
        export(uneven.path, "hdf5")

    cut_off = Folder(tmp_path / "cut")
    cut_off.add({"time": 0}, image(0, (50, 50)))
    stack = cut_off.path / cut_off.stack
    stack.write_bytes(stack.read_bytes()[:-3000])
    with pytest.raises(CorruptDataset, match="repair the dataset first"):
        export(cut_off.path, "hdf5")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["big", "big.h5", "cut", "uneven"]


def test_a_dataset_that_grows_is_exported_as_far_as_it_is_published(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "cells")
    folder.set_state("RUNNING")
    folder.add({"time": 0}, image(0))
    report = export(folder.path, "hdf5")
    assert GROWING_TEXT in report.notes
    folder.add({"time": 1}, image(1))
    with h5py.File(report.path) as file:
        np.testing.assert_array_equal(file["image"][:], image(0)[None])


def test_existing_files_and_the_folder_of_the_dataset_are_safe(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "cells")
    folder.add({"time": 0}, image(0))
    export(folder.path, "hdf5")
    before = (tmp_path / "cells.h5").read_bytes()
    with pytest.raises(DatasetExists, match="already exists"):
        export(folder.path, "hdf5")
    assert (tmp_path / "cells.h5").read_bytes() == before
    for inside in (folder.path / "a.h5", folder.path, folder.path / folder.stack):
        with pytest.raises(DatasetError, match="in the folder of the dataset"):
            export(folder.path, "hdf5", inside, is_replaced=True)
    link = tmp_path / "link"
    make_link(link, folder.path)
    with pytest.raises(DatasetError, match="in the folder of the dataset"):
        export(folder.path, "hdf5", link / "a.h5")


@COPIES
def test_a_full_disk_leaves_nothing(cells: tuple[Path, np.ndarray], tmp_path: Path, is_copy: bool) -> None:
    disk = ScriptedDisk(UnforcedDisk())
    export(cells[0], "hdf5", tmp_path / "a.h5", disk=disk, is_copy=is_copy)
    count = len(disk.of("pwritev"))
    (tmp_path / "a.h5").unlink()
    for nth in {1, count // 2, count}:
        disk = ScriptedDisk(UnforcedDisk())
        disk.fail("pwritev", nth, errno.ENOSPC, for_good=True)
        with pytest.raises(DiskFull, match=r"a\.h5"):
            export(cells[0], "hdf5", tmp_path / "a.h5", disk=disk, is_copy=is_copy)
        assert list(tmp_path.iterdir()) == []


def test_without_h5py_the_error_names_the_extra(
    cells: tuple[Path, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ConfigError, match=r"pip install .*\[hdf5\]"):
        export(cells[0], "hdf5", tmp_path / "a.h5")
    assert list(tmp_path.iterdir()) == []
