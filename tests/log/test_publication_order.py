"""The order of disk calls that the promises rest on: stack forced, journal, index; and what a failure does."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from acqstream.errors import StorageError
from acqstream.formats.ndtiff.index_entries import parse_entries
from acqstream.log import journal
from acqstream.model.state import AcquisitionState
from tests.host_system import make_link
from tests.live.stored import unstalled
from tests.log.make_frames import (
    LEAST_LIMIT_BYTES,
    MIB,
    Frame,
    append,
    frames_of,
    log_threads,
    mixed_frames,
    start_log,
    wait_for,
    write_log,
)
from tests.log.read_back import check_dataset, read_index, stack_paths
from tests.storage.scripted_disk import Call, ScriptedDisk

STACK, JOURNAL, INDEX = "Stack.tif", journal.JOURNAL_NAME, "NDTiff.index"
BATCH_SYNC = 2  # of the first stack: its header is forced first


@pytest.mark.promise("power-cut")
@pytest.mark.parametrize("shape", [(20, 20), (400, 400)])
def test_every_commit_forces_the_stack_before_journal_and_index(tmp_path: Path, shape: tuple[int, int]) -> None:
    disk = ScriptedDisk()
    with start_log(tmp_path / "cells", disk=disk, durability="close") as log:
        for frame in frames_of(3, shape):
            log.append(frame.header, frame.image)
            assert log.wait_for_published(frame.header.number + 1)
        calls = [call for call in disk.of("pwritev", "fdatasync") if "acqstream.json" not in call.name]
    opening = [("pwritev", JOURNAL), ("fdatasync", JOURNAL)]
    stack = "cells_NDTiffStack.tif"
    header = [("pwritev", stack + ".part"), ("fdatasync", stack + ".part")]
    commit = [("pwritev", stack), ("fdatasync", stack), ("pwritev", JOURNAL), ("pwritev", INDEX)]
    assert [(call.kind, call.name) for call in calls] == opening + header + commit * 3


@pytest.mark.parametrize("durability", ["close", "batch"])
def test_every_entry_points_at_forced_bytes_of_a_named_file(tmp_path: Path, durability: str) -> None:
    disk = ScriptedDisk()
    frames = mixed_frames(50)
    write_log(tmp_path / "cells", frames, disk=disk, limit=LEAST_LIMIT_BYTES, memory_bytes=2 * MIB)
    assert len(stack_paths(tmp_path / "cells")) >= 2
    content = (tmp_path / "cells" / INDEX).read_bytes()
    for position, call in enumerate(disk.calls):
        if call.kind == "pwritev" and call.name == INDEX:
            entries = parse_entries(content[call.offset : call.offset + call.length])
            for name, numbers in zip(entries.names, entries.numbers, strict=True):
                check_forced(disk.calls[:position], name.decode(), int(numbers["pixel_offset"]))
            # a thread prepares the next stack, which has no name yet
            last = next(call for call in reversed(disk.calls[:position]) if not call.name.endswith(".part"))
            assert last.kind != "fdatasync" or durability == "batch"
    check_dataset(tmp_path / "cells", frames)


def check_forced(calls: list[Call], name: str, offset: int) -> None:
    """Before: named and the folder forced; then the pixels written, then forced, then a journal record."""

    def find(start: int, kind: str, name: str, at: int | None = None) -> int:
        for position, call in enumerate(calls[start:], start):
            if (call.kind, call.name) == (kind, name) and (at is None or call.offset <= at < call.offset + call.length):
                return position + 1
        raise AssertionError(f"no {kind} of {name} after call {start}")

    named = find(find(0, "replace", name), "sync_directory", "cells")
    forced = find(find(named, "pwritev", name, offset), "fdatasync", name)
    find(forced, "pwritev", JOURNAL)


@pytest.mark.promise("power-cut")
def test_the_folders_of_a_name_are_forced_before_a_frame_is_published(tmp_path: Path) -> None:
    disk = ScriptedDisk()
    write_log(tmp_path / "anna" / "day" / "cells", frames_of(1), name="anna/day/cells", disk=disk)
    names = [(call.kind, call.name) for call in disk.of("mkdir", "sync_directory")]
    made = ["anna", "day", "cells"]
    assert [name for kind, name in names if kind == "mkdir"] == made
    for name, above in zip(made, (tmp_path.name, "anna", "day"), strict=True):
        assert ("sync_directory", above) in names[names.index(("mkdir", name)) :]
    assert sorted(path.name for path in stack_paths(tmp_path / "anna" / "day" / "cells")) == ["cells_NDTiffStack.tif"]
    with pytest.raises(StorageError, match="cannot create the dataset's folder"):
        write_log(tmp_path / "bob" / "cells", frames_of(1), name="cells")
    assert not (tmp_path / "bob").exists(), "only folders of the name are made: the data directory may be unmounted"


@pytest.mark.promise("power-cut")
def test_a_link_in_the_place_of_a_folder_of_a_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    make_link(tmp_path / "anna", tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="it is a link"):
        write_log(tmp_path / "anna" / "cells", frames_of(1), name="anna/cells")
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.promise("failed-sync")
@pytest.mark.parametrize("nth", [BATCH_SYNC, BATCH_SYNC + 1])
def test_nothing_is_published_before_its_sync_returned(tmp_path: Path, nth: int) -> None:
    disk = ScriptedDisk()
    frames = frames_of(6, (400, 400))
    before = nth - BATCH_SYNC
    stall = disk.stall("fdatasync", nth, part=STACK)
    with start_log(tmp_path / "cells", disk=disk) as log:
        for frame in frames[:3]:
            log.append(frame.header, frame.image)
            if frame.header.number < before:
                assert log.wait_for_published(frame.header.number + 1)
        assert stall.entered.wait(20)
        for frame in frames[3:]:
            log.append(frame.header, frame.image)
        entries, records = len(read_index(tmp_path / "cells").names), len(disk.of("pwritev", part=JOURNAL)) - 1
        cursors = log.cursors()
        stall.go.set()
        assert (cursors.received, cursors.published, entries, records) == (6, before, before, before)
    check_dataset(tmp_path / "cells", frames)


def test_writing_goes_on_beside_a_slow_sync(tmp_path: Path) -> None:
    disk = ScriptedDisk()
    frames = frames_of(4, (400, 400))
    stall = disk.stall("fdatasync", BATCH_SYNC, part=STACK)
    with start_log(tmp_path / "cells", disk=disk) as log:
        log.append(frames[0].header, frames[0].image)
        assert stall.entered.wait(20)
        late = disk.stall("pwritev", 1, part=STACK)
        for frame in frames[1:]:
            log.append(frame.header, frame.image)
        assert late.entered.wait(20)
        late.go.set()
        stall.go.set()
    check_dataset(tmp_path / "cells", frames)


@pytest.mark.promise("failed-sync")
@pytest.mark.parametrize("kind", ["fdatasync", "pwritev"])
@pytest.mark.parametrize("published", [0, 3])
@pytest.mark.parametrize("shape", [(30, 30), (400, 400)])
def test_a_failed_stack_file_is_given_up_for_a_new_one(
    tmp_path: Path, kind: str, published: int, shape: tuple[int, int]
) -> None:
    frames = frames_of(10, shape)
    disk = ScriptedDisk()
    with start_log(tmp_path / "cells", disk=disk) as log:
        append(log, frames[:published])
        disk.fail(kind, 1 if published else 2, part=STACK)
        append(log, frames[published:], is_awaited=False)
    assert disk.delivered == 1
    warnings = unstalled(log.notes.warnings)
    assert [(code, "Input/output error" in text) for code, text, _ in warnings] == [("io_error", True)]
    assert log.state is AcquisitionState.COMPLETE
    assert len(stack_paths(tmp_path / "cells")) >= 2
    check_dataset(tmp_path / "cells", frames)


@pytest.mark.parametrize("kind", ["fdatasync", "pwritev"])
@pytest.mark.parametrize("published", [0, 3])
def test_two_failed_files_end_the_acquisition(tmp_path: Path, kind: str, published: int) -> None:
    frames = frames_of(6, (400, 400))
    disk = ScriptedDisk()
    log = start_log(tmp_path / "cells", disk=disk)
    append(log, frames[:published])
    disk.fail(kind, 1 if published else 2, part=STACK)
    disk.fail(kind, 2, part="Stack_1.tif")  # its header goes well
    error = fail_log(log, frames[published:])
    assert disk.delivered == 2
    assert (type(error), error.errno, error.number) == (StorageError, errno.EIO, published)
    check_failed(log, frames[:published])


@pytest.mark.parametrize("file", [JOURNAL, INDEX])
@pytest.mark.parametrize("published", [0, 3])
def test_a_failed_append_publishes_nothing(tmp_path: Path, file: str, published: int) -> None:
    frames = frames_of(6, (400, 400))
    disk = ScriptedDisk()
    log = start_log(tmp_path / "cells", disk=disk, durability="close")
    log.wait_until_open()  # the journal has its header
    append(log, frames[:published])
    disk.fail("pwritev", part=file)
    error = fail_log(log, frames[published:])
    assert file in str(error.filename)
    check_failed(log, frames[:published])


def test_a_file_that_could_not_be_prepared_is_made_when_needed(tmp_path: Path) -> None:
    disk = ScriptedDisk()
    disk.can_direct = False  # so that every system makes the same calls
    fault = disk.fail("create", part="Stack_1.tif.part")
    frames = frames_of(45, (320, 512))
    with start_log(tmp_path / "cells", disk=disk, limit=18_000_000, memory_bytes=2 * MIB) as log:
        append(log, frames[:33], is_awaited=False)  # to 0.6 of the limit; the next file is prepared at 0.7
        append(log, frames[33:])
    assert fault.delivered == 1
    assert len(disk.of("create", part="Stack_1.tif.part")) == 3  # the fault, then direct I/O refused, then buffered
    check_dataset(tmp_path / "cells", frames)


def test_frames_behind_a_failed_roll_over_do_not_outgrow_their_file(tmp_path: Path) -> None:
    """The last batch of a file and the first groups of the next one end up in one file: it must not get too long."""
    disk = ScriptedDisk()
    frames = frames_of(40, (320, 512))
    usable = LEAST_LIMIT_BYTES - 5_000_000
    per_file = usable // 335_872
    log = start_log(tmp_path / "cells", disk=disk, limit=LEAST_LIMIT_BYTES)
    append(log, frames[: per_file - 3])
    stall = disk.stall("fdatasync", 1, part=STACK)
    disk.fail("fdatasync", 1, part=STACK)
    append(log, frames[per_file - 3 :][:6], is_awaited=False)
    assert stall.entered.wait(20)
    stall.go.set()
    append(log, frames[per_file + 3 :], is_awaited=False)
    log.close()
    assert disk.delivered == 1
    assert all(path.stat().st_size <= usable for path in stack_paths(tmp_path / "cells"))
    check_dataset(tmp_path / "cells", frames)


def test_more_frames_than_a_file_holds_behind_a_failed_sync(tmp_path: Path) -> None:
    """While a sync stands still everything received gathers in one batch; when it fails that takes several files."""
    disk = ScriptedDisk()
    frames = frames_of(30, (320, 512))
    usable = LEAST_LIMIT_BYTES - 5_000_000
    log = start_log(tmp_path / "cells", disk=disk, limit=LEAST_LIMIT_BYTES, memory_bytes=16 * MIB)
    append(log, frames[:2])
    stall = disk.stall("fdatasync", 1, part=STACK)
    disk.fail("fdatasync", 1, part=STACK)
    append(log, frames[2:20], is_awaited=False)
    assert stall.entered.wait(20)
    stall.go.set()
    append(log, frames[20:], is_awaited=False)
    log.close()
    assert disk.delivered == 1
    assert all(path.stat().st_size <= usable for path in stack_paths(tmp_path / "cells"))
    check_dataset(tmp_path / "cells", frames)


def fail_log(log, frames: list[Frame]) -> StorageError:
    """Append until the log fails; its error."""
    with pytest.raises(StorageError) as caught:
        append(log, frames, is_awaited=False)
        wait_for(log, lambda: log.error is not None)
        log.close()
    with pytest.raises(StorageError):
        log.close()
    return caught.value


def check_failed(log, frames: list[Frame]) -> None:
    assert not log_threads()
    assert log.state is AcquisitionState.FAILED
    assert log.receipt is not None
    assert (log.receipt.status, log.receipt.stored) == ("failed", len(frames))
    assert log.receipt.missing[0].first == log.cursors().published == len(frames)
    assert log.cursors().durable in (0, len(frames))  # not after an error of journal or index
    check_dataset(Path(log.folder), frames)
