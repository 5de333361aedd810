"""Rows of a level that may be read while it is written: complete ones, with no row in progress before them."""

from __future__ import annotations

import pytest

from acqstream.formats.watermark_layout import ChunkPlace
from acqstream.mirrors.watermark_publisher import Watermarks

FIRST = (0, 0)  # level and layer


def place(row, chunk=0, dataset=(), layer=0):
    return ChunkPlace(dataset, layer, row, (0, chunk))


def write(marks, *places, level=0):
    for one in places:
        marks.begin(level, one)
        marks.end(level, one)


@pytest.fixture
def marks():
    """Two chunks a row, in two levels."""
    return Watermarks([2, 2], lambda _dataset: {})


def test_a_row_counts_when_all_its_chunks_are_there(marks):
    write(marks, place(0, 0), place(0, 0))
    assert marks.take_raised() == {}
    write(marks, place(0, 1))
    assert marks.take_raised() == {(): {FIRST: 1}}
    assert marks.take_raised() == {}


def test_a_row_that_is_begun_holds_up_those_behind_it(marks):
    marks.begin(0, place(0))
    write(marks, place(1, 0), place(1, 1))
    assert marks.all() == {(): {FIRST: 0}}
    marks.end(0, place(0))
    write(marks, place(0, 1))
    assert marks.take_raised() == {(): {FIRST: 2}}


def test_rows_that_were_never_begun_are_zeros_and_hold_up_nothing(marks):
    write(marks, place(3, 0), place(3, 1))
    assert marks.take_raised() == {(): {FIRST: 4}}
    write(marks, place(1, 0))
    assert marks.all() == {(): {FIRST: 4}}  # it never falls
    assert marks.take_raised() == {}


def test_a_chunk_that_is_written_again_is_not_there_meanwhile(marks):
    write(marks, place(0, 0))
    marks.begin(0, place(0, 0))
    write(marks, place(0, 1))
    assert marks.take_raised() == {}
    marks.end(0, place(0, 0))
    assert marks.take_raised() == {(): {FIRST: 1}}


def test_levels_layers_and_datasets_count_for_themselves(marks):
    write(marks, place(0, 0, (1,)), place(0, 1, (1,)))
    write(marks, place(0, 0, (1,), 5), place(0, 1, (1,), 5), place(0, 0, (2,)), level=1)
    assert marks.all() == {(1,): {(0, 0): 1, (1, 5): 1}, (2,): {(1, 0): 0}}
    raised = marks.take_raised()
    assert raised == {(1,): {(0, 0): 1, (1, 5): 1}}
    marks.put_back(raised)
    assert marks.take_raised() == raised


def test_what_was_announced_before_a_restart_counts_on():
    marks = Watermarks([1], lambda dataset: {FIRST: 3} if dataset == (7,) else {})
    write(marks, place(2, dataset=(7,)), place(0, dataset=(8,)))
    assert marks.all() == {(7,): {FIRST: 3}, (8,): {FIRST: 1}}
    write(marks, place(3, dataset=(7,)))
    assert marks.take_raised()[(7,)] == {FIRST: 4}


def test_datasets_that_are_done_are_forgotten_and_found_again():
    told = {}
    marks = Watermarks([1], lambda dataset: told.get(dataset, {}))
    for number in range(5000):
        write(marks, place(0, dataset=(number,)))
        told.update(marks.take_raised())
    assert len(told) == 5000
    assert len(marks.all()) <= 1000
    write(marks, place(1, dataset=(0,)))
    assert marks.take_raised() == {(0,): {FIRST: 2}}


def test_datasets_that_are_begun_are_kept():
    marks = Watermarks([2], lambda _dataset: {})
    for number in range(3000):
        write(marks, place(0, dataset=(number,)))
    for number in range(3000):
        write(marks, place(0, 1, dataset=(number,)))
    assert len(marks.take_raised()) == 3000
