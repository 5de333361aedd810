"""The events of a resumed run whose frames are not stored."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from useq import HardwareAutofocus, PropertyTuple

from acqstream.client.event_clock import EventClock
from acqstream.client.pymmcore.axes import AXES_NOTE, AxisTranslator
from acqstream.client.pymmcore.sequence_plan import acquires

if TYPE_CHECKING:
    from useq import MDAEvent

# Settings that an event without them inherits from the events before it.
_SETTINGS = ("x_pos", "y_pos", "z_pos", "channel", "exposure", "roi", "slm_image")


class PendingMDAEvents:
    """Removes stored events from a run before any hardware is touched.

    stored are the axes of stored frames; every event makes one frame per camera. An event of which only some frames
    are stored is kept. skipped counts the removed events.

    The first event after skipped ones gets the settings that these would have made. An action before a
    stored frame was carried out and is not repeated, except the last autofocus of a position, whose result ended with
    the engine.
    """

    def __init__(self, stored: Collection[Mapping[str, Any]], translator: AxisTranslator) -> None:
        self._stored = stored
        self._translator = translator
        self._clock = EventClock()
        self._settings: dict[str, Any] = {}
        self._properties: dict[tuple[str, str], Any] = {}
        self._actions: list[MDAEvent] = []
        self._autofocus: dict[int | None, MDAEvent] = {}  # by position
        self.skipped = 0

    def filter(self, events: Iterable[MDAEvent]) -> Iterator[MDAEvent]:
        """The events to carry out, in order; looks one event ahead."""
        due: MDAEvent | None = None
        for event in events:
            if not acquires(event):
                self._actions.append(event)
                continue
            axes = self._translator.expected_axes(event)
            if all(key in self._stored for key in axes):
                self._skip(event)
                if due is not None and due.keep_shutter_open:  # for this event, which does not come
                    due = due.model_copy(update={"keep_shutter_open": False})
                continue
            if due is not None:
                yield due
            yield from self._actions_before(event)
            due = self._timed(self.with_settings(_with_axes(event, axes[0])))
        if due is not None:
            yield due
        yield from map(self._timed, self._actions)

    def is_stored(self, event: MDAEvent) -> bool:
        """The same for a single event, as from a queue: True if it is to be left out.

        Otherwise `event` carries its axes from now on, and may still need `with_settings`.
        """
        parts = getattr(event, "events", None) or (event,)
        expected = [(part, self._translator.expected_axes(part)) for part in parts if acquires(part)]
        if expected and all(key in self._stored for _, axes in expected for key in axes):
            for part, _ in expected:
                self._skip(part)
            return True
        for part, axes in expected:
            part.metadata[AXES_NOTE] = axes[0]
        return False

    def with_settings(self, event: MDAEvent) -> MDAEvent:
        """`event` with the settings that it would have inherited from skipped ones."""
        update = {name: value for name, value in self._settings.items() if getattr(event, name) is None}
        if self._properties:
            own = {(device, name): value for device, name, value in event.properties or ()}
            merged = {**self._properties, **own}
            update["properties"] = [PropertyTuple(device, name, value) for (device, name), value in merged.items()]
        self._settings.clear()
        self._properties.clear()
        return event.model_copy(update=update) if update else event

    def _skip(self, event: MDAEvent) -> None:
        self.skipped += 1
        for action in self._actions:
            if isinstance(action.action, HardwareAutofocus):
                self._autofocus[action.index.get("p")] = action
            self._clock.skip(action.min_start_time, resets=action.reset_event_timer)
        self._actions.clear()
        self._clock.skip(event.min_start_time, resets=event.reset_event_timer)
        values = {name: getattr(event, name) for name in _SETTINGS}
        self._settings.update({name: value for name, value in values.items() if value is not None})
        self._properties.update({(device, name): value for device, name, value in event.properties or ()})

    def _actions_before(self, event: MDAEvent) -> Iterator[MDAEvent]:
        autofocus = self._autofocus.pop(event.index.get("p"), None)
        if autofocus is not None and not any(isinstance(action.action, HardwareAutofocus) for action in self._actions):
            yield autofocus.model_copy(update={"min_start_time": None, "reset_event_timer": False})
        yield from map(self._timed, self._actions)
        self._actions.clear()

    def _timed(self, event: MDAEvent) -> MDAEvent:
        start_s, resets = self._clock.start(event.min_start_time, resets=event.reset_event_timer)
        if (start_s, resets) == (event.min_start_time, event.reset_event_timer):
            return event
        return event.model_copy(update={"min_start_time": start_s, "reset_event_timer": resets})


def _with_axes(event: MDAEvent, axes: Mapping[str, Any]) -> MDAEvent:
    """A copy with its axes, as a list may contain the same event more than once."""
    return event.model_copy(update={"metadata": {**event.metadata, AXES_NOTE: axes}})
