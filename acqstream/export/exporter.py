"""Exports a dataset: opens it, chooses a part by values of axes (`time=0:10`, `channel=DAPI`), has one file written."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

from acqstream.arrays.level_layout import LevelAxis, LevelLayout, LevelSource, X, Y
from acqstream.dataset.dataset import Dataset, open_dataset
from acqstream.dataset.level_array import LevelArray, import_optional
from acqstream.errors import ConfigError, DatasetError, DatasetExists, StorageError, UnsupportedFeature
from acqstream.export.frame_references import frame_references
from acqstream.export.hdf5 import (
    IMAGE,
    MAX_NOTES,
    Hdf5Writer,
    write_metadata,
    write_notes,
    write_scales,
    write_summary,
)
from acqstream.export.metadata_table import MetadataTable, table_suffix
from acqstream.export.ome_images import ImageGrid, ome_images, ome_pixels, physical_steps
from acqstream.export.plane_levels import PlaneLevels, level_count
from acqstream.export.tiff_files import TILE_UNIT, TileEncoder, is_hyperstack, write_ome_tiff, write_plain_tiff
from acqstream.formats.chunk_format import ChunkFormat
from acqstream.formats.ndtiff.folders import container_of
from acqstream.formats.registry import chunk_format, chunk_format_names, find_format
from acqstream.model.axes import AxisValue
from acqstream.model.run_note import RunNote
from acqstream.storage.files.disk import Disk, LocalDisk
from acqstream.storage.files.new_file import NewFile, new_file
from acqstream.storage.files.url_path import is_remote
from acqstream.storage.stores.data_path import data_path_of


@dataclass(frozen=True, slots=True)
class Choice:
    """Values of one axis: those equal to `text`, or integers start .. stop - 1 where is_range; None: no bound."""

    text: str
    is_range: bool = False
    start: int | None = None
    stop: int | None = None

    def takes(self, value: AxisValue) -> bool:
        """True if the choice takes this value. Texts have no order: a range takes none of them."""
        if not self.is_range:
            return str(value) == self.text
        if not isinstance(value, int):
            return False
        return (self.start is None or value >= self.start) and (self.stop is None or value < self.stop)


def parse_choices(texts: Sequence[str]) -> dict[str, Choice]:
    """Choices by axis, from texts such as "time=0:10 channel=DAPI". Raises ConfigError.

    `AXIS=VALUE` takes one value, `AXIS=START:STOP` integers from START on and before STOP; both may be left out. A name
    with a space in it needs a text of its own.
    """
    choices: dict[str, Choice] = {}
    for text in texts:
        for part in text.split() if text.count("=") > 1 else [text.strip()]:
            axis, sign, value = part.partition("=")
            if not sign or not axis or not value:
                raise ConfigError(f"a choice must be AXIS=VALUE or AXIS=START:STOP, not {part!r}")
            if axis in choices:
                raise ConfigError(f"axis {axis!r} is chosen twice")
            choices[axis] = _choice_of(value)
    return choices


def chosen(
    layout: LevelLayout,
    choices: Mapping[str, Choice],
    fitted: Callable[[LevelLayout], LevelLayout] = lambda layout: layout,
) -> LevelLayout:
    """The part of a layout that the choices take; y and x are chosen by pixel numbers of the full resolution.

    fitted: see `LevelSource`; frames that are chosen may be of another shape than the first one of all.

    Raises ConfigError for an axis that is absent or cannot be chosen, and for a choice that takes nothing.
    """
    names = layout.axes[: len(layout.outer) + 2]
    for name in choices:
        if name not in names:
            raise ConfigError(f"the dataset has no axis {name!r}; expected one of {', '.join(names)}")
    outer = [_chosen_axis(axis, choices[axis.name]) if axis.name in choices else axis for axis in layout.outer]
    layout = replace(layout, outer=tuple(outer))
    layout = fitted(layout) if outer and choices else layout
    sides = [_window(axis, choices[axis.name]) if axis.name in choices else axis for axis in layout.pixels[:2]]
    return replace(layout, pixels=(*sides, *layout.pixels[2:]))


def _choice_of(value: str) -> Choice:
    start, sign, stop = value.partition(":")
    if not sign:
        return Choice(value)
    try:
        return Choice(value, True, int(start) if start else None, int(stop) if stop else None)
    except ValueError:
        return Choice(value)  # a name with a colon


def _chosen_axis(axis: LevelAxis, choice: Choice) -> LevelAxis:
    indices = [at for at, value in enumerate(axis.values) if choice.takes(value)]
    if not indices:
        raise ConfigError(f"axis {axis.name!r} has no value {choice.text!r}; it has {_shown(axis.values)}")
    numbers = None if axis.numbers is None else [axis.numbers[at] for at in indices]
    return LevelAxis(axis.name, [axis.values[at] for at in indices], numbers)


def _window(axis: LevelAxis, choice: Choice) -> LevelAxis:
    """A range of pixels. An axis of pixels stays a range: sources read it as one."""
    first, end = int(axis.values[0]), int(axis.values[0]) + len(axis.values)
    if choice.is_range:
        start = first if choice.start is None else max(first, choice.start)
        stop = end if choice.stop is None else min(end, choice.stop)
    else:
        start = int(choice.text) if choice.text.lstrip("-").isdigit() else end
        stop = start + 1
    if not first <= start < stop <= end:
        raise ConfigError(f"axis {axis.name!r} has no pixels {choice.text!r}; it has {first} to {end - 1}")
    return LevelAxis(axis.name, range(start, stop), range(start, stop))


def _shown(values: Sequence[AxisValue]) -> str:
    texts = [str(value) for value in values]
    return ", ".join(texts if len(texts) <= 6 else [*texts[:5], "...", texts[-1]])


Kind = Literal["hdf5", "ome-tiff", "tiff", "table"]
KINDS: tuple[Kind, ...] = get_args(Kind)
SUFFIXES: Mapping[Kind, str] = {"hdf5": ".h5", "ome-tiff": ".ome.tif", "tiff": ".tif", "table": ".csv"}
COMPRESSIONS: Mapping[Kind, tuple[str, ...]] = {
    "hdf5": ("none", "zlib"),  # other filters are no part of HDF5 itself: most programs lack them
    "ome-tiff": ("none", "zlib", "zstd"),
    "tiff": ("none",),
    "table": ("none",),
}
_DEFAULT_TILE = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """One export. choices are values of axes to take, by axis. Raises ConfigError for options that do not fit.

    is_copy: copy the pixels into an HDF5 file instead of referring to them. tile: longest side of tiles in pixels, of
    OME-TIFF. is_separate: each tile of a tiled dataset is an image; else they make up one picture. is_replaced: replace
    an existing file.
    """

    kind: Kind
    is_copy: bool = False
    choices: Mapping[str, Choice] = field(default_factory=dict)
    compression: str = "none"
    tile: int = _DEFAULT_TILE
    is_separate: bool = False
    is_replaced: bool = False

    def __post_init__(self) -> None:
        possible = COMPRESSIONS[self.kind]
        if self.compression not in possible:
            raise ConfigError(f"{self.kind} has no compression {self.compression!r}; it has {', '.join(possible)}")
        if self.is_copy and self.kind != "hdf5":
            has = "has no" if self.kind == "table" else "always copies"
            raise ConfigError(f"{self.kind} {has} pixels; --copy is for hdf5")
        if self.kind == "hdf5" and self.compression != "none" and not self.is_copy:
            raise ConfigError("referenced pixels stay as they are; compression of hdf5 needs --copy")
        if self.tile != _DEFAULT_TILE and self.kind != "ome-tiff":
            raise ConfigError(f"{self.kind} has no tiles; --tile is for ome-tiff")
        if self.tile < TILE_UNIT or self.tile % TILE_UNIT:
            raise ConfigError(f"the side of tiles must be a multiple of {TILE_UNIT}, not {self.tile}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """What was exported. missing counts frames, tiles or chunks of the source that are not stored: they read as 0.

    levels are the shapes of a plane in each level. references counts the external datasets that point at the stacks,
    0 for a copy. notes are for the user.
    """

    path: str
    source: str
    kind: str
    axes: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    size_bytes: int
    missing: int
    images: int = 1
    levels: tuple[tuple[int, ...], ...] = ()
    references: int = 0
    notes: tuple[str, ...] = ()


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
        new = self._new_file(out, array, 1 if has_all_pixels else 0)
        with new as target, h5py.File(target, "w", track_order=False) as file:
            names = write_scales(h5py, file, source, array)
            writer = Hdf5Writer(h5py, file, array, names)
            if references is None:
                writer.write_copy(self.request.compression, _COPY_BYTES, self.on_progress)
            else:
                self._extra["references"] = writer.write_references(references, self.on_progress)
                self._notes.append(ABSOLUTE_TEXT)
            if source.bits:
                file[IMAGE].attrs["valid_range"] = [0, 2**source.bits - 1]
            notes = self._run_notes(dataset)
            write_notes(h5py, file, notes)
            if len(notes) > MAX_NOTES:
                self._notes.append(
                    f"{len(notes) - MAX_NOTES:,} notes on the run are left out: the first {MAX_NOTES:,} fit"
                )
            write_metadata(file, array, names, source.metadata(array.layout))
            facts = {"source": str(dataset.path), "format": dataset.format, "complete": int(dataset.complete)}
            write_summary(h5py, file, dataset.summary_metadata, facts)

    def _write_ome_tiff(self, dataset: Dataset, array: LevelArray, out: Path) -> None:
        _check_pictures(dataset, array)
        grid = ImageGrid(array.layout.outer)
        pixels = replace(ome_pixels(dataset, array, grid), notes=self._run_notes(dataset))
        images = ome_images(dataset, array, grid)
        plane = array.shape[len(array.outer) :]
        levels = PlaneLevels(array, level_count(plane))
        levels.stored.update(_stored_levels(dataset, array, levels))
        tiles = TileEncoder(self.request.compression, self.request.tile)  # type: ignore[arg-type] # checked by the request
        has_holes = any(len(set(image.pages)) < len(image.pages) for image in images)
        with self._new_file(out, array, 1 if self.request.compression == "none" and not has_holes else 0) as target:
            write_ome_tiff(target, grid, levels, images, pixels, tiles=tiles, on_progress=self.on_progress)
        self._extra |= {"images": len(images), "levels": tuple(levels.shapes)}

    def _run_notes(self, dataset: Dataset) -> Sequence[RunNote]:
        """The notes on the run; none, with a word to the user, where they cannot be read."""
        try:
            return dataset.notes
        except (DatasetError, StorageError) as error:
            self._notes.append(f"the notes on the run are left out: {error}")
            return ()

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
    folder = found.folder(data_path_of(path)).path if isinstance(found, ChunkFormat) else container_of(path)
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
        folder, target = Path(os.path.realpath(source)), Path(os.path.realpath(out))
        if folder in (target, *target.parents):
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
