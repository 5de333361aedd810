"""Damaged and hostile trees: our errors, in bounded memory, and never wrong items in silence."""

from __future__ import annotations

import json
import shutil
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import acqstream
from acqstream.errors import CorruptDataset, DatasetError, UnsupportedFeature
from acqstream.formats.check_report import CheckReport
from acqstream.formats.hsds import dataset_chunks
from acqstream.formats.hsds.dataset_chunks import ChunkTable
from acqstream.formats.hsds.domain import Bucket
from acqstream.formats.hsds.foreign import DatasetLevel, check, open_dataset
from acqstream.formats.hsds.object_id import ObjectId, object_id, parse_id, root_id
from acqstream.storage.stores.data_path import data_path_of
from tests.formats.hsds.hsds_data import BUCKET, GOLDEN
from tests.host_system import make_link
from tests.storage.memory_store import MemoryStore

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "one byte less": lambda content: content[:-1],
    "one byte more": lambda content: content + b"\0",
    "a list": lambda _content: b"[1, 2]",
    "binary": lambda content: bytes(255 - byte for byte in content),
}
DOMAINS = ["v1_gzip", "v2_lz4", "v2_shuffle_zlib", "v2_raw", "ref_chunked", "ref_indirect"]
MAX_MEMORY = 60 << 20


def read(path: Path) -> np.ndarray:
    with acqstream.open(path) as ds:
        found: np.ndarray = ds.levels[0].read()
        return found


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", DOMAINS)
def test_each_damaged_file_raises_our_error(tmp_path, name, damage):
    tree = Path(shutil.copytree(GOLDEN / "handmade", tmp_path / "root"))
    domain = tree / BUCKET / "home" / name
    right = read(domain)
    reader = open_dataset(data_path_of(domain))
    files = {Path(reader.place(position)) for position in reader.stored()}
    documents = [*reader.path.path.glob(".dataset.json")] if reader.path.is_folder() else [reader.path.path]
    damaged = 0
    for path in [*files, *documents, domain / ".domain.json"]:
        content = path.read_bytes()
        path.write_bytes(DAMAGES[damage](content))
        try:
            # A stack may be longer than its chunks, and have other bytes: only its own program can tell.
            assert np.array_equal(read(domain), right) or path.suffix == ".bin" or name == "v2_raw"
        except DatasetError:
            damaged += 1
        path.write_bytes(content)
    # Bytes after the end of a document are blanks or an error to readers of JSON; chunks of a stack have no end.
    assert damaged >= (0 if damage == "one byte more" else len(documents))
    assert np.array_equal(read(domain), right)


SEED = root_id("hostile")
FRAMES = object_id(SEED, "d", "/frames")


def tree_of(folder: Path, chunk: bytes = b"", **changes: Any) -> Path:
    """A domain with one dataset of 2 x 3 uint16 in one chunk; None removes a key of its document."""
    bucket = folder / "bucket"
    dataset = {
        "id": str(FRAMES),
        "root": str(SEED),
        "created": 1.0,
        "lastModified": 1.0,
        "type": "H5T_STD_U16LE",
        "shape": {"class": "H5S_SIMPLE", "dims": [2, 3]},
        "attributes": {},
        "creationProperties": {},
        "layout": {"class": "H5D_CHUNKED", "dims": [2, 3]},
        **changes,
    }
    group = {"id": str(SEED), "root": str(SEED), "links": {"a": {"class": "H5L_TYPE_HARD", "id": str(FRAMES)}}}
    for key, value in (
        (FRAMES.key, {name: item for name, item in dataset.items() if item is not None}),
        (SEED.key, group),
        ("home/a.h5/.domain.json", {"root": str(SEED)}),
    ):
        (bucket / key).parent.mkdir(parents=True, exist_ok=True)
        (bucket / key).write_text(json.dumps(value))
    if chunk:
        (bucket / FRAMES.chunk_key((0, 0))).write_bytes(chunk)
    return bucket / "home" / "a.h5"


ITEMS = np.arange(6, dtype="<u2").tobytes()


def filters(*names: str) -> dict[str, Any]:
    numbers = {"shuffle": 2, "gzip": 1, "lz4": 32004, "szip": 4, "fletcher32": 3, "bitshuffle": 32008}
    return {"filters": [{"class": "H5Z_FILTER_USER", "id": numbers[name], "name": name} for name in names]}


TABLE = {"class": "H5D_CHUNKED_REF_INDIRECT", "dims": [2, 3]}
ONE_PIECE = {"class": "H5D_CONTIGUOUS_REF", "file_uri": "bucket/home/a.h5/.domain.json"}


def spans(uri: str, span: list[int] | None = None) -> dict[str, Any]:
    """A layout with the one chunk in a file."""
    chunks = {} if span is None else {"0_0": span}
    return {"class": "H5D_CHUNKED_REF", "dims": [2, 3], "file_uri": uri, "chunks": chunks}


def blosc_header(size: int, length: int) -> bytes:
    return struct.pack("<BBBBIII", 2, 1, 1, 2, size, size, length)


@pytest.mark.parametrize(
    ("chunk", "changes", "error", "text"),
    [
        (ITEMS[:-1], {}, CorruptDataset, "11 bytes, expected 12"),
        (ITEMS + b"\0", {}, CorruptDataset, "more than 12 bytes"),
        (bytes(1 << 20), {"creationProperties": filters("gzip")}, CorruptDataset, "which no chunk takes"),
        (ITEMS, {"creationProperties": filters("gzip")}, CorruptDataset, "gzip"),
        (ITEMS, {"creationProperties": filters("lz4")}, CorruptDataset, "expected a blosc-1 header"),
        (b"\2" + bytes(30), {"creationProperties": filters("lz4")}, CorruptDataset, "blosc"),
        (blosc_header(2**31, 16), {"creationProperties": filters("lz4")}, CorruptDataset, "blosc"),
        (zlib.compress(bytes(1 << 20), 9), {"creationProperties": filters("gzip")}, CorruptDataset, "more than 12"),
        (ITEMS, {"creationProperties": filters("szip")}, UnsupportedFeature, "szip"),
        (b"", {"layout": {"class": "H5D_CHUNKED", "dims": [2**40, 3]}}, UnsupportedFeature, "chunks of"),
        (b"", {"shape": {"class": "H5S_SIMPLE", "dims": [2**40, 2**40]}}, CorruptDataset, "more than 2.63 items"),
        (b"", {"shape": {"class": "H5S_NULL"}, "layout": None}, UnsupportedFeature, "without any item"),
        (b"", {"type": {"class": "H5T_STRING", "length": "H5T_VARIABLE"}}, UnsupportedFeature, "variable length"),
        (b"", {"type": {"class": "H5T_ARRAY", "base": "H5T_STD_U8LE", "dims": [2]}}, UnsupportedFeature, "arrays"),
        (b"", {"creationProperties": {"fillValue": "many"}}, CorruptDataset, "fillValue 'many'"),
        (b"", {"creationProperties": {"fillValue": 70000}}, CorruptDataset, "fillValue 70000"),
        (b"", {"layout": spans("../x/y")}, UnsupportedFeature, "below"),
        (b"", {"layout": spans("/etc/passwd")}, UnsupportedFeature, "below"),
        (b"", {"layout": spans("bucket/no", [0, 12])}, CorruptDataset, "no such file"),
        (b"", {"layout": spans("bucket/no", [0, 2**60])}, CorruptDataset, "expected at most 12"),
        (b"", {"layout": spans("bucket/home/a.h5/.domain.json", [50, 12])}, CorruptDataset, "ends after"),
        (b"", {"layout": {**TABLE, "chunk_table": str(FRAMES)}}, CorruptDataset, "expected a row of offset and size"),
        (b"", {"layout": {**ONE_PIECE, "offset": 3, "size": 7}}, CorruptDataset, "too short"),
    ],
)
def test_hostile_datasets(tmp_path, chunk, changes, error, text):
    path = tree_of(tmp_path, chunk, **changes)
    tracemalloc.start()
    try:
        with pytest.raises(error, match=text):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < MAX_MEMORY
    finally:
        tracemalloc.stop()


def test_the_check_reports_what_reading_raises(tmp_path):
    report = CheckReport()
    check(data_path_of(tree_of(tmp_path, ITEMS[:-1])), report)
    (problem,) = report.problems
    assert problem.path.endswith("/0_0")
    report = CheckReport()
    check(data_path_of(tree_of(tmp_path, ITEMS, type="H5T_STD_U13LE")), report)
    assert report.problem_count == 1


@pytest.mark.parametrize("names", [("shuffle",), ("fletcher32",), ("bitshuffle",)])
def test_filters_without_compression_leave_plain_bytes(tmp_path, names):
    path = tree_of(tmp_path, ITEMS, creationProperties=filters(*names))
    assert read(path).ravel().tolist() == [*range(6)]
    report = CheckReport()
    check(data_path_of(path), report)
    assert not report.problems
    assert bool(report.notes) == (names == ("shuffle",))


@pytest.mark.parametrize(
    ("dtype", "json_type", "fill", "expected"),
    [
        ("<u2", "H5T_STD_U16LE", 7, 7),
        ("<u2", "H5T_STD_U16LE", 0, 0),
        (">i4", "H5T_STD_I32BE", -3, -3),
        ("<f8", "H5T_IEEE_F64LE", "NaN", np.nan),
        ("S3", {"class": "H5T_STRING", "length": 3}, "abc", b"abc"),
    ],
)
def test_missing_chunks_have_the_fill_value(tmp_path, dtype, json_type, fill, expected):
    path = tree_of(tmp_path, type=json_type, creationProperties={"fillValue": fill})
    found = read(path)
    right = np.full((2, 3), expected, np.dtype(dtype).newbyteorder("="))
    assert found.dtype == right.dtype
    assert found.tobytes() == right.tobytes()


def test_compounds_bools_and_complex_numbers(tmp_path):
    text = {"class": "H5T_STRING", "length": 2}
    fields = [{"name": "at", "type": "H5T_STD_I32BE"}, {"name": "by", "type": text}]
    kind = {"class": "H5T_COMPOUND", "fields": fields}
    items = np.array([[(1, b"a"), (2, b"b"), (3, b"c")]] * 2, [("at", ">i4"), ("by", "S2")])
    assert np.array_equal(read(tree_of(tmp_path / "a", items.tobytes(), type=kind)), items)
    flags = {"class": "H5T_ENUM", "base": "H5T_STD_I8LE", "members": {"FALSE": 0, "TRUE": 1}}
    found = read(tree_of(tmp_path / "b", bytes([1, 0, 1, 1, 0, 0]), type=flags))
    assert found.dtype == bool
    assert found.tolist() == [[True, False, True], [True, False, False]]


@pytest.mark.parametrize(("count", "folders"), [(3, ["p0", "p2", "p1"]), (1, ["", "", ""])])
def test_partitions(tmp_path, count, folders):
    """The server puts chunk (n,) into partition 29 n modulo the count: 0, 29 and 58 are 0, 2 and 1 modulo 3."""
    layout = {"class": "H5D_CHUNKED", "dims": [2], "partition_count": count}
    path = tree_of(tmp_path, layout=layout, shape={"class": "H5S_SIMPLE", "dims": [6]})
    folder = tmp_path / "bucket" / FRAMES.folder
    for number, part in enumerate(folders):
        (folder / part).mkdir(exist_ok=True)
        (folder / part / str(number)).write_bytes(np.array([number, 9], "<u2").tobytes())
    assert read(path).tolist() == [0, 9, 1, 9, 2, 9]
    assert sorted(open_dataset(data_path_of(path)).stored()) == [(0,), (1,), (2,)]


def test_a_contiguous_dataset_in_another_file_is_read_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr("acqstream.formats.hsds.dataset_chunks._CONTIGUOUS_BYTES", 50)
    items = np.arange(4 * 3 * 5, dtype="<u2").reshape(4, 3, 5)
    layout = {"class": "H5D_CONTIGUOUS_REF", "file_uri": "bucket/raw.bin", "offset": 7, "size": items.nbytes}
    shape = {"class": "H5S_SIMPLE", "dims": [4, 3, 5]}
    path = tree_of(tmp_path, creationProperties={"layout": layout}, layout=None, shape=shape)
    (tmp_path / "bucket" / "raw.bin").write_bytes(b"header." + items.tobytes() + b"trailer")
    reader = open_dataset(data_path_of(path))
    assert reader.spec.chunk_shape == (1, 3, 5)
    assert len([*reader.stored()]) == 4
    assert np.array_equal(read(path), items)


def test_an_array_grows_when_its_document_is_read_again(tmp_path):
    layout = {"class": "H5D_CHUNKED", "dims": [1, 3]}
    path = tree_of(tmp_path, layout=layout, shape={"class": "H5S_SIMPLE", "dims": [0, 3], "maxdims": [0, 3]})
    with acqstream.open(path) as ds:
        assert ds.shape == (0, 3)
        for number in range(3):
            (tmp_path / "bucket" / FRAMES.chunk_key((number, 0))).write_bytes(np.full(3, number + 1, "<u2").tobytes())
            tree_of(tmp_path, layout=layout, shape={"class": "H5S_SIMPLE", "dims": [number + 1, 3]})
            ds.refresh()
            assert ds.levels[0].read()[:, 0].tolist() == [*range(1, number + 2)]


class SlowWriter(MemoryStore):
    """Has the first half of each document in its first answers, as while a writer replaces it in place."""

    def __init__(self, halves: int) -> None:
        super().__init__()
        self.halves = halves

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes | None:
        content = super().get(key, start, length)
        self.halves -= 1
        return content if content is None or self.halves < 0 else content[: len(content) // 2]


@pytest.mark.parametrize(("halves", "is_read"), [(1, True), (3, True), (4, False)])
def test_a_document_that_is_half_written_is_read_again(halves, is_read):
    store = SlowWriter(halves)
    own = parse_id(str(SEED))
    store.put(own.key, [json.dumps({"id": str(own), "root": str(own), "links": {}}).encode()])
    bucket = Bucket(data_path_of(Path("nowhere")), store)
    if is_read:
        assert bucket.group(own).id == own
    else:
        with pytest.raises(CorruptDataset, match="not valid JSON"):
            bucket.group(own)


def test_a_ring_of_links_ends(tmp_path):
    path = tree_of(tmp_path, ITEMS)
    inner = object_id(SEED, "g", "/inner")
    hard = "H5L_TYPE_HARD"
    outside = {"class": "H5L_TYPE_EXTERNAL", "h5path": "/", "domain": "/b"}
    groups: dict[ObjectId, dict[str, Any]] = {
        SEED: {"in": {"class": hard, "id": str(inner)}, "a": {"class": "H5L_TYPE_SOFT", "h5path": "in/up/a"}},
        inner: {"up": {"class": hard, "id": str(SEED)}, "out": outside},
    }
    for own, links in groups.items():
        document = tmp_path / "bucket" / own.key
        document.parent.mkdir(parents=True, exist_ok=True)
        document.write_text(json.dumps({"id": str(own), "root": str(SEED), "links": links}))
    with pytest.raises(DatasetError, match="without any dataset"):
        acqstream.open(path)
    with pytest.raises(CorruptDataset, match="soft links"):
        acqstream.open(path / "a")
    with pytest.raises(UnsupportedFeature, match="a link to '/' in the domain '/b'"):
        acqstream.open(path / "in" / "out")


def test_a_missing_root_group_or_dataset_is_named(tmp_path):
    path = tree_of(tmp_path, ITEMS)
    document = tmp_path / "bucket" / FRAMES.key
    document.rename(tmp_path / "kept")
    with pytest.raises(DatasetError, match=r"\.dataset\.json: no such file"):
        acqstream.open(path)
    (tmp_path / "bucket" / SEED.key).unlink()
    with pytest.raises(CorruptDataset, match="in no folder above"):
        acqstream.open(path)
    (tmp_path / "kept").rename(document)
    moved = tmp_path / "bucket" / "elsewhere"
    shutil.copytree(document.parent, moved)
    with pytest.raises(CorruptDataset, match="does not lie in this folder"):
        acqstream.open(moved)


def test_a_dataset_that_is_gone_is_told_by_refresh(tmp_path):
    path = tree_of(tmp_path, ITEMS)
    reader = open_dataset(data_path_of(path))
    assert isinstance(reader.level, DatasetLevel)
    (tmp_path / "bucket" / FRAMES.key).unlink()
    with pytest.raises(DatasetError, match="no such file"):
        reader.refresh()


@pytest.mark.parametrize("name", ["chunk", "dataset", "group", "domain"])
def test_a_link_out_of_the_bucket_is_refused_by_name_and_followed_on_request(tmp_path, name):
    path = tree_of(tmp_path, ITEMS)
    bucket = tmp_path / "bucket"
    files = {"chunk": FRAMES.chunk_key((0, 0)), "dataset": FRAMES.key, "group": SEED.key}
    link = bucket / files[name] if name in files else path / ".domain.json"
    away = tmp_path / "elsewhere" / link.name
    away.parent.mkdir()
    link.rename(away)
    make_link(link, away)
    with pytest.raises(UnsupportedFeature, match="pass follow_links=True") as caught:
        read(path)
    assert f"{link} is a link to {str(away)!r}" in str(caught.value)
    with acqstream.open(path, follow_links=True) as ds:
        assert ds.levels[0].read().ravel().tolist() == [*range(6)]


def test_soft_links_begin_at_their_group_or_at_the_root(tmp_path):
    path = tree_of(tmp_path, ITEMS)
    inner = object_id(SEED, "g", "/inner")
    groups: dict[ObjectId, dict[str, Any]] = {
        SEED: {
            "a": {"class": "H5L_TYPE_HARD", "id": str(FRAMES)},
            "in": {"class": "H5L_TYPE_HARD", "id": str(inner)},
            "near": {"class": "H5L_TYPE_SOFT", "h5path": "in/far"},
        },
        inner: {"far": {"class": "H5L_TYPE_SOFT", "h5path": "/a"}, "lost": {"class": "H5L_TYPE_SOFT", "h5path": "a"}},
    }
    for own, links in groups.items():
        document = tmp_path / "bucket" / own.key
        document.parent.mkdir(parents=True, exist_ok=True)
        document.write_text(json.dumps({"id": str(own), "root": str(SEED), "links": links}))
    for name in ("near", "in/far"):
        assert read(path / name).ravel().tolist() == [*range(6)]
    with pytest.raises(DatasetError, match="/in has no 'a'"):
        read(path / "in" / "lost")


def test_a_row_of_a_chunk_table_may_come_late(tmp_path):
    """Without reading the document again: that a chunk is missing is never remembered."""
    table = object_id(SEED, "d", "/table")
    rows = np.zeros((2, 1), [("offset", "<i8"), ("size", "<i4")])
    kind = {
        "class": "H5T_COMPOUND",
        "fields": [{"name": "offset", "type": "H5T_STD_I64LE"}, {"name": "size", "type": "H5T_STD_I32LE"}],
    }
    shape = {"class": "H5S_SIMPLE", "dims": [2, 1]}
    tree_of(tmp_path, id=str(table), type=kind, shape=shape, layout={"class": "H5D_CHUNKED", "dims": [2, 1]})
    (tmp_path / "bucket" / table.folder).mkdir()
    shutil.move(tmp_path / "bucket" / FRAMES.key, tmp_path / "bucket" / table.key)
    layout = {**TABLE, "dims": [1, 3], "chunk_table": str(table), "file_uri": "bucket/raw.bin"}
    path = tree_of(tmp_path, layout=layout)
    (tmp_path / "bucket" / "raw.bin").write_bytes(ITEMS)
    stored = tmp_path / "bucket" / table.chunk_key((0, 0))
    reader = open_dataset(data_path_of(path))
    assert reader.read_chunk((0, 0)) is None
    for number in range(2):
        rows[number] = (6 * number, 6)
        stored.write_bytes(rows.tobytes())
        chunk = reader.read_chunk((number, 0))
        assert chunk is not None
        assert chunk.ravel().tolist() == [3 * number, 3 * number + 1, 3 * number + 2]
        assert [*reader.stored()] == [(one, 0) for one in range(number + 1)]
        assert reader.read_chunk((1, 0)) is None or number == 1


def test_rows_of_a_chunk_table_are_kept_and_missing_ones_only_where_nothing_changes():
    dtype = np.dtype([("offset", "<i8"), ("size", "<i4")])
    stored: dict[tuple[int, ...], np.ndarray[Any, Any]] = {}
    asked = []

    def read(chunk):
        asked.append(chunk)
        return stored.get(chunk)

    for may_change in (True, False):
        stored.clear()
        asked.clear()
        table = ChunkTable((2, 3), dtype, read, may_change=may_change)
        assert table.row((2, 4)) is None
        assert list(table.positions([(1, 1)])) == []
        stored[1, 1] = np.array([[(0, 0), (7, 5), (0, 0)], [(0, 0)] * 3], dtype)
        row = table.row((2, 4))
        assert (row is not None) == may_change
        if may_change:
            assert (int(row["offset"]), int(row["size"])) == (7, 5)
            assert list(table.positions([(1, 1)])) == [(2, 4)]
            stored[1, 1] = np.array([[(0, 0), (7, 5), (0, 0)], [(9, 5), (0, 0), (0, 0)]], dtype)
            assert list(table.positions([(1, 1)])) == [(2, 4), (3, 3)], "one has come since"
        seen = len(asked)
        assert table.row((2, 4)) == row
        assert len(asked) == seen
        assert set(asked) == {(1, 1)}


def test_small_rows_count_with_what_keeps_them(monkeypatch):
    """A container of a stranger may have a table with a row in each chunk."""
    monkeypatch.setattr(dataset_chunks, "_MAX_ROW_BYTES", 10_000)
    dtype, asked = np.dtype([("offset", "<i8"), ("size", "<i4")]), []
    table = ChunkTable((1,), dtype, asked.append, may_change=False)
    for chunk in range(100):
        table.rows((chunk,))
    asked.clear()
    for chunk in range(99, -1, -1):
        table.rows((chunk,))
    assert 0 < 100 - len(asked) < 10
