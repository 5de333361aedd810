"""Which names of positions mean wells, and where the images of a plate lie."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.arrays.array_spec import ArraySpec
from acqstream.errors import ConfigError
from acqstream.formats.ome_zarr.image_folders import ImageFolders
from acqstream.formats.ome_zarr.layout import OmeZarrLayout, create_layout
from acqstream.formats.ome_zarr.metadata import find_wells, is_well, row_name, row_number
from acqstream.formats.ome_zarr.plan import parse_options, plan

BIG = {"mda_sequence": {"stage_positions": {"plate": {"rows": 32, "columns": 48, "name": "1536-well"}}}}


@pytest.mark.parametrize(
    ("names", "summary", "wells"),
    [
        (["A1", "B12"], {}, ["A/1", "B/12"]),
        (["A1_0000", "A1_0001", "A2_0000"], {}, ["A/1", "A/1", "A/2"]),  # useq
        (["A1-Site_0", "H12-Site_3"], {}, ["A/1", "H/12"]),  # Micro-Manager
        (["A01", "A02"], {}, ["A/1", "A/2"]),
        (["P1", "P2"], {}, []),  # positions
        (["O1", "P2"], {}, ["O/1", "P/2"]),
        (["P1", "P2"], BIG, ["P/1", "P/2"]),
        (["AF48"], {}, []),
        (["AF48"], BIG, ["AF/48"]),
        (["AG1"], BIG, []),
        (["A1", "background"], {}, []),
        (["A0"], {}, []),
        (["a1"], {}, []),
        (["A1x"], {}, []),
        (["A25"], {}, []),
        (["Pos0", "Pos1"], {}, []),
        ([""], {}, []),
        ([], {}, []),
    ],
)
def test_names_of_wells(names: list[str], summary: dict[str, Any], wells: list[str]) -> None:
    assert find_wells(names, summary) == tuple(wells)
    assert all(map(is_well, wells))


@pytest.mark.parametrize("path", ["A", "A/0", "A/01", "../1", "A/49", "AG/1", "a/1", "A/1/0", ""])
def test_other_paths_are_no_wells(path: str) -> None:
    assert not is_well(path)


def test_names_of_rows_have_an_inverse() -> None:
    assert [row_name(number) for number in (0, 25, 26, 31)] == ["A", "Z", "AA", "AF"]
    assert [row_number(row_name(number)) for number in range(60)] == list(range(60))


@given(
    wells=st.lists(st.sampled_from(["A/1", "A/2", "B/1"]), min_size=1, max_size=8),
    others=st.lists(st.integers(1, 3), max_size=2),
    data=st.data(),
)
def test_folders_of_images_have_an_inverse(wells: list[str], others: list[int], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(others)))
    axes = [f"axis{number}" for number in range(len(others))]
    axes.insert(at, "position")
    folders = ImageFolders(tuple(axes), (*others[:at], 0, *others[at:]), tuple(wells))
    sizes = (*others[:at], len(wells) + 2, *others[at:])
    members = list(np.ndindex(*sizes))
    found = [folders.parts(member) for member in members]
    assert len(set(found)) == len(found)
    assert [folders.member(parts) for parts in found] == members
    inside = [parts for parts in found if len(parts) == 3]
    assert len(inside) == sum(folders.fields().values()) == len(wells) * int(np.prod(others))
    for well, count in folders.fields().items():  # without gaps
        numbers = sorted(int(parts[2]) for parts in inside if "/".join(parts[:2]) == well)
        assert numbers == list(range(count))


@pytest.mark.parametrize("parts", [(), ("A", "1"), ("A", "1", "2"), ("A", "9", "0"), ("x",), ("A", "1", "-1"), ("01",)])
def test_other_folders_are_no_images(parts: tuple[str, ...]) -> None:
    assert ImageFolders(("position",), (0,), ("A/1", "A/1")).member(parts) is None


def test_other_axes_than_positions_keep_their_sizes() -> None:
    folders = ImageFolders(("angle", "position"), (2, 0), ("A/1",))
    folders.check((2, 100))
    with pytest.raises(ConfigError, match="angle cannot get longer than 2"):
        folders.check((3, 1))


def plate_of(names: Sequence[str], *, size: int, attributes: dict[str, Any] | None = None, **options: Any) -> Any:
    spec = ArraySpec(
        axes=("position", "time", "y", "x"),
        shape=(size, 3, 8, 8),
        dtype=np.dtype("uint16"),
        labels={"position": names},
        attributes=attributes or {},
    )
    parsed = parse_options(options)
    return create_layout(plan(spec, parsed), parsed)


def root_of(layout: OmeZarrLayout, *, complete: bool) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(layout.documents(complete=complete)["zarr.json"])["attributes"]["ome"]
    return found


def test_a_growing_plate_lists_a_well_when_all_its_fields_exist() -> None:
    layout = plate_of(["A1-Site_0", "A1-Site_1", "C2-Site_0"], size=3)
    assert root_of(layout, complete=False)["plate"]["wells"] == []
    assert root_of(layout.with_members([(0,)]), complete=False)["plate"]["wells"] == []
    both = root_of(layout.with_members([(0,), (1,)]), complete=False)["plate"]
    assert both["wells"] == [{"path": "A/1", "rowIndex": 0, "columnIndex": 0}]
    assert [row["name"] for row in both["rows"]] == ["A", "B", "C"]  # a picture of the plate keeps its gaps
    complete = root_of(layout, complete=True)["plate"]
    assert [well["path"] for well in complete["wells"]] == ["A/1", "C/2"]
    assert complete["wells"][1] == {"path": "C/2", "rowIndex": 2, "columnIndex": 1}
    assert complete["field_count"] == 2


def test_a_run_that_ended_early_lists_the_fields_that_came() -> None:
    names = ["A1_0", "A1_1", "A2_0"]
    layout = plate_of(names, size=0, attributes={"PositionNames": names})
    short = layout.with_levels([spec_with(layout, 1)])
    documents = short.documents(complete=True)
    well = json.loads(documents["A/1/zarr.json"])["attributes"]["ome"]["well"]
    assert well["images"] == [{"path": "0", "acquisition": 0}]
    assert [one["path"] for one in root_of(short, complete=True)["plate"]["wells"]] == ["A/1"]
    assert list(documents)[-1] == "zarr.json"  # what it lists exists


def spec_with(layout: OmeZarrLayout, positions: int) -> ArraySpec:
    return layout.plan.with_shapes([(positions, 3, 8, 8)]).full


def test_rows_and_columns_of_the_planned_plate_are_all_listed() -> None:
    layout = plate_of(["B2"], size=1, attributes=BIG)
    plate = root_of(layout, complete=True)["plate"]
    assert (len(plate["rows"]), len(plate["columns"]), plate["name"]) == (32, 48, "1536-well")
    assert plate["wells"] == [{"path": "B/2", "rowIndex": 1, "columnIndex": 1}]


@pytest.mark.parametrize(
    ("names", "size", "options"),
    [
        (["A1", "A2"], 2, {"plate": False}),
        (["A1", "A2"], 0, {}),  # names that came so far: others may come
        (["left", "right"], 2, {}),
    ],
)
def test_when_positions_are_a_collection(names: list[str], size: int, options: dict[str, Any]) -> None:
    layout = plate_of(names, size=size, **options)
    assert layout.folders.wells == ()
    assert "bioformats2raw.layout" in root_of(layout, complete=False)


def test_a_position_behind_the_plan_lies_outside_the_plate() -> None:
    layout = plate_of(["A1", "A2"], size=2)
    layout.check_growth((4, 3, 8, 8))
    assert layout.key(0, (3, 0, 0, 0)) == "3/0/c/0/0/0"
    assert layout.parse_key("3/0/c/0/0/0") == (0, (3, 0, 0, 0))
    assert layout.key(0, (1, 0, 0, 0)) == "A/2/0/0/c/0/0/0"
    assert layout.parse_key("A/2/0/0/c/0/0/0") == (0, (1, 0, 0, 0))
    assert layout.parse_key("A/2/1/0/c/0/0/0") is None


def test_the_documents_of_a_field_begin_with_its_row_and_well() -> None:
    keys = list(plate_of(["A1_0", "A1_1"], size=2).member_documents((1,)))
    assert keys == ["A/zarr.json", "A/1/zarr.json", "A/1/1/0/zarr.json", "A/1/1/zarr.json"]
