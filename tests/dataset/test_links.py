"""Links that lead out of a dataset are followed only where the user asks for it."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

import acqstream
from acqstream.dataset.chunk_source import ChunkLevel
from acqstream.errors import DatasetError, UnsupportedFeature
from acqstream.formats.check_report import CheckReport
from acqstream.formats.registry import chunk_format
from acqstream.storage.stores.data_path import data_path_of
from tests.host_system import make_link

GOLDEN = Path(__file__).parents[1] / "golden"
# format, container, array in it, and what a stranger makes a link
CASES = [
    ("n5", "n5/multiscale_bdv.n5", "", "setup0/timepoint0/s0/0/0/0"),
    ("n5", "n5/multiscale_bdv.n5", "", "setup0/timepoint0/s0/0"),
    ("n5", "n5/multiscale_bdv.n5", "", "setup0/timepoint0/s0"),
    ("n5", "n5/multiscale_bdv.n5", "", "setup0"),
    ("n5", "n5/multiscale_bdv.n5", "", "setup0/timepoint0/s0/attributes.json"),
    ("n5", "n5/multiscale_bdv.n5", "setup0/timepoint0/s0", "setup0"),
    ("n5", "n5/java.n5", "u16_lz4", "u16_lz4/attributes.json"),
    ("wkw", "wkw/wk_dataset", "color", "color"),
    ("wkw", "wkw/wk_dataset", "color", "color/1"),
    ("wkw", "wkw/wk_dataset", "color", "color/1/header.wkw"),
    ("wkw", "wkw/wk_dataset", "color", "color/1/z0"),
    ("wkw", "wkw/wk_dataset", "color", "color/1/z0/y0/x0.wkw"),
    ("wkw", "wkw/wk_dataset", "color", "datasource-properties.json"),
    ("wkw", "wkw/wk_dataset", "color/1", "color/1"),
    ("ndtiff", "ndtiff/py_uint16/data", "", "NDTiff.index"),
    ("ndtiff", "ndtiff/py_uint16/data", "", "*.tif"),
]


@pytest.fixture(params=CASES, ids=lambda case: "-".join(case[1:]))
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path, Path, Path]:
    """Format, array, link, and where the link leads."""
    kind, container, array, inside = request.param
    copy = Path(shutil.copytree(GOLDEN / container, tmp_path / f"mine{Path(container).suffix}"))
    link = next(copy.glob(inside))
    away = tmp_path / "elsewhere" / link.name
    away.parent.mkdir()
    link.rename(away)
    make_link(link, away)
    return kind, copy / array, link, away


def read_all(path: Path, *, follow_links: bool = False) -> list[np.ndarray]:
    with acqstream.open(path, follow_links=follow_links) as dataset:
        return [level.read() for level in dataset.levels]


def test_a_link_out_is_refused_by_name_and_followed_on_request(case: tuple[str, Path, Path, Path]) -> None:
    _, path, link, away = case
    with pytest.raises(UnsupportedFeature, match="pass follow_links=True") as caught:
        read_all(path)
    assert f"{link} is a link to {str(away)!r}" in str(caught.value)
    assert read_all(path, follow_links=True)


def test_links_that_stay_inside_and_a_linked_top_are_harmless(case: tuple[str, Path, Path, Path]) -> None:
    _, path, link, away = case
    expected = read_all(path, follow_links=True)
    top = next(place for place in (path, *path.parents) if place.name.startswith("mine"))
    inner = top / "somewhere inside"
    inner.mkdir()
    away.rename(inner / away.name)
    link.unlink()
    make_link(link, Path(os.path.relpath(inner / away.name, link.parent)))
    moved = top.with_name("moved")
    top.rename(moved)
    make_link(top, moved)
    for one, other in zip(read_all(path), expected, strict=True):
        assert np.array_equal(one, other)


def test_verify_reports_links_of_chunk_formats(case: tuple[str, Path, Path, Path]) -> None:
    kind, path, link, _ = case
    if kind == "ndtiff":
        pytest.skip("proved by checksums, with a note")
    top = next(place for place in (path, *path.parents) if place.name.startswith("mine"))
    report = CheckReport()
    check = chunk_format(kind).check
    assert check is not None
    check(data_path_of(top), report)
    assert any(str(link) in problem.text or str(link) in problem.path for problem in report.problems)


def test_an_array_sent_to_another_process_keeps_its_boundary(tmp_path: Path) -> None:
    copy = Path(shutil.copytree(GOLDEN / "n5" / "multiscale_bdv.n5", tmp_path / "mine.n5"))
    block = copy / "setup0" / "timepoint0" / "s0" / "0" / "0" / "0"
    block.rename(tmp_path / "0")
    make_link(block, tmp_path / "0")
    for follows in (False, True):
        with acqstream.open(copy, follow_links=follows) as dataset:
            source = dataset.levels[0].source
            assert isinstance(source, ChunkLevel)
            array = pickle.loads(pickle.dumps(source.reader))  # noqa: S301 - our own
        if follows:
            assert array.read_chunk((0, 0, 0, 0, 0)) is not None
            continue
        with pytest.raises(UnsupportedFeature, match="is a link to"):
            array.read_chunk((0, 0, 0, 0, 0))


XML = """<SpimData version="0.2"><BasePath type="relative">{base}</BasePath><SequenceDescription>
<ImageLoader format="bdv.n5" version="1.0"><n5>{name}</n5></ImageLoader></SequenceDescription></SpimData>"""


@pytest.mark.parametrize(
    ("base", "name"), [("..", "away/a.n5"), (".", "../away/a.n5"), ("{top}", "away/a.n5"), (".", "{top}/away/a.n5")]
)
def test_an_xml_file_that_names_a_container_elsewhere_is_refused(tmp_path: Path, base: str, name: str) -> None:
    shutil.copytree(GOLDEN / "n5" / "multiscale_bdv.n5", tmp_path / "away" / "a.n5")
    (tmp_path / "mine").mkdir()
    path = tmp_path / "mine" / "a.xml"
    path.write_text(XML.format(base=base.format(top=tmp_path), name=name.format(top=tmp_path)))
    with pytest.raises(UnsupportedFeature, match=r"a\.xml: names the container .* follow_links=True only"):
        acqstream.open(path)
    assert read_all(path, follow_links=True)
    path.write_text(XML.format(base="./x/..", name="a.n5"))
    shutil.copytree(tmp_path / "away" / "a.n5", tmp_path / "mine" / "a.n5")
    (tmp_path / "mine" / "x").mkdir()
    assert read_all(path)


@pytest.mark.parametrize("where", ["/etc", "../../x", "a/../../x", "~/x"])
def test_a_magnification_elsewhere_is_refused(tmp_path: Path, where: str) -> None:
    copy = Path(shutil.copytree(GOLDEN / "wkw" / "wk_dataset", tmp_path / "mine"))
    properties = copy / "datasource-properties.json"
    text = properties.read_text()
    assert "./color/1" in text
    properties.write_text(text.replace("./color/1", where, 1))
    with pytest.raises(DatasetError):
        read_all(copy / "color")
