"""Translation of an event's index into axes: the same axes for all frames of a run, each of one type."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from acqstream.client.pymmcore.sequence_plan import NO_CHANNEL, SequencePlan, is_axis_text
from acqstream.model.axes import AxisValue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from useq import MDAEvent

AXIS_NAMES = {"t": "time", "p": "position", "c": "channel", "z": "z", "g": "grid", "cam": "camera"}
COUNTER = "frame"
AXES_NOTE = "acqstream_axes"
"""Key in the metadata of an event of a resumed run: its axes, which depend on the stored events before it."""


class AxisTranslator:
    """Axes of the frames of one run; call `translate` once per frame, in order of arrival.

    The plan and the first frame fix the set of axes; a frame that lacks one gets 0 there. With `counter` there is the
    axis `frame` besides, the number of earlier frames with the same other axes, so that all frames differ. integers
    requests numbers: of channels where the names are not known before the run, and of cameras in order of appearance.
    """

    def __init__(self, plan: SequencePlan, *, counter: bool | None = None, integers: bool = False) -> None:
        self._plan = plan
        self._counter = not plan.is_unique if counter is None else counter
        self._seen: Counter[tuple[AxisValue, ...]] = Counter()
        self._expected: Counter[tuple[AxisValue, ...]] = Counter()
        self._keys = list(plan.keys)
        if plan.cameras:
            self._keys.append("cam")
        self._cameras = list(plan.cameras)
        self.cells = plan.cells
        self.numbers_cameras = integers
        self._in_use = plan.selector.initial  # cameras, after the last event
        self._integers = integers
        self._names_as_values = plan.names_as_values
        self._text_keys: set[str] = set()  # keys of the user's own whose values are text
        self._is_fixed = False
        self.dropped_keys: set[str] = set()

    @property
    def counts(self) -> bool:
        """True where frames have the axis `frame`."""
        return self._counter

    def translate(self, event: MDAEvent, camera: str = "") -> dict[str, AxisValue]:
        """The axes of the next frame, which came with `event` from this camera."""
        index = self._with_camera(_index_of(event), camera)
        note: Mapping[str, AxisValue] | None = event.metadata.get(AXES_NOTE)
        if note is not None:
            return {**note, **({AXIS_NAMES["cam"]: index["cam"]} if "cam" in index else {})}
        return self._axes(index, event, self._seen)

    def expected_axes(self, event: MDAEvent) -> list[dict[str, AxisValue]]:
        """The axes of the frames that `event` will make, one per camera; call it once per event, in their order."""
        self._in_use = cameras = self._plan.selector.select(event.channel, event.properties, self._in_use)
        index = _index_of(event)
        places = [index] if len(cameras) == 1 else [{**index, "cam": place} for place in range(len(cameras))]
        indices = [self._with_camera(place, name) for place, name in zip(places, cameras, strict=True)]
        return [self._axes(entry, event, self._expected) for entry in indices]

    def _with_camera(self, index: dict[str, Any], camera: str) -> dict[str, Any]:
        """`index` with the value for its camera, where frames of this run have one."""
        if "cam" not in index and "cam" not in self._keys:
            return index
        place = int(index.get("cam", 0))
        name = camera if is_axis_text(camera) else "".join(self._cameras[place : place + 1]) or str(place)
        if name not in self._cameras:
            self._cameras.append(name)
        return {**index, "cam": self._cameras.index(name) if self.numbers_cameras else name}

    def _axes(
        self, index: Mapping[str, Any], event: MDAEvent, counts: Counter[tuple[AxisValue, ...]]
    ) -> dict[str, AxisValue]:
        if not self._is_fixed:
            self._fix(index, event)
        axes: dict[str, AxisValue] = {}
        for key in self._keys:
            self._add(axes, key, index, event)
        extra = [key for key in index if key not in self._keys]
        if extra:
            self._add_late(axes, extra, index, event)
        if self._counter:
            key_values = tuple(axes.values())
            axes[COUNTER] = counts[key_values]
            counts[key_values] += 1
        return axes

    def declaration(self, sizes: Mapping[str, int]) -> list[dict[str, Any]] | None:
        """The axes as hints for `create`, or None when the plan does not know them. sizes are by index key."""
        if not self._plan.is_known:
            return None
        declared: list[dict[str, Any]] = []
        for key in self._keys:
            if key == "g" and self.cells is not None:
                rows, columns = self.cells.shape
                declared += [{"name": "row", "size": rows}, {"name": "column", "size": columns}]
                continue
            size = len(self._cameras) if key == "cam" else sizes.get(key)
            axis: dict[str, Any] = {"name": _axis_name(key), "size": size}
            if key == "c" and self._plan.channel_names:
                axis["labels"] = list(self._plan.channel_names)
            if key == "cam" and not self.numbers_cameras:
                axis["labels"] = list(self._cameras)
            declared.append({name: value for name, value in axis.items() if value})
        if self._counter:
            declared.append({"name": COUNTER})
        return declared

    def _fix(self, index: Mapping[str, Any], event: MDAEvent) -> None:
        self._keys += [key for key in index if key not in self._keys]
        self._text_keys = {key for key, value in index.items() if isinstance(value, str)}
        if not self._plan.is_known:
            channel = event.channel
            is_named = channel is not None and is_axis_text(channel.config)
            self._names_as_values = "c" in index and is_named and not self._integers
        self._is_fixed = True

    def _add(self, axes: dict[str, AxisValue], key: str, index: Mapping[str, Any], event: MDAEvent) -> None:
        value = index.get(key)
        if key == "c" and self._names_as_values:
            axes["channel"] = _channel_value(value, event)
        elif key == "g" and self.cells is not None:
            position = int(index.get("p", 0))
            axes["row"], axes["column"] = (0, 0) if value is None else self.cells.cell(position, int(value))
        else:
            is_text = key in self._text_keys or isinstance(value, str)
            axes[_axis_name(key)] = str(value or 0) if is_text else int(value or 0)

    def _add_late(self, axes: dict[str, AxisValue], keys: list[str], index: Mapping[str, Any], event: MDAEvent) -> None:
        """Add keys that no earlier frame had, unless the counter already makes the axes of frames unique."""
        if self._counter:
            self.dropped_keys.update(keys)
            return
        for key in keys:
            self._add(axes, key, index, event)


def _index_of(event: MDAEvent) -> dict[str, Any]:
    return {str(getattr(key, "value", key)): value for key, value in event.index.items()}


def _axis_name(key: str) -> str:
    name = AXIS_NAMES.get(key, key)
    if name == COUNTER or (key not in AXIS_NAMES and name in AXIS_NAMES.values()):
        name += "_index"  # a user's own key must not become one of ours
    name = re.sub(r"\W", "_", name, flags=re.ASCII)[:64]
    return name if name and not name[0].isdigit() else f"_{name}"[:64]


def _channel_value(number: Any, event: MDAEvent) -> str:
    if event.channel is not None and is_axis_text(event.channel.config):
        return event.channel.config
    return NO_CHANNEL if number is None else str(number)
