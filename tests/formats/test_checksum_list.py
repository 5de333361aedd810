"""The bytes of a list of checksums: round trip, torn ends, damage and hostile counts."""

from __future__ import annotations

import struct

import pytest

from acqstream.formats.checksum_list import DOCUMENT, MAX_RECORDS, ChecksumPage, Entry, ListEnd, page_bytes, read_pages

CHUNK = Entry(0, (3, 1, 2), "0/c/3", 4096, 512, 0xFEDCBA9876543210)
NEIGHBOUR = Entry(0, (3, 1, 3), "0/c/3", 4608, 512, 7)
NOTE = Entry(DOCUMENT, (0, 0, 0), "zarr.json", 0, 99, 8)
FIRST = page_bytes([CHUNK, NEIGHBOUR], 3)
LAST = page_bytes([NOTE], 3, is_closed=True)


def _read(content: bytes) -> tuple[list[Entry], ListEnd]:
    *pages, end = read_pages(content)
    assert isinstance(end, ListEnd)
    entries = [page.entry(row) for page in pages if isinstance(page, ChecksumPage) for row in range(len(page.records))]
    return entries, end


def test_entries_come_back() -> None:
    assert _read(FIRST + LAST) == ([CHUNK, NEIGHBOUR, NOTE], ListEnd("closed", len(FIRST + LAST)))
    assert _read(FIRST) == ([CHUNK, NEIGHBOUR], ListEnd("open", len(FIRST)))
    assert _read(b"") == ([], ListEnd("open", 0))


def test_first_bytes_are_those_of_the_reference() -> None:
    assert FIRST[:24] == b"ACQSUMPG" + struct.pack("<4I", 2, 3, len("0/c/3"), 0)
    assert FIRST[32:56] == struct.pack("<3Q", CHUNK.checksum, 4096, 512)
    assert FIRST.endswith(b"0/c/3")


@pytest.mark.parametrize("kept", range(len(LAST)))
def test_torn_end_is_cut_anywhere(kept: int) -> None:
    entries, end = _read(FIRST + LAST[:kept])
    assert entries == [CHUNK, NEIGHBOUR]
    assert end == ListEnd("torn" if kept else "open", len(FIRST))


@pytest.mark.thinned(4)
@pytest.mark.parametrize("bit", range(len(FIRST) * 8))
def test_each_flipped_bit_before_a_sound_page_is_damage(bit: int) -> None:
    content = bytearray(FIRST + LAST)
    content[bit // 8] ^= 1 << bit % 8
    assert _read(bytes(content)) == ([], ListEnd("damaged", 0))


def test_huge_counts_are_refused() -> None:
    for counts in [(0xFFFFFFFF, 3, 0), (1, 0xFFFFFFFF, 0), (1, 3, 0xFFFFFFFF), (MAX_RECORDS, 32, 0)]:
        assert _read(struct.pack("<8s4IQ", b"ACQSUMPG", *counts, 0, 0)) == ([], ListEnd("torn", 0))


def test_too_many_entries_for_a_page() -> None:
    with pytest.raises(ValueError, match="more than a page"):
        page_bytes([NOTE] * (MAX_RECORDS + 1), 3)
