"""Stack headers and the chain of page directories."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.errors import CorruptDataset, UnsupportedFeature
from acqstream.formats.ndtiff.completion import FinishedSigns
from acqstream.formats.ndtiff.index_entries import parse_entries
from acqstream.formats.ndtiff.page_walk import PageChain
from acqstream.formats.ndtiff.pages import StackPage, read_page
from acqstream.formats.ndtiff.stack_header import ByteOrder, StackHeader, parse_stack_header
from tests.formats.ndtiff.ndtiff_bytes import GOLDEN, STACK, BytesFile, Folder, header, image

INDEXES = sorted(GOLDEN.rglob("NDTiff.index"))
DAMAGED = {"short_data", "torn_index", "torn_index_prefix"}


def reading(data: bytes | bytearray) -> Callable[[int, int], bytes]:
    return lambda offset, count: bytes(data[offset : offset + count])


def parse(data: bytes | bytearray) -> StackHeader:
    return parse_stack_header(reading(data), len(data), "a.tif")


def walk(data: bytes | bytearray, order: ByteOrder = "<") -> list[StackPage]:
    return walk_from(data, parse(data).first_directory, order)


def walk_from(data: bytes | bytearray, first: int, order: ByteOrder = "<") -> list[StackPage]:
    return list(PageChain(BytesFile(Path("a.tif"), bytes(data)), first, order).pages())


def stack(path: Path, images: int = 3, **kinds: Any) -> bytes:
    folder = Folder(path, {"k": 1}, **kinds)
    for t in range(images):
        folder.add({"time": t}, image(t))
    return (path / STACK).read_bytes()


@pytest.mark.parametrize("index", INDEXES, ids=lambda path: str(path.parent.relative_to(GOLDEN)))
def test_golden_pages_are_those_of_the_index(index: Path) -> None:
    batch = parse_entries(index.read_bytes())
    for name in set(batch.names):
        data = (index.parent / name.decode()).read_bytes()
        fields = ["pixel_offset", "width", "height", "metadata_offset", "metadata_length"]
        listed = [batch.numbers[i][fields].tolist() for i in range(len(batch.names)) if batch.names[i] == name]
        pages = walk(data)
        walked = [(page.pixels, page.width, page.height, page.metadata, page.metadata_bytes) for page in pages]
        assert walked[: len(listed)] == listed
        assert len(walked) <= len(listed) + (index.parent.parent.name in DAMAGED)
        rgb = [int(kind) == 2 for kind in batch.numbers["pixel_type"]]
        assert {page.samples for page in pages} == {3 if any(rgb) else 1}
        assert all(page.bits == 8 for page in pages if page.samples == 3)


def test_pointers_are_where_they_stand(tmp_path: Path) -> None:
    data = stack(tmp_path)
    pages = walk(data)
    assert [struct.unpack_from("<I", data, page.next_at)[0] for page in pages] == [page.next for page in pages]
    assert [page.next for page in pages] == [pages[1].directory, pages[2].directory, 0]
    assert pages[0].directory == parse(data).first_directory


def test_a_file_cut_at_every_byte_gives_whole_directories(tmp_path: Path) -> None:
    data = stack(tmp_path)
    pages = walk(data)
    for cut in range(pages[1].directory, len(data) + 1):
        assert walk(data[:cut]) == [page for page in pages if page.next_at + 4 <= cut]


def test_big_endian_pages(tmp_path: Path) -> None:
    data = stack(tmp_path, order=">")
    pages = walk(data, ">")
    assert [(page.width, page.height, page.bits, page.samples) for page in pages] == [(4, 3, 16, 1)] * 3


def test_early_3_0_first_directory_is_4_too_small(tmp_path: Path) -> None:
    data = stack(tmp_path)
    first = parse(data).first_directory
    assert walk_from(data, first - 4) == walk(data)


@pytest.mark.parametrize("target", [0, 1, 7, 2**32 - 1, "itself", "before"])
def test_bad_pointers_end_the_walk(tmp_path: Path, target: int | str) -> None:
    data = bytearray(stack(tmp_path))
    pages = walk(data)
    value = {"itself": pages[1].directory, "before": pages[0].directory}.get(str(target), target)
    struct.pack_into("<I", data, pages[1].next_at, value)
    assert [page.directory for page in walk(bytes(data))] == [page.directory for page in pages[:2]]


@pytest.mark.parametrize("count", [0, 65, 65535])
def test_implausible_entry_counts_end_the_walk(tmp_path: Path, count: int) -> None:
    data = bytearray(stack(tmp_path))
    struct.pack_into("<H", data, walk(data)[1].directory, count)
    assert len(walk(bytes(data))) == 1


@pytest.mark.parametrize("tag", [256, 257, 258, 273, 279])
def test_a_missing_required_tag_ends_the_walk(tmp_path: Path, tag: int) -> None:
    data = stack(tmp_path)
    at = data.index(struct.pack("<H", tag), walk(data)[2].directory)
    assert len(walk(data[:at] + b"\xff\xff" + data[at + 2 :])) == 2


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize(("at", "value"), [(0, 12), (2 + 9 * 12, 65000)], ids=["fewer entries", "another tag"])
def test_a_page_with_other_entries_ends_no_walk(tmp_path: Path, number: int, at: int, value: int) -> None:
    data = bytearray(stack(tmp_path))
    pages = walk(data)
    directory = pages[number].directory
    if at == 0:  # the pointer to the next page follows the entries
        data[directory + 2 + 12 * 12 : directory + 6 + 12 * 12] = struct.pack("<I", pages[number].next)
    struct.pack_into("<H", data, directory + at, value)
    assert [page.directory for page in walk(data)] == [page.directory for page in pages]


@given(st.binary(max_size=300), st.integers(-10, 310))
def test_random_bytes_are_no_page_or_a_page(data: bytes, directory: int) -> None:
    page = read_page(reading(data), len(data), directory)
    assert page is None or page.directory == directory


@pytest.mark.parametrize(("version", "order"), [((3, 3), "<"), ((3, 0), ">"), ((2,), "<"), ((2,), ">")])
def test_header_of_every_version(version: tuple[int, ...], order: str) -> None:
    data = header({"µm": [1]}, order, version)
    found = parse(data)
    assert (found.major, found.minor) == (*version, None)[:2]
    assert (found.byte_order, found.summary_metadata) == (order, {"µm": [1]})
    assert len(data) == found.first_directory
    assert found.end in (found.first_directory, found.first_directory - 1)


def test_header_cut_at_every_byte_raises() -> None:
    data = header({"key": 12})
    for cut in range(parse(data).end):
        with pytest.raises(CorruptDataset) as caught:
            parse(data[:cut])
        assert caught.value.path == "a.tif"
        assert caught.value.offset is not None


@pytest.mark.parametrize(
    ("at", "value", "offset"),
    [
        (0, b"XX", 0),
        (2, b"\x2b\0", 0),
        (8, b"\0\0\0\0", 8),
        (20, b"\1\0\0\0", 20),
        (24, b"\xff\xff\xff\xff", 24),
        (28, b"[", 28),
    ],
)
def test_header_damage_is_named_with_its_offset(at: int, value: bytes, offset: int) -> None:
    data = header({"key": 12})
    with pytest.raises(CorruptDataset) as caught:
        parse(data[:at] + value + data[at + len(value) :])
    assert caught.value.offset == offset


def test_other_versions_are_refused_in_words() -> None:
    with pytest.raises(UnsupportedFeature, match="version 4"):
        parse(header({}, version=(4, 0)))
    with pytest.raises(UnsupportedFeature, match="versions 0 and 1"):
        parse(next((GOLDEN / "v1_5_rgb").rglob("*.tif")).read_bytes())


def test_summary_must_be_an_object() -> None:
    data = header({}).replace(b"{}", b"[]")
    with pytest.raises(CorruptDataset, match="list, not a JSON object"):
        parse(data)


class CountingFile(BytesFile):
    """Counts the bytes that are read."""

    n_read = 0

    def read(self, offset: int, length: int) -> bytes:
        self.n_read += length
        return super().read(offset, length)


def test_whether_a_stack_has_ended_is_asked_again_for_little(tmp_path: Path) -> None:
    """A reader that follows a run asks again and again."""
    file = CountingFile(tmp_path / STACK, stack(tmp_path))
    signs, pixels = FinishedSigns(), walk(file.read(0, file.size()))[-1].pixels
    assert signs.is_finished(file, "<", pixels)
    file.n_read = 0
    assert signs.is_finished(file, "<", pixels)
    assert file.n_read < 1000
