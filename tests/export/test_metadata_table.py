"""Tables of frames: one row for each, in CSV and Parquet, read by csv and pyarrow."""

from __future__ import annotations

import csv
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from acqstream.errors import ConfigError, DatasetExists, UnsupportedFeature
from acqstream.export import metadata_table
from tests.command import command
from tests.export.sample_exports import export, write_cells
from tests.formats.ndtiff.ndtiff_bytes import Folder, image
from tests.log.make_frames import frame_of, write_log

PLACES = [{"time": time, "z": z} for time in range(2) for z in (0, 1) if (time, z) != (1, 0)]


def said(place: dict[str, int]) -> dict[str, Any]:
    time, z = place["time"], place["z"]
    known = {"ElapsedTime-ms": 1500 * time + z, "ZPositionUm": 7 + z / 2, "Exposure-ms": 12.5, "Camera": "left"}
    return {**known, "Laser": {"power": 3 + time / 2}, "big": 2**70, "On": True, **({"time": 9} if z else {})}


def write(path: Path, places: list[dict[str, Any]], metadata: list[dict[str, Any]]) -> Path:
    write_log(path, [frame_of(n, (4, 4), axes=at, metadata=metadata[n]) for n, at in enumerate(places)])
    return path


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Cells that are not empty."""
    if path.suffix == ".parquet":
        rows: list[dict[str, Any]] = pytest.importorskip("pyarrow.parquet").read_table(path).to_pylist()
        return [{key: value for key, value in row.items() if value is not None} for row in rows]
    with path.open(encoding="utf-8", newline="") as file:
        texts = [*csv.DictReader(file)]
    names = ("camera", "channel")
    return [{key: text if key in names else float(text) for key, text in row.items() if text} for row in texts]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_row_for_each_frame(tmp_path: Path, suffix: str) -> None:
    write(tmp_path / "cells", PLACES, [*map(said, PLACES)])
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    report = export(tmp_path / "cells", "table", tmp_path / f"a{suffix}")
    rows = rows_of(Path(report.path))
    assert report.missing == 1
    assert report.notes == (f"3 rows of {len(rows[1]) + 2} columns",)
    for row, place in zip(rows, PLACES, strict=True):
        time, z = place["time"], place["z"]
        assert {key: row[key] for key in place} == place
        assert row["time_s"] == (1500 * time + z) / 1000
        assert (row["exposure_ms"], row["stage_z_um"], row["camera"]) == (12.5, 7 + z / 2, "left")
        assert (row["ElapsedTime-ms"], row["Laser.power"], row["big"]) == (1500 * time + z, 3 + time / 2, 2.0**70)
        assert row.get("time_") == (9 if z else None)
        assert not {"On", "stage_x_um"} & {*row}


def test_a_choice_of_frames_and_the_default_name(tmp_path: Path) -> None:
    write_cells(tmp_path / "cells")
    report = export(tmp_path / "cells", "table", None, "channel=GFP", "time=1:")
    assert Path(report.path) == tmp_path / "cells.csv"
    rows = rows_of(tmp_path / "cells.csv")
    assert [(row["time"], row["channel"], row["z"]) for row in rows] == [
        *((1, "GFP", z) for z in (0, 1, 3)),
        *((2, "GFP", z) for z in range(4)),
    ]
    assert "time_s" not in rows[0]  # no frame says when it was taken
    with pytest.raises(DatasetExists):
        export(tmp_path / "cells", "table")


def test_times_of_two_clocks_are_not_mixed(tmp_path: Path) -> None:
    both = {"ElapsedTime-ms": 70.0, "time_ns": 3_000_000_000}
    folder = Folder(tmp_path / "cells")
    for time, metadata in enumerate((both, {"time_ns": 4_500_000_000})):
        folder.add({"time": time}, image(time, (4, 4)), metadata=metadata)
    export(tmp_path / "cells", "table")
    assert [row["time_s"] for row in rows_of(tmp_path / "cells.csv")] == [0.0, 1.5]


def test_tiles_have_a_row_each(tmp_path: Path) -> None:
    places = [{"row": row, "column": column} for row in range(2) for column in range(2)]
    write(tmp_path / "cells", places, [{}] * 4)
    export(tmp_path / "cells", "table")
    assert [(row["row"], row["column"]) for row in rows_of(tmp_path / "cells.csv")] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_parquet_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cells(tmp_path / "cells")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "pyarrow.parquet", raising=False)
    with pytest.raises(ConfigError, match=r"pyarrow.*\[table\]"):
        export(tmp_path / "cells", "table", tmp_path / "a.parquet")
    assert not [*tmp_path.glob("*.parquet")]


def test_refused(tmp_path: Path) -> None:
    write_cells(tmp_path / "cells")
    with pytest.raises(ConfigError, match=r"must end with \.csv or \.parquet"):
        export(tmp_path / "cells", "table", tmp_path / "a.xlsx")
    with pytest.raises(ConfigError, match="no pixels"):
        export(tmp_path / "cells", "table", is_copy=True)
    command("mirror", tmp_path / "cells", "--to", "n5")
    with pytest.raises(UnsupportedFeature, match="only frames of NDTiff"):
        export(tmp_path / "cells.n5", "table", tmp_path / "a.csv")
    assert not [*tmp_path.glob("*.csv"), *tmp_path.glob("*.parquet")]


def test_memory_does_not_grow_with_the_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_table, "_MAX_CELLS", 1000)
    monkeypatch.setattr(metadata_table, "_MAX_NUMBERS", 20)
    peaks = []
    for count in (200, 2000):
        numbers = {f"number {n:02}": n / 3 for n in range(25)}
        path = write(tmp_path / f"cells{count}", [{"time": at} for at in range(count)], [numbers] * count)
        tracemalloc.start()
        report = export(path, "table")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert "later ones have no column" in report.notes[1]
        assert len(rows_of(Path(report.path))) == count
    assert peaks[1] < 2000 * 1000  # all rows at once take 1,800 bytes each; the first run loads modules
