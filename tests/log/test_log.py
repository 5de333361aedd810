"""The log in-process: whatever is put in comes out again, for every reader."""

from __future__ import annotations

import errno
import json
import threading
from pathlib import Path

import numpy as np
import pytest
import tifffile

import acqstream
from acqstream.errors import AcquisitionFailed, DatasetExists, FrameRefused
from acqstream.integrity.repair import repair
from acqstream.integrity.verify import verify
from acqstream.log import journal
from acqstream.log.log import Log
from acqstream.log.receipt_facts import LogNotes
from acqstream.log.state_file import read_state
from acqstream.model.axes import AxisValue
from acqstream.model.frame_header import FrameRun
from acqstream.model.receipt import MissingFrames
from acqstream.model.state import AcquisitionState
from tests.log.make_frames import (
    LEAST_LIMIT_BYTES,
    MIB,
    Frame,
    frame_of,
    frames_of,
    log_threads,
    memory_of,
    mixed_frames,
    spec_of,
    start_log,
    write_log,
)
from tests.log.read_back import check_dataset, check_files, check_ours, open_ndstorage, read_journal, stack_paths
from tests.storage.scripted_disk import ScriptedDisk
from tests.waiting import WAIT_S

PIXELS = [
    ("|u1", (16, 20), None),
    ("|u1", (7, 5), None),  # odd lengths
    ("|u1", (16, 20, 3), None),
    ("<u2", (16, 20), None),
    *[("<u2", (9, 11), bits) for bits in (10, 11, 12, 14)],
    ("|u1", (1, 1), None),
    ("<u2", (1, 1), None),
    ("<u2", (512, 300), None),  # large: each in a group of its own
    ("|u1", (700, 401), None),
    ("|u1", (300, 301, 3), None),
]


@pytest.mark.parametrize(("dtype", "shape", "bits"), PIXELS)
def test_every_kind_of_pixel_comes_back(tmp_path: Path, dtype: str, shape: tuple[int, ...], bits: int | None) -> None:
    frames = [frame_of(number, shape, dtype, bits=bits, metadata={"number": number}) for number in range(5)]
    log = write_log(tmp_path / "cells", frames)
    check_dataset(tmp_path / "cells", frames)
    assert log.receipt is not None
    assert (log.receipt.status, log.receipt.stored, log.receipt.without_checksum) == ("completed", 5, 0)
    assert log.receipt.payload_bytes == sum(frame.image.nbytes for frame in frames)
    assert log.cursors().received == log.cursors().published == log.cursors().durable == 5
    assert log.state is AcquisitionState.COMPLETE
    assert not log_threads()


AXES: list[list[dict[str, AxisValue]]] = [
    [{"time": time, "channel": name} for time in range(2) for name in ("DAPI", "GF\u00b5P", 'a"b\\c')],
    [{"z": -3}, {"z": 0}, {"z": 2**31 - 1}, {"z": -(2**31)}],
    [{"position": p, "time": t, "z": z} for p in range(2) for t in range(2) for z in (-1, 0, 1)],
    [{"row": -1, "column": 0}, {"row": 0, "column": -1}],
]


@pytest.mark.parametrize("axes", AXES)
def test_every_kind_of_axis_comes_back(tmp_path: Path, axes: list[dict[str, AxisValue]]) -> None:
    frames = [frame_of(number, axes=dict(one)) for number, one in enumerate(axes)]
    write_log(tmp_path / "cells", frames)
    check_dataset(tmp_path / "cells", frames)


def test_a_frame_without_axes(tmp_path: Path) -> None:
    frames = [frame_of(0, axes={})]
    write_log(tmp_path / "cells", frames)
    check_ours(tmp_path / "cells", frames)


def test_tifffile_series_is_the_whole_dataset(tmp_path: Path) -> None:
    frames = [frame_of(n, axes={"time": n // 3, "channel": n % 3}) for n in range(6)]
    write_log(tmp_path / "cells", frames)
    with tifffile.TiffFile(stack_paths(tmp_path / "cells")[0]) as tiff:
        series = tiff.series[0]
        assert series.kind == "ndtiff"
        assert np.array_equal(series.asarray().reshape(6, 32, 48), np.array([frame.image for frame in frames]))


def test_shapes_and_types_may_change(tmp_path: Path) -> None:
    kinds = [
        ((8, 8), "<u2"),
        ((8, 9), "<u2"),
        ((8, 8), "|u1"),
        ((400, 400), "<u2"),
        ((8, 8), "<u2"),
        ((4, 4, 3), "|u1"),
    ]
    frames = [frame_of(number, *kinds[number % len(kinds)]) for number in range(20)]
    write_log(tmp_path / "cells", frames)
    check_dataset(tmp_path / "cells", frames)


@pytest.mark.promise("past-4-gib")
def test_two_roll_overs(tmp_path: Path) -> None:
    frames = mixed_frames(60)
    write_log(tmp_path / "cells", frames, limit=LEAST_LIMIT_BYTES - MIB // 2)
    assert len(stack_paths(tmp_path / "cells")) >= 3
    check_dataset(tmp_path / "cells", frames)
    assert all(path.stat().st_size < LEAST_LIMIT_BYTES - 5_000_000 for path in stack_paths(tmp_path / "cells"))


def test_packed_frames_fill_several_groups(tmp_path: Path) -> None:
    frames = frames_of(300, (128, 128))
    write_log(tmp_path / "cells", frames, memory_bytes=3 * MIB)
    check_dataset(tmp_path / "cells", frames)


def test_no_frames(tmp_path: Path) -> None:
    log = write_log(tmp_path / "cells", [], summary={"a": 1})
    with acqstream.open(tmp_path / "cells") as dataset:
        assert list(dataset.keys()) == []
        assert dataset.complete
        assert dataset.summary_metadata["a"] == 1
    with open_ndstorage(tmp_path / "cells") as oracle:
        assert oracle.summary_metadata["a"] == 1
    check_files(tmp_path / "cells", [])
    assert log.receipt is not None
    assert log.receipt.complete


def test_skipped_numbers_are_in_journal_and_receipt(tmp_path: Path) -> None:
    frames = [frame_of(number) for number in (1, 2, 6)]
    with start_log(tmp_path / "cells") as log:
        log.skip(0, 1, "not triggered")
        for frame in frames[:2]:
            log.append(frame.header, frame.image)
        log.skip(3, 3, "camera timeout")
        log.append(frames[2].header, frames[2].image)
        log.skip(7, 2, "")
        log.close(sent=9)
    check_dataset(tmp_path / "cells", frames)
    flags = [journal.SKIP, 1, 1, *[journal.SKIP] * 3, 1, *[journal.SKIP] * 2]
    assert list(read_journal(tmp_path / "cells")["flags"]) == flags
    assert log.receipt is not None
    gaps = (MissingFrames(0, 1, "not triggered"), MissingFrames(3, 3, "camera timeout"), MissingFrames(7, 2, ""))
    assert log.receipt.missing == read_state(log.folder).gaps == gaps
    assert (log.receipt.sent, log.receipt.stored, log.receipt.skipped) == (9, 3, 6)
    assert log.cursors().published == log.cursors().durable == 9


def test_only_skipped_numbers(tmp_path: Path) -> None:
    with start_log(tmp_path / "cells") as log:
        log.skip(0, 4, "no camera")
    check_dataset(tmp_path / "cells", [])
    assert log.receipt is not None
    assert (log.receipt.stored, log.receipt.skipped) == (0, 4)


def test_numbers_that_never_came_are_in_the_receipt(tmp_path: Path) -> None:
    frames = frames_of(3)
    with start_log(tmp_path / "cells") as log:
        for frame in frames:
            log.append(frame.header, frame.image)
        receipt = log.close("canceled", "stopped by hand", sent=5)
    assert receipt.missing == (MissingFrames(3, 2, "stopped by hand"),)
    assert (log.state, read_state(log.folder).state) == (AcquisitionState.CANCELED,) * 2
    assert json.loads((tmp_path / "cells" / "receipt.json").read_text())["missing"][0]["first"] == 3


def test_summary_may_change_until_frame_0(tmp_path: Path) -> None:
    frames = frames_of(2)
    with start_log(tmp_path / "cells", summary={"a": 1, "b": "µ→😀"}) as log:
        log.patch_summary({"a": 2, "PixelSizeUm": 0.65})
        log.append(frames[0].header, frames[0].image)
        with pytest.raises(AcquisitionFailed) as caught:
            log.patch_summary({"a": 3})
        assert caught.value.code == "too_late"
        log.append(frames[1].header, frames[1].image)
    check_dataset(tmp_path / "cells", frames)
    expected = {"a": 2, "b": "µ→😀", "PixelSizeUm": 0.65, "AxisOrder": ["time"], "TiledImageStorage": False}
    with acqstream.open(tmp_path / "cells") as dataset, open_ndstorage(tmp_path / "cells") as oracle:
        assert dataset.summary_metadata == oracle.summary_metadata == expected
    stack = stack_paths(tmp_path / "cells")[0]
    assert stack.read_bytes()[:4096].isascii() or stack.read_bytes()[28:4000].isascii()
    with tifffile.TiffFile(stack, is_ndtiff=False) as tiff:
        assert tiff.pages.first.tags["XResolution"].value == (15384, 1)


def test_the_last_display_settings_are_kept(tmp_path: Path) -> None:
    frame = frame_of(0)
    last = {"": {"Gamma": 0.5, "Name": "é"}}
    with start_log(tmp_path / "early") as early:
        early.set_display({"DAPI": {"Color": -1}})
        early.set_display(last)
    with start_log(tmp_path / "late") as late:
        late.append(frame.header, frame.image)
        assert late.wait_for_published(1)
        late.set_display({"DAPI": {"Color": -1}})
        late.set_display(last)
    for name in ("early", "late"):
        assert json.loads((tmp_path / name / "display_settings.txt").read_text()) == last
    check_dataset(tmp_path / "late", [frame])


def test_the_same_axes_twice_end_the_run_or_replace(tmp_path: Path) -> None:
    first, second = frame_of(0, axes={"z": 1, "time": 2}), frame_of(1, axes={"time": 2, "z": 1})
    with start_log(tmp_path / "error") as log:
        log.append(first.header, first.image)
        with pytest.raises(FrameRefused, match="stored already") as caught:
            log.append(second.header, second.image)
        assert (caught.value.code, caught.value.number) == ("duplicate_axes", 1)
    check_dataset(tmp_path / "error", [first])
    with start_log(tmp_path / "replace", replace_duplicates=True) as log:
        for frame in (first, second):
            log.append(frame.header, frame.image)
    with acqstream.open(tmp_path / "replace") as dataset:
        assert np.array_equal(dataset.read_frame(z=1, time=2), second.image)
    check_files(tmp_path / "replace", [first, second])


@pytest.mark.parametrize("shape", [(16, 16), (400, 400)])
@pytest.mark.parametrize("bad", [0, 1, 5])
def test_wrong_checksum_costs_its_frame_only(tmp_path: Path, shape: tuple[int, ...], bad: int) -> None:
    frames = frames_of(8, shape)
    with start_log(tmp_path / "cells") as log:
        for frame in frames:
            log.append(frame.header, frame.image if frame.header.number != bad else frame.image + np.uint16(1))
        assert log.wait_for_published(8)
        log.append(frames[bad].header._replace(number=8), frames[bad].image)  # its axes are free again
    assert log.receipt is not None
    assert (log.receipt.status, log.receipt.stored, log.receipt.refused) == ("completed", 8, 1)
    (gap,) = log.receipt.missing
    assert (gap.first, gap.count, gap.reason[:37]) == (bad, 1, "refused (checksum): pixels have check")
    assert [code for code, _, _ in log.notes.warnings] == ["frame_refused"]
    assert (log.queued(), log.received_frames) == ((0, 0), 8)
    check_dataset(tmp_path / "cells", [*frames[:bad], *frames[bad + 1 :], frames[bad]], tiff_pages=False)
    result = verify(tmp_path / "cells")
    assert (result.problems, result.missing_count, result.missing[0].first) == ([], 1, bad)
    assert not log_threads()


def test_the_axes_of_a_refused_frame_are_free_when_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The producer may send it again at once, while the writer has not gone on."""
    told, sent_again, real = threading.Event(), threading.Event(), LogNotes.refuse

    def refuse(notes: LogNotes, error: FrameRefused) -> FrameRefused:
        told.set()
        assert sent_again.wait(WAIT_S)
        return real(notes, error)

    monkeypatch.setattr(LogNotes, "refuse", refuse)
    (frame,) = frames_of(1)
    with start_log(tmp_path / "cells") as log:
        log.append(frame.header, frame.image + np.uint16(1))
        assert told.wait(WAIT_S)
        try:
            log.append(frame.header._replace(number=1), frame.image)
        finally:
            sent_again.set()
    assert log.receipt is not None
    assert (log.receipt.stored, log.receipt.refused) == (1, 1)


def test_a_receipt_lists_wrong_pixels_and_metadata_in_order(tmp_path: Path) -> None:
    frames = frames_of(8)
    with start_log(tmp_path / "cells") as log:
        headers = [frame.header for frame in frames]
        headers[2] = headers[2]._replace(metadata_checksum=1)
        headers[5] = headers[5]._replace(checksum=1)
        run = log.reserve_run(FrameRun.of(headers))
        assert run is not None
        run.pixels[:] = b"".join(frame.image.tobytes() for frame in frames)
        run.commit()
    assert log.receipt is not None
    assert [(gap.first, gap.count) for gap in log.receipt.missing] == [(2, 1), (5, 1)]
    assert (log.receipt.stored, log.receipt.refused) == (6, 2)


def test_frames_without_a_checksum_get_one(tmp_path: Path) -> None:
    frames = [frame_of(number, checksum=number == 1) for number in range(3)]
    log = write_log(tmp_path / "cells", frames)
    check_dataset(tmp_path / "cells", frames)
    assert log.receipt is not None
    assert log.receipt.without_checksum == 2


@pytest.mark.parametrize("shape", [(16, 16), (400, 400)])
def test_large_metadata(tmp_path: Path, shape: tuple[int, ...]) -> None:
    frames = [frame_of(n, shape, metadata={"text": "x" * (500_000 * (n % 2)), "n": n}) for n in range(7)]
    write_log(tmp_path / "cells", frames, memory_bytes=2 * MIB)
    check_dataset(tmp_path / "cells", frames)


@pytest.mark.parametrize("durability", ["close", "batch", 0.01])
def test_durable_follows_published(tmp_path: Path, durability: str | float) -> None:
    frames = frames_of(4)
    with start_log(tmp_path / "cells", durability=durability) as log:
        for frame in frames:
            log.append(frame.header, frame.image)
        assert log.wait_for_published(4)
        if durability == "close":
            assert log.cursors().durable == 0
        else:
            with log._parts.state.changed:
                assert log._parts.state.changed.wait_for(lambda: log.cursors().durable == 4, 20)
    assert log.cursors().durable == 4
    check_dataset(tmp_path / "cells", frames)


def test_a_lone_frame_is_published_without_a_push(tmp_path: Path) -> None:
    frames = frames_of(3)
    with start_log(tmp_path / "cells") as log:
        for frame in frames:
            log.append(frame.header, frame.image)
            assert log.wait_for_published(frame.header.number + 1)
            check_ours(tmp_path / "cells", frames[: frame.header.number + 1], complete=False)


def test_an_abandoned_frame_leaves_no_trace(tmp_path: Path) -> None:
    frames: list[Frame] = []
    with start_log(tmp_path / "cells") as log:
        for number in range(6):
            shape = (400, 400) if number % 2 else (30, 30)
            slot = log.reserve(frame_of(number, shape, axes={"lost": number}).header)
            slot.pixels[:] = b"\xff" * len(slot.pixels)
            slot.abandon()
            frame = frame_of(number, shape)
            log.append(frame.header, frame.image)
            frames.append(frame)
    check_dataset(tmp_path / "cells", frames)


def test_a_folder_that_exists_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "cells").mkdir()
    log = start_log(tmp_path / "cells")
    with pytest.raises(DatasetExists):
        log.wait_until_open()
    with pytest.raises(DatasetExists):
        log.close()
    assert log.is_finished
    assert not list((tmp_path / "cells").iterdir())
    assert not log_threads()


def test_an_error_in_the_producer_is_noted(tmp_path: Path) -> None:
    frames = frames_of(2)
    log = start_log(tmp_path / "cells")
    with pytest.raises(KeyError), log:
        for frame in frames:
            log.append(frame.header, frame.image)
        raise KeyError("shutter")
    assert log.receipt is not None
    assert (log.receipt.status, log.receipt.reason) == ("error", "KeyError: 'shutter'")
    check_dataset(tmp_path / "cells", frames)


def test_nothing_comes_after_closing(tmp_path: Path) -> None:
    log = Log(tmp_path / "cells", spec_of(), memory=memory_of())
    log.close()
    with pytest.raises(FrameRefused) as caught:
        log.reserve(frame_of(0).header)
    assert caught.value.code == "closing"
    with pytest.raises(FrameRefused):
        log.skip(0, 1, "late")


def test_a_run_whose_stacks_are_mapped_ends_well_and_repair_cuts_them(tmp_path: Path) -> None:
    """Windows cuts no mapped file (error 1224): the stacks stay longer, and everybody reads the same frames."""
    frames = frames_of(20)
    disk = ScriptedDisk()
    disk.fail("truncate", 1, errno.EBUSY, part=".tif", for_good=True)
    log = write_log(tmp_path / "mapped", frames, disk=disk)
    assert log.receipt is not None
    assert (log.receipt.status, log.receipt.stored) == ("completed", 20)
    check_ours(tmp_path / "mapped", frames)
    problems = [problem.text for problem in verify(tmp_path / "mapped").problems]
    assert len(problems) == 1
    assert "bytes of zeros after the last frame" in problems[0]
    write_log(tmp_path / "plain", frames)
    sizes = [path.stat().st_size for path in stack_paths(tmp_path / "plain")]
    longer = [path.stat().st_size for path in stack_paths(tmp_path / "mapped")]
    assert longer[-1] > sizes[-1]
    repair(tmp_path / "mapped")
    check_dataset(tmp_path / "mapped", frames)
    assert [path.stat().st_size for path in stack_paths(tmp_path / "mapped")] == sizes
    assert verify(tmp_path / "mapped").ok
