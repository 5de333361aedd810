"""Many entries at once, against the same entries one by one."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acqstream.errors import AcqStreamError
from acqstream.formats.ndtiff import index_block
from acqstream.formats.ndtiff.frame_table import FrameTable
from acqstream.formats.ndtiff.index_block import EntryBlock, parse_index
from acqstream.formats.ndtiff.index_entries import parse_entries
from tests.formats.ndtiff.ndtiff_bytes import entry

NUMBERS = (200, 4, 3, 1, 0, 300, 9, 0)
WORDS = ["DAPI", "GFP", "RFP", "a much longer channel name", "", "µ-Cy5", "x\\y", 'q"', "00", "a", "b", "c\0"]

Found = tuple[list[dict[str, Any]], list[Any], list[str], int, bool, str]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that short indexes have many blocks and many reaches."""
    monkeypatch.setattr(index_block, "_MIN_BYTES", 100)
    monkeypatch.setattr(index_block, "_FIRST_REACH", 128)
    monkeypatch.setattr(index_block, "_LONGEST_REACH", 512)
    monkeypatch.setattr(index_block, "_MIN_AT_ONCE", 6)
    monkeypatch.setattr(index_block, "_MAX_AT_ONCE", 50)


def rows_of(table: FrameTable) -> tuple[list[dict[str, Any]], list[Any], list[str]]:
    stacks = [table.stack_names[stack] for stack in table.all_stacks.tolist()]
    return [table.key(row) for row in range(len(table))], table.all_numbers.tolist(), stacks


def one_by_one(data: bytes) -> Found:
    table = FrameTable("x")
    batch = None
    try:
        batch = parse_entries(data, "x", 1000)
        table.append(batch)
    except AcqStreamError as error:
        return [], [], [], 0, False, f"{type(error).__name__} {error}"
    return *rows_of(table), batch.consumed, batch.at_zeros, ""


def at_once(data: bytes) -> tuple[Found, int]:
    """What is found, and how many entries of it in blocks."""
    table = FrameTable("x")
    consumed, in_blocks, at_zeros = 0, 0, False
    try:
        for part in parse_index(data, "x", 1000):
            table.append(part)
            consumed += part.consumed
            at_zeros = part.at_zeros
            in_blocks += len(part) if isinstance(part, EntryBlock) else 0
    except AcqStreamError as error:
        return (*rows_of(table), consumed, False, f"{type(error).__name__} {error}"), in_blocks
    return (*rows_of(table), consumed, at_zeros, ""), in_blocks


def check(data: bytes) -> int:
    """Both find the same, in the same order of axes; how many entries were found in blocks.

    Where there is an error, what stands before it may have been taken already; of several errors it may be another one.
    """
    expected, (found, in_blocks) = one_by_one(data), at_once(data)
    if expected[5]:
        assert found[5] == expected[5] or found[5] in {one_by_one(data[:end])[5] for end in range(len(data))}
        expected = *one_by_one(data[: found[3]])[:4], False, found[5]
    assert found == expected
    assert [list(key) for key in found[0]] == [list(key) for key in expected[0]]
    return in_blocks


def grid(times: int, channels: list[str], slices: int) -> Iterator[dict[str, Any]]:
    for t in range(times):
        for channel in channels:
            for z in range(slices):
                yield {"time": t, "channel": channel, "z": z - 1}


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
@pytest.mark.parametrize(
    "channels", [["DAPI", "GFP", "Cy5"], ["a much longer channel name", "another rather long name"]]
)
def test_a_usual_acquisition_is_read_in_blocks(separators: tuple[str, str], channels: list[str]) -> None:
    entries = []
    for i, axes in enumerate(grid(12, channels, 12)):
        text = json.dumps(axes, separators=separators).encode()
        entries.append(entry(text, (4096 + i, 4, 3, 1, 0, 2**31 + i, 9, 0), f"a_NDTiffStack_{i // 100}.tif"))
    in_blocks = check(b"".join(entries))
    assert in_blocks > 0.8 * len(entries)


def test_other_charsets_and_kinds() -> None:
    latin = [entry(b'{"t":%d,"c":"\xb5m"}' % t, NUMBERS) for t in range(20)]
    utf = [entry('{"t":%d,"c":"µm"}'.encode() % t, NUMBERS) for t in range(20)]
    both = [entry(b'{"t":%d,"\xc3\xb5":"\xb5"}' % t, NUMBERS) for t in range(9)]
    kinds = [entry({"t": t, "c": t if t % 3 else "x"}, NUMBERS) for t in range(30)]
    large = [entry({"t": 10**t, "c": -(10**t)}, NUMBERS) for t in range(15)]
    check(b"".join(utf + latin + utf + both + kinds + large + utf))


def test_what_is_no_json_is_refused_alike() -> None:
    good = [entry({"t": t, "c": "x"}, NUMBERS) for t in range(10, 60)]
    values = [b'01, "c": "x"}', b'1\0, "c": "x"}', b'1-, "c": "x"}', b'12, "c": "\x01"}', b'12, "c": "x"]']
    for text in (b'{"t": ' + value for value in values):
        for place in (0, 3, 49):
            data = b"".join([*good[:place], entry(text, NUMBERS), *good[place:]])
            check(data)
            assert ("not JSON" in at_once(data)[0][5]) == (b"\0" not in text)


def test_frequent_irregular_entries_cost_little_more(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    find = index_block._find_frames

    def count(data: bytes, position: int, start: int, most: int) -> Any:
        frames = find(data, position, start, most)
        tried.append(len(frames.starts) if frames else 0)
        return frames

    monkeypatch.setattr(index_block, "_find_frames", count)
    monkeypatch.setattr(index_block, "_MIN_AT_ONCE", 64)
    entries = [entry(b'{"t":%d,"c":"%s"}' % (t, b"\xb5" if t % 5 == 4 else b"x"), NUMBERS) for t in range(6000)]
    check(b"".join(entries))
    assert sum(tried) < 1000
    assert len(tried) < 60


VALUES = st.one_of(
    st.integers(-12, 120), st.sampled_from(WORDS), st.sampled_from([2**31, -(2**31), 10**9, 1.0, True, None])
)
NUMBER_ROWS = st.sampled_from(
    [NUMBERS] * 6
    + [(200, 4, 5, 0, 0, 300, 9, 0), (0, 0, 3, 1, 0, 300, 9, 0), (0, 2**31 - 1, 3, 1, 0, 9, 0, 0)]
    + [(200, 4, 3, 1, 0, 0, 0, 0), (200, 4, 3, 1, 0, 300, -1, 0), (2**32 - 1, 4, 3, 9, 7, 2**32 - 1, 1, 3)]
)
RUNS = st.tuples(
    st.sampled_from([["t"], ["t", "c"], ["c", "t", "z"], ["z", "µ"]]),
    st.lists(st.tuples(VALUES, st.sampled_from(WORDS[:4]), NUMBER_ROWS), min_size=1, max_size=12),
    st.sampled_from(["a.tif", "a_1.tif", "another_NDTiffStack.tif", "../a.tif"]),
    st.booleans(),
)


def index_of(runs: list[Any]) -> bytes:
    entries = []
    for names, rows, stack, is_compact in runs:
        for i, (value, word, numbers) in enumerate(rows):
            axes = dict(zip(names, (i, word, value), strict=False)) if len(names) > 1 else {names[0]: value}
            text = json.dumps(axes, separators=(",", ":") if is_compact else None, ensure_ascii=i % 2 == 0)
            entries.append(entry(text.encode(), numbers, stack))
    return b"".join(entries)


@settings(max_examples=100)
@given(st.lists(RUNS, max_size=6), st.integers(0, 10**9), st.sampled_from(["", "cut", "zeros", "flips", "all"]))
def test_generated_cut_and_flipped(runs: list[Any], seed: int, damage: str) -> None:
    rng = random.Random(seed)
    data = bytearray(index_of(runs))
    if damage in ("cut", "zeros", "all") and data:
        del data[rng.randrange(len(data)) :]
        data += bytes(0 if damage == "cut" else rng.randrange(400))
    for _ in range(2 if damage in ("flips", "all") and data else 0):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    check(bytes(data))


@settings(max_examples=80)
@given(st.integers(0, 10**9))
def test_a_usual_index_with_flipped_bits(seed: int) -> None:
    rng = random.Random(seed)
    entries = [entry(axes, NUMBERS, f"a_{i // 40}.tif") for i, axes in enumerate(grid(4, ["DAPI", "GFP"], 12))]
    data = bytearray(b"".join(entries))
    for _ in range(rng.randrange(1, 4)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    check(bytes(data))
