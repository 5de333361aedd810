"""The array of a mirror, planned from what is known when its first frame has come."""

from __future__ import annotations

from functools import partial

from acqstream.arrays.array_plan import ArrayPlan, check_no_tiles, plan_array, plan_mosaic
from acqstream.views.base import ViewSource


def plan_run(
    source: ViewSource, row: int, *, is_separate: bool = False, grows_picture: bool = False
) -> ArrayPlan | None:
    """Plan the array from the request, frame `row` and everything published; None while the size of its picture is not
    known: tiles of a mosaic that was not planned. is_separate: each tile is an image. grows_picture: the size of the
    picture need not be known. Raises DatasetError for frames
    that make up no array."""
    request, reader = source.request, source.reader
    declared, expect, overlap = request.get("axes"), request.get("expect"), reader.tile_overlap
    if is_separate:
        overlap = None
    elif overlap is None:
        check_no_tiles([*reader.key(row), *reader.axis_values()])
    # An interrupted run may continue with other values: only a complete one has its final sizes. A mosaic without
    # planned sizes may have no picture before that, so an interrupted one gets the picture of the tiles that it has.
    is_final = reader.complete if overlap is None or grows_picture else not reader.writing
    return (plan_array if overlap is None else partial(plan_mosaic, overlap, may_grow=grows_picture))(
        reader.key(row),
        reader.frame_shape(row),
        reader.frame_dtype(row).str,
        declared=declared if isinstance(declared, list) else (),
        seen=reader.axis_values(),
        kinds=reader.key_kinds(),
        order=reader.declared_order,
        is_final=is_final,
        expect=expect if isinstance(expect, int) else None,
        summary=reader.summary_metadata,
    )
