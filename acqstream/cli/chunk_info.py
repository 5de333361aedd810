"""Describes a dataset in a chunk format for `acqstream info`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from acqstream.model.units import count_text, size_text

if TYPE_CHECKING:
    from acqstream.dataset.dataset import Dataset
    from acqstream.dataset.level import Level


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelInfo:
    """One level; all but the counts have an item per axis, slowest first. missing counts chunks that are not stored."""

    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    factors: tuple[int, ...]
    scale: tuple[float, ...]
    chunks: int
    missing: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkInfo:
    """Facts about an array. labels are names of positions along an axis; units are those of scale and translation."""

    path: str
    format: str
    complete: bool
    axes: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    units: tuple[str, ...]
    translation: tuple[float, ...]
    labels: dict[str, list[str]]
    levels: list[LevelInfo]
    size_bytes: int
    summary_metadata: dict[str, Any]
    scale: dict[str, tuple[float, str, str]]


def describe_chunks(dataset: Dataset, size_bytes: int) -> ChunkInfo:
    """The facts about an open dataset, which takes size_bytes on disk."""
    full = dataset.levels[0]
    return ChunkInfo(
        path=str(dataset.path),
        format=dataset.format,
        complete=dataset.complete,
        axes=full.axes,
        shape=full.shape,
        dtype=str(full.dtype),
        units=full.units,
        translation=full.translation,
        labels=_labels(full),
        levels=[_describe_level(level) for level in dataset.levels],
        size_bytes=size_bytes,
        summary_metadata=dict(dataset.summary_metadata),
        scale=scale_of(full),
    )


def _labels(level: Level) -> dict[str, list[str]]:
    """Names along each axis: those in the format, else the values unless they only count."""
    values = {name: places for name, places in level.axis_values().items() if not isinstance(places, range)}
    return {name: [*map(str, names)] for name, names in {**values, **level.labels}.items()}


def print_chunk_info(facts: ChunkInfo) -> None:
    """The facts as lines of text."""
    print(f"path    {facts.path}")
    print(f"format  {facts.format}")
    print(f"state   {'complete' if facts.complete else 'growing, or ended without being finished'}")
    print(f"shape   {', '.join(f'{name} {size}' for name, size in zip(facts.axes, facts.shape, strict=True))}")
    print(f"dtype   {facts.dtype}")
    for name, values in facts.labels.items():
        print(f"axis    {name}: {', '.join(values)}")
    print(f"scale   {scale_text(facts.scale)}")
    for number, level in enumerate(facts.levels):
        missing = f", {level.missing:,} missing" if level.missing else ""
        chunks = f"{count_text(level.chunks, 'chunk')} of {_times(level.chunk_shape)}{missing}"
        print(f"level {number} {_times(level.shape)}, {chunks}")
    print(f"size    {size_text(facts.size_bytes)} on disk")


def _describe_level(level: Level) -> LevelInfo:
    return LevelInfo(
        shape=level.shape,
        chunk_shape=level.chunk_shape,
        factors=level.factors,
        scale=level.scale,
        chunks=math.prod(-(-size // step) for size, step in zip(level.shape, level.chunk_shape, strict=True)),
        missing=level.missing_count,
    )


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
