"""What our encoders write for the contents of golden trees: the documents and the bytes that are there."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace

import pytest

from acqstream.formats.hsds.codec import ChunkCodec
from acqstream.formats.hsds.metadata import attribute, parse_dataset, parse_domain, parse_group
from acqstream.formats.hsds.object_id import DOMAIN_NAME, domain_key, parse_id, parse_key
from tests.formats.hsds.hsds_data import BUCKET, GOLDEN, bucket_files

BUCKET_FOLDER = GOLDEN / "handmade" / BUCKET
KEYS = bucket_files("handmade")


def test_documents_are_those_of_the_golden_tree():
    """Every document of the tree that both versions of the server serve."""
    written = 0
    for key in KEYS:
        content = (BUCKET_FOLDER / key).read_bytes()
        found = parse_key(key)
        if key.endswith(DOMAIN_NAME):
            encoded = parse_domain(content, key).encode()
        elif found is None or found.position is not None:
            continue
        elif found.id.kind == "g":
            encoded = parse_group(content, key).encode()
        else:
            dataset = parse_dataset(content, key)
            attributes = {name: attribute(value) for name, value in dataset.values.items()}
            encoded = replace(dataset, attributes=attributes).encode()
        assert json.loads(encoded) == json.loads(content), key
        written += 1
    assert written > 25


@pytest.mark.parametrize("name", ["v1_raw", "v1_gzip", "v2_raw", "v2_zlib", "v2_shuffle_zlib", "v2_lz4", "v2_zstd"])
def test_chunks_are_those_of_the_golden_tree(name):
    """Plain chunks byte for byte; compressed ones decode to the same bytes, here by zlib and there by our decoder."""
    root = parse_domain((BUCKET_FOLDER / domain_key(f"home/{name}")).read_bytes(), name).root
    assert root is not None
    own = parse_id(parse_group((BUCKET_FOLDER / root.key).read_bytes(), name).links["frames"].target)
    dataset = parse_dataset((BUCKET_FOLDER / own.key).read_bytes(), name)
    codec = ChunkCodec(dataset.chunk_shape, dataset.dtype, dataset.filters)
    chunks = [key for key in KEYS if (found := parse_key(key)) and found.id == own and found.position is not None]
    assert chunks
    for key in chunks:
        stored = (BUCKET_FOLDER / key).read_bytes()
        encoded = bytes(codec.encode(codec.decode(stored, key)))
        if not codec.is_compressed:
            assert encoded == stored
        elif stored[0] == 2:
            assert encoded[:8] == stored[:8], "version, codec, shuffle, item size and length"
            assert codec.decode(encoded, key).tobytes() == codec.decode(stored, key).tobytes()
        else:
            assert zlib.decompress(encoded) == zlib.decompress(stored)
