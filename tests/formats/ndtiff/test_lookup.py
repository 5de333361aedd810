"""Rows by axes, against a plain dictionary."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from acqstream.formats.ndtiff import frame_lookup as lookup_module
from acqstream.formats.ndtiff.frame_lookup import RowLookup
from acqstream.formats.ndtiff.frame_table import FrameTable
from acqstream.formats.ndtiff.index_entries import parse_entries
from tests.formats.ndtiff.ndtiff_bytes import entry

VALUES = st.one_of(st.integers(-3, 3), st.sampled_from(["a", "b", "µ"]), st.sampled_from([2**31, -(2**31), 2**70]))
AXES = st.dictionaries(st.sampled_from(["t", "c", "z"]), VALUES, max_size=3)


def check_against_dictionary(batches: list[list[dict[str, Any]]]) -> None:
    """Later rows win; a row repeats if its key came before; keys that never came are not found."""
    table = FrameTable()
    lookup = RowLookup(table)
    rows: dict[frozenset[tuple[str, Any]], int] = {}
    repeats: list[bool] = []
    for batch in batches:
        table.append(parse_entries(b"".join(map(entry, batch))))
        for axes in batch:
            key = frozenset(axes.items())
            repeats.append(key in rows)
            rows[key] = len(repeats) - 1
        for key, row in rows.items():
            assert lookup.find(dict(key)) == row
        assert lookup.repeats(0, len(table)).tolist() == repeats
    for value in (99, "missing", -99):
        assert lookup.find({"t": value}) is None
    assert lookup.find({"t": 0, "unheard_of": 0}) is None


@given(st.lists(st.lists(AXES, max_size=8), max_size=8))
def test_finds_what_a_dictionary_finds(batches: list[list[dict[str, Any]]]) -> None:
    check_against_dictionary(batches)


@pytest.mark.parametrize("few", [lookup_module._SMALL_BATCH_ROWS, 0])
def test_equal_hashes_are_told_apart(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    monkeypatch.setattr(lookup_module, "_SMALL_BATCH_ROWS", few)
    monkeypatch.setattr(RowLookup, "_factors_of", lambda self, name: (0, 0))
    check_against_dictionary([[{"t": 0}, {"t": 1}, {"t": 0}], [{"t": 1}], [{"t": 2, "c": "x"}, {"t": 2}, {"t": 0}]])


def test_many_rows_at_once_are_taken_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_module, "_BATCH_ROWS", 7)
    check_against_dictionary([[{"t": t % 40 - 20, "c": t % 3} for t in range(100)], [{"t": 41}, {"t": 41}]])
    check_against_dictionary([[{"t": t} if t % 2 else {"t": t, "c": t} for t in range(50)]])


def test_rows_that_come_one_by_one_are_merged_into_few_runs() -> None:
    table = FrameTable()
    lookup = RowLookup(table)
    for t in range(300):
        table.append(parse_entries(entry({"t": t})))
        assert lookup.find({"t": t}) == t
    assert len(lookup._runs) <= 9
    assert [lookup.find({"t": t}) for t in range(300)] == list(range(300))


@pytest.mark.parametrize(("few", "most"), [(0, 10**6), (1, 3), (2, 7), (10**6, 10**6)])
def test_waiting_rows_are_found_and_become_runs(monkeypatch: pytest.MonkeyPatch, few: int, most: int) -> None:
    monkeypatch.setattr(lookup_module, "_SMALL_BATCH_ROWS", few)
    monkeypatch.setattr(lookup_module, "_MAX_WAITING", most)
    sizes = [1, 1, 2, 3, 1, 5, 1, 1, 1, 20, 2, 1]
    check_against_dictionary(
        [[{"t": (7 * i + n) % 11, "c": "ab"[i % 2]} for n in range(n)] for i, n in enumerate(sizes)]
    )


def test_one_more_row_costs_the_same_with_many_there(monkeypatch: pytest.MonkeyPatch) -> None:
    table = FrameTable()
    lookup = RowLookup(table)
    table.append(parse_entries(b"".join(entry({"t": t}) for t in range(20_000))))
    assert lookup.find({"t": 7}) == 7
    sorted_rows: list[int] = []
    sort = RowLookup._hashes

    def count(self: RowLookup, start: int, stop: int) -> NDArray[np.uint64]:
        sorted_rows.append(stop - start)
        return sort(self, start, stop)

    monkeypatch.setattr(RowLookup, "_hashes", count)
    for t in range(20_000, 23_000):
        table.append(parse_entries(entry({"t": t})))
        assert lookup.find({"t": t}) == t
    assert 0 < sum(sorted_rows) <= 3000


def test_a_missing_axis_is_no_value() -> None:
    table = FrameTable()
    lookup = RowLookup(table)
    table.append(parse_entries(entry({"t": 0}) + entry({"t": 0, "c": 0}) + entry({})))
    assert [lookup.find(axes) for axes in ({"t": 0}, {"t": 0, "c": 0}, {})] == [0, 1, 2]
    assert lookup.find({"t": -(2**31)}) is None
