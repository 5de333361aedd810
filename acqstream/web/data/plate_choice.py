"""Decides whether the positions of a served array are fields of a plate, as mirrors do when they begin. Pure.

Folders of images must not change while a viewer reads them. So names that were known before the first frame decide for
ever; names that came with the frames decide when the run has ended, as for a mirror that is made afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from acqstream.arrays.array_spec import ArraySpec
from acqstream.formats.ome_zarr.image_folders import split_axes
from acqstream.formats.ome_zarr.metadata import find_wells, planned_wells
from acqstream.model.axes import POSITION


def plate_array(
    planned: ArraySpec, sizes: Mapping[str, int], labels: Mapping[str, Sequence[str]], *, is_ended: bool
) -> ArraySpec | None:
    """The array from which the layout of a plate is made; None if the positions make up a collection.

    planned: with planned sizes, 0 for unknown ones, and the names known before the first frame. sizes, labels: of the
    frames, by axis. is_ended: no other frame will come, and unknown sizes are those of the frames.
    """
    if POSITION not in planned.axes:
        return None
    if not planned_wells(planned):
        names = labels.get(POSITION, ())
        if not (is_ended and find_wells(names, planned.attributes)):
            return None
        # Fewer names than declared may have come; no other one will.
        shape = [
            len(names) if name == POSITION else size for name, size in zip(planned.axes, planned.shape, strict=True)
        ]
        planned = replace(planned, shape=tuple(shape), labels=labels)
    if is_ended:
        shape = [size or sizes.get(name, 0) for name, size in zip(planned.axes, planned.shape, strict=True)]
        planned = replace(planned, shape=tuple(shape))
    members, _ = split_axes(planned.axes)
    others = [planned.shape[planned.axes.index(name)] for name in members if name != POSITION]
    return planned if all(others) else None
