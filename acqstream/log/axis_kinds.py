"""The kind of value of each axis, integer or string, fixed by its first value in the dataset.

Readers sort the values of an axis and cannot sort a mixture (NDTiff: an axis must not mix integers and strings).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from acqstream.errors import FrameRefused
from acqstream.model.axes import Axes, axes_json_rows
from acqstream.model.frame_header import FrameRun

MAX_NAMES = 4096  # axis names of one dataset; a run has a few
_WORDS: Mapping[type, str] = {int: "an integer", str: "a string"}


class AxisKinds:
    """The kinds of one dataset's axes."""

    def __init__(self) -> None:
        self._kinds: dict[str, type] = {}
        self._newest: tuple[int, list[str]] = (0, [])  # names that were new in the frame of this number

    def check(self, axes: Axes, number: int) -> None:
        """Check the axes of frame `number`, and remember the kinds that are new.

        Raises FrameRefused: axis_kind where an axis had the other kind before, bad_header for too many names.
        """
        kinds = self._kinds
        for name, value in axes.items():
            kind = kinds.get(name)
            if kind is not value.__class__:
                try:
                    self._check_new(name, kind, value, number)
                except FrameRefused:
                    self.forget(number)
                    raise

    def forget(self, number: int) -> None:
        """Forget the kinds that were new in this frame, the last one that was checked: it was not stored."""
        if self._newest[0] == number:
            for name in self._newest[1]:
                self._kinds.pop(name, None)
            self._newest = (0, [])

    def check_run(self, frames: FrameRun) -> None:
        """`check` for each of these frames."""
        kinds = self._kinds
        for name, column in frames.axes.items():
            if set(map(type, column)) == {kinds.get(name)}:
                continue
            for number, value in enumerate(column, frames.number):
                if kinds.get(name) is not value.__class__:
                    self._check_new(name, kinds.get(name), value, number)

    def in_order(self, frames: FrameRun) -> FrameRun:
        """Frames that were checked, with their axes in the order in which the dataset got them.

        tifffile warns of every index entry that has another order than the first one.
        """
        axes = {name: frames.axes[name] for name in self._kinds if name in frames.axes}
        if tuple(axes) == tuple(frames.axes):
            return frames
        return replace(frames, axes=axes, axes_texts=axes_json_rows(axes, len(frames)))

    def learn(self, axes: Axes) -> None:
        """The axes of a frame that is in the dataset already; what was known before stays as it is."""
        for name, value in axes.items():
            self._kinds.setdefault(name, str if isinstance(value, str) else int)

    def _check_new(self, name: str, kind: type | None, value: int | str, number: int) -> None:
        if kind is None:
            if len(self._kinds) >= MAX_NAMES:
                text = f"frame {number}: axis {name!r} is new, and the dataset has {len(self._kinds)} axes already"
                raise FrameRefused(text, code="bad_header", number=number)
            self._kinds[name] = str if isinstance(value, str) else int
            if self._newest[0] != number:
                self._newest = (number, [])
            self._newest[1].append(name)
            return
        if not isinstance(value, kind):
            text = f"frame {number}: axis {name!r} was {_WORDS[kind]} in the frames before, now it is {value!r:.60}"
            raise FrameRefused(f"{text}; an axis must not mix both", code="axis_kind", number=number)
