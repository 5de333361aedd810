"""What a producer sends in a fault run: everything follows from one seed, so that any process can compare."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.model.acquisition_spec import DurabilityMode
from acqstream.simulate import pattern

SHAPES = {
    "small": [(64, 64)],
    "medium": [(256, 256)],
    "large": [(1024, 1024), (900, 1100)],
    "mixed": [(48, 64), (700, 600), (256, 256), (9, 11)],
}
INTERVALS_S = {"small": 0.0005, "medium": 0.001, "large": 0.01, "mixed": 0.003}  # bounds what must be read again
SKIP_EVERY = 37  # from one gap to the next, where the plan has any
GAPS = [1, 2, 60]  # how many numbers never come: the last ones share a record of the journal


class FramePlan:
    """Frame n of the plan with this seed: shape, pixels, metadata, or that it never comes."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(f"plan {seed}")
        self.seed = seed
        self.kind = chance.choice(sorted(SHAPES))
        self.dtype = chance.choice(["uint16", "uint16", "uint8"])
        self.interval_s = INTERVALS_S[self.kind]
        self.durability: DurabilityMode = chance.choice(["batch", "batch", 0.1, 1.0, "close"])
        self._skips = chance.random() < 0.5
        self._first_skip = chance.randrange(1, SKIP_EVERY)
        self._gap = chance.choice(GAPS)

    def gap_at(self, number: int) -> int:
        """How many numbers from this one on never come."""
        behind = (number - self._first_skip) % (SKIP_EVERY + self._gap - 1)
        return max(0, self._gap - behind) if self._skips and number >= self._first_skip else 0

    def is_skipped(self, number: int) -> bool:
        return self.gap_at(number) > 0

    def image(self, number: int) -> NDArray[Any]:
        shapes = SHAPES[self.kind]
        return pattern.frame(number, shapes[number % len(shapes)], self.dtype)

    def axes(self, number: int) -> dict[str, int]:
        return {"time": number}

    def number(self, axes: Mapping[str, Any]) -> int:
        """The inverse of `axes`."""
        return int(axes["time"])

    def metadata(self, number: int) -> dict[str, Any]:
        return {"number": number, "note": "x" * (number % 50), "stage": {"x_um": number / 7}}

    def time_ns(self, number: int) -> int | None:
        """Two of three frames have a capture time."""
        return 1_790_000_000_000_000_001 + 999_937 * number if number % 3 else None

    def stored_metadata(self, number: int) -> dict[str, Any]:
        """What is read of a frame: nothing more, nothing less."""
        time_ns = self.time_ns(number)
        time = {} if time_ns is None else {"time_ns": time_ns}
        return {**self.metadata(number), **time, "Axes": self.axes(number)}

    def stored_below(self, count: int) -> list[int]:
        """The numbers below `count` that have pixels."""
        return [number for number in range(count) if not self.is_skipped(number)]

    def is_right(self, number: int, image: NDArray[Any], metadata: Any) -> bool:
        """Whether what was read is frame `number`, to the last pixel and the last value of its metadata."""
        expected = self.image(number)
        is_same = image.dtype == expected.dtype and np.array_equal(image, expected)
        return is_same and metadata == self.stored_metadata(number)


class StackPlan(FramePlan):
    """Frames of one shape that make up stacks in two channels: what a mirror takes."""

    CHANNELS = 2

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        chance = random.Random(f"stacks {seed}")
        self.kind = "small"
        self._gap = 1
        self.interval_s = 0.02  # each block of a mirror is forced
        self.depth = chance.randrange(30, 70)  # WKW has a folder for each time point
        self.depth += self.depth == SKIP_EVERY  # else a gap may leave one z without any frame, which readers hide

    def axes(self, number: int) -> dict[str, int]:
        stack, z = divmod(number, self.depth)
        return {"time": stack // self.CHANNELS, "channel": stack % self.CHANNELS, "z": z}

    def number(self, axes: Mapping[str, Any]) -> int:
        return int((axes["time"] * self.CHANNELS + axes["channel"]) * self.depth + axes["z"])

    def declaration(self) -> list[dict[str, Any]]:
        """What can be said of the axes beforehand."""
        return [{"name": "time"}, {"name": "channel", "size": self.CHANNELS}, {"name": "z", "size": self.depth}]

    def array(self, count: int) -> NDArray[Any]:
        """(time, channel, z, y, x) of the first `count` frames; what never came is zeros."""
        times = -(-count // (self.depth * self.CHANNELS))
        found = np.zeros((times, self.CHANNELS, self.depth, *SHAPES[self.kind][0]), self.dtype)
        for number in self.stored_below(count):
            found[tuple(self.axes(number).values())] = self.image(number)
        return found


PLANS = {"frames": FramePlan, "stacks": StackPlan}


def plan_name(plan: FramePlan) -> str:
    return "stacks" if isinstance(plan, StackPlan) else "frames"
