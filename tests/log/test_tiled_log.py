"""Tiled datasets: the same log, with the stack files in a folder of their own."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from numpy.typing import NDArray

import acqstream
from acqstream.errors import CorruptDataset, FrameRefused
from acqstream.formats.ndtiff.folders import FULL_RESOLUTION
from acqstream.formats.ndtiff.index_entries import INDEX_NAME
from acqstream.formats.ndtiff.layout import summary_for
from acqstream.integrity.recover import recover
from acqstream.integrity.repair import BACKUP_NAME, repair
from acqstream.integrity.verify import verify
from acqstream.log import journal
from acqstream.log.log import Log
from acqstream.log.state_file import RECEIPT_NAME, STATE_NAME, read_state
from acqstream.model.acquisition_spec import TileSpec
from acqstream.model.frame_header import FrameRun
from acqstream.model.state import AcquisitionState
from tests.integrity.repair.damaged_sets import age
from tests.live.stored import unstalled
from tests.log.crashed import LIMIT_BYTES, content_of, crash
from tests.log.make_frames import Frame, frame_of, memory_of, spec_of, start_log, wait_for, write_log
from tests.log.read_back import (
    check_dataset,
    check_files,
    check_ours,
    check_tifffile_pages,
    open_pyramid,
    stack_paths,
)
from tests.storage.scripted_disk import ScriptedDisk

OVERLAP = (12, 16)
TILES: dict[str, Any] = {"tiles": TileSpec(OVERLAP), "replace_duplicates": True}
SHAPE = (320, 512)  # seven to a stack file
TOP = {journal.JOURNAL_NAME, STATE_NAME, RECEIPT_NAME, FULL_RESOLUTION}


def tiles_of(rows: int, columns: int, shape: tuple[int, int] = SHAPE) -> list[Frame]:
    """Tiles in snake order, one row and one column above and left of 0."""
    cells = [(r, c if r % 2 else columns - 1 - c) for r in range(rows) for c in range(columns)]
    return [frame_of(n, shape, axes={"row": r - 1, "column": c - 1, "time": 0}) for n, (r, c) in enumerate(cells)]


def check_tiled(folder: Path, frames: list[Frame], *, complete: bool = True) -> None:
    """Every frame is there as it was written, for every reader; ndstorage stitches them."""
    check_ours(folder, frames, complete=complete)
    check_files(folder, frames)
    check_tifffile_pages(folder, frames)
    with open_pyramid(folder) as oracle:
        assert type(oracle).__name__ == "NDTiffPyramidDataset"
        for frame in frames:
            axes = {"time": 0, **frame.axes}
            assert np.array_equal(oracle.read_image(**axes), frame.image)
            assert oracle.read_metadata(**axes) == frame.metadata
        with dask.config.set(scheduler="synchronous"):
            (stitched,) = np.asarray(oracle.as_array(stitched=True, time=0))
        assert np.array_equal(stitched, stitch(frames))


def stitch(frames: list[Frame]) -> NDArray[np.uint16]:
    """Tiles side by side without the halves of their overlaps; 0 where there is none."""
    cells = np.array([[frame.axes["row"], frame.axes["column"]] for frame in frames], int)
    cells -= cells.min(axis=0)
    y, x = OVERLAP
    height, width = SHAPE[0] - y, SHAPE[1] - x
    rows, columns = cells.max(axis=0) + 1
    canvas = np.zeros((rows * height, columns * width), np.uint16)
    for (row, column), frame in zip(cells, frames, strict=True):
        part = frame.image[y // 2 : y // 2 + height, x // 2 : x // 2 + width]
        canvas[row * height : (row + 1) * height, column * width : (column + 1) * width] = part
    return canvas


def test_every_reader_finds_the_tiles_in_their_folder(tmp_path: Path) -> None:
    frames = tiles_of(2, 3)
    log = write_log(tmp_path / "cells", frames, summary={"PixelSizeUm": 0.5}, **TILES)
    folder = tmp_path / "cells"
    assert {path.name for path in folder.iterdir()} == TOP
    assert {path.name for path in (folder / FULL_RESOLUTION).iterdir()} == {INDEX_NAME, "cells_NDTiffStack.tif"}
    check_tiled(folder, frames)
    with acqstream.open(folder) as dataset:
        summary = dataset.summary_metadata
    assert summary == {
        "AxisOrder": ["row", "column", "time"],
        "PixelSizeUm": 0.5,
        "TiledImageStorage": True,
        "GridPixelOverlapY": 12,
        "GridPixelOverlapX": 16,
    }
    assert read_state(str(folder)).tiles == TileSpec(OVERLAP)
    result = verify(folder)
    assert result.ok
    assert result.notes == []
    assert log.receipt is not None
    assert (result.hashed_frames, result.root_sha256) == (6, log.receipt.root_sha256)


def test_a_growing_one_opens_everywhere(tmp_path: Path) -> None:
    frames = tiles_of(2, 3)
    with start_log(tmp_path / "cells", **TILES) as log:
        for frame in frames:
            log.append(frame.header, frame.image)
        assert log.wait_for_published(len(frames))
        check_ours(tmp_path / "cells", frames, complete=False)
        with open_pyramid(tmp_path / "cells") as oracle:
            assert np.array_equal(oracle.read_image(**frames[-1].axes), frames[-1].image)


def test_display_settings_lie_at_the_top(tmp_path: Path) -> None:
    with start_log(tmp_path / "cells", **TILES) as log:
        log.wait_until_open()
        log.set_display({"GFP": {"Min": 0}})
        log.append(tiles_of(1, 1)[0].header, tiles_of(1, 1)[0].image)
    assert {path.name for path in (tmp_path / "cells").iterdir()} == {*TOP, "display_settings.txt"}
    assert verify(tmp_path / "cells").notes == []


def test_a_tile_acquired_again_replaces_the_first(tmp_path: Path) -> None:
    first, again = (frame_of(n, SHAPE, axes={"row": 0, "column": 0}) for n in range(2))
    write_log(tmp_path / "cells", [first, again], **TILES)
    with acqstream.open(tmp_path / "cells") as dataset:
        assert np.array_equal(dataset.read_frame(row=0, column=0), again.image)


@pytest.mark.parametrize("count", [6, 0], ids=["six frames", "no frame"])
def test_killed_recovered_gone_on_with_and_verified(tmp_path: Path, count: int) -> None:
    frames = tiles_of(4, 4)
    folder = crash(tmp_path / "cells", frames[:count], **TILES)
    stack = folder / FULL_RESOLUTION / "cells_NDTiffStack_1.tif.part"
    stack.write_bytes(b"prepared")
    report = recover(folder)
    assert report is not None
    assert report.published == count
    assert not stack.exists()
    if count:
        check_tiled(folder, frames[:count], complete=False)
    with Log(
        folder,
        spec_of(**TILES),
        memory=memory_of(),
        stack_limit_bytes=LIMIT_BYTES,
        resume=read_state(str(folder)),
    ) as log:
        for frame in frames[count:]:
            log.append(frame.header, frame.image)
    check_tiled(folder, frames)
    assert len(stack_paths(folder)) == 3
    result = verify(folder)
    assert result.ok
    assert result.notes == []


def test_a_copy_made_while_it_grows_is_recovered(tmp_path: Path) -> None:
    """An index entry that the journal of the copy lacks, and a torn last one."""
    frames = tiles_of(2, 3)
    folder = crash(tmp_path / "cells", frames, **TILES)
    path = folder / journal.JOURNAL_NAME
    path.write_bytes(path.read_bytes()[: -journal.RECORD_BYTES])
    report = recover(folder)
    assert report is not None
    assert report.records_added == 1
    check_tiled(folder, frames, complete=False)


def test_a_lost_index_comes_back(tmp_path: Path) -> None:
    frames = tiles_of(3, 3)
    folder = tmp_path / "cells"
    write_log(folder, frames, limit=LIMIT_BYTES, **TILES)
    before = content_of(folder)
    age(folder)
    (folder / FULL_RESOLUTION / INDEX_NAME).unlink()
    assert repair(folder).levels[0].recovered == len(frames)
    assert content_of(folder) == before
    (folder / FULL_RESOLUTION / INDEX_NAME).write_bytes(b"rubbish")
    age(folder)
    repair(folder / FULL_RESOLUTION)
    assert (folder / FULL_RESOLUTION / BACKUP_NAME).read_bytes() == b"rubbish"
    check_tiled(folder, frames)


def test_one_that_was_moved_is_whole(tmp_path: Path) -> None:
    frames = tiles_of(2, 3)
    write_log(tmp_path / "cells", frames, **TILES)
    copy = Path(shutil.copytree(tmp_path / "cells", tmp_path / "other"))
    shutil.rmtree(tmp_path / "cells")
    check_tiled(copy, frames)
    assert verify(copy / FULL_RESOLUTION).ok


@pytest.mark.parametrize("part", ["Stack.tif", INDEX_NAME, journal.JOURNAL_NAME, "Stack_1.tif.part"])
def test_a_full_disk_pauses_it(tmp_path: Path, part: str) -> None:
    frames = tiles_of(4, 3)
    disk = ScriptedDisk()
    with start_log(tmp_path / "cells", disk=disk, limit=LIMIT_BYTES, **TILES) as log:
        log.append(frames[0].header, frames[0].image)
        assert log.wait_for_published(1)
        disk.fail("pwritev", code=errno.ENOSPC, part=part, for_good=True)
        for frame in frames[1:9]:
            log.append(frame.header, frame.image)
        wait_for(log, lambda: log.state is AcquisitionState.PAUSED)
        disk.mend()
        for frame in frames[9:]:
            log.append(frame.header, frame.image)
    check_tiled(tmp_path / "cells", frames)
    assert verify(tmp_path / "cells").ok


@pytest.mark.parametrize(
    ("axes", "shape", "code"),
    [
        ({"row": 0}, SHAPE, "tile_axes"),
        ({"column": 0, "time": 3}, SHAPE, "tile_axes"),
        ({"row": 0, "column": "0"}, SHAPE, "tile_axes"),
        ({"row": 0, "column": 1}, (12, 512), "tile_size"),
        ({"row": 0, "column": 1}, (320, 16), "tile_size"),
    ],
)
def test_what_is_no_tile_is_refused_by_its_number(
    tmp_path: Path, axes: dict[str, int | str], shape: tuple[int, int], code: str
) -> None:
    first, bad = frame_of(0, SHAPE, axes={"row": 0, "column": 0}), frame_of(1, shape, axes=axes)
    with start_log(tmp_path / "cells", **TILES) as log:
        log.append(first.header, first.image)
        with pytest.raises(FrameRefused, match="frame 1") as info:
            log.append(bad.header, bad.image)
        assert (info.value.code, info.value.number) == (code, 1)
    check_ours(tmp_path / "cells", [first])


def test_what_is_no_tile_is_found_among_small_ones_that_come_together(tmp_path: Path) -> None:
    good = [frame_of(n, (20, 30), axes={"row": 0, "column": n}) for n in range(4)]
    bad = [frame_of(n, (20, 30), axes={"row": 0, "time": n}) for n in range(2)]
    small = [frame_of(n, (12, 30), axes={"row": 0, "column": n}) for n in range(2)]
    with start_log(tmp_path / "cells", **TILES) as log:
        for some in (bad, small):
            assert log.reserve_run(FrameRun.of([frame.header for frame in some])) is None
        run = log.reserve_run(FrameRun.of([frame.header for frame in good]))
        assert run is not None
        run.pixels[:] = b"".join(frame.image.tobytes() for frame in good)
        run.commit()
    check_ours(tmp_path / "cells", good)


def test_an_overlap_in_one_direction_only_is_told(tmp_path: Path) -> None:
    tiles = tiles_of(1, 3)
    for overlap, codes in (((0, 16), ["overlap_one_way"]), ((0, 0), []), ((12, 16), [])):
        log = write_log(tmp_path / f"cells{overlap}", tiles, tiles=TileSpec(overlap))
        assert [code for code, _, _ in unstalled(log.notes.warnings)] == codes
        check_ours(tmp_path / f"cells{overlap}", tiles)


def test_a_damaged_request_is_named(tmp_path: Path) -> None:
    write_log(tmp_path / "cells", tiles_of(1, 2), **TILES)
    path = tmp_path / "cells" / STATE_NAME
    path.write_bytes(path.read_bytes().replace(b'"overlap":[12,16]', b'"overlap":[12,-6]'))
    with pytest.raises(CorruptDataset, match=r"acqstream.json.*overlap -6"):
        read_state(str(tmp_path / "cells"))


def test_a_flat_dataset_lies_where_it_lay(tmp_path: Path) -> None:
    frames = tiles_of(1, 2)
    write_log(tmp_path / "cells", frames)
    check_dataset(tmp_path / "cells", frames)
    assert summary_for({"TiledImageStorage": True}, ["row"])["TiledImageStorage"] is False
    assert (tmp_path / "cells" / INDEX_NAME).exists()
