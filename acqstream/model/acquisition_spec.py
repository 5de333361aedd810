"""What a producer asks for when it opens an acquisition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

DurabilityMode = Literal["close", "batch"] | float
DEFAULT_DURABILITY_S = 1.0
VIEW_NAMES = ("null",)  # what can be asked for as a mirror; how: acqstream.pipeline.views.registry


@dataclass(frozen=True, slots=True)
class AxisSpec:
    """A declared axis; everything but its name is a hint."""

    name: str
    size: int | None = None
    unit: str | None = None
    scale: float | None = None
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquisitionSpec:
    """One acquisition as requested.

    dataset_id is the uuid (32 hex digits) that the producer chose. summary is the NDTiff summary metadata. frame_bytes
    is the payload of the frames to come, where known. expect is the number of frames to come, where known.
    durability says when journal and
    index are forced: "close", every so many seconds, or with every "batch". resume goes on with an interrupted dataset;
    epoch counts the connections of a producer to its acquisition, 0 being the first. mirrors names the views to make.
    """

    dataset_id: str
    name: str
    summary: Mapping[str, Any] = field(default_factory=dict)
    frame_bytes: int | None = None
    axes: tuple[AxisSpec, ...] = ()
    expect: int | None = None
    durability: DurabilityMode = DEFAULT_DURABILITY_S
    replace_duplicates: bool = False
    number_if_taken: bool = False
    resume: bool = False
    epoch: int = 0
    mirrors: tuple[str, ...] = ()
