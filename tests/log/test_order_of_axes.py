"""The axes of all index entries stand in one order, whichever order they came in: tifffile warns of others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tifffile

from acqstream.formats.ndtiff.index_entries import INDEX_NAME
from acqstream.integrity.recover import recover
from acqstream.integrity.repair import repair
from tests.integrity.repair.damaged_sets import age
from tests.log.crashed import crash, cut, entry_starts
from tests.log.make_frames import frame_of, start_log, write_log
from tests.log.read_back import check_dataset, read_index, stack_paths
from tests.log.test_continuation import go_on, interrupt
from tests.log.test_intake_runs import run_of

ORDERS = (("time", "channel", "z"), ("z", "channel", "time"), ("channel", "time", "z"))
VALUES = [{"time": n // 4, "channel": "ab"[n // 2 % 2], "z": n % 2} for n in range(8)]
FRAMES = [frame_of(n, (6, 7), axes={name: VALUES[n][name] for name in ORDERS[n % 3]}) for n in range(8)]  # type: ignore[misc]


def one_by_one(folder: Path) -> None:
    write_log(folder, FRAMES)


def resumed(folder: Path) -> None:
    interrupt(folder, FRAMES[:4])
    go_on(folder, FRAMES[4:])


def in_runs(folder: Path) -> None:
    with start_log(folder) as log:
        for first in (0, 4):
            some = [
                frame_of(n, (6, 7), axes={name: VALUES[n][name] for name in ORDERS[first // 4]})  # type: ignore[misc]
                for n in range(first, first + 4)
            ]
            slot = log.reserve_run(run_of(some))
            assert slot is not None
            slot.fill(memoryview(b"".join(frame.image.tobytes() for frame in some)))


def recovered(folder: Path) -> None:
    crash(folder, FRAMES)
    cut(folder / INDEX_NAME, entry_starts(folder)[1])  # the others are made of the pages
    report = recover(folder)
    assert report is not None
    assert (report.published, report.rolled_forward) == (8, 7)


def repaired(folder: Path) -> None:
    write_log(folder, FRAMES)
    age(folder)
    content = (folder / INDEX_NAME).read_bytes()
    (folder / INDEX_NAME).unlink()
    assert not repair(folder).lost
    assert (folder / INDEX_NAME).read_bytes() == content


@pytest.mark.parametrize("write", [one_by_one, in_runs, resumed, recovered, repaired])
def test_tifffile_reads_the_index_without_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, write: Callable[[Path], None]
) -> None:
    folder = tmp_path / "cells"
    write(folder)
    check_dataset(folder, FRAMES, complete=write is not recovered)
    assert {tuple(axes) for axes in read_index(folder).axes} == {ORDERS[0]}
    with tifffile.TiffFile(stack_paths(folder)[0]) as stack:
        array = stack.series[0].asarray()
    assert not caplog.records
    assert array.shape == (2, 2, 2, 6, 7)
    for frame, place in zip(FRAMES, np.ndindex(2, 2, 2), strict=True):
        assert np.array_equal(array[place], frame.image)
