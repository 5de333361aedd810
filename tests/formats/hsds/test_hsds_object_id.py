"""Ids and keys: the worked examples of the schema, all golden files, and any id."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.formats.hsds.object_id import (
    DOMAIN_NAME,
    ObjectId,
    ObjectKey,
    domain_key,
    object_id,
    parse_id,
    parse_index,
    parse_key,
    root_id,
)
from tests.formats.hsds.hsds_data import BUCKET, GOLDEN, TREES, bucket_files

ROOT = "g-b03b24ef-69f244b6-38b3-ac67e1-7acc3e"
DATASET = "d-b03b24ef-69f244b6-56e5-25125a-89ba79"
V1 = "g-2428ae0e-a082-11e6-9d93-0242ac110005"

digits = st.text("0123456789abcdef", min_size=32, max_size=32)
ids = st.builds(ObjectId, st.sampled_from("gdt"), digits, st.booleans())
positions = st.lists(st.integers(0, 10**9), min_size=1, max_size=6).map(tuple)


def test_worked_example_of_v2():
    root, dataset = parse_id(ROOT), parse_id(DATASET)
    assert (root.is_root, dataset.is_root) == (True, False)
    assert root.key == "db/b03b24ef-69f244b6/.group.json"
    assert dataset.key == "db/b03b24ef-69f244b6/d/56e5-25125a-89ba79/.dataset.json"
    assert dataset.chunk_key((7, 0, 0)) == "db/b03b24ef-69f244b6/d/56e5-25125a-89ba79/7_0_0"
    assert dataset.chunk_key((7,), partition=3) == "db/b03b24ef-69f244b6/d/56e5-25125a-89ba79/p3/7"


def test_worked_example_of_v1():
    assert parse_id(V1).key == f"a860f-{V1}"
    assert parse_id(V1).is_v1
    with pytest.raises(ValueError, match="no folder of their own"):
        _ = parse_id(V1).folder


@pytest.mark.parametrize("tree", TREES)
def test_every_golden_key_is_understood(tree):
    documents = chunks = 0
    for key in bucket_files(tree):
        if key.endswith(DOMAIN_NAME) or key.startswith("acq/"):
            assert parse_key(key) is None
            continue
        found = parse_key(key)
        assert found is not None, key
        if found.position is None:
            documents += 1
            assert found.id.key == key
            # The document itself states its id: an oracle that knows nothing of keys.
            assert str(found.id) == json.loads((GOLDEN / tree / BUCKET / key).read_bytes())["id"]
        else:
            chunks += 1
            assert found.id.chunk_key(found.position) == key
    assert documents
    assert chunks


@given(ids)
def test_texts_and_keys_come_back(one):
    assert parse_id(str(one)) == one
    assert parse_key(one.key) == ObjectKey(one)


@given(st.builds(ObjectId, st.just("d"), digits, st.booleans()), positions)
def test_chunk_keys_come_back(one, position):
    assert parse_key(one.chunk_key(position)) == ObjectKey(one, position)


@given(st.builds(ObjectId, st.just("d"), digits), positions, st.integers(0, 10**6))
def test_chunk_keys_with_partitions_come_back(one, position, partition):
    assert parse_key(one.chunk_key(position, partition)) == ObjectKey(one, position, partition)


@given(st.text(), st.text(max_size=20), st.sampled_from("gdt"))
def test_new_ids_follow_from_seed_and_name(seed, name, kind):
    root = root_id(seed)
    assert root.is_root
    assert root == root_id(seed)
    one = object_id(root, kind, name)
    assert one == object_id(root, kind, name)
    assert one.kind == kind
    assert one.digits[:16] == root.digits[:16]
    assert not one.is_root
    assert parse_id(str(one)) == one


def test_new_ids_differ():
    root = root_id("a")
    made = {root_id("b"), root, object_id(root, "d", "x"), object_id(root, "d", "y"), object_id(root, "g", "x")}
    assert len({one.digits for one in made}) == 5
    with pytest.raises(ValueError, match="schema v2"):
        object_id(parse_id(V1), "d", "x")


@pytest.mark.parametrize(
    "key",
    [
        "",
        "home/acq.h5/.domain.json",
        "db/b03b24ef-69f244b6/.summary.json",
        "db/b03b24ef-69f244b6/d/56e5-25125a-89ba79/.info.json",
        "db/b03b24ef-69f244b6/d/56e5-25125a-89ba79/.group.json",
        "db/b03b24ef-69f244b6/d/56e5-25125a-89ba79/07_0_0",
        "db/b03b24ef-69f244b6/d/56e5-25125a-89ba79/7_0_",
        "db/b03b24ef-69f244b6/d/56e5-25125a-89ba79/p3/.dataset.json",
        "db/b03b24ef-69f244b6/d/56e5-25125a-89ba79/p03/7",
        "db/b03b24ef-69f244b6/g/56e5-25125a-89ba79/7_0_0",
        "db/B03B24EF-69f244b6/.group.json",
        f"00000-{V1}",
    ],
)
def test_other_keys_mean_nothing(key):
    assert parse_key(key) is None


@pytest.mark.parametrize("text", ["", "x-b03b24ef-69f244b6-38b3-ac67e1-7acc3e", ROOT.upper(), ROOT[:-1], f"{V1} "])
def test_other_texts_are_no_ids(text):
    with pytest.raises(ValueError, match="not an id of an HSDS object"):
        parse_id(text)


def test_indices():
    assert parse_index("0_12_3") == (0, 12, 3)
    assert parse_index("_".join("1" * 33)) is None
    assert parse_index("9" * 19) is None
    assert domain_key("/home/acq.h5") == "home/acq.h5/.domain.json"
