"""Rows by place, in chunks: the same as a dictionary of the latest rows, also where chunks were forgotten."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.mirrors import row_table
from acqstream.mirrors.row_table import NO_ROW, IndexCount, PlaceTable, TableGrid

GRIDS = [
    TableGrid(("time",), (0,), (4,), 0),
    TableGrid(("time", "channel"), (0, 3), (2, 2), 0),
    TableGrid(("position", "channel", "z"), (2, 3, 0), (2, 1, 3), 2),
    TableGrid((), (), (), None),
]
Placed = dict[tuple[int, ...], int]


def table_of(grid: TableGrid, placed: Placed) -> PlaceTable:
    return PlaceTable(grid, placed.get)


def shown(grid: TableGrid, table: PlaceTable, placed: Placed) -> Placed:
    """What the table has in all chunks with frames."""
    found: Placed = {}
    for chunk in {tuple(at // step for at, step in zip(place, grid.steps, strict=True)) for place in placed}:
        for inside, row in np.ndenumerate(table.chunk(chunk)):
            if row != NO_ROW:
                place = zip(chunk, grid.steps, inside, strict=True)
                found[tuple(number * step + at for number, step, at in place)] = int(row)
    return found


@given(st.data())
def test_the_latest_row_of_each_place(data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_table, "MAX_CHUNKS", data.draw(st.sampled_from([1, 3, 1000])))
        grid = data.draw(st.sampled_from(GRIDS))
        place = st.tuples(*(st.integers(0, 8) for _ in grid.axes))
        placed: Placed = {}
        table = table_of(grid, placed)
        row = 0
        for batch in data.draw(st.lists(st.lists(place, min_size=1, max_size=12), max_size=6)):
            fresh = [at not in placed and at not in batch[:number] for number, at in enumerate(batch)]
            places = np.array(batch, np.int64).reshape(len(batch), len(grid.axes))
            assert table.add(places, row).tolist() == fresh
            placed |= {at: row + number for number, at in enumerate(batch)}
            row += len(batch)
            for chunk in list(table.changed)[: data.draw(st.integers(0, 3))]:
                table.mark_stored(chunk)
        assert shown(grid, table, placed) == placed
        assert table.sizes == [max((at[axis] + 1 for at in placed), default=0) for axis in range(len(grid.axes))]
        if grid.axes and placed:
            axis = data.draw(st.integers(0, len(grid.axes) - 1))
            index = data.draw(st.integers(0, 8))
            assert table.count_at(axis, index) == sum(at[axis] == index for at in placed)


def test_an_earlier_process_left_some_chunks_unstored() -> None:
    grid = GRIDS[1]
    places = np.array([(t, c) for t in range(6) for c in range(3)], np.int64)
    placed: Placed = {tuple(place): row for row, place in enumerate(places.tolist())}
    table = table_of(grid, placed)
    table.add_earlier(places[:10], 0, frozenset({(1, 0)}))
    table.add_earlier(places[10:], 10, frozenset({(1, 0)}))
    assert list(table.changed) == [(1, 0)]
    assert table.chunk((1, 0)).tolist() == [[6, 7], [9, 10]]
    assert table.count_at(0, 5) == 3
    assert shown(grid, table, placed) == placed


def test_it_asks_for_storing_before_it_forgets_what_is_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_table, "MAX_CHUNKS", 2)
    monkeypatch.setattr(row_table, "MAX_CHANGED", 3)
    table = table_of(GRIDS[0], {})
    for row in range(3):
        assert not table.is_full
        table.add(np.array([[4 * row]]), row)
    assert table.is_full
    assert len(table._chunks) == 3
    table.mark_stored((0,))
    table.add(np.array([[12]]), 3)
    assert (0,) not in table._chunks
    assert list(table.changed) == [(1,), (2,), (3,)]


@pytest.mark.parametrize(("planned", "expected"), [(2, [0, 1, 1, 1, 2, 4]), (0, [0, 0, 0, 1, 1, 3])])
def test_indices_are_ready_when_they_have_all_frames_or_were_overtaken(planned: int, expected: list[int]) -> None:
    count, found = IndexCount(planned), []
    frames: list[tuple[list[int], list[bool]]] = [
        ([0], [True]),
        ([0], [True]),
        ([0], [False]),  # again
        ([1], [True]),
        ([0, 1], [True, True]),
        ([3, 3, 2], [True, True, True]),
    ]
    for indices, is_first in frames:
        count.add(np.array(indices), np.array(is_first))
        found.append(count.ready)
    assert found == expected


def test_counts_resume() -> None:
    count = IndexCount(3)
    count.resume(4, 2)
    assert count.ready == 4
    count.add(np.array([4]), np.array([True]))
    assert count.ready == 5


def grid_of(**fields: Any) -> TableGrid:
    return TableGrid(**{"axes": ("time", "z"), "sizes": (0, 5), "steps": (3, 5), "growing": 0, **fields})


def test_sizes_that_end_with_a_chunk() -> None:
    grid = grid_of()
    assert (grid.entries, grid.planned) == (15, 5)
    assert [grid.complete_size(size) for size in (0, 2, 3, 7)] == [0, 0, 3, 6]
    assert grid_of(sizes=(7, 5)).complete_size(7) == 7
    assert grid.first_index((2, 0)) == 6
    assert grid_of(sizes=(0, 0)).planned == 0
