"""Writes a table of frames as CSV or Parquet: a row for each frame, with its axes and what its metadata say."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from acqstream.arrays.level_layout import LevelLayout, LevelSource
from acqstream.dataset.level_array import import_optional
from acqstream.description.stage import stage_reading
from acqstream.errors import ConfigError, UnsupportedFeature
from acqstream.frames.frame_region import FrameLevel
from acqstream.model.axes import AxisValue
from acqstream.model.metadata import AXES_KEY, finite_number
from acqstream.storage.files.new_file import NewFile

_PARQUET, _CSV = ".parquet", ".csv"
_MAX_NUMBERS = 1000  # columns of numbers in the metadata
_MAX_CELLS = 2**17  # in memory at once
_INT64 = range(-(2**63), 2**63)
_KINDS: Mapping[str, Callable[[Any], object]] = {"int64": int, "double": float, "string": str}
_CAMERA, _CAMERA_KEYS = "camera", ("Camera", "camera_device", "Core-Camera")


def table_suffix(out: Path) -> str:
    """The format that a name asks for. Raises ConfigError for any other name, and for Parquet without pyarrow."""
    suffix = out.suffix.lower()
    if suffix not in (_CSV, _PARQUET):
        raise ConfigError(f"{out}: the name of a table must end with {_CSV} or {_PARQUET}")
    if suffix == _PARQUET:
        import_optional("pyarrow.parquet", "table")
    return suffix


class MetadataTable:
    """The frames of a layout, read twice: for the columns, and for the rows. Memory does not grow with their number.

    columns: names and types, "int64", "double" or "string". has_more: there are more numbers than columns. Raises
    UnsupportedFeature for arrays of chunks.
    """

    def __init__(self, source: LevelSource, layout: LevelLayout, on_progress: Callable[[int, int], None]) -> None:
        if not isinstance(source, FrameLevel):
            raise UnsupportedFeature(f"{source.path}: only frames of NDTiff have metadata for a table, not chunks")
        self._level, self._layout, self._on_progress = source, layout, on_progress
        self._begin_s: float | None = None  # where the times of frames are those of capture
        self.row_count, self.has_more = 0, False
        self.columns = dict.fromkeys(layout.values, "string")
        for axis in layout.outer:
            if all(type(value) is int and value in _INT64 for value in axis.values):
                self.columns[axis.name] = "int64"
        for name in self._said({}):
            self.columns.setdefault(name, "string" if name == _CAMERA else "double")
        self._names = self._find_numbers()  # of columns, by key of the metadata

    def write(self, file: NewFile, suffix: str) -> None:
        """Write all rows."""
        if suffix == _PARQUET:
            self._write_parquet(file)
            return
        file.write(self._csv([self.columns.keys()]))
        for batch in self._batches():
            file.write(self._csv([row.get(name) for name in self.columns] for row in batch))

    def _csv(self, rows: Iterable[Iterable[object]]) -> bytes:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        return text.getvalue().encode()

    def _write_parquet(self, file: NewFile) -> None:
        arrow, parquet = import_optional("pyarrow", "table"), import_optional("pyarrow.parquet", "table")
        schema = arrow.schema([(name, arrow.type_for_alias(kind)) for name, kind in self.columns.items()])
        with parquet.ParquetWriter(file, schema) as writer:
            for batch in self._batches():
                writer.write_table(arrow.Table.from_pylist(batch, schema))

    def _find_numbers(self) -> dict[str, str]:
        """Add a column for each number in the metadata."""
        names: dict[str, str] = {}
        with_time, captures = 0, [0, math.inf]
        for _, metadata in self._frames():
            self.row_count += 1
            seen = stage_reading(metadata)
            with_time += seen.time_s is not None
            if seen.capture_s is not None:
                captures = [captures[0] + 1, min(captures[1], seen.capture_s)]
            for key, value in _numbers(metadata):
                if key not in names:
                    if len(names) == _MAX_NUMBERS:
                        self.has_more = True
                        continue
                    name = key
                    while name in self.columns:
                        name += "_"
                    names[key], self.columns[name] = name, "int64"
                if not isinstance(value, int) or value not in _INT64:
                    self.columns[names[key]] = "double"
        if with_time < captures[0] == self.row_count:
            self._begin_s = captures[1]
        return names

    def _batches(self) -> Iterator[list[dict[str, object]]]:
        """Batches of rows that fit into memory; a row has its values by name of the column."""
        batch: list[dict[str, object]] = []
        for key, metadata in self._frames():
            numbers = {self._names[name]: value for name, value in _numbers(metadata) if name in self._names}
            row = {**self._said(metadata), **numbers, **{name: key.get(name) for name in self._layout.values}}
            as_kind = ((name, value, _KINDS[self.columns[name]]) for name, value in row.items() if value is not None)
            batch.append({name: kind(value) for name, value, kind in as_kind})
            if len(batch) * len(self.columns) >= _MAX_CELLS:
                yield batch
                batch = []
        yield batch

    def _said(self, metadata: Mapping[str, Any]) -> dict[str, object]:
        """What a frame says in the same words for every producer."""
        seen = stage_reading(metadata)
        time_s = seen.time_s
        if self._begin_s is not None:
            time_s = None if seen.capture_s is None else round(seen.capture_s - self._begin_s, 9)
        stage = {"stage_x_um": seen.x_um, "stage_y_um": seen.y_um, "stage_z_um": seen.z_um}
        camera = next((metadata[name] for name in _CAMERA_KEYS if metadata.get(name)), None)
        return {"time_s": time_s, "exposure_ms": seen.exposure_ms, **stage, _CAMERA: camera}

    def _frames(self) -> Iterator[tuple[Mapping[str, AxisValue], Mapping[str, Any]]]:
        """Axes and metadata of the frames, in order of arrival."""
        reader, first = self._level.reader, self.row_count
        frames = self._level.stored_frames(self._layout)
        for number, (_, row, key) in enumerate(frames, first + 1):
            yield key, reader.read_metadata(row)
            self._on_progress(number, 2 * (first or len(reader)))


def _numbers(metadata: Mapping[str, Any], start: str = "") -> Iterator[tuple[str, Any]]:
    """Numbers by key; those of a group inside have the keys of both with a point between."""
    for key, value in metadata.items():
        if isinstance(value, Mapping) and (start or key != AXES_KEY):
            yield from _numbers(value, f"{start}{key}.")
        elif finite_number(value) is not None:
            yield f"{start}{key}", value
