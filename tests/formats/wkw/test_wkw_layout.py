"""The layout of a container: keys and bytes of chunks, in any store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from acqstream.arrays.array_spec import ArraySpec
from acqstream.errors import ConfigError, CorruptDataset, StorageError
from acqstream.formats.wkw.foreign import open_array
from acqstream.formats.wkw.header import HEADER_NAME
from acqstream.formats.wkw.layout import WkwLayout, create_layout, plan
from acqstream.formats.wkw.metadata import PROPERTIES_NAME, parse_options
from acqstream.mirrors.publisher import Publisher
from acqstream.storage.stores.data_path import data_path_of
from acqstream.storage.stores.local_store import LocalStore
from tests.checksum_files import other_files
from tests.formats.wkw.wkw_data import noise, read_all, store
from tests.storage.memory_store import MemoryStore
from tests.storage.unforced_disk import UnforcedDisk

U2 = np.dtype(np.uint16)
SPECS = [
    ArraySpec(axes=("z", "y", "x"), shape=(70, 90, 130), dtype=U2),
    ArraySpec(axes=("position", "time", "channel", "z", "y", "x"), shape=(2, 1, 3, 33, 40, 20), dtype=U2),
    ArraySpec(axes=("time", "y", "x", "c"), shape=(33, 200, 70, 3), dtype=np.dtype(np.uint8)),
]
KINDS = [{"compression": "raw", "cube": 64}, {"compression": "lz4", "cube": 64}, {"compression": "lz4hc", "cube": 32}]

all_kinds = pytest.mark.parametrize("options", KINDS, ids=lambda options: str(options["compression"]))
all_specs = pytest.mark.parametrize("spec", SPECS, ids=["stack", "datasets", "rgb"])


def layout_of(spec: ArraySpec, options: dict[str, object]) -> WkwLayout:
    parsed = parse_options({"levels": 2, **options})
    return create_layout(plan(spec, parsed), parsed)


@all_kinds
@all_specs
def test_keys_lead_back_to_the_first_chunk_of_their_cube(spec: ArraySpec, options: dict[str, object]) -> None:
    layout = layout_of(spec, options)
    first: dict[str, tuple[int, tuple[int, ...]]] = {}
    for level, of_level in enumerate(layout.plan.levels):
        for position in np.ndindex(*of_level.grid_shape):
            first.setdefault(layout.key(level, position), (level, position))
    assert len(first) > 2
    assert {key: layout.parse_key(key) for key in first} == first


@pytest.mark.parametrize("spec", SPECS[:2], ids=["stack", "datasets"])
def test_other_keys_are_no_chunks(spec: ArraySpec) -> None:
    layout = layout_of(spec, KINDS[0])
    key = layout.key(0, (0,) * len(layout.plan.full.axes))
    assert layout.parse_key(key) is not None
    for old, new in [("x0.wkw", "x00.wkw"), ("x0.wkw", "header.wkw"), ("C0", "C9"), ("/1/", "/3/"), ("z0", "y0")]:
        assert layout.parse_key(key.replace(old, new)) is None
    assert layout.parse_key(f"more/{key}") is None
    assert layout.parse_key("acqstream-array.json") is None
    assert layout.parse_key(key.replace("position0000", "position0")) is None or "position" not in key


@all_kinds
@all_specs
def test_chunks_come_back(spec: ArraySpec, options: dict[str, object]) -> None:
    layout = layout_of(spec, options)
    of_level = layout.plan.levels[1]
    position = (0,) * len(of_level.axes)
    chunk = noise(of_level.memory_shape, of_level.dtype)
    data = b"".join(layout.encode(1, position, chunk))
    assert np.array_equal(layout.decode(1, position, data, "x0.wkw"), chunk)
    with pytest.raises(ValueError, match="a chunk of shape"):
        layout.encode(1, position, chunk[:0])
    for damaged in (data[:-1], b"", data[:30]):
        with pytest.raises(CorruptDataset, match=r"x0\.wkw"):
            layout.decode(1, position, damaged, "x0.wkw")


def test_raw_cubes_need_a_store_that_writes_in_place() -> None:
    layout = layout_of(SPECS[0], KINDS[0])
    with pytest.raises(ConfigError, match=r"cells\.wkw needs a store that can write inside objects"):
        Publisher(layout, MemoryStore(["whole"]), None, "cells.wkw").begin()


@all_kinds
def test_a_store_in_memory_gets_what_a_folder_gets(tmp_path: Path, options: dict[str, object]) -> None:
    layout = layout_of(SPECS[1], options)
    stores = MemoryStore(["whole", layout.needs]), LocalStore(tmp_path / "a.wkw", UnforcedDisk())
    for kept in stores:
        publisher = Publisher(layout, kept, None, "a.wkw")
        publisher.begin()
        for level, spec in enumerate(layout.plan.levels):
            store(publisher, level, spec, noise(spec.shape, spec.dtype))
            publisher.sync()
        publisher.finish(layout.plan.levels)
    memory, local = ({key: kept.get(key) for key in kept.keys()} for kept in stores)  # noqa: SIM118 - not a dict
    assert other_files(memory) == other_files(local)
    assert memory.keys() - other_files(memory).keys()  # also where the store cannot append
    assert np.array_equal(read_all(open_array(data_path_of(tmp_path / "a.wkw"))[0]), noise(layout.plan.full.shape, U2))


class FullOnce(MemoryStore):
    """Has no space for the documents that show a dataset, the first time."""

    is_full = True

    def ensure_all(self, documents: Mapping[str, bytes]) -> None:
        if self.is_full and any(key.endswith(PROPERTIES_NAME) for key in documents):
            self.is_full = False
            raise StorageError.wrap(OSError(28, "No space left on device"), self.url, "cannot write")
        super().ensure_all(documents)


def test_a_dataset_that_could_not_be_shown_has_its_headers_the_next_time() -> None:
    """Of the first time no frame came: nothing else puts its headers."""
    layout = layout_of(ArraySpec(axes=("time", "z", "y", "x"), shape=(3, 1, 32, 32), dtype=U2), KINDS[0])
    shapes = [level.shape for level in layout.plan.levels]
    kept = FullOnce(["whole", layout.needs])
    begun = replace(layout, plan=layout.plan.with_shapes([(0, *shape[1:]) for shape in shapes]))
    publisher = Publisher(begun, kept, None, "a.wkw")
    publisher.begin()
    with pytest.raises(StorageError):
        for level, shape in enumerate(shapes):
            publisher.grow(level, (2, *shape[1:]))
    for level, shape in enumerate(shapes):
        publisher.grow(level, (2, *shape[1:]))
    headers = [key for key in kept.keys() if key.startswith("time0001/") and key.endswith(HEADER_NAME)]  # noqa: SIM118
    assert len(headers) == len(shapes)
