from __future__ import annotations

import pytest

from acqstream.simulate.axes_counter import TileScan, parse_grid, parse_overlap


def test_a_scan_goes_over_all_tiles_and_begins_again() -> None:
    scan = TileScan(2, 3, (2, 5))
    assert list(scan) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert scan.cell(7) == (0, 1)
    assert list(TileScan(3, 2, (0, 0), snake=True)) == [(0, 0), (0, 1), (1, 1), (1, 0), (2, 0), (2, 1)]
    assert scan.origin((1, 2), (10, 20)) == (8, 30)


@pytest.mark.parametrize("text", ["5", "5x", "x7", "0x7", "5x7x1", "-5x7", "axb", ""])
def test_grids_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="ROWSxCOLUMNS"):
        parse_grid(text)
    assert parse_grid("5x7") == (5, 7)


@pytest.mark.parametrize(
    ("text", "why"), [("5", "Y,X"), ("5,a", "Y,X"), ("-1,2", "Y,X"), ("9,2", "less"), ("2,8", "less")]
)
def test_overlaps_that_are_none(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_overlap(text, (9, 8))
    assert parse_overlap("8,0", (9, 8)) == (8, 0)
