"""Each lost frame is reported once, whatever told of it: a page, the journal, an old entry."""

from __future__ import annotations

from acqstream.formats.ndtiff.entry_walk import walk_entries
from acqstream.formats.ndtiff.page_walk import Loss
from acqstream.integrity.index_frames import LevelReport, RebuiltFrame
from acqstream.integrity.index_rebuild import RebuildLosses
from tests.formats.ndtiff.ndtiff_bytes import entry

STACK = "cells_NDTiffStack.tif"
ENTRIES = [entry({"time": time}, (20_000 * (time + 1), 4, 3, 1, 0, 30_000, 2, 0), STACK) for time in range(2)]


def losses_of() -> tuple[RebuildLosses, LevelReport]:
    report = LevelReport("cells")
    return RebuildLosses(walk_entries(b"".join(ENTRIES)), report), report


def lost_in(report: LevelReport) -> list[tuple[str, int]]:
    return [(finding.file, finding.offset) for finding in report.lost]


def test_a_torn_page_and_its_frame_are_one_loss() -> None:
    losses, report = losses_of()
    losses.torn[STACK] = [Loss(19_800, "torn"), Loss(300, "another page")]
    assert not losses.add(STACK, 20_000, "pixels differ", row=0)
    losses.report([])
    assert lost_in(report) == [(STACK, 300), (STACK, 20_000)]
    assert len(report.dropped) == 1


def test_a_page_far_before_a_frame_is_a_loss_of_its_own() -> None:
    losses, report = losses_of()
    losses.torn[STACK] = [Loss(20_000 - 8193, "torn")]
    losses.add(STACK, 20_000, "pixels differ")
    losses.report([])
    assert lost_in(report) == [(STACK, 20_000 - 8193), (STACK, 20_000)]


def test_a_frame_that_its_entry_places_is_not_lost() -> None:
    losses, report = losses_of()
    losses.torn[STACK] = [Loss(19_800, "torn")]
    losses.placed_by_entry.append((STACK, 20_000))
    losses.report([RebuiltFrame(STACK, 20_000, ENTRIES[0], 0)])
    assert lost_in(report) == []


def test_a_dropped_entry_is_a_loss_unless_another_frame_has_its_axes() -> None:
    losses, report = losses_of()
    losses.drop([0, 1, -1], "no complete frame lies at its place")
    losses.report([RebuiltFrame(STACK, 50_000, ENTRIES[0], 0)])
    assert lost_in(report) == [(STACK, 40_000)]
    assert "it is not in the file" in next(iter(report.lost)).text
