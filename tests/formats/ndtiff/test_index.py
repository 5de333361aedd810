"""Entries of an index, and the columns that keep them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.errors import AcqStreamError, CorruptDataset, UnsupportedFeature
from acqstream.formats.ndtiff.frame_table import FrameTable
from acqstream.formats.ndtiff.index_entries import MAX_AXES_BYTES, parse_entries
from acqstream.formats.ndtiff.stack_header import decode_text
from tests.formats.ndtiff.ndtiff_bytes import entry

NUMBERS = (2**32 - 1, 7, 5, 4, 0, 2**31, 11, 0)
ENTRIES = [entry({"time": 0, "channel": "GFP"}, NUMBERS), entry({"time": -1}), entry({"time": 2}, name="b.tif")]


def table_of(*axes: dict[str, Any]) -> FrameTable:
    table = FrameTable("here")
    table.append(parse_entries(b"".join(map(entry, axes))))
    return table


def test_an_entry_is_read_as_written() -> None:
    batch = parse_entries(ENTRIES[0])
    assert batch.axes == [{"time": 0, "channel": "GFP"}]
    assert batch.names == [b"a_NDTiffStack.tif"]
    assert batch.numbers[0].tolist() == NUMBERS
    assert (batch.consumed, batch.at_zeros) == (len(ENTRIES[0]), False)


def test_a_cut_at_every_byte_keeps_the_whole_entries() -> None:
    data = b"".join(ENTRIES)
    ends = [len(ENTRIES[0]), len(ENTRIES[0]) + len(ENTRIES[1]), len(data)]
    for cut in range(len(data) + 1):
        batch = parse_entries(data[:cut])
        whole = sum(end <= cut for end in ends)
        assert len(batch.axes) == whole
        assert batch.consumed == (ends[whole - 1] if whole else 0)


def test_zeros_from_any_byte_on_keep_the_whole_entries() -> None:
    for cut in range(len(ENTRIES[1])):
        data = ENTRIES[0] + ENTRIES[1][:cut].ljust(len(ENTRIES[1]), b"\0") + bytes(200)
        batch = parse_entries(data)
        kept = [batch.axes[i] for i in range(len(batch.axes))]
        assert kept in ([{"time": 0, "channel": "GFP"}], [{"time": 0, "channel": "GFP"}, {"time": -1}])
    assert parse_entries(ENTRIES[0] + bytes(4)).at_zeros


def test_an_entry_whose_numbers_are_not_all_there_is_left_for_later() -> None:
    for known in (0, 4, 8, 12, 20):  # bytes of the numbers, in a reserved index
        batch = parse_entries(ENTRIES[0] + ENTRIES[1][: known - 32] + bytes(32 - known) + bytes(50))
        assert (len(batch.axes), batch.consumed) == (1, len(ENTRIES[0]))
    without_metadata = entry({"t": 0}, (200, 4, 3, 1, 0, 0, 0, 0))
    assert parse_entries(without_metadata).axes == [{"t": 0}]


@pytest.mark.parametrize(
    "numbers",
    [(0, 0, 3, 1, 0, 0, 0, 0), (0, 3, -3, 1, 0, 0, 0, 0), (0, 2**31 - 1, 3, 1, 0, 0, 0, 0), (0, 3, 3, 1, 0, 0, -1, 0)],
)
def test_impossible_numbers_are_dropped(numbers: tuple[int, ...]) -> None:
    batch = parse_entries(entry({"t": 0}, numbers) + ENTRIES[1])
    assert batch.axes == [{"time": -1}]
    assert batch.offsets == [len(entry({"t": 0}, numbers))]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (entry(b"no json"), "not JSON"),
        (entry(b"[1]"), "one JSON object"),
        (entry(b'{"a":1} 2'), "one JSON object"),
        (entry(b"[" * 5000), "not JSON"),
        (entry(b'{"a":' + b"1" * 5000 + b"}"), "not JSON"),
        ((MAX_AXES_BYTES + 1).to_bytes(4, "little"), "bytes in an index entry"),
        (b"\2\0\0\0{}\xff\xff\xff\xff", "file name of"),
    ],
)
def test_what_is_no_entry_raises_with_its_offset(data: bytes, text: str) -> None:
    with pytest.raises(CorruptDataset, match=text) as caught:
        parse_entries(data, "x/NDTiff.index", 1000)
    assert caught.value.path == "x/NDTiff.index"
    assert 1000 <= (caught.value.offset or 0) < 1000 + len(data) + 1


@pytest.mark.parametrize("name", ["../a.tif", "/a.tif", "sub/a.tif", "..", ".", "a\\b.tif"])
def test_names_that_lead_out_of_the_folder_are_refused(name: str) -> None:
    table = FrameTable("here")
    with pytest.raises(CorruptDataset, match="not a plain file name"):
        table.append(parse_entries(ENTRIES[0] + entry({"time": 1}, name=name)))
    assert len(table) == 0


@pytest.mark.parametrize("value", ["1.5", "null", "[1]", "NaN", "Infinity", '{"a":1}'])
def test_axis_values_of_other_types_are_refused(value: str) -> None:
    with pytest.raises(CorruptDataset, match="integer or a string"):
        FrameTable("here").append(parse_entries(entry(b'{"t":' + value.encode() + b"}")))


def test_too_many_different_axes_are_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="different axes"):
        table_of({f"a{i}": 0 for i in range(100)})


def test_axes_in_latin_1_are_read() -> None:
    assert parse_entries(entry(b'{"channel":"\xb5"}')).axes == [{"channel": "µ"}]


def test_text_in_the_charset_of_a_platform() -> None:
    assert decode_text("Zelle €–µ".encode()) == decode_text("Zelle €–µ".encode("cp1252")) == "Zelle €–µ"
    assert decode_text(b"\x81\xe4") == "\x81ä"


def test_integers_spelt_otherwise_are_integers() -> None:
    table = table_of({"t": 1.0, "z": True}, {"t": 2, "z": False})
    assert [repr(table.key(row)) for row in range(2)] == ["{'t': 1, 'z': 1}", "{'t': 2, 'z': 0}"]


def test_values_are_listed_in_order() -> None:
    table = table_of({"t": 3, "c": "z"}, {"t": -2, "c": "a"}, {"t": 3, "c": "a"})
    assert {name: column.distinct() for name, column in table.axes.items()} == {"t": [-2, 3], "c": ["z", "a"]}
    table.append(parse_entries(entry({"t": 0, "c": "b"})))
    assert {name: column.distinct() for name, column in table.axes.items()} == {"t": [-2, 0, 3], "c": ["z", "a", "b"]}


def test_an_axis_may_turn_from_integers_to_anything() -> None:
    rows: list[dict[str, Any]] = [{"a": 5}, {"a": -7}, {"a": 5, "b": 1}, {"b": 2}]
    late: list[dict[str, Any]] = [{"a": "x"}, {"a": 2**40}, {"a": -(2**31), "b": -1}, {"a": 5}]
    table = table_of(*rows)
    table.append(parse_entries(b"".join(map(entry, late))))
    assert [table.key(row) for row in range(len(table))] == rows + late
    assert table.generation == 1
    assert table.axes["a"].distinct() == [-(2**31), -7, 5, 2**40, "x"]


def test_columns_grow_with_little_to_spare() -> None:
    table = FrameTable()
    for first in range(0, 2000, 100):
        table.append(parse_entries(b"".join(entry({"t": first + i}) for i in range(100))))
    assert [table.key(row)["t"] for row in range(2000)] == list(range(2000))
    assert np.all(table.axes["t"].codes.values == np.arange(2000))


@given(st.binary(max_size=400))
def test_random_bytes_raise_only_our_errors(data: bytes) -> None:
    try:
        FrameTable().append(parse_entries(data))
    except AcqStreamError:
        pass


@given(st.integers(0, 10**9))
def test_flipped_bytes_raise_only_our_errors(seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(b"".join(ENTRIES))
    for _ in range(3):
        data[rng.randrange(len(data))] = rng.randrange(256)
    try:
        FrameTable().append(parse_entries(bytes(data)))
    except AcqStreamError:
        pass


@pytest.mark.parametrize(
    "axes",
    [
        [{"t": t} for t in range(9)],
        [{"t": t % 3, "c": "ab"[t % 2]} for t in range(9)],
        [{"t": t} if t % 2 else {"t": t, "z": -t} for t in range(9)],
        [{}, {"c": "x"}, {"t": 0}, {"t": "late", "c": "y"}, {"z": 2**31}],
        [{}, {}],
    ],
)
def test_keys_of_many_rows_are_those_of_each(axes: list[dict[str, Any]]) -> None:
    table = FrameTable()
    for one in axes:
        table.append(parse_entries(entry(one)))
    rows = np.arange(len(axes))[::-1]
    keys = table.keys(rows)
    assert keys == [axes[row] for row in rows]
    assert [list(key) for key in keys] == [list(table.key(row)) for row in rows.tolist()]
