"""Wells in the names of positions, and the plate that has them. Pure.

Source: OME-NGFF 0.4 and 0.5, "plate" and "well".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from acqstream.arrays.array_spec import ArraySpec
from acqstream.description.image_positions import position_names
from acqstream.model.axes import POSITION

MAX_ROWS, MAX_COLUMNS = 32, 48  # of a plate with 1536 wells
_NAMED_ROWS, _NAMED_COLUMNS = 16, 24  # where names alone tell: 384 wells
_AMBIGUOUS = "P"  # "P1" is a position rather than a well
_NAME = re.compile(r"([A-Z]{1,2})0{0,2}([1-9]\d?)(?:[-_ .:].*)?", re.DOTALL)
_PATH = re.compile(r"([A-Z]{1,2})/([1-9]\d?)")


def find_wells(names: Sequence[str], summary: Mapping[str, Any]) -> tuple[str, ...]:
    """The paths of the wells, such as "A/1", that positions with these names lie in; () unless each one names a well.

    A name is that of a well, alone or with more behind one of `-_ .:`; A1, A01_0003, B12-Site_2. Without a plate in
    the summary, rows reach to P and columns to 24, and names of row P alone mean positions.
    """
    found = [_NAME.fullmatch(name) for name in names]
    wells = [(match[1], int(match[2])) for match in found if match is not None]
    if not wells or len(wells) < len(names):
        return ()
    size = _plate_size(summary)
    rows, columns = size or (_NAMED_ROWS, _NAMED_COLUMNS)
    if any(row_number(row) >= rows or column > columns for row, column in wells):
        return ()
    if size is None and {row for row, _ in wells} == {_AMBIGUOUS}:
        return ()
    return tuple(f"{row}/{column}" for row, column in wells)


def planned_wells(planned: ArraySpec) -> tuple[str, ...]:
    """The wells of the positions of an array; () if a position has no name yet, or a name means no well.

    A declared size alone makes no name known: names may come one by one, and the next one may mean no well.
    """
    names = [*planned.labels.get(POSITION, ())]
    are_known = 0 < planned.shape[planned.axes.index(POSITION)] <= len(names)
    if not are_known and names != position_names(planned.attributes):
        return ()
    return find_wells(names, planned.attributes)


def is_well(path: str) -> bool:
    """Return True for the path of a well as `find_wells` makes it."""
    match = _PATH.fullmatch(path)
    return match is not None and row_number(match[1]) < MAX_ROWS and int(match[2]) <= MAX_COLUMNS


def row_number(row: str) -> int:
    """The number of a row from 0: A to Z, then AA to AZ and so on."""
    number = 0
    for letter in row:
        number = number * 26 + ord(letter) - ord("A") + 1
    return number - 1


def row_name(number: int) -> str:
    """The inverse of `row_number`."""
    return (chr(ord("A") + number // 26 - 1) if number >= 26 else "") + chr(ord("A") + number % 26)


def plate_metadata(
    fields: Counter[str], listed: Collection[str], summary: Mapping[str, Any], version: str
) -> dict[str, Any]:
    """The document `plate` in a version of OME-NGFF.

    fields counts the fields of each well. listed are the wells that readers find.
    Rows and columns are those of the plate in the summary, else from the first to the last one that has a well, so
    that a picture of the plate keeps its gaps.
    """
    places = [_place(well) for well in fields]
    size = _plate_size(summary) or (0, 0)
    rows = range(max([size[0] - 1, *(row for row, _ in places)]) + 1)
    columns = range(1, max([size[1], *(column for _, column in places)]) + 1)
    wells = []
    for well in sorted(listed, key=_place):
        row, column = _place(well)
        wells.append({"path": well, "rowIndex": rows.index(row), "columnIndex": columns.index(column)})
    count = max((fields[well] for well in listed), default=0)
    name = _plate(summary).get("name")
    acquisition = {"id": 0, **({"maximumfieldcount": count} if count else {})}
    return {
        "version": version,
        **({"name": name} if isinstance(name, str) and name else {}),
        "rows": [{"name": row_name(row)} for row in rows],
        "columns": [{"name": str(column)} for column in columns],
        "wells": wells,
        **({"field_count": count} if count else {}),
        "acquisitions": [acquisition],
    }


def well_metadata(fields: int, version: str) -> dict[str, Any]:
    """The document `well` of a well with this number of fields, in a version of OME-NGFF."""
    return {"version": version, "images": [{"path": str(number), "acquisition": 0} for number in range(fields)]}


def _place(well: str) -> tuple[int, int]:
    row, column = well.split("/")
    return row_number(row), int(column)


def _plate(summary: Mapping[str, Any]) -> Mapping[str, Any]:
    """The plate of a serialized plan of useq; {} without one."""
    found: Any = summary
    for key in ("mda_sequence", "stage_positions", "plate"):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _plate_size(summary: Mapping[str, Any]) -> tuple[int, int] | None:
    rows, columns = (_plate(summary).get(key) for key in ("rows", "columns"))
    if type(rows) is int and type(columns) is int and 0 < rows <= MAX_ROWS and 0 < columns <= MAX_COLUMNS:
        return rows, columns
    return None
