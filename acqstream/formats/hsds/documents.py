"""The documents of a container with pixels, for the server: datasets, their group and the domain. Pure.

level 0, level 1, ...   the levels, (axes of the frames..., y, x[, c]), as hard links of the root group
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from acqstream.arrays.array_spec import ArraySpec
from acqstream.formats.array_note import plain_value
from acqstream.formats.hsds.attribute import Attribute, attribute
from acqstream.formats.hsds.dataspace import Dataspace
from acqstream.formats.hsds.object_documents import DatasetDocument, DomainDocument, GroupDocument, GroupLink
from acqstream.formats.hsds.object_id import ObjectId, domain_key, object_id, root_id
from acqstream.formats.hsds.options import Compression
from acqstream.formats.hsds.stored_layout import DEFLATE, LZ4, SHUFFLE, ZSTD, ChunkFilter, StoredLayout
from acqstream.grid.block_sizes import reduced_shape

BUCKET = "acqstream"
DOMAIN = "/home/acq.h5"
_FIXED_AXES = ("y", "x", "c")
_COMPRESSORS = {"lz4": LZ4, "zstd": ZSTD, "zlib": DEFLATE}


def level_id(seed: str, level: int) -> ObjectId:
    """The id of the dataset of a level."""
    return object_id(root_id(seed), "d", level_name(level))


def level_name(level: int) -> str:
    """The name of a level in the root group."""
    return f"level {level}"


def filters_of(compression: Compression, item_bytes: int) -> tuple[ChunkFilter, ...]:
    """The filters that a dataset declares. Shuffle is declared with a compressor only: see codec."""
    if compression == "none":
        return ()
    return (*((SHUFFLE,) if item_bytes > 1 else ()), _COMPRESSORS[compression])


def stated_dims(spec: ArraySpec, planned: Sequence[int], *, complete: bool) -> tuple[int, ...]:
    """The sizes of a level for the server, which caches chunks: none covers a chunk that will be rewritten.

    spec has the announced shape, planned the sizes of this level when the container was created. Along an axis that is
    shorter or longer than planned, the last chunk may get more until the container is complete: frames, or rows of
    tiles along y.
    """
    sides = zip(spec.shape, spec.chunk_shape, planned, strict=True)
    return tuple(size if complete or size == expected else size // step * step for size, step, expected in sides)


def server_documents(
    levels: Sequence[ArraySpec],
    *,
    seed: str,
    created: float,
    planned: Sequence[int],
    compression: Compression,
    complete: bool,
) -> Iterator[tuple[str, bytes]]:
    """Keys below the bucket and bytes, in the order in which they must be put: the domain comes last.

    A layout has no clock, so all objects state the time at which the container was created.
    """
    root = root_id(seed)
    for number, spec in enumerate(levels):
        layout = StoredLayout(kind="H5D_CHUNKED", dims=spec.chunk_shape)
        expected = reduced_shape(planned, spec.factors)
        dims = stated_dims(spec, expected, complete=complete)
        dataset = DatasetDocument(
            id=level_id(seed, number),
            root=root,
            dtype=spec.dtype.newbyteorder("<"),
            space=Dataspace(dims, tuple(map(_max_size, spec.axes, dims, expected))),
            layout=layout,
            filters=filters_of(compression, spec.dtype.itemsize),
            attributes=level_attributes(spec),
            created=created,
            modified=created,
        )
        yield dataset.id.key, dataset.encode()
    links = {level_name(number): GroupLink("hard", str(level_id(seed, number))) for number in range(len(levels))}
    summary = json.dumps(dict(levels[0].attributes), ensure_ascii=False, default=plain_value)
    group = GroupDocument(
        id=root, root=root, links=links, attributes={"summary": attribute(summary)}, created=created, modified=created
    )
    yield root.key, group.encode()
    yield domain_key(DOMAIN), DomainDocument(root, created, created).encode()


def _max_size(axis: str, size: int, expected: int) -> int | None:
    return size if axis in _FIXED_AXES and expected and size == expected else None


def level_attributes(spec: ArraySpec) -> dict[str, Attribute]:
    """Axes, distances and names of a level."""
    found: dict[str, Any] = {
        "DIMENSION_LABELS": [*spec.axes],
        "axes": [*spec.axes],
        "scale": [*map(float, spec.scale)],
        "units": [*spec.units],
        "translation": [*map(float, spec.translation)],
        "factors": [*spec.factors],
        **({"valid_range": [0, 2**spec.bits - 1]} if spec.bits else {}),
        **{f"{axis} labels": [*map(str, names)] for axis, names in spec.labels.items() if names},
    }
    return {name: attribute(value) for name, value in found.items()}
