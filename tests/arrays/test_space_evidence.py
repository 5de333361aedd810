"""Which frames are read for the space of all, and how often."""

from __future__ import annotations

from typing import Any

import pytest

from acqstream.errors import CorruptDataset
from acqstream.frames.frame_description import SpaceWitnesses
from acqstream.model.axes import Axes, AxisValue


class Frames:
    """Frames by row, each with a stage position; `reads` are the rows whose metadata were asked for."""

    def __init__(self) -> None:
        self.keys: list[dict[str, AxisValue]] = []
        self.metadata: list[dict[str, Any]] = []
        self.reads: list[int] = []
        self.damaged: set[int] = set()
        self.tile_overlap: tuple[int, int] | None = None

    def add(self, z: int, z_um: float) -> None:
        self.keys.append({"z": z})
        self.metadata.append({"ZPositionUm": z_um})

    def __len__(self) -> int:
        return len(self.keys)

    def key(self, row: int) -> dict[str, AxisValue]:
        return dict(self.keys[row])

    def find(self, axes: Axes) -> int | None:
        rows = [row for row, key in enumerate(self.keys) if key == axes]
        return rows[-1] if rows else None

    def frame_shape(self, row: int) -> tuple[int, ...]:
        return (3, 5) if row else (1, 1)

    def axis_values(self) -> dict[str, list[AxisValue]]:
        return {"z": sorted({key["z"] for key in self.keys})}

    def read_metadata(self, row: int) -> dict[str, Any]:
        self.reads.append(row)
        if row in self.damaged:
            raise CorruptDataset("not yet")
        return self.metadata[row]


def places_of(witnesses: SpaceWitnesses) -> list[float | None]:
    (stack,) = witnesses.evidence().stacks
    return [reading.z_um for _, reading in stack]


def test_a_row_is_read_once_and_the_last_frame_of_a_place_counts() -> None:
    frames = Frames()
    for z in range(3):
        frames.add(z, 2.0 * z)
    witnesses = SpaceWitnesses(frames)
    assert places_of(witnesses) == [0, 2, 4]
    read = len(frames.reads)
    frames.add(1, 2.5)  # in place of an earlier frame
    assert places_of(witnesses) == [0, 2, 4]
    assert len(frames.reads) == read
    witnesses.forget_rows()
    assert places_of(witnesses) == [0, 2.5, 4]
    assert frames.reads[read:].count(3) == 1
    assert {1, 2}.isdisjoint(frames.reads[read:])


@pytest.mark.parametrize("row", [0, 1])
def test_damaged_metadata_show_nothing_and_are_read_again(row: int) -> None:
    frames = Frames()
    for z in range(3):
        frames.add(z, 2.0 * z + 1)
    frames.damaged = {row}
    witnesses = SpaceWitnesses(frames)
    assert places_of(witnesses)[row] is None
    assert bool(witnesses.evidence().first) == (row != 0)
    frames.damaged.clear()
    witnesses.forget_rows()
    assert places_of(witnesses) == [1, 3, 5]
    assert witnesses.evidence().first == frames.metadata[0]
