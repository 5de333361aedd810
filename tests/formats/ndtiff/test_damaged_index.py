"""An index damaged anywhere: every other entry is read, and the damage is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.formats.ndtiff.entry_walk import walk_entries
from acqstream.formats.ndtiff.index_entries import MAX_NAME_BYTES, parse_entries
from tests.formats.ndtiff.ndtiff_bytes import GOLDEN, entry

ENTRIES = [entry({"time": t, "channel": "µ"}, (200 * t + 8, 4, 3, 1, 0, 300, 9, 0)) for t in range(5)]
INDEX = b"".join(ENTRIES)


def test_whole_indexes_are_read_as_by_the_reader() -> None:
    for path in GOLDEN.rglob("NDTiff.index"):
        content = path.read_bytes()
        found, expected = walk_entries(content), parse_entries(content)
        assert found.starts == expected.offsets
        assert [found.axes(row) for row in range(len(found))] == expected.axes
        assert found.names == [name.decode() for name in expected.names]
        assert found.numbers.tolist() == expected.numbers.tolist()
        assert b"".join(found.entry(row) for row in range(len(found))) == content[: expected.consumed]
        assert bool(found.damage) == path.parents[1].name.startswith("torn")


def test_a_flipped_bit_costs_one_entry_at_most() -> None:
    for at in range(len(INDEX)):
        for bit in (0, 5, 7):
            content = bytearray(INDEX)
            content[at] ^= 1 << bit
            found = walk_entries(bytes(content))
            hit = at // len(ENTRIES[0])
            kept = [found.entry(row) for row in range(len(found))]
            assert [one for number, one in enumerate(ENTRIES) if number != hit] == [
                one for one in kept if one in ENTRIES
            ], (at, bit)
            assert len(kept) + len(found.damage) <= 6


def test_entries_after_some_are_those_that_are_left() -> None:
    found = walk_entries(b"".join(ENTRIES[:2]) + b"damage" + entry({"z": 1, "time": 9}))
    assert (found.unbroken, len(found)) == (2, 3)
    assert found.axes_at == {"time": 0, "channel": 0, "z": 2}
    rest = found.after(1)
    assert [rest.entry(row) for row in range(len(rest))] == [ENTRIES[1], entry({"z": 1, "time": 9})]
    assert (rest.axes(1), rest.names[1:], rest.numbers.tolist()) == (
        found.axes(2),
        found.names[2:],
        found.numbers.tolist()[1:],
    )


def test_zeros_in_the_middle_are_damage_and_at_the_end_are_not() -> None:
    found = walk_entries(ENTRIES[0] + bytes(5000) + ENTRIES[1] + bytes(9000))
    assert len(found) == 2
    assert found.damage == [(len(ENTRIES[0]), len(ENTRIES[0]) + 5000)]


@pytest.mark.parametrize("name", ["", "x" * (MAX_NAME_BYTES + 1), "a\0b"])
def test_an_entry_without_a_possible_name_is_damage(name: str) -> None:
    bad = entry({"time": 9}, name=name)
    found = walk_entries(ENTRIES[0] + bad + ENTRIES[1])
    assert [found.entry(row) for row in range(len(found))] == ENTRIES[:2]
    assert found.damage == [(len(ENTRIES[0]), len(ENTRIES[0]) + len(bad))]


@given(st.binary(max_size=400), st.integers(0, len(INDEX)))
def test_noise_before_entries_hides_at_most_what_it_overlaps(noise: bytes, cut: int) -> None:
    found = walk_entries(INDEX[:cut] + noise + INDEX)
    assert len(found) >= 4 + cut // len(ENTRIES[0])


@given(st.binary(max_size=3000))
def test_noise_raises_nothing(noise: bytes) -> None:
    found = walk_entries(noise)
    assert len(found.starts) == len(found.ends) == len(found.names) == len(found.numbers)
