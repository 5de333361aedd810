"""What a run writes stays below the bounds of its readers, whatever its producer sends."""

from __future__ import annotations

from pathlib import Path

import pytest

from acqstream.errors import ProtocolError
from acqstream.log.group import Gap
from acqstream.log.receipt_facts import ReceiptCounts
from acqstream.log.state_file import MAX_GAPS_NOTED, MAX_REASON_CHARACTERS_NOTED
from acqstream.model.metadata import MAX_DEPTH, frame_metadata
from acqstream.model.receipt import MissingFrames
from acqstream.protocol.requests import parse_request
from acqstream.storage.files.small_file import parse_json
from acqstream.views.checkpoint import Checkpoint, read_checkpoint


def nested(levels: int) -> dict[str, object]:
    value: dict[str, object] = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


def test_metadata_that_readers_would_refuse_is_refused_when_it_comes() -> None:
    stored = frame_metadata(nested(MAX_DEPTH), {"time": 0})
    assert parse_json(stored, "a.tif")["Axes"] == {"time": 0}
    with pytest.raises(ValueError, match="nested more than 100 levels"):
        frame_metadata(nested(MAX_DEPTH + 1), {"time": 0})
    request = {"t": "open", "ds": "0" * 32, "name": "cells", "summary": nested(MAX_DEPTH + 1)}
    with pytest.raises(ProtocolError, match=r"summary.*nested more than 100 levels"):
        parse_request(request)


def test_the_reasons_of_many_gaps_are_cut() -> None:
    counts = ReceiptCounts()
    reason = "[0.1, 0.2]," * 90
    counts.add([Gap(3 * number, 2, f"{number} {reason}") for number in range(MAX_GAPS_NOTED)])
    assert len(counts.gaps) == MAX_GAPS_NOTED
    assert sum(len(gap.reason) for gap in counts.gaps) == MAX_REASON_CHARACTERS_NOTED
    assert counts.gaps[0] == MissingFrames(0, 2, f"0 {reason}")
    again = ReceiptCounts()
    again.restore_gaps(counts.gaps[:-1])
    again.add([Gap(3 * MAX_GAPS_NOTED, 2, reason)])
    assert again.gaps[-1].reason == ""


def test_gaps_that_follow_one_another_are_one_also_where_the_reason_was_cut() -> None:
    counts = ReceiptCounts()
    counts.restore_gaps([MissingFrames(0, 1, "x" * MAX_REASON_CHARACTERS_NOTED)])
    counts.add([Gap(2, 1, "camera"), Gap(3, 5, "camera")])
    assert counts.gaps[1:] == [MissingFrames(2, 6, "")]


def test_the_checkpoint_of_a_mirror_with_many_open_stacks_is_read(tmp_path: Path) -> None:
    stacks = [[number, 0, 0, 0, 1] for number in range(400_000)]
    checkpoint = Checkpoint("n5", "0" * 32, 1, None, False, {"open": stacks})
    (tmp_path / "view.json").write_bytes(checkpoint.encode())
    saved = read_checkpoint(tmp_path)
    assert saved is not None
    assert saved.state["open"] == stacks
