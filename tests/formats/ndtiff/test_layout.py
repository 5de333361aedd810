"""What is written, against the specification, our own parsers and tifffile."""

from __future__ import annotations

import io
import itertools
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from acqstream.errors import FrameRefused
from acqstream.formats.ndtiff import layout as ndtiff
from acqstream.formats.ndtiff.index_entries import parse_entries
from acqstream.formats.ndtiff.layout import NDTiffLayout, Pages, Placement, RollOver
from acqstream.formats.ndtiff.page_walk import PageChain
from acqstream.formats.ndtiff.pages import read_page
from acqstream.formats.ndtiff.stack_header import parse_stack_header
from acqstream.model.frame_header import FrameHeader, FrameRun, pixel_type_of
from acqstream.model.metadata import frame_metadata
from tests.formats.ndtiff.ndtiff_bytes import BytesFile

BLOCK = 4096
TYPES = [("|u1", (), None), ("|u1", (3,), None), *[("<u2", (), bits) for bits in (16, 10, 11, 12, 14)]]


def header_of(
    number: int, kind: tuple[str, tuple[int, ...], int | None], side: tuple[int, int], text: int = 0
) -> FrameHeader:
    dtype, samples, bits = kind
    axes: dict[str, int | str] = {"time": number}
    metadata = frame_metadata({"text": "x" * text} if text else None, axes)
    return FrameHeader(number, pixel_type_of(dtype, (*side, *samples), bits), *side, axes, metadata)


def pixels_of(header: FrameHeader) -> NDArray[Any]:
    values = np.random.default_rng(header.number).integers(0, 2**header.pixel_type.bits, header.shape)
    return values.astype(header.pixel_type.numpy_dtype)


def lay_out(layout: NDTiffLayout, headers: Sequence[FrameHeader]) -> tuple[bytes, list[Pages], list[list[Placement]]]:
    """A finished stack file in memory that holds these frames, its pages, and the groups it was built of."""
    content = bytearray(layout.stack_header(["time"]))
    groups: list[list[Placement]] = []
    for header in headers:
        layout.check(header)
        previous = groups[-1][-1] if groups else None
        end = previous.group_end if previous is not None else len(content)
        placement = layout.place(FrameRun.of([header]), end, previous)
        assert not isinstance(placement, RollOver)
        if placement.position == 0:
            groups.append([])
        groups[-1].append(placement)
    pages: list[Pages] = []
    for group in groups:
        block = bytearray(b"\xee" * (group[-1].group_end - group[0].group_start))  # what was there before
        for placement in group:
            start = placement.pixels - placement.group_start
            header = placement.frames[0]
            block[start : start + header.payload_bytes] = pixels_of(header).tobytes()
        closed = layout.close(group)
        layout.fill(memoryview(block), group, closed)
        assert len(content) == group[0].group_start
        content += block
        pages.append(closed)
    patches, length = layout.finish(pages[-1][-1] if pages else None)
    for offset, patch in patches:
        content[offset : offset + len(patch)] = patch
    return bytes(content[:length]) if length is not None else bytes(content), pages, groups


def reader_of(content: bytes):
    return lambda offset, count: content[offset : offset + count]


@given(
    kind=st.sampled_from(TYPES),
    side=st.tuples(st.integers(1, 40), st.integers(1, 40)) | st.sampled_from([(512, 512), (700, 401), (300, 437)]),
    texts=st.lists(st.integers(0, 9000) | st.just(0), min_size=1, max_size=12),
)
def test_what_is_laid_out_is_read_back(kind: Any, side: tuple[int, int], texts: list[int]) -> None:
    headers = [header_of(number, kind, side, text) for number, text in enumerate(texts)]
    content, pages, groups = lay_out(NDTiffLayout("cells", {}), headers)
    check_groups(content, groups)
    check_walk(content, headers, pages)
    check_index(content, headers, pages)
    with tifffile.TiffFile(io.BytesIO(content)) as tiff:
        assert len(tiff.pages) == len(headers)
        for page, header in zip(tiff.pages, headers, strict=True):
            assert np.array_equal(page.asarray(), pixels_of(header))
            assert isinstance(page, tifffile.TiffPage)
            assert page.tags[51123].value["Axes"] == header.axes


def check_groups(content: bytes, groups: list[list[Placement]]) -> None:
    for group in groups:
        assert group[0].group_start % BLOCK == group[-1].group_end % BLOCK == 0
        large = group[0].frames.payload_bytes >= ndtiff.LARGE_FRAME_BYTES
        assert not large or (len(group) == 1 and group[0].pixels % BLOCK == 0)
        assert large or group[-1].group_end - group[0].group_start <= ndtiff.PACKED_GROUP_BYTES
    for group, following in itertools.pairwise(groups):
        assert group[-1].group_end == following[0].group_start
        assert max(nexts_of(content, group)) == group[-1].group_end
    assert b"\xee" * 16 not in content[: groups[0][0].group_start]


def nexts_of(content: bytes, group: list[Placement]) -> list[int]:
    """Next pointers of the pages of a group."""
    pages = PageChain(BytesFile(Path("a.tif"), content), struct.unpack("<I", content[4:8])[0]).pages()
    return [page.next for page in pages if group[0].group_start <= page.directory < group[-1].group_end]


def check_walk(content: bytes, headers: Sequence[FrameHeader], pages: list[Pages]) -> None:
    first = parse_stack_header(reader_of(content), 2**32, "").first_directory
    walked = list(PageChain(BytesFile(Path("a.tif"), content), first).pages())
    assert len(walked) == len(headers)
    assert walked[-1].next == 0
    all_pages = [some[position] for some in pages for position in range(len(some))]
    for found, page, header in zip(walked, all_pages, headers, strict=True):
        assert (found.directory, found.pixels, found.metadata) == (page.directory, page.pixels, page.metadata)
        assert found.directory % 2 == 0
        assert (found.height, found.width, found.samples) == (header.height, header.width, header.pixel_type.samples)
        assert (found.bits, found.pixel_bytes) == (8 * header.pixel_type.sample_bytes, header.payload_bytes)
        assert content[found.pixels :][: found.pixel_bytes] == pixels_of(header).tobytes()
        assert content[found.metadata :][: found.metadata_bytes] == header.metadata + b"\0"
    last = walked[-1]
    assert len(content) == max(last.pixels + last.pixel_bytes, last.metadata + last.metadata_bytes)


def check_index(content: bytes, headers: Sequence[FrameHeader], pages: list[Pages]) -> None:
    layout = NDTiffLayout("cells", {})
    entries = parse_entries(b"".join(layout.index_entries(some, "cells_NDTiffStack.tif") for some in pages))
    assert entries.axes == [header.axes for header in headers]
    assert set(entries.names) == {b"cells_NDTiffStack.tif"}
    codes = {(1, 8): 0, (1, 16): 1, (3, 8): 2, (1, 10): 3, (1, 12): 4, (1, 14): 5, (1, 11): 6}
    for numbers, header in zip(entries.numbers, headers, strict=True):
        offset, width, height, code, compression, metadata, length, metadata_compression = numbers.tolist()
        assert (width, height, compression, metadata_compression) == (header.width, header.height, 0, 0)
        assert code == codes[header.pixel_type.samples, header.pixel_type.bits]
        assert content[offset:][: header.payload_bytes] == pixels_of(header).tobytes()
        assert content[metadata:][:length] == header.metadata


def test_an_index_entry_byte_for_byte() -> None:
    header = FrameHeader(0, pixel_type_of("<u2", (3, 4), 12), 3, 4, {"time": 7, "c": "\u00b5"}, b"{}", None)
    page = Pages(FrameRun.of([header]), *(np.array([offset]) for offset in (4096, 0x80001234, 0x80002345)))
    entry = NDTiffLayout("a", {}).index_entries(page, "a_NDTiffStack.tif")
    expected = (
        "17000000 7b2274696d65223a372c2263223a225c7530306235227d"  # {"time":7,"c":"\u00b5"}
        "11000000 615f4e4454696666537461636b2e746966"  # a_NDTiffStack.tif
        "34120080 04000000 03000000 04000000 00000000"  # pixels, width, height, 12 bit, raw
        "45230080 02000000 00000000"  # metadata: offset, length, raw
    )
    assert entry.hex() == expected.replace(" ", "")


def test_a_directory_byte_for_byte() -> None:
    header = header_of(0, ("|u1", (3,), None), (5, 7))
    content, (pages,), _ = lay_out(NDTiffLayout("a", {"PixelSizeUm": 0.65}), [header])
    page = pages[0]
    tags = struct.iter_unpack("<HHII", content[page.directory + 2 :][: 13 * 12])
    resolution = page.directory + 168
    assert content[page.directory : page.directory + 2] == b"\x0d\0"
    assert list(tags) == [
        *((256, 4, 1, 7), (257, 4, 1, 5), (258, 3, 3, page.directory + 162), (259, 3, 1, 1), (262, 3, 1, 2)),
        *((273, 4, 1, page.pixels), (277, 3, 1, 3), (278, 4, 1, 5), (279, 4, 1, 105)),
        *((282, 5, 1, resolution), (283, 5, 1, resolution + 8), (296, 3, 1, 3)),
        (51123, 2, len(header.metadata) + 1, page.metadata),
    ]
    assert struct.unpack_from("<I3H4I", content, page.directory + 158) == (0, 8, 8, 8, 15384, 1, 15384, 1)


def test_a_stack_header_byte_for_byte() -> None:
    content = NDTiffLayout("a", {"AxisOrder": ["z"], "name": "µ😀"}).stack_header(["time", "channel"])
    text = rb'{"AxisOrder":["z"],"name":"\u00b5\ud83d\ude00","TiledImageStorage":false}'
    assert content[:28].hex() == "49492a00 00100000 91610700 03000000 03000000 24f12300 49000000".replace(" ", "")
    assert (len(text), content[28:101]) == (73, text)
    assert content[101:] == bytes(BLOCK - 101)
    assert b'"AxisOrder":["time","channel"]' in NDTiffLayout("a", {}).stack_header(["time", "channel"])
    long = NDTiffLayout("a", {"text": "x" * 5000}).stack_header([])
    assert (len(long), struct.unpack_from("<I", long, 4)[0]) == (2 * BLOCK, 2 * BLOCK)


@pytest.mark.parametrize(
    ("summary", "expected"),
    [
        ({}, (10000, 1)),
        ({"PixelSizeUm": 1}, (10000, 1)),
        ({"PixelSizeUm": 0.65}, (15384, 1)),
        ({"PixelSize_um": 0.65}, (15384, 1)),
        ({"PixelSizeUm": 0.5, "PixelSize_um": 9}, (20000, 1)),
        ({"PixelSizeUm": 0}, (10000, 1)),
        ({"PixelSizeUm": -1.0}, (10000, 1)),
        ({"PixelSizeUm": True}, (10000, 1)),
        ({"PixelSizeUm": "0.5"}, (10000, 1)),
        ({"PixelSizeUm": 10000}, (1, 1)),
        ({"PixelSizeUm": 25000}, (1, 2)),
        ({"PixelSizeUm": 1e-9}, (0xFFFFFFFF, 1)),
        ({"PixelSizeUm": 5e-324}, (0xFFFFFFFF, 1)),
        ({"PixelSizeUm": 1e300}, (1, 0xFFFFFFFF)),
        ({"PixelSizeUm": float("inf")}, (1, 0xFFFFFFFF)),
        ({"PixelSizeUm": 10**400}, (1, 0xFFFFFFFF)),
        ({"PixelSizeUm": float("nan")}, (10000, 1)),
    ],
)
def test_resolution(summary: dict[str, Any], expected: tuple[int, int]) -> None:
    assert ndtiff.resolution(ndtiff.pixel_size_of(summary)) == expected
    NDTiffLayout("a", summary)


@given(
    limit=st.integers(7_200_000, 9_000_000),
    side=st.sampled_from([(1, 1), (100, 100), (400, 400), (511, 256)]),
    text=st.integers(0, 5000),
)
def test_never_a_later_roll_over_than_the_references(limit: int, side: tuple[int, int], text: int) -> None:
    layout = NDTiffLayout("a", {}, stack_limit_bytes=limit)
    kind = ("<u2", (), 16)
    end, previous, number = BLOCK, None, 0
    while number < 60:
        header = header_of(number, kind, side, text)
        placement = layout.place(FrameRun.of([header]), end, previous)
        position = end if previous is None else previous.pixels_end  # no later than their end of the last write
        theirs = len(header.metadata) + 176 + header.payload_bytes + 5_000_000 + position >= limit
        if isinstance(placement, RollOver):
            return
        assert not theirs
        assert placement.group_end + 5_000_000 < limit
        end, previous, number = placement.group_end, placement, number + 1


@pytest.mark.promise("past-4-gib")
@pytest.mark.parametrize(("step", "rolls_over"), [(-1, True), (0, True), (1, False)])
@pytest.mark.parametrize("side", [(512, 512), (10, 10)])
def test_roll_over_at_the_limit(side: tuple[int, int], step: int, rolls_over: bool) -> None:
    header = header_of(0, ("<u2", (), 16), side)
    end = 2**32 - 8 * 2**20
    placement = NDTiffLayout("a", {}).place(FrameRun.of([header]), end, None)
    assert isinstance(placement, Placement)
    limit = placement.group_end + 176 + 5_000_000 + step
    again = NDTiffLayout("a", {}, stack_limit_bytes=limit).place(FrameRun.of([header]), end, None)
    assert isinstance(again, RollOver) == rolls_over


@pytest.mark.promise("past-4-gib")
def test_offsets_above_2_gib_are_unsigned() -> None:
    layout = NDTiffLayout("a", {})
    frames = [FrameRun.of([header_of(number, ("<u2", (), 16), (20, 20))]) for number in range(2)]
    start = 3 * 2**30
    first = layout.place(frames[0], start, None)
    assert isinstance(first, Placement)
    second = layout.place(frames[1], start, first)
    assert isinstance(second, Placement)
    group = [first, second]
    block = bytearray(group[-1].group_end - start)
    pages = layout.close(group)
    layout.fill(memoryview(block), group, pages)
    page = read_page(lambda offset, count: bytes(block[offset - start :][:count]), 2**32, pages[1].directory)
    assert page is not None
    assert (page.pixels, page.metadata) == (pages[1].pixels, pages[1].metadata)
    assert (page.directory > start, page.next) == (True, group[-1].group_end)
    assert parse_entries(layout.index_entries(pages, "a.tif")).numbers["pixel_offset"][1] == pages[1].pixels


def test_a_frame_larger_than_a_stack_is_refused() -> None:
    layout = NDTiffLayout("a", {})
    with pytest.raises(FrameRefused) as caught:
        layout.check(header_of(3, ("<u2", (), 16), (2**16, 2**15)))
    assert (caught.value.code, caught.value.number) == ("payload_size", 3)
    layout.check(header_of(0, ("<u2", (), 16), (2**15, 2**15)))


def test_a_stack_without_frames_has_no_directory(tmp_path: Path) -> None:
    content, _, _ = lay_out(NDTiffLayout("a", {"b": 1}), [])
    assert (content[4:8], len(content)) == (bytes(4), BLOCK)
    assert parse_stack_header(reader_of(content), len(content), "").summary_metadata["b"] == 1


def test_names() -> None:
    assert [NDTiffLayout("a", {}).stack_name(number) for number in (0, 1, 12)] == [
        "a_NDTiffStack.tif",
        "a_NDTiffStack_1.tif",
        "a_NDTiffStack_12.tif",
    ]
    assert NDTiffLayout("", {}).stack_name(0) == "NDTiffStack.tif"
