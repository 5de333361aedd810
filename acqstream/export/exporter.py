"""Exports a dataset: opens it, chooses its part, and has one file of the asked format written."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from acqstream.arrays.level_layout import LevelLayout, LevelSource, X, Y
from acqstream.dataset.dataset import Dataset, open_dataset
from acqstream.dataset.level_array import LevelArray, import_optional
from acqstream.errors import ConfigError, DatasetError, DatasetExists, UnsupportedFeature
from acqstream.export.frame_references import frame_references
from acqstream.export.hdf5 import IMAGE, Hdf5Writer, open_hdf5, write_metadata, write_scales, write_summary
from acqstream.export.metadata_table import MetadataTable, table_suffix
from acqstream.export.ome_images import ImageGrid, ome_images, ome_pixels, physical_steps
from acqstream.export.ome_tiff import TileEncoder, write_ome_tiff
from acqstream.export.plain_tiff import is_hyperstack, write_plain_tiff
from acqstream.export.plane_levels import PlaneLevels, level_count
from acqstream.export.request import SUFFIXES, ExportReport, ExportRequest, Kind, chosen
from acqstream.formats.chunk_format import ChunkFormat
from acqstream.formats.ndtiff.folders import container_of
from acqstream.formats.registry import chunk_format, chunk_format_names, find_format
from acqstream.storage.files.disk import Disk, LocalDisk
from acqstream.storage.files.new_file import NewFile, new_file
from acqstream.storage.files.url_path import is_remote
from acqstream.storage.stores.data_path import place_of

ABSOLUTE_TEXT = "references are absolute paths of the stacks: if they move, export again (or use --copy)"
GROWING_TEXT = "the dataset is not complete: frames published after the start of the export are not in it"
_COPY_BYTES = 256 * 2**20  # of pixels that are read at once


@dataclass(slots=True)
class Exporter:
    """Exports the dataset at `path` to the file `out` (default: `default_out`). For one use."""

    path: Path
    request: ExportRequest
    out: Path | None = None
    on_progress: Callable[[int, int], None] = lambda done, total: None
    disk: Disk = field(default_factory=LocalDisk)
    _extra: dict[str, object] = field(default_factory=dict)
    _notes: list[str] = field(default_factory=list)

    def run(self) -> ExportReport:
        """Export the frames published now, and report.

        Raises ConfigError for a choice that does not fit or a library that is missing, DatasetExists if the file
        exists, UnsupportedFeature for what the format cannot have, DatasetError, StorageError. The file exists under
        its name only when it is complete.
        """
        is_stitched = not self.request.is_separate and self.request.kind != "table"
        with open_dataset(self.path, stitched=is_stitched) as dataset:
            folder = dataset_folder(self.path)
            out = default_out(folder, self.request.kind) if self.out is None else self.out
            _check_out(folder, out, is_replaced=self.request.is_replaced)
            level = dataset.levels[0]
            source = level.source
            array = LevelArray(source, chosen(source.layout(), self.request.choices, source.fitted))
            missing = level.missing_count if not self.request.choices else len(_missing(dataset, array))
            if not dataset.complete:
                self._notes.append(GROWING_TEXT)
            if self.request.kind == "hdf5":
                self._write_hdf5(dataset, array, out)
            elif self.request.kind == "ome-tiff":
                self._write_ome_tiff(dataset, array, out)
            elif self.request.kind == "table":
                self._write_table(array, source, out)
            else:
                self._write_tiff(dataset, array, out)
            return ExportReport(
                path=os.path.abspath(out),
                source=str(dataset.path),
                kind=self.request.kind,
                axes=array.axes,
                shape=array.shape,
                dtype=str(array.dtype),
                size_bytes=out.stat().st_size,
                missing=missing,
                notes=tuple(self._notes),
                **self._extra,  # type: ignore[arg-type]
            )

    def _write_hdf5(self, dataset: Dataset, array: LevelArray, out: Path) -> None:
        h5py = import_optional("h5py", "hdf5")
        level = dataset.levels[0]
        source = level.source
        references = None if self.request.is_copy else frame_references(source, array.layout)
        has_all_pixels = self.request.is_copy and self.request.compression == "none" and not level.missing_count
        with self._new_file(out, array, 1 if has_all_pixels else 0) as target, open_hdf5(h5py, target) as file:
            names = write_scales(h5py, file, source, array)
            writer = Hdf5Writer(h5py, file, array, names)
            if references is None:
                writer.write_copy(self.request.compression, _COPY_BYTES, self.on_progress)
            else:
                self._extra["references"] = writer.write_references(references, self.on_progress)
                self._notes.append(ABSOLUTE_TEXT)
            if source.bits:
                file[IMAGE].attrs["valid_range"] = [0, 2**source.bits - 1]
            write_metadata(file, array, names, source.metadata(array.layout))
            facts = {"source": str(dataset.path), "format": dataset.format, "complete": int(dataset.complete)}
            write_summary(h5py, file, dataset.summary_metadata, facts)

    def _write_ome_tiff(self, dataset: Dataset, array: LevelArray, out: Path) -> None:
        _check_pictures(dataset, array)
        grid = ImageGrid(array.layout.outer)
        pixels = ome_pixels(dataset, array, grid)
        images = ome_images(dataset, array, grid)
        plane = array.shape[len(array.outer) :]
        levels = PlaneLevels(array, level_count(plane))
        levels.stored.update(_stored_levels(dataset, array, levels))
        tiles = TileEncoder(self.request.compression, self.request.tile)  # type: ignore[arg-type] # checked by the request
        has_holes = any(len(set(image.pages)) < len(image.pages) for image in images)
        with self._new_file(out, array, 1 if self.request.compression == "none" and not has_holes else 0) as target:
            write_ome_tiff(target, grid, levels, images, pixels, tiles=tiles, on_progress=self.on_progress)
        self._extra |= {"images": len(images), "levels": tuple(levels.shapes)}

    def _write_tiff(self, dataset: Dataset, array: LevelArray, out: Path) -> None:
        _check_pictures(dataset, array)
        grid = ImageGrid(array.layout.outer)
        with self._new_file(out, array, 1) as target:
            write_plain_tiff(target, array, grid, physical_steps(dataset, grid), self.on_progress)
        if not is_hyperstack(array, grid):
            self._notes.append("not an ImageJ hyperstack: the pages name their frames in their descriptions")

    def _write_table(self, array: LevelArray, source: LevelSource, out: Path) -> None:
        suffix = table_suffix(out)
        table = MetadataTable(source, array.layout, self.on_progress)
        with self._new_file(out, array, 0) as target:
            table.write(target, suffix)
        self._notes.append(f"{table.row_count:,} rows of {len(table.columns):,} columns")
        if table.has_more:
            self._notes.append("the metadata of frames have more numbers than fit: later ones have no column")

    def _new_file(self, out: Path, array: LevelArray, copies: int) -> AbstractContextManager[NewFile]:
        """The file to write, which will have the pixels of `array` at least `copies` times."""
        min_bytes = copies * array.size * array.dtype.itemsize
        return new_file(self.disk, out, min_bytes=min_bytes, is_replaced=self.request.is_replaced)


def dataset_folder(path: Path) -> Path:
    """The outermost folder of the dataset at `path`, which may be that of a level or an array in it."""
    if is_remote(path):
        return path
    found = find_format(path)
    folder = found.folder(place_of(path)).path if isinstance(found, ChunkFormat) else container_of(path)
    return Path(os.path.abspath(folder))


def default_out(folder: Path, kind: Kind) -> Path:
    """The file beside the dataset: cells or cells.n5 becomes cells.h5. Raises ConfigError for a dataset on the web."""
    if is_remote(folder):
        raise ConfigError(f"{folder} lies on a web server: name a file to write")
    suffixes = [chunk_format(name).suffix for name in chunk_format_names()]
    stem = next((folder.name.removesuffix(end) for end in suffixes if folder.name.endswith(end)), folder.name)
    return folder.with_name(f"{stem}{SUFFIXES[kind]}")


def _check_out(source: Path, out: Path, *, is_replaced: bool) -> None:
    """Raise DatasetError for a file in the dataset's own folder, DatasetExists if the file exists."""
    if not is_remote(source):
        folder, place = Path(os.path.realpath(source)), Path(os.path.realpath(out))
        if folder in (place, *place.parents):
            raise DatasetError(f"{out} lies in the folder of the dataset: name a file elsewhere")
    if os.path.lexists(out) and not is_replaced:
        raise DatasetExists(f"{out} already exists: name another file, or use --overwrite")


def _check_pictures(dataset: Dataset, array: LevelArray) -> None:
    if not array.layout.pixels:
        text = f"{dataset.path}: TIFF needs pictures, with the axes y and x last; the array has {list(array.axes)}"
        raise UnsupportedFeature(text)


def _missing(dataset: Dataset, array: LevelArray) -> list[object]:
    ranges = [range(size) for size in array.shape]
    return [*dataset.levels[0].source.missing(array.layout, ranges, None)]


def _stored_levels(dataset: Dataset, array: LevelArray, levels: PlaneLevels) -> dict[int, LevelArray]:
    """The dataset's own lower levels that fit: halved in y and x alone, and complete.

    A part of the picture is computed: its halves may lie between pixels of a stored level.
    """
    full = dataset.levels[0]
    is_part = array.shape[len(array.outer) :] != full.shape[len(array.outer) :]
    if is_part or dataset.writing:
        return {}
    found: dict[int, LevelArray] = {}
    for number, level in enumerate(dataset.levels[1 : levels.count], 1):
        factors = dict(zip(level.axes, level.factors, strict=True))
        if any(factor != (2**number if axis in (Y, X) else 1) for axis, factor in factors.items()):
            break
        if level.axes != full.axes or level.missing_count != full.missing_count:
            break
        lower: LevelLayout = array.layout.in_level(level.source.layout(), factors)
        found[number] = LevelArray(level.source, lower)
    return found
