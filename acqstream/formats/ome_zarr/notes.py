"""Our note in the container's group, `attributes.acqstream`: what OME-Zarr cannot say. Other software passes it over.

It has the axes of the whole array with their places and values, the shapes of the levels as announced, and whether more
will come.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from acqstream.arrays.array_spec import ArraySpec
from acqstream.errors import ConfigError
from acqstream.formats.array_members import MAX_MEMBERS, has_too_many
from acqstream.formats.array_note import note_of_array, note_of_level, read_array, read_level
from acqstream.formats.ome_zarr.axes import split_axes
from acqstream.formats.ome_zarr.image_folders import ImageFolders, has_fields
from acqstream.formats.ome_zarr.options import OmeZarrOptions, parse_options
from acqstream.formats.ome_zarr.wells import is_well
from acqstream.formats.ome_zarr.zarr_json import DTYPES, MAX_NDIM
from acqstream.model.fields import Fields

KEY = "acqstream"
_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """levels: the finest first, as announced, without chunks. folders are those of the images. options are those of the
    writer.
    """

    levels: tuple[ArraySpec, ...]
    folders: ImageFolders
    options: OmeZarrOptions
    complete: bool


def note_to_json(note: Note) -> dict[str, Any]:
    """The note as it stands in zarr.json."""
    full = note.levels[0]
    return {
        "format": "acqstream-ome-zarr",
        "version": _VERSION,
        "complete": note.complete,
        "dtype": full.dtype.name,
        **note_of_array(full),
        "planned": [*note.folders.planned],
        **({"wells": [*note.folders.wells]} if note.folders.wells else {}),
        "options": note.options.to_json(),
        "levels": [note_of_level(level) for level in note.levels],
    }


def has_note(attributes: object) -> bool:
    """Return True if these attributes of a group have a note of ours."""
    note = attributes.get(KEY) if isinstance(attributes, dict) else None
    return isinstance(note, dict) and note.get("format") == "acqstream-ome-zarr"


def parse_note(attributes: Fields) -> Note:
    """The note in the attributes of a group. Raises the error of `attributes` for a damaged one."""
    fields = attributes.child(KEY)
    if (fields.text("format"), fields.integer("version")) != ("acqstream-ome-zarr", _VERSION):
        raise fields.wrong("version", f"{_VERSION}, and format acqstream-ome-zarr")
    axes = fields.texts("axes")
    if len(axes) > MAX_NDIM:
        raise fields.wrong("axes", f"at most {MAX_NDIM}")
    if fields.text("dtype") not in DTYPES:
        raise fields.wrong("dtype", f"one of {', '.join(DTYPES)}")
    try:
        members, image = split_axes(axes)
        options = parse_options(fields.mapping("options"))
    except ConfigError as error:
        raise fields.wrong("axes", f"those of an image, with options of acqstream ({error})") from error
    if axes != (*members, *image):
        raise fields.wrong("axes", "those of separate images first")
    array = read_array(fields, axes, np.dtype(fields.text("dtype")))
    levels = tuple(_level(level, array, len(members)) for level in fields.children("levels"))
    if not levels:
        raise fields.wrong("levels", "one level at least")
    return Note(
        levels=levels,
        folders=_folders(fields, members),
        options=options,
        complete=fields.flag("complete"),
    )


def _folders(fields: Fields, members: tuple[str, ...]) -> ImageFolders:
    planned = fields.integers("planned", len(members))
    wells = fields.texts("wells") if "wells" in fields else ()
    if wells and not (has_fields(members, planned) and len(wells) <= MAX_MEMBERS and all(map(is_well, wells))):
        raise fields.wrong("wells", 'paths such as "A/1", one for each position')
    return ImageFolders(members, planned, wells)


def _level(level: Fields, array: ArraySpec, members: int) -> ArraySpec:
    found = read_level(level, array)
    if has_too_many(found.shape[:members]):
        raise level.wrong("shape", "at most a million images")
    return found
