"""Trees that real servers and a script wrote: every dataset, item for item."""

from __future__ import annotations

import hashlib
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

import acqstream
from acqstream.errors import DatasetError, UnknownFormat, UnsupportedFeature
from acqstream.formats.check_report import CheckReport
from acqstream.formats.hsds.foreign import check, open_dataset
from acqstream.storage.stores.data_path import data_path_of
from tests.formats.hsds.hsds_data import BUCKET, EXPECTED, GOLDEN, TREES, bucket_files

DATASETS = [
    (tree, domain, path)
    for tree, domains in EXPECTED.items()
    for domain, content in domains.items()
    for path, expected in content["objects"].items()
    if "shape" in expected
]
ALIASES = [
    (tree, domain, path, expected["softlink"])
    for tree, domains in EXPECTED.items()
    for domain, content in domains.items()
    for path, expected in content["objects"].items()
    if "softlink" in expected
]
MANY = ("hsds_1.0.2", "/home/acq.h5")


def domain_folder(tree: str, domain: str) -> Path:
    return GOLDEN / tree / BUCKET / domain[1:]


def little_endian(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()


@pytest.mark.parametrize(("tree", "domain", "path"), DATASETS)
def test_every_dataset_is_as_written(tree, domain, path):
    expected = EXPECTED[tree][domain]["objects"][path]
    with acqstream.open(f"{domain_folder(tree, domain)}{path}") as ds:
        assert ds.format == "hsds"
        level = ds.levels[0]
        assert level.shape == tuple(expected["shape"])
        assert level.dtype == np.dtype(expected["dtype"]).newbyteorder("=")
        assert dict(ds.summary_metadata) == expected["attrs"]
        assert hashlib.sha256(little_endian(level.read())).hexdigest() == expected["sha256_c_order"]


def test_all_golden_datasets_are_tested():
    files = [key for tree in TREES for key in bucket_files(tree) if key.endswith(".dataset.json") or "-d-" in key]
    # The chunk table is no dataset of its own to a client.
    assert len(files) == len(DATASETS) + 1
    assert len(ALIASES) == 2


@pytest.mark.parametrize(("tree", "domain", "path", "target"), ALIASES)
def test_soft_links_are_followed(tree, domain, path, target):
    with acqstream.open(f"{domain_folder(tree, domain)}{path}") as alias:
        with acqstream.open(f"{domain_folder(tree, domain)}{target}") as ds:
            assert np.array_equal(alias.levels[0].read(), ds.levels[0].read())
            assert alias.path == ds.path


def test_a_domain_with_one_dataset_opens_by_every_path(tmp_path):
    for name in ("home", "db"):
        shutil.copytree(GOLDEN / "hsds_1.0.2" / BUCKET / name, tmp_path / "root" / "data" / name)
    shutil.rmtree(tmp_path / "root/data/home/acq.h5")
    dataset = "db/461e9cb2-2470137f/d/5001-f6ea13-8ac2cd"
    for path in ("", "data", "data/home", "data/home/u8.h5", "data/home/u8.h5/.domain.json", "data/home/u8.h5/img"):
        with acqstream.open(tmp_path / "root" / path) as ds:
            assert (ds.format, ds.shape, ds.dtype) == ("hsds", (3, 2, 30, 20), np.uint8)
            assert ds.path == tmp_path / "root/data" / dataset
    for path in (dataset, f"{dataset}/.dataset.json"):
        with acqstream.open(tmp_path / "root/data" / path) as ds:
            assert ds.shape == (3, 2, 30, 20)


def test_a_dataset_of_schema_v1_opens_by_its_file():
    with acqstream.open(GOLDEN / "handmade/bkt/c4f15-d-b4fa1d06-ecc3-1331-aa60-9cfed71ea3f9") as ds:
        assert ds.shape == (6, 20, 24)


@pytest.mark.parametrize("tree", ["hsds_1.0.2", "hsds_0.9.4"])
def test_several_datasets_are_listed_and_each_path_opens(tree):
    with pytest.raises(DatasetError, match="several datasets, expected one") as caught:
        acqstream.open(domain_folder(tree, "/home/acq.h5"))
    paths = str(caught.value).partition("one of them: ")[2].split(", ")
    assert {path.partition("acq.h5")[2] for path in paths} == {
        path for path, one in EXPECTED[tree]["/home/acq.h5"]["objects"].items() if "shape" in one
    }
    for path in paths:
        acqstream.open(path).close()
    with pytest.raises(DatasetError, match="several datasets"):
        acqstream.open(domain_folder(tree, "/home/acq.h5") / "entry")


@pytest.mark.parametrize(
    ("path", "error", "text"),
    [
        ("nothing", DatasetError, "has no 'nothing'"),
        ("entry/nothing/more", DatasetError, "/entry has no 'nothing'"),
        ("edge/more", DatasetError, "/edge is not a group"),
    ],
)
def test_wrong_paths_in_a_domain(path, error, text):
    with pytest.raises(error, match=text):
        acqstream.open(domain_folder(*MANY) / path)


def test_paths_beside_a_domain_do_not_exist(tmp_path):
    with pytest.raises(DatasetError, match="no such file or folder"):
        acqstream.open(domain_folder(*MANY).parent / "other.h5")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UnknownFormat):
        acqstream.open(tmp_path)


@pytest.mark.parametrize(("tree", "domain", "path"), DATASETS)
def test_golden_datasets_pass_the_check(tree, domain, path):
    report = CheckReport()
    counts = check(data_path_of(Path(f"{domain_folder(tree, domain)}{path}")), report)
    assert not report.problems
    assert counts.arrays == 1
    assert counts.chunks > 0


def test_stored_chunks_are_listed():
    for tree, domain, path in DATASETS:
        reader = open_dataset(data_path_of(Path(f"{domain_folder(tree, domain)}{path}")))
        stored = [*reader.stored()]
        assert len(set(stored)) == len(stored)
        again = pickle.loads(pickle.dumps(reader))  # noqa: S301 - our own
        for position in stored:
            assert np.array_equal(again.read_chunk(position), reader.read_chunk(position))
        with pytest.raises(IndexError):
            reader.read_chunk((99,) * max(1, len(reader.spec.axes)))


def test_a_missing_chunk_has_the_fill_value():
    reader = open_dataset(data_path_of(domain_folder(*MANY) / "sparse"))
    stored = [*reader.stored()]
    assert stored == [(1, 0)]
    chunk = reader.read_chunk((0, 0))
    assert chunk is not None
    assert (chunk == -7).all()


def test_references_stay_inside_the_root(tmp_path):
    shutil.copytree(GOLDEN / "handmade", tmp_path / "root")
    stack = tmp_path / "root/bkt/acq/stack_0.bin"
    stack.rename(tmp_path / "elsewhere.bin")
    stack.symlink_to(tmp_path / "elsewhere.bin")
    domain = tmp_path / "root/bkt/home/ref_chunked"
    with acqstream.open(domain) as ds, pytest.raises(UnsupportedFeature, match="follow_links=True"):
        ds.levels[0].read()
    with acqstream.open(domain, follow_links=True) as ds:
        expected = EXPECTED["handmade"]["/home/ref_chunked"]["objects"]["/frames"]["sha256_c_order"]
        assert hashlib.sha256(little_endian(ds.levels[0].read())).hexdigest() == expected
