"""Going on with an interrupted dataset: a new stack file behind the old ones, and every number once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from acqstream.errors import AcqStreamError, CorruptDataset, DatasetLocked, FrameRefused
from acqstream.formats.ndtiff.layout import NDTiffLayout
from acqstream.integrity.recover import recover
from acqstream.log import journal
from acqstream.log.continuation import Continuation, read_continuation
from acqstream.log.frame_keys import FrameKeys
from acqstream.log.log import Log
from acqstream.log.state_file import RECEIPT_NAME, read_receipt, read_state
from acqstream.model.receipt import MissingFrames
from acqstream.model.state import AcquisitionState
from tests.log.make_frames import Frame, frame_of, frames_of, memory_of, mixed_frames, spec_of, start_log
from tests.log.read_back import check_dataset, read_journal, stack_paths

Step = Frame | tuple[int, str]  # a frame, or so many skipped numbers and the reason
LIMIT_BYTES = 7_600_000


def interrupt(folder: Path, steps: Sequence[Step], **more: Any) -> Path:
    """A dataset that was finished as interrupted after `steps`."""
    with start_log(folder, **more) as log:
        take(log, steps)
        log.begin_close("interrupted", "the daemon was stopped")
    return folder


def take(log: Log, steps: Iterable[Step]) -> None:
    for step in steps:
        if isinstance(step, tuple):
            log.skip(log.received, *step)
        else:
            log.append(step.header, step.image)


def resume(folder: Path, **more: Any) -> Log:
    """Its log, gone on with and open."""
    log = Log(
        folder, spec_of(**more), memory=memory_of(), stack_limit_bytes=LIMIT_BYTES, resume=read_state(str(folder))
    )
    log.wait_until_open()
    return log


def go_on(folder: Path, steps: Sequence[Step], **more: Any) -> Log:
    with resume(folder, **more) as log:
        take(log, steps)
    return log


def continuation_of(folder: Path, gaps: tuple[MissingFrames, ...] = (), keys: FrameKeys | None = None) -> Continuation:
    return read_continuation(str(folder), str(folder), NDTiffLayout("cells", {}), gaps=gaps, keys=keys)


def header_of(stack: Path) -> bytes:
    content = stack.read_bytes()
    return content[: int.from_bytes(content[4:8], "little")]


@pytest.mark.parametrize("frames", [frames_of(9, (6, 7)), frames_of(6, (320, 512)), mixed_frames(9)])
def test_frames_go_on_in_a_new_stack_file_and_every_reader_finds_all(tmp_path: Path, frames: list[Frame]) -> None:
    folder = interrupt(tmp_path / "d", frames[:4], summary={"PixelSizeUm": 0.5})
    assert read_state(str(folder)).state is AcquisitionState.INTERRUPTED
    old = stack_paths(folder)[0].read_bytes()
    log = go_on(folder, frames[4:])
    assert [path.name for path in stack_paths(folder)] == ["cells_NDTiffStack.tif", "cells_NDTiffStack_1.tif"]
    first, second = stack_paths(folder)
    assert first.read_bytes() == old
    assert header_of(first) == header_of(second)
    check_dataset(folder, frames)
    assert log.receipt is not None
    assert (log.receipt.stored, log.receipt.missing, log.receipt.status) == (len(frames), (), "completed")
    assert log.receipt.payload_bytes == sum(frame.image.nbytes for frame in frames)
    assert read_receipt(str(folder)) == log.receipt


def test_it_may_be_gone_on_with_again_and_again(tmp_path: Path) -> None:
    frames = frames_of(12, (32, 48))
    folder = interrupt(tmp_path / "d", frames[:2])
    for first in range(2, 10, 2):
        with resume(folder) as log:
            assert log.received == first
            assert log.cursors().durable == first
            take(log, frames[first : first + 2])
            log.begin_close("interrupted")
    go_on(folder, frames[10:])
    assert len(stack_paths(folder)) == 6
    check_dataset(folder, frames)


def test_a_stack_of_a_dataset_gone_on_with_rolls_over(tmp_path: Path) -> None:
    frames = frames_of(20, (320, 512))  # seven to a stack file
    folder = interrupt(tmp_path / "d", frames[:8], limit=LIMIT_BYTES)
    go_on(folder, frames[8:])
    assert len(stack_paths(folder)) == 4
    check_dataset(folder, frames)


def test_cursors_window_and_bytes_begin_where_the_run_ended(tmp_path: Path) -> None:
    frames = frames_of(4, (32, 48))
    folder = interrupt(tmp_path / "d", [*frames[:3], (2, "no light")])
    with resume(folder) as log:
        cursors = log.cursors()
        assert (cursors.received, cursors.published, cursors.durable) == (5, 5, 5)
        assert log.received_payload_bytes == log.counts.payload_bytes == 3 * 32 * 48 * 2
        assert log.limit().payload_bytes > log.received_payload_bytes
        assert log.limit().number > 5
        assert log.queued() == (0, 0)
        assert log.counts.skipped == 2


def test_axes_that_are_stored_are_refused_again(tmp_path: Path) -> None:
    folder = interrupt(tmp_path / "d", frames_of(3))
    log = resume(folder)
    with pytest.raises(FrameRefused) as caught:
        log.reserve(frame_of(3, axes={"time": 1}).header)
    assert caught.value.code == "duplicate_axes"
    log.close()


def test_axes_may_repeat_where_they_might_before(tmp_path: Path) -> None:
    folder = interrupt(tmp_path / "d", frames_of(3), replace_duplicates=True)
    log = go_on(folder, [frame_of(3, axes={"time": 1})], replace_duplicates=True)
    assert log.receipt is not None
    assert log.receipt.stored == 4


def test_gaps_keep_their_reasons(tmp_path: Path) -> None:
    frames = [frame_of(0), frame_of(3), frame_of(5)]
    folder = interrupt(tmp_path / "d", [frames[0], (2, "no light"), frames[1]])
    log = go_on(folder, [(1, "shutter"), frames[2]])
    assert log.receipt is not None
    assert log.receipt.missing == (MissingFrames(1, 2, "no light"), MissingFrames(4, 1, "shutter"))
    assert (log.receipt.stored, log.receipt.skipped) == (3, 3)
    check_dataset(folder, frames)


def test_gaps_whose_reasons_died_with_the_writer_are_found_in_the_journal(tmp_path: Path) -> None:
    steps: list[Step] = [(1, "a"), frame_of(1), (2, "b"), frame_of(4), (1, "c")]
    folder = interrupt(tmp_path / "d", steps)
    lost = "skipped or refused before the writer was interrupted"
    without = continuation_of(folder).counts
    assert without.gaps == [MissingFrames(0, 1, lost), MissingFrames(2, 2, lost), MissingFrames(5, 1, lost)]
    assert (without.stored, without.skipped) == (2, 4)
    known = (MissingFrames(2, 2, "b"), MissingFrames(4, 1, "not so: there is a frame"), MissingFrames(5, 9, "too many"))
    some = continuation_of(folder, known).counts
    assert some.gaps == [MissingFrames(0, 1, lost), MissingFrames(2, 2, "b"), MissingFrames(5, 1, lost)]


def test_a_dataset_without_frames_begins_with_its_summary(tmp_path: Path) -> None:
    with start_log(tmp_path / "d", summary={"Interval_ms": 5}) as log:
        log.wait_until_open()
        log.patch_summary({"Late": "yes"})
        log.begin_close("interrupted")
    frames = frames_of(3)
    log = go_on(tmp_path / "d", frames, summary={"Interval_ms": 5})
    assert [path.name for path in stack_paths(tmp_path / "d")] == ["cells_NDTiffStack.tif"]
    check_dataset(tmp_path / "d", frames)
    summary = continuation_of(tmp_path / "d").summary
    assert (summary["Interval_ms"], summary["Late"], summary["AxisOrder"]) == (5, "yes", ["time"])
    state = json.loads((tmp_path / "d" / "acqstream.json").read_bytes())
    assert state["request"]["summary"]["Late"] == "yes"


def test_a_dataset_of_skips_only(tmp_path: Path) -> None:
    folder = interrupt(tmp_path / "d", [(3, "no light")])
    assert continuation_of(folder).next_number == 3
    frames = [frame_of(3), frame_of(4)]
    log = go_on(folder, frames)
    assert log.receipt is not None
    assert (log.receipt.stored, log.receipt.skipped) == (2, 3)
    assert [path.name for path in stack_paths(folder)] == ["cells_NDTiffStack.tif"]
    check_dataset(folder, frames)


def test_nothing_came_before_and_nothing_after(tmp_path: Path) -> None:
    folder = interrupt(tmp_path / "d", [])
    with resume(folder) as log:
        log.begin_close("interrupted")
    log = go_on(folder, [])
    assert log.receipt is not None
    assert log.receipt.stored == 0
    check_dataset(folder, [], oracles=False)


def test_numbers_of_stacks_that_were_put_aside_are_not_used_again(tmp_path: Path) -> None:
    folder = interrupt(tmp_path / "d", frames_of(2))
    (folder / "cells_NDTiffStack_4.tif.unpublished").write_bytes(b"what was never published")
    (folder / "other_NDTiffStack_9.tif").write_bytes(b"of somebody else")
    assert continuation_of(folder).next_stack == 5
    frames = frames_of(4)
    (folder / "other_NDTiffStack_9.tif").unlink()
    go_on(folder, frames[2:])
    assert stack_paths(folder)[1].name == "cells_NDTiffStack_5.tif"
    check_dataset(folder, frames)


def test_a_name_that_looks_like_a_stack_does_not_confuse_the_numbers(tmp_path: Path) -> None:
    name = "a_NDTiffStack_1.tif"
    folder = interrupt(tmp_path / "d", frames_of(1), name=name)
    for number in range(1, 4):
        with resume(folder, name=name) as log:
            take(log, [frame_of(number)])
            log.begin_close("interrupted")
    check_dataset(folder, frames_of(4), complete=False, oracles=False)


def test_a_writer_that_died_is_gone_on_with_after_recovery(tmp_path: Path) -> None:
    frames = mixed_frames(10)
    alive = tmp_path / "alive"
    with start_log(alive, durability="close") as log:
        take(log, frames[:6])
        assert log.wait_for_published(6)
        shutil.copytree(alive, tmp_path / "d")  # as a kill leaves it
    assert recover(tmp_path / "d") is not None
    log = go_on(tmp_path / "d", frames[6:])
    check_dataset(tmp_path / "d", frames)
    assert list(read_journal(tmp_path / "d")["number"]) == list(range(10))
    assert log.receipt is not None
    assert log.receipt.started_at == read_state(str(alive)).started_at


def test_a_writer_that_dies_again_is_recovered_again(tmp_path: Path) -> None:
    frames = frames_of(8)
    folder = interrupt(tmp_path / "alive", frames[:3])
    with resume(folder) as log:
        take(log, frames[3:6])
        assert log.wait_for_published(6)
        shutil.copytree(folder, tmp_path / "d")
        assert read_state(str(tmp_path / "d")).state is AcquisitionState.RUNNING
        assert not journal.decode_journal_header((tmp_path / "d" / journal.JOURNAL_NAME).read_bytes(), "").clean
    assert recover(tmp_path / "d") is not None
    go_on(tmp_path / "d", frames[6:])
    check_dataset(tmp_path / "d", frames)


def test_the_receipt_of_a_close_that_a_crash_cut_short_goes(tmp_path: Path) -> None:
    folder = interrupt(tmp_path / "d", frames_of(2))
    (folder / RECEIPT_NAME).write_text("{}")
    with resume(folder) as log:
        assert not (folder / RECEIPT_NAME).exists()
        log.begin_close("interrupted")
    assert not (folder / RECEIPT_NAME).exists()


@pytest.mark.parametrize("lost", ["entry", "record"])
def test_journal_and_index_that_disagree_are_refused_and_left_alone(tmp_path: Path, lost: str) -> None:
    folder = interrupt(tmp_path / "d", frames_of(3))
    path = folder / ("NDTiff.index" if lost == "entry" else journal.JOURNAL_NAME)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 3] if lost == "entry" else content[: -journal.RECORD_BYTES])
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    log = Log(folder, spec_of(), memory=memory_of(), resume=read_state(str(folder)))
    with pytest.raises(CorruptDataset, match="the journal has"):
        log.wait_until_open()
    with pytest.raises(AcqStreamError):
        log.close()
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_one_that_is_being_written_is_refused(tmp_path: Path) -> None:
    folder = interrupt(tmp_path / "d", frames_of(2))
    state = read_state(str(folder))
    with resume(folder):
        second = Log(folder, spec_of(), memory=memory_of(), resume=state)
        with pytest.raises(DatasetLocked):
            second.wait_until_open()
        with pytest.raises(DatasetLocked):
            second.close()
    assert read_state(str(folder)).state is AcquisitionState.COMPLETE


@pytest.mark.parametrize("cut", ["after the state", "before the state"])
def test_a_resumption_that_is_killed_leaves_no_receipt_of_the_earlier_end(tmp_path: Path, cut: str) -> None:
    """Of a dataset that had ended with an error, and so has a receipt."""
    folder = tmp_path / "d"
    with start_log(folder) as log:
        take(log, frames_of(3, (6, 7)))
        log.begin_close("error", "the script failed")
    content = (folder / RECEIPT_NAME).read_bytes()
    ended = replace(read_state(str(folder)), state=AcquisitionState.INTERRUPTED)  # as the daemon asks for it
    log = Log(folder, spec_of(), memory=memory_of(), stack_limit_bytes=LIMIT_BYTES, resume=ended)
    log.wait_until_open()  # what a killed daemon leaves is copied now
    killed = tmp_path / "killed"
    shutil.copytree(folder, killed)
    log.close()
    if cut == "after the state":
        (killed / RECEIPT_NAME).write_bytes(content)  # the kill came before it was removed
    assert recover(killed) is not None
    assert read_state(str(killed)).state is AcquisitionState.INTERRUPTED
    assert not (killed / RECEIPT_NAME).exists()
