"""Documents of a domain: golden ones, ours both ways, and damaged ones."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.errors import CorruptDataset
from acqstream.formats.hsds.dataset_layout import DEFLATE, LZ4, SHUFFLE, StoredLayout
from acqstream.formats.hsds.hdf_type import VARIABLE_TEXT, Dataspace
from acqstream.formats.hsds.metadata import (
    Attribute,
    DatasetDocument,
    DomainDocument,
    GroupDocument,
    GroupLink,
    attribute,
    parse_dataset,
    parse_domain,
    parse_group,
)
from acqstream.formats.hsds.object_id import domain_key, object_id, parse_id, parse_key, root_id
from tests.formats.hsds.hsds_data import BUCKET, EXPECTED, GOLDEN, TREES, bucket_files

ROOT = root_id("seed")
FRAMES = object_id(ROOT, "d", "/frames")
TABLE = object_id(ROOT, "d", "/table")


def dataset_json(**changes):
    """A dataset's document, written out by hand; None removes a key."""
    whole = {
        "id": str(FRAMES),
        "root": str(ROOT),
        "created": 5.5,
        "lastModified": 6.5,
        "type": {"class": "H5T_INTEGER", "base": "H5T_STD_U16LE"},
        "shape": {"class": "H5S_SIMPLE", "dims": [0, 40, 56], "maxdims": ["H5S_UNLIMITED", 40, 56]},
        "attributes": {},
        "creationProperties": {"layout": {"class": "H5D_CHUNKED", "dims": [1, 40, 56]}},
        "layout": {"class": "H5D_CHUNKED", "dims": [1, 40, 56]},
        **changes,
    }
    return {name: value for name, value in whole.items() if value is not None}


def parsed(**changes):
    return parse_dataset(json.dumps(dataset_json(**changes)).encode(), "a.json")


@pytest.mark.parametrize("tree", TREES)
def test_golden_documents(tree):
    bucket = GOLDEN / tree / BUCKET
    datasets = {}
    for key in bucket_files(tree):
        found = parse_key(key)
        if found is None or found.position is not None:
            continue
        content = (bucket / key).read_bytes()
        if found.id.kind == "g":
            assert parse_group(content, key).id == found.id
        else:
            datasets[str(found.id)] = parse_dataset(content, key)
    for name, domain in EXPECTED[tree].items():
        root = parse_domain((bucket / domain_key(name)).read_bytes(), name).root
        assert root is not None
        group = parse_group((bucket / root.key).read_bytes(), name)
        assert group.values == domain.get("root_attrs", {})
        for path, expected in domain["objects"].items():
            link = group.links.get(path[1:])
            if link is None or link.kind != "hard" or not link.target.startswith("d-"):
                continue
            dataset = datasets[link.target]
            assert dataset.space.dims == tuple(expected["shape"])
            assert dataset.dtype == np.dtype(expected["dtype"])
            assert dataset.values == expected["attrs"]
            if "chunks_reported" in expected:
                assert (dataset.chunk_shape or (1,)) == tuple(
                    expected["chunks_reported"]
                )  # 0.9.4 states [1] for a scalar


def test_golden_unlimited_dimensions_are_read_in_both_spellings():
    seen = set()
    for tree in ("hsds_1.0.2", "hsds_0.9.4"):
        for key in bucket_files(tree):
            if key.endswith(".dataset.json"):
                content = (GOLDEN / tree / BUCKET / key).read_bytes()
                seen.add((tree, parse_dataset(content, key).space.maxdims))
    assert {("hsds_1.0.2", (None, 40, 56)), ("hsds_0.9.4", (None, 40, 56))} <= seen


def test_a_dataset_is_encoded_as_the_server_wants_it():
    document = DatasetDocument(
        id=FRAMES,
        root=ROOT,
        dtype=np.dtype("<u2"),
        space=Dataspace((0, 40, 56), (None, 40, 56)),
        layout=StoredLayout(kind="H5D_CHUNKED", dims=(1, 40, 56)),
        filters=(SHUFFLE, LZ4),
        attributes={"unit": attribute("count")},
        fill_value=7,
        created=5.5,
        modified=6.5,
    )
    filters = [
        {"class": "H5Z_FILTER_SHUFFLE", "id": 2, "name": "shuffle"},
        {"class": "H5Z_FILTER_LZ4", "id": 32004, "name": "lz4"},
    ]
    layout = {"class": "H5D_CHUNKED", "dims": [1, 40, 56]}
    text = {"class": "H5T_STRING", "length": "H5T_VARIABLE", "charSet": "H5T_CSET_UTF8", "strPad": "H5T_STR_NULLTERM"}
    assert json.loads(document.encode()) == dataset_json(
        creationProperties={"layout": layout, "filters": filters, "fillValue": 7},
        attributes={"unit": {"type": text, "shape": {"class": "H5S_SCALAR"}, "value": "count", "created": 5.5}},
    )
    assert parse_dataset(document.encode(), "a.json") == DatasetDocument(
        id=FRAMES,
        root=ROOT,
        dtype=np.dtype("<u2"),
        space=Dataspace((0, 40, 56), (None, 40, 56)),
        layout=StoredLayout(kind="H5D_CHUNKED", dims=(1, 40, 56)),
        filters=(SHUFFLE, LZ4),
        values={"unit": "count"},
        fill_value=7,
        created=5.5,
        modified=6.5,
    )


def test_a_domain_is_encoded_as_the_server_wants_it():
    content = json.loads(DomainDocument(ROOT, 1.0, 2.0).encode())
    assert content["root"] == str(ROOT)
    assert content["owner"] in content["acls"]
    assert all(content["acls"][content["owner"]].values())
    assert [right for right, given_ in content["acls"]["default"].items() if given_] == ["read"]
    assert parse_domain(json.dumps(content).encode(), "a.json") == DomainDocument(ROOT, 1.0, 2.0)
    assert parse_domain(b'{"owner": "admin", "acls": {}}', "a.json").root is None


def test_a_group_comes_back():
    links = {
        "frames": GroupLink("hard", str(FRAMES)),
        "alias": GroupLink("soft", "/a/b"),
        "elsewhere": GroupLink("external", "/x", "/home/b.h5"),
    }
    document = GroupDocument(id=ROOT, root=ROOT, links=links, attributes={"n": attribute([1, 2])}, created=1.5)
    found = parse_group(document.encode(), "a.json")
    assert (found.id, found.root, found.links, found.values) == (ROOT, ROOT, links, {"n": [1, 2]})
    raw = json.loads(document.encode())
    assert raw["links"]["elsewhere"] == {
        "class": "H5L_TYPE_EXTERNAL",
        "h5path": "/x",
        "h5domain": "/home/b.h5",
        "created": 1.5,
    }
    assert {"id", "root", "created", "lastModified", "attributes"} <= raw.keys()


references = [
    StoredLayout(kind="H5D_CHUNKED_REF", dims=(1, 4), file_uri="b/a.tif", spans={(0, 0): (8, 16), (1, 0): (30, 16)}),
    StoredLayout(kind="H5D_CHUNKED_REF_INDIRECT", dims=(1, 4), chunk_table=TABLE, file_uri="b/a.tif"),
    StoredLayout(kind="H5D_CONTIGUOUS_REF", file_uri="b/a.tif", span=(100, 64)),
]


@pytest.mark.parametrize("layout", references, ids=lambda one: one.kind)
def test_references_come_back_and_win_over_the_other_layout(layout):
    document = DatasetDocument(
        id=FRAMES, root=ROOT, dtype=np.dtype("u1"), space=Dataspace((2, 4)), layout=layout, filters=()
    )
    raw = json.loads(document.encode())
    assert raw["layout"] == raw["creationProperties"]["layout"]
    raw["layout"] = {"class": "H5D_CHUNKED", "dims": [2, 2]}
    assert parse_dataset(json.dumps(raw).encode(), "a.json").layout == layout


def test_the_upper_layout_wins_over_the_wish():
    wish = {"layout": {"class": "H5D_CHUNKED", "dims": [1, 2, 3]}}
    assert parsed(creationProperties=wish).chunk_shape == (1, 40, 56)
    assert parsed(creationProperties=wish, layout=None).chunk_shape == (1, 2, 3)
    assert parsed(creationProperties=None).chunk_shape == (1, 40, 56)
    one = {"layout": {"class": "H5D_CONTIGUOUS"}}
    assert parsed(creationProperties=one, layout=None).chunk_shape == (0, 40, 56)
    assert parsed(creationProperties=None, layout=None).chunk_shape == (0, 40, 56)


def test_partitions_and_named_filters():
    found = parsed(
        layout={"class": "H5D_CHUNKED", "dims": [1, 40, 56], "partition_count": 3},
        creationProperties={"filters": ["shuffle", {"class": "H5Z_FILTER_DEFLATE", "id": 1, "name": "gzip"}]},
    )
    assert found.layout.partitions == 3
    assert found.filters == (SHUFFLE, DEFLATE)


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "d-1"},
        {"root": None},
        {"type": "H5T_STD_U13LE"},
        {"shape": None},
        {"shape": {"class": "H5S_SIMPLE", "dims": [-1, 40, 56]}},
        {"shape": {"class": "H5S_SIMPLE", "dims": [1] * 40}},
        {"shape": {"class": "H5S_SIMPLE", "dims": [3, 40, 56], "maxdims": [2, 40, 56]}},
        {"shape": {"class": "H5S_SIMPLE", "dims": [3, 40, 56], "maxdims": ["H5S_MANY", 40, 56]}},
        {"layout": {"class": "H5D_CHUNKED", "dims": [1, 40]}},
        {"layout": {"class": "H5D_CHUNKED", "dims": [0, 40, 56]}},
        {"layout": {"class": "H5D_ROUND", "dims": [1, 40, 56]}},
        {"layout": {"class": "H5D_CHUNKED_REF", "dims": [1, 40, 56], "chunks": {"0_0": [1, 2]}}},
        {"layout": {"class": "H5D_CHUNKED_REF", "dims": [1, 40, 56], "chunks": {"0_0_0": [-1, 2]}}},
        {"layout": {"class": "H5D_CHUNKED_REF_INDIRECT", "dims": [1, 40, 56], "chunk_table": str(ROOT)}},
        {"layout": {"class": "H5D_CHUNKED_REF_INDIRECT", "dims": [1, 40, 56]}},
        {"layout": {"class": "H5D_CONTIGUOUS_REF", "offset": 0}},
        {"creationProperties": {"filters": [3]}},
        {"lastModified": "now"},
    ],
    ids=repr,
)
def test_damaged_datasets(changes):
    with pytest.raises(CorruptDataset, match=r"^a\.json: "):
        parsed(**changes)


@pytest.mark.parametrize(
    ("parse", "content"),
    [
        (parse_domain, b'{"root": 3}'),
        (parse_domain, b'{"root": "g-1"}'),
        (parse_domain, b""),
        (parse_domain, b'{"root'),
        (parse_group, b'{"id": "g-1", "root": "g-1"}'),
        (parse_group, json.dumps({"id": str(ROOT), "root": str(ROOT), "links": {"a": {"class": "H5L_X"}}}).encode()),
        (parse_group, json.dumps({"id": str(ROOT), "root": str(ROOT), "links": {"a": 3}}).encode()),
        (
            parse_group,
            json.dumps(
                {"id": str(ROOT), "root": str(ROOT), "links": {"a": {"class": "H5L_TYPE_HARD", "id": "?"}}}
            ).encode(),
        ),
    ],
)
def test_damaged_domains_and_groups(parse, content):
    with pytest.raises(CorruptDataset, match=r"^a\.json: "):
        parse(content, "a.json")


@pytest.mark.parametrize(
    ("value", "dtype", "dims"),
    [
        ("µm", VARIABLE_TEXT, ()),
        (["DAPI", "GFP"], VARIABLE_TEXT, (2,)),
        (3, np.dtype("<i8"), ()),
        ((1, 2.5), np.dtype("<f8"), (2,)),
        (np.eye(2), np.dtype("<f8"), (2, 2)),
        (True, np.dtype(bool), ()),
        (np.float32(0.5), np.dtype("<f8"), ()),
    ],
)
def test_attributes_have_type_and_shape(value, dtype, dims):
    made = attribute(value)
    assert (made.dtype, made.space.dims) == (dtype, dims)
    json.dumps(made.to_json(0.0), allow_nan=False)


@pytest.mark.parametrize("value", [[], [1, "a"], [[1], [1, 2]], float("nan"), 1 << 63, None, {}, [True, 1]])
def test_values_without_a_type_are_refused(value):
    with pytest.raises(ValueError, match="an attribute of"):
        attribute(value)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@given(st.dictionaries(texts, st.one_of(texts, st.integers(-9, 9), st.lists(st.floats(-1, 1), min_size=1, max_size=3))))
def test_any_attributes_come_back(values):
    attributes: dict[str, Attribute] = {name: attribute(value) for name, value in values.items()}
    document = GroupDocument(id=ROOT, root=ROOT, attributes=attributes)
    assert parse_group(document.encode(), "a.json").values == values


def test_the_worked_ids_of_documents_are_checked():
    with pytest.raises(CorruptDataset, match="must be an id of HSDS"):
        parse_group(json.dumps({"id": "x", "root": str(parse_id(str(ROOT)))}).encode(), "a.json")
