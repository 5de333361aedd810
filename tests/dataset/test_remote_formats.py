"""Every format over a real web server: at the root of the server, one folder deep, and deeper."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest

import acqstream
from acqstream.errors import DatasetError, UnknownFormat
from acqstream.storage.files.url_path import as_path
from tests.dataset.web_server import serving

pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")

GOLDEN = Path(__file__).parents[1] / "golden"
WKW = [f"wkw/{header.parent.name}" for header in sorted((GOLDEN / "wkw").glob("*/header.wkw"))]
DATASETS = [
    *WKW,
    "n5/multiscale_bdv.n5",
    "precomputed/cv_u16_unsharded_gz",
    "precomputed/ts_u16_identity_gzip",
    "precomputed/ts_f32_sparse",
    "n5/java.n5/u16_lz4",
    "n5/java.n5/f32_xz",
    "ndtiff/py_uint16/data",
    "ndtiff/java_pyramid_u16/data",
    "ndtiff/v1_5_uint16/data",
]


def assert_same(url: str, path: Path) -> None:
    with acqstream.open(url) as remote, acqstream.open(path) as local:
        assert (remote.format, len(remote.levels)) == (local.format, len(local.levels))
        for one, other in zip(remote.levels, local.levels, strict=True):
            assert (one.axes, one.shape) == (other.axes, other.shape)
            assert np.array_equal(one.read(), other.read())


@pytest.mark.thinned(3)
@pytest.mark.parametrize("above", [0, 1, 2])
@pytest.mark.parametrize("name", DATASETS)
def test_a_dataset_opens_wherever_it_lies_on_a_server(name: str, above: int) -> None:
    path = GOLDEN / name
    top = [path, *path.parents][above]
    with serving(top) as (url, asked):
        inside = path.relative_to(top).as_posix()
        assert_same(f"{url}/{inside}" if above else url, path)
        assert not [line for line in asked if "http:" in line or "//" in line]


HSDS = ["hsds_1.0.2/bkt/home/u8.h5", "hsds_0.9.4/bkt/home/acq.h5/edge", "handmade/bkt/home/v1_gzip"]


@pytest.mark.parametrize("name", [*HSDS, "handmade/bkt/home/v2_lz4", "handmade/bkt/home/ref_indirect"])
def test_a_domain_of_hsds_opens_below_its_bucket_on_a_server(name: str) -> None:
    """All objects of a domain are elsewhere in its bucket, so the server must serve that."""
    tree, _, inside = name.partition("/")
    with serving(GOLDEN / "hsds" / tree) as (url, _):
        assert_same(f"{url}/{inside}", GOLDEN / "hsds" / name)


@pytest.mark.parametrize("inside", ["setup0", "setup0/timepoint1/s1", "setup0/timepoint1/s1/attributes.json"])
def test_parts_of_an_n5_container_open_over_http(inside: str) -> None:
    container = GOLDEN / "n5" / "multiscale_bdv.n5"
    for top, place in ((container, inside), (container.parent, f"{container.name}/{inside}")):
        with serving(top) as (url, _):
            assert_same(f"{url}/{place}", container / inside)


def test_a_container_of_several_arrays_lists_them_over_http() -> None:
    with serving(GOLDEN / "n5") as (url, _), pytest.raises(DatasetError, match="open one of them: f32_xz, "):
        acqstream.open(f"{url}/java.n5")


@pytest.mark.parametrize("inside", ["color", "rgb/1", "color/2-2-1/header.wkw"])
def test_parts_of_a_wkw_dataset_open_over_http(inside: str) -> None:
    dataset = GOLDEN / "wkw" / "wk_dataset"
    for top, place in ((dataset, inside), (dataset.parent, f"{dataset.name}/{inside}")):
        with serving(top) as (url, _):
            assert_same(f"{url}/{place}", dataset / inside)


def test_a_server_without_a_dataset_is_told_as_any_other_folder(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "notes.txt").write_text("mine")
    with serving(tmp_path) as (url, _):
        for place in ("", "/a", "/a/b"):
            with pytest.raises(UnknownFormat):
                acqstream.open(f"{url}{place}")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "https://example.org/a", "memory://a"])
def test_nothing_lies_above_a_host(url: str) -> None:
    place = as_path(url)
    seen = [place]
    while seen[-1].parent != seen[-1]:
        seen.append(seen[-1].parent)
        assert len(seen) < 5
    assert seen[-1].parent == seen[-1]
    assert list(place.parents) == seen[1:]
    assert all(str(one).startswith(url.partition("://")[0]) for one in seen)


@pytest.mark.parametrize("name", ["n5/multiscale_bdv.n5", "wkw/raw_u16_b8_f2", "ndtiff/py_uint16/data"])
def test_names_of_any_script_with_spaces_in_a_url(tmp_path: Path, name: str) -> None:
    folder = Path(shutil.copytree(GOLDEN / name, tmp_path / "Zellen am Rand 細胞 é"))
    with serving(tmp_path) as (url, _):
        for inside in (folder.name, quote(folder.name)):
            assert_same(f"{url}/{inside}", folder)


@pytest.mark.parametrize("folder", ["a#b", "a%41", "50%", "a&b=c+d"])
def test_names_in_documents_are_names_and_no_parts_of_a_url(tmp_path: Path, folder: str) -> None:
    """Missing chunks are zeros: a name that leads elsewhere would be silent."""
    volume = Path(shutil.copytree(GOLDEN / "precomputed" / "ts_u16_planes", tmp_path / "volume"))
    info = json.loads((volume / "info").read_text(encoding="utf-8"))
    (volume / info["scales"][0]["key"]).rename(volume / folder)
    info["scales"][0]["key"] = folder
    (volume / "info").write_text(json.dumps(info), encoding="utf-8")
    with serving(tmp_path) as (url, _):
        assert_same(f"{url}/volume", volume)
    with acqstream.open(volume) as ds:
        assert ds.levels[0].read().any()


@pytest.mark.parametrize("key", ["%2e%2e/other/s", "..%2fother/s", "%2E%2E/other/s"])
def test_a_quoted_path_does_not_lead_out_of_a_volume(tmp_path: Path, key: str) -> None:
    volume = Path(shutil.copytree(GOLDEN / "precomputed" / "ts_u16_planes", tmp_path / "volume"))
    info = json.loads((volume / "info").read_text(encoding="utf-8"))
    (tmp_path / "other").mkdir()
    (volume / info["scales"][0]["key"]).rename(tmp_path / "other" / "s")
    info["scales"][0]["key"] = key
    (volume / "info").write_text(json.dumps(info), encoding="utf-8")
    with serving(tmp_path) as (url, asked), acqstream.open(f"{url}/volume") as ds:
        assert not ds.levels[0].read().any()
        assert not [line for line in asked if "/other/" in line and "%25" not in line]
