"""Pages of the axes in an index, also while it grows."""

from __future__ import annotations

from pathlib import Path

import pytest

from acqstream.errors import CorruptDataset, StorageError
from acqstream.log.continuation import MAX_KEYS, KeyPage, read_key_page
from acqstream.log.log import Log
from tests.log.make_frames import frames_of, start_log


def append(log: Log, first: int, stop: int) -> None:
    for frame in frames_of(stop, (8, 8))[first:]:
        log.append(frame.header, frame.image)
    assert log.wait_for_published(stop)


def test_pages_follow_one_another_and_new_frames(tmp_path: Path) -> None:
    count = MAX_KEYS + 50
    axes = [frame.axes for frame in frames_of(count + 5, (8, 8))]
    log = start_log(tmp_path / "cells")
    append(log, 0, count)
    first = log.stored_keys(0)
    second = log.stored_keys(first.next)
    end = log.stored_keys(second.next)
    assert list(first.keys) == axes[:MAX_KEYS]
    assert list(second.keys) == axes[MAX_KEYS:count]
    assert end == KeyPage((), second.next)
    append(log, count, count + 5)
    assert list(log.stored_keys(second.next).keys) == axes[count:]
    log.close()
    assert log.received_frames == count + 5


def test_skipped_numbers_have_no_axes(tmp_path: Path) -> None:
    log = start_log(tmp_path / "cells")
    log.wait_until_open()
    log.skip(0, 7, "shutter")
    assert log.wait_for_published(7)
    assert (log.received, log.received_frames, log.stored_keys(0).keys) == (7, 0, ())
    log.close()


def test_what_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="open for reading"):
        read_key_page(str(tmp_path / "NDTiff.index"), 0)
    log = start_log(tmp_path / "cells")
    append(log, 0, 3)
    log.close()
    with pytest.raises(CorruptDataset):
        log.stored_keys(3)
