"""The layout of containers with pixels: keys, bytes, documents, and the order in which files come."""

from __future__ import annotations

import json
import math
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import acqstream
from acqstream.arrays.array_spec import ArraySpec
from acqstream.errors import ConfigError, CorruptDataset, DatasetExists
from acqstream.formats.check_report import CheckReport
from acqstream.formats.chunk_layout import Plan
from acqstream.formats.hsds import FORMAT
from acqstream.formats.hsds.layout import NOTE_NAME, HsdsLayout, create_layout, parse_note, plan
from acqstream.formats.hsds.metadata import (
    COMPRESSIONS,
    HsdsOptions,
    filters_of,
    parse_options,
    server_documents,
    stated_dims,
)
from acqstream.mirrors.mirror_container import open_publisher
from acqstream.storage.files.disk import LocalDisk
from acqstream.storage.stores.data_path import data_path_of
from tests.storage.unforced_disk import UnforcedDisk

AXES = ("time", "z", "y", "x")
SHAPE = (3, 5, 40, 50)


def spec_of(shape: tuple[int, ...] = SHAPE, axes: tuple[str, ...] = AXES, dtype: str = "<u2", **more: Any) -> ArraySpec:
    return ArraySpec(axes=axes, shape=shape, dtype=np.dtype(dtype), **more)


def layout_of(given: dict[str, object], spec: ArraySpec | None = None) -> HsdsLayout:
    options = parse_options(given)
    return create_layout(plan(spec or spec_of(), options), options)


def documents_of(layout: HsdsLayout, *, complete: bool = True) -> dict[str, Any]:
    return {key: json.loads(content) for key, content in layout.documents(complete=complete).items()}


dtypes = st.sampled_from(["|u1", "<u2", ">i4", "<f4", "<f8"])
chunk_shapes = st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 9))


@given(chunk_shapes, dtypes, st.sampled_from(COMPRESSIONS), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_chunks_come_back(chunks, dtype, compression, seed):
    layout = layout_of({"chunks": [*chunks], "compression": compression, "levels": 1}, spec_of(dtype=dtype))
    spec = layout.plan.full
    chunk = np.random.default_rng(seed).integers(0, 200, spec.chunk_shape).astype(dtype)
    data = b"".join(layout.encode(0, (0, 0, 0, 0), chunk))
    assert len(data) <= layout.max_chunk_bytes(0)
    found = layout.decode(0, (0, 0, 0, 0), data, "a")
    assert found.dtype == np.dtype(dtype).newbyteorder("=")
    assert np.array_equal(found, chunk)


@given(st.tuples(*(st.integers(0, 10**6) for _ in AXES)), st.integers(0, 1))
def test_keys_come_back(position, level):
    layout = LAYOUT
    assert layout.parse_key(layout.key(level, position)) == (level, position)


LAYOUT = layout_of({"levels": 2})


def test_keys_of_others_mean_nothing():
    own = LAYOUT.key(0, (1, 2, 0, 0))
    other = layout_of({"levels": 2}).key(0, (1, 2, 0, 0))
    for key in (
        own.removesuffix("_0"),
        other,
        NOTE_NAME,
        f"x/{own}",
        own.replace("acqstream/", ""),
        *documents_of(LAYOUT),
    ):
        assert LAYOUT.parse_key(key) is None


def test_lz4_chunks_have_the_header_that_the_server_wants():
    chunk = np.arange(2000, dtype="<u2").reshape(1, 1, 40, 50)
    layout = layout_of({"chunks": [1, 40, 50]})
    data = b"".join(layout.encode(0, (0, 0, 0, 0), chunk))
    version, _, flags, item_bytes, size, _, length = struct.unpack_from("<BBBBIII", data)
    assert (version, item_bytes, size, length) == (2, 2, 4000, len(data))
    assert flags & 1, "byte shuffle"
    assert flags >> 5 == 1, "lz4"
    zstd = b"".join(layout_of({"chunks": [1, 40, 50], "compression": "zstd"}).encode(0, (0, 0, 0, 0), chunk))
    assert zstd[2] >> 5 == 4


def test_zlib_chunks_are_shuffle_and_deflate_of_hdf5():
    chunk = np.arange(2000, dtype="<u2").reshape(1, 1, 40, 50)
    data = b"".join(layout_of({"chunks": [1, 40, 50], "compression": "zlib"}).encode(0, (0, 0, 0, 0), chunk))
    plain = zlib.decompress(data)
    assert plain[:2000] == chunk.tobytes()[::2]
    assert plain[2000:] == chunk.tobytes()[1::2]


def test_plain_chunks_are_the_items():
    chunk = np.arange(2000, dtype="<u2").reshape(1, 1, 40, 50)
    layout = layout_of({"chunks": [1, 40, 50], "compression": "none"})
    assert b"".join(layout.encode(0, (0, 0, 0, 0), chunk)) == chunk.tobytes()
    assert np.shares_memory(np.frombuffer(layout.encode(0, (0, 0, 0, 0), chunk)[0], "u1"), chunk)
    with pytest.raises(ValueError, match="a chunk of shape"):
        layout.encode(0, (0, 0, 0, 0), chunk[:, :, :1])


def test_filters_name_shuffle_only_beside_a_compressor():
    assert [one.name for one in filters_of("lz4", 2)] == ["shuffle", "lz4"]
    assert [one.name for one in filters_of("zlib", 2)] == ["shuffle", "gzip"]
    assert [one.name for one in filters_of("zstd", 1)] == ["zstd"]
    assert filters_of("none", 2) == ()


def test_documents_are_what_the_server_needs_and_the_domain_comes_last():
    layout = layout_of(
        {"levels": 2, "chunks": [2, 16, 16]}, spec_of(labels={"z": ["a", "b"]}, units=("s", "um", "um", "um"))
    )
    found = documents_of(layout)
    note, first, second, root, domain = found
    assert note == NOTE_NAME
    assert first.endswith(".dataset.json")
    assert second.endswith(".dataset.json")
    assert root.endswith(".group.json")
    assert domain == "acqstream/home/acq.h5/.domain.json"
    assert found[domain]["root"] == found[root]["id"] == found[root]["root"] == found[first]["root"]
    assert {name: link["id"] for name, link in found[root]["links"].items()} == {
        "level 0": found[first]["id"],
        "level 1": found[second]["id"],
    }
    dataset = found[first]
    assert (
        dataset["layout"] == dataset["creationProperties"]["layout"] == {"class": "H5D_CHUNKED", "dims": [1, 2, 16, 16]}
    )
    assert dataset["shape"]["dims"] == [*SHAPE]
    assert dataset["shape"]["maxdims"] == ["H5S_UNLIMITED", "H5S_UNLIMITED", 40, 50]
    assert {name: one["value"] for name, one in dataset["attributes"].items()} == {
        "DIMENSION_LABELS": [*AXES],
        "axes": [*AXES],
        "scale": [1.0] * 4,
        "units": ["s", "um", "um", "um"],
        "translation": [0.0] * 4,
        "factors": [1] * 4,
        "z labels": ["a", "b"],
    }
    assert found[second]["shape"]["dims"] == [3, 5, 20, 25]


@given(
    st.lists(st.integers(0, 40), min_size=4, max_size=4), st.lists(st.integers(1, 9), min_size=4, max_size=4), st.data()
)
def test_stated_sizes_cover_no_chunk_that_will_be_rewritten(shape, chunks, data):
    planned = [data.draw(st.sampled_from([0, size, size + 3])) for size in shape]
    spec = spec_of(tuple(shape), chunk_shape=tuple(chunks))
    growing = stated_dims(spec, planned, complete=False)
    assert stated_dims(spec, planned, complete=True) == tuple(shape)
    for size, stated, step, expected in zip(shape, growing, chunks, planned, strict=True):
        assert stated == size if size == expected else stated % step == 0 and size - step < stated <= size


def test_a_side_of_unknown_size_grows_for_the_server():
    """HDF5 fixes the size of an axis that is created with a maximum."""
    for planned, largest in [((1, 1, 0, 50), ["H5S_UNLIMITED"] * 3 + [50]), ((1, 1, 0, 0), ["H5S_UNLIMITED"] * 4)]:
        layout = layout_of({"levels": 2, "chunks": [1, 16, 16]}, spec_of(planned))
        first = documents_of(layout, complete=False)
        found = next(one for key, one in first.items() if key.endswith(".dataset.json"))
        assert (found["shape"]["dims"], found["shape"]["maxdims"]) == ([*planned], largest)


def test_small_frames_share_a_chunk_and_large_ones_are_cut():
    def chunk_of(shape: tuple[int, ...], axes: tuple[str, ...] = AXES, **given: object) -> tuple[int, ...]:
        return plan(spec_of(shape, axes), parse_options(given)).full.chunk_shape

    assert chunk_of((3, 5, 40, 50)) == (1, 5, 40, 50)
    assert chunk_of((1, 1, 4096, 4000)) == (1, 1, 4096, 4000)
    assert chunk_of((1, 1, 4097, 900)) == (1, 1, 2048, 900)
    assert chunk_of((3, 1000, 512, 512)) == (1, 2, 512, 512)
    assert chunk_of((0, 1, 512, 512)) == (2, 1, 512, 512)
    assert chunk_of((0, 512, 512), ("time", "y", "x")) == (2, 512, 512)
    assert chunk_of((0, 2048, 2048), ("time", "y", "x")) == (1, 2048, 2048)
    assert chunk_of((5000, 6000), ("y", "x")) == (2048, 2048)
    assert chunk_of((3, 40, 50, 3), ("z", "y", "x", "c")) == (3, 40, 50, 3)
    assert chunk_of((3, 5, 40, 50), chunks=[2, 64, 16]) == (1, 2, 40, 16)


def test_levels_halve_y_and_x_and_are_cut_alike():
    levels = plan(spec_of((3, 5, 2048, 3000)), HsdsOptions()).levels
    assert [level.shape for level in levels] == [
        (3, 5, 2048, 3000),
        (3, 5, 1024, 1500),
        (3, 5, 512, 750),
        (3, 5, 256, 375),
    ]
    assert {level.chunk_shape[:2] for level in levels} == {(1, 1)}


@pytest.mark.parametrize(
    "options",
    [
        {"pixels": "reference", "levels": 2},
        {"pixels": "link"},
        {"compression": "blosc"},
        {"chunks": [1, 2]},
        {"chunks": [1, 0, 5]},
        {"levels": 0},
        {"levels": True},
        {"blocks": [1, 2, 3]},
    ],
    ids=repr,
)
def test_wrong_options(options):
    with pytest.raises(ConfigError, match="HSDS"):
        parse_options(options)


def test_pixels_stay_in_the_stacks_unless_an_option_needs_a_copy():
    assert parse_options({}).pixels == parse_options({"pixels": "reference"}).pixels == "reference"
    assert parse_options({"levels": 2}).pixels == parse_options({"pixels": "copy"}).pixels == "copy"


@pytest.mark.parametrize(
    ("spec", "options"),
    [
        (spec_of((3, 4), ("time", "z")), {}),
        (spec_of(dtype="S3"), {}),
        (spec_of(dtype="<M8[s]"), {}),
        (spec_of((1, 1, 20000, 20000), dtype="<f8"), {"chunks": [1, 16000, 16000]}),
    ],
)
def test_arrays_that_are_refused(spec, options):
    with pytest.raises(ConfigError, match="HSDS"):
        plan(spec, parse_options(options))


def write(folder: Path, disk: LocalDisk, given: dict[str, object]) -> Plan:
    """A complete container with ascending numbers."""
    options = parse_options(given)
    cut = plan(spec_of(), options)
    writer = open_publisher(FORMAT, folder, cut, options, disk)
    for number, level in enumerate(cut.levels):
        for position in np.ndindex(*level.grid_shape):
            chunk = np.arange(math.prod(level.chunk_shape), dtype="<u2").reshape(level.chunk_shape)
            writer.store(number, [(position, writer.encode(number, position, chunk))])
    writer.finish(cut.levels)
    return cut


def files_of(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file() and "checksums" not in str(path))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_a_restart_writes_the_same_objects(tmp_path):
    write(tmp_path / "a.hsds", UnforcedDisk(), {"levels": 2})
    before = files_of(tmp_path / "a.hsds")
    write(tmp_path / "a.hsds", UnforcedDisk(), {"levels": 2})
    assert files_of(tmp_path / "a.hsds") == before
    with pytest.raises(DatasetExists, match="expected"):
        write(tmp_path / "a.hsds", UnforcedDisk(), {"levels": 2, "compression": "zlib"})
    (tmp_path / "a.hsds" / NOTE_NAME).write_text('{"format": "other"}')
    with pytest.raises(DatasetExists, match="not an HSDS container"):
        write(tmp_path / "a.hsds", UnforcedDisk(), {"levels": 2})


class NamedDisk(UnforcedDisk):
    """Keeps the paths of all files that were created."""

    def __init__(self) -> None:
        super().__init__()
        self.created: list[str] = []

    def open(self, path: str, *, create: bool, direct: bool = False) -> int:
        if create:
            self.created.append(path)
        return super().open(path, create=create, direct=direct)


def test_no_file_is_born_in_the_database_of_the_server(tmp_path):
    disk = NamedDisk()
    write(tmp_path / "a.hsds", disk, {"levels": 2})
    born = [Path(path).relative_to(tmp_path).parts for path in disk.created]
    assert {parts[:2] for parts in born} == {("a.hsds", "acqstream-temporary"), ("a.hsds.view", "acqstream-checksums")}
    assert len(born) > 10
    assert not [*(tmp_path / "a.hsds" / "acqstream-temporary").iterdir()]


def test_the_check_names_a_document_that_was_changed(tmp_path):
    folder = tmp_path / "a.hsds"
    write(folder, UnforcedDisk(), {"levels": 1})
    report = CheckReport()
    FORMAT.check(data_path_of(folder), report)
    assert not report.problems
    (document,) = folder.rglob(".dataset.json")
    changed = json.loads(document.read_text())
    changed["shape"]["dims"][0] += 1
    document.write_text(json.dumps(changed))
    (folder / "acqstream/home/acq.h5/.domain.json").unlink()
    report = CheckReport()
    FORMAT.check(data_path_of(folder), report)
    assert {Path(problem.path).name for problem in report.problems} == {".dataset.json", ".domain.json"}


def test_a_container_opens_by_its_parts_and_a_level_alone_as_the_server_has_it(tmp_path):
    folder = tmp_path / "a.hsds"
    write(folder, UnforcedDisk(), {"levels": 2})
    for part in ("", NOTE_NAME, "acqstream", "acqstream/home/acq.h5", "acqstream/home/acq.h5/.domain.json"):
        with acqstream.open(folder / part) as ds:
            assert (ds.format, len(ds.levels), ds.path) == ("hsds", 2, folder)
    for document in folder.rglob(".dataset.json"):
        with acqstream.open(document) as ds:
            assert ds.levels[0].axes == AXES
            assert len(ds.levels) == 1


def test_the_note_comes_back():
    given = spec_of(
        scale=(2.0, 0.3, 0.1, 0.1), units=("s", "um", "um", "um"), attributes={"a": [1]}, labels={"time": ("x",)}
    )
    layout = layout_of({"levels": 2, "compression": "zlib"}, given)
    content = layout.documents(complete=False)[NOTE_NAME]
    assert parse_note(content, "a.json") == (layout, False)
    fields = json.loads(content)
    for name, wrong in [
        ("version", 2),
        ("axes", ["y", "y"]),
        ("type", "H5T_STD_U12LE"),
        ("type", {"class": "H5T_STRING", "length": 3}),
        ("levels", []),
        ("planned", [1]),
        ("compression", "brotli"),
        ("levels", [{**fields["levels"][0], "chunks": [1 << 20] * 4}]),
        ("levels", [{**fields["levels"][0], "shape": [1 << 40] * 4}]),
        ("seed", 3),
    ]:
        with pytest.raises(CorruptDataset, match=r"^a\.json: "):
            parse_note(json.dumps({**fields, name: wrong}).encode(), "a.json")


def test_server_documents_state_growth_by_complete_chunks():
    level = spec_of((3, 5, 40, 50), chunk_shape=(2, 1, 40, 50))
    common: dict[str, Any] = {"seed": "s", "created": 1.0, "planned": (0, 5, 40, 50), "compression": "none"}
    growing = dict(server_documents([level], complete=False, **common))
    final = dict(server_documents([replace(level)], complete=True, **common))
    (key,) = [key for key in growing if key.endswith(".dataset.json")]
    assert json.loads(growing[key])["shape"]["dims"] == [2, 5, 40, 50]
    assert json.loads(final[key])["shape"]["dims"] == [3, 5, 40, 50]
    assert growing.keys() == final.keys()
