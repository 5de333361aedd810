"""`acqstream info`: the facts about a dataset, of frames or in a chunk format."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from acqstream.cli.output import DatasetArgument, FollowLinksOption, print_json
from acqstream.errors import AcqStreamError, CorruptDataset, DatasetError, StorageError, UnknownFormat
from acqstream.model.axes import AxisValue
from acqstream.model.run_note import RunNote
from acqstream.model.state import AcquisitionState
from acqstream.model.units import count_text, size_text

if TYPE_CHECKING:
    from acqstream.dataset.dataset import Dataset
    from acqstream.dataset.level import Level
    from acqstream.model.view_spec import MirrorResult


Facts = dict[str, Any]
"""The document of `--json`, which is what the lines for people are made of."""


def describe_chunks(dataset: Dataset, size_bytes: int) -> Facts:
    """The facts about an open array, which takes size_bytes on disk.

    labels are names of positions along an axis; units are those of scale and translation.
    """
    full = dataset.levels[0]
    return {
        "path": str(dataset.path),
        "format": dataset.format,
        "complete": dataset.complete,
        "axes": full.axes,
        "shape": full.shape,
        "dtype": str(full.dtype),
        "units": full.units,
        "translation": full.translation,
        "labels": _labels(full),
        "levels": [_describe_level(level) for level in dataset.levels],
        "size_bytes": size_bytes,
        "summary_metadata": dict(dataset.summary_metadata),
        "scale": scale_of(full),
    }


def _labels(level: Level) -> dict[str, list[str]]:
    """Names along each axis: those in the format, else the values unless they only count."""
    values = {name: some for name, some in level.axis_values().items() if not isinstance(some, range)}
    return {name: [*map(str, names)] for name, names in {**values, **level.labels}.items()}


def print_chunk_info(facts: Facts) -> None:
    """The facts as lines of text."""
    print(f"path    {facts['path']}")
    print(f"format  {facts['format']}")
    print(f"state   {'complete' if facts['complete'] else 'growing, or ended without being finished'}")
    print(f"shape   {_shape_text(facts['axes'], facts['shape'])}")
    print(f"dtype   {facts['dtype']}")
    for name, values in facts["labels"].items():
        print(f"axis    {name}: {', '.join(values)}")
    print(f"scale   {scale_text(facts['scale'])}")
    for number, level in enumerate(facts["levels"]):
        missing = f", {level['missing']:,} missing" if level["missing"] else ""
        chunks = f"{count_text(level['chunks'], 'chunk')} of {_times(level['chunk_shape'])}{missing}"
        print(f"level {number} {_times(level['shape'])}, {chunks}")
    print(f"size    {size_text(facts['size_bytes'])} on disk")


def _describe_level(level: Level) -> Facts:
    """All but the counts have an item per axis, slowest first. missing counts chunks that are not stored."""
    return {
        "shape": level.shape,
        "chunk_shape": level.chunk_shape,
        "factors": level.factors,
        "scale": level.scale,
        "chunks": math.prod(-(-size // step) for size, step in zip(level.shape, level.chunk_shape, strict=True)),
        "missing": level.missing_count,
    }


def _shape_text(axes: Sequence[str], shape: Sequence[int]) -> str:
    return ", ".join(f"{name} {side}" for name, side in zip(axes, shape, strict=True)) or "-"


def scale_of(level: Level) -> dict[str, tuple[float, str, str]]:
    """Distance of neighbours, its unit and who says so, by axis; axes without a known distance are left out."""
    evidence = level.source.evidence
    spaces = zip(level.axes, level.scale, level.units, strict=True)
    return {name: (size, unit, evidence.get(name, "")) for name, size, unit in spaces if unit}


def scale_text(scale: Mapping[str, tuple[float, str, str]]) -> str:
    """For people: "z 0.3 um (frames), x 0.65 um (summary)"."""
    texts = (
        f"{name} {size:g} {unit}{f' ({source})' if source else ''}" for name, (size, unit, source) in scale.items()
    )
    return ", ".join(texts) or "-"


def _times(sides: Sequence[int]) -> str:
    return " x ".join(map(str, sides))


_VALUES_SHOWN = 6
_NOTES_SHOWN = 20
_STATES = {
    "COMPLETE": "complete",
    "CANCELED": "ended: canceled",
    "ERRORED": "ended: the producer failed with an error",
    "FAILED": "ended: FAILED, see receipt.json",
    "INTERRUPTED": "interrupted; nothing is being written",
}


def info(
    path: DatasetArgument,
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document on stdout, summary metadata included.")
    ] = False,
    follow_links: FollowLinksOption = False,
    png: Annotated[
        Path | None, typer.Option(help="Also write a contact sheet, evenly chosen pictures, to this file.")
    ] = None,
) -> None:
    """Show what is in a dataset; of a directory of runs, list them as `ls`.

    Format, axes, shape, number of frames, and whether the dataset is complete.
    """
    import acqstream
    from acqstream.cli.runs import print_directory
    from acqstream.dataset.contact_sheet import save_contact_sheet
    from acqstream.dataset.run_list import disk_bytes

    try:
        with acqstream.open(path, follow_links=follow_links) as dataset:
            has_frames, size_bytes = dataset.has_frames, disk_bytes(dataset.path)
            facts = describe(dataset, size_bytes) if has_frames else describe_chunks(dataset, size_bytes)
            if png is not None:
                save_contact_sheet(dataset, png)
    except UnknownFormat:
        if png is None and print_directory(path, as_json=as_json):
            return
        raise
    if as_json:
        print_json(facts)
    elif has_frames:
        _print_info(facts)
    else:
        print_chunk_info(facts)


def describe(dataset: Dataset, size_bytes: int) -> Facts:
    """The facts about an open dataset of frames, which takes size_bytes on disk.

    axes maps each axis of the frames to its values; first and last are keys in order of arrival. shape is that of the
    full resolution as an array with the axes array_axes: tiles are put together. missing counts its frames or tiles
    that are not stored, first_missing are some of them. level_shapes are the shapes of all levels. state is what the
    daemon recorded, e.g. "COMPLETE"; empty for datasets of other writers. mirrors are the mirrors and levels that were
    asked for or made, and how they stand. sentence: how its run ended, or that its daemon is starting; empty without a
    receipt. notes are those on the run, notes_why is why they cannot be read. scale is the distance of neighbours, its
    unit and who says so, by axis; doubts are wishes that the frames contradict.
    """
    full, keys = dataset.levels[0], dataset.keys()
    first = last = next(keys, None)
    count = 0 if first is None else 1
    for key in keys:  # one at a time: a list of a million would take hundreds of megabytes
        count, last = count + 1, key
    missing = full.missing_count if count else 0
    notes, notes_why = _notes_of(dataset)
    return {
        "path": str(dataset.path),
        "format": dataset.format,
        "state": str(dataset.state or ""),
        "complete": dataset.complete,
        "sentence": _sentence_of(dataset),
        "frames": count,
        "shape": full.shape if count else (),
        "array_axes": full.axes if count else (),
        "dtype": str(dataset.dtype) if count else "",
        "axes": dataset.axes,
        "levels": len(dataset.levels),
        "level_shapes": [_shape_of(level) for level in dataset.levels],
        "missing": missing,
        "first_missing": full.missing(limit=min(missing, _VALUES_SHOWN)) if missing else [],
        "size_bytes": size_bytes,
        "first": first,
        "last": last,
        "mirrors": _mirrors_of(dataset),
        "summary_metadata": dict(dataset.summary_metadata),
        "scale": scale_of(full) if count else {},
        "doubts": full.source.doubts if count else (),
        "notes": notes,
        "notes_why": notes_why,
    }


def _sentence_of(dataset: Dataset) -> str:
    """How its run ended, by its receipt; empty without one."""
    from acqstream.formats.ndtiff.folders import container_of
    from acqstream.mirrors.run_end import starting_text
    from acqstream.storage.files.url_path import is_remote

    try:
        if dataset.state is not None and dataset.state.writing:
            return "" if is_remote(dataset.path) else starting_text(container_of(dataset.path).resolve())
        receipt = dataset.receipt
        return "" if receipt is None else receipt.sentence
    except AcqStreamError:  # `verify` reports what is wrong with it
        return ""


def _mirrors_of(dataset: Dataset) -> tuple[MirrorResult, ...]:
    from acqstream.formats.ndtiff.folders import container_of
    from acqstream.mirrors.run_end import mirror_results
    from acqstream.storage.files.url_path import is_remote

    try:
        return () if is_remote(dataset.path) else mirror_results(container_of(dataset.path))
    except CorruptDataset:  # of the state; `verify` reports what is wrong with it
        return ()


def _notes_of(dataset: Dataset) -> tuple[tuple[RunNote, ...], str]:
    try:
        return dataset.notes, ""
    except (DatasetError, StorageError) as error:  # the frames are as good as before
        return (), str(error)


def _shape_of(level: Level) -> tuple[int, ...]:
    try:
        return level.shape
    except DatasetError:  # its first tile will come
        return ()


def _state_text(facts: Facts) -> str:
    sentence, state = str(facts["sentence"]), str(facts["state"])
    if sentence and state != AcquisitionState.INTERRUPTED:
        return sentence
    if state:
        return _STATES.get(state, state.lower())
    return "complete" if facts["complete"] else "growing, or ended without being closed"


def _print_info(facts: Facts) -> None:
    print(f"path    {facts['path']}")
    print(f"format  {facts['format']}")
    print(f"state   {_state_text(facts)}")
    print(f"frames  {facts['frames']:,}")
    print(f"shape   {_shape_text(facts['array_axes'], facts['shape'])}")
    print(f"dtype   {facts['dtype'] or '-'}")
    for name, values in facts["axes"].items():
        print(f"axis    {name}: {_values_text(values)}")
    print(f"scale   {scale_text(facts['scale'])}")
    for doubt in facts["doubts"]:
        print(f"note    {doubt}")
    print(f"levels  {_levels_text(facts)}")
    print(f"size    {size_text(facts['size_bytes'])} on disk")
    if facts["first"] is not None and facts["last"] is not None:
        print(f"first   {_key_text(facts['first'])}")
        print(f"last    {_key_text(facts['last'])}")
    print(f"missing {_missing_text(facts)}")
    for mirror in facts["mirrors"]:
        print(f"mirror  {mirror.name}: {mirror.text}")
    if facts["notes_why"]:
        print(f"notes   cannot be read: {facts['notes_why']}")
    if len(facts["notes"]) > _NOTES_SHOWN:
        print(f"notes   {len(facts['notes']):,}, the last {_NOTES_SHOWN}; --json has all")
    for note in facts["notes"][-_NOTES_SHOWN:]:
        print(f"noted   {note.sentence()}")


def _levels_text(facts: Facts) -> str:
    if facts["levels"] == 1:
        return "1"
    sizes = [" x ".join(map(str, _picture(shape, facts["array_axes"]))) or "empty" for shape in facts["level_shapes"]]
    return f"{facts['levels']}: {', '.join(sizes)}"


def _picture(shape: tuple[int, ...], axes: tuple[str, ...]) -> tuple[int, ...]:
    """Height and width; all sides where the full resolution has no frame, and so no axes are known."""
    return shape[axes.index("y") :][:2] if axes else shape


def _missing_text(facts: Facts) -> str:
    if not facts["missing"]:
        return "none"
    shown = "; ".join(map(_key_text, facts["first_missing"]))
    more = ", ..." if facts["missing"] > len(facts["first_missing"]) else ""
    return f"{facts['missing']:,}: {shown}{more}"


def _values_text(values: list[AxisValue]) -> str:
    if len(values) <= _VALUES_SHOWN:
        return ", ".join(str(value) for value in values)
    return f"{values[0]} to {values[-1]} ({count_text(len(values), 'value')})"


def _key_text(key: dict[str, AxisValue]) -> str:
    return ", ".join(f"{name}={value}" for name, value in key.items())
