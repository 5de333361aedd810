"""The events of a resumed run that are left to acquire: those whose frames are not stored."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from acqstream.client.event_clock import EventClock
from acqstream.errors import ProtocolError

if TYPE_CHECKING:
    from acqstream.client.run import Run

Event = Mapping[str, Any]
# What an event without them takes over from the events before it.
_SETTINGS = ("x", "y", "z", "stage_positions", "config_group", "exposure", "slm_pattern")


class PendingEvents:
    """Takes stored events out of what is to be acquired with `run`; call it with the events of every `acquire`.

    The first event after skipped ones gets the settings that these would have left behind, and start times move
    forward by what is skipped. skipped counts the events that were taken out.
    """

    def __init__(self, run: Run) -> None:
        self._stored = run.stored
        self._clock = EventClock()
        self._settings: dict[str, Any] = {}
        self._properties: dict[tuple[str, str], Any] = {}
        self._lock = threading.Lock()  # hooks may add events while others are acquired
        self.skipped = 0

    def __call__(self, events: Any) -> Any:
        """What is left of an event, a list or a generator of events: a list, which may be empty, or a generator."""
        if isinstance(events, GeneratorType):
            return self._left_of(events)
        return list(self._left_of([events] if isinstance(events, Mapping) else events))

    def _left_of(self, events: Any) -> Iterator[Any]:
        for event in events:
            if isinstance(event, list):  # a generator may give lists
                if left := self(event):
                    yield left
            elif (one := self._pending(event)) is not None:
                yield one

    def _pending(self, event: Any) -> Any:
        """The event with what it takes over; None if its frame is stored."""
        if not self._stored or not isinstance(event, Mapping):
            return event  # an event that is none is refused where it is acquired
        with self._lock:
            if self._is_stored(event):
                self._skip(event)
                return None
            start_s, _ = self._clock.start(event.get("min_start_time"))
            changed = {name: value for name, value in self._settings.items() if event.get(name) is None}
            if start_s is not None:
                changed["min_start_time"] = start_s
            if self._properties:
                own = {(device, name): value for device, name, value in event.get("properties") or ()}
                merged = {**self._properties, **own}
                changed["properties"] = [[device, name, value] for (device, name), value in merged.items()]
            self._settings.clear()
            self._properties.clear()
            return {**event, **changed}

    def _is_stored(self, event: Event) -> bool:
        axes = dict(event.get("axes") or {})
        for key, axis in (("row", "row"), ("col", "column")):  # deprecated, and still taken by Pycro-Manager
            if key in event:
                axes[axis] = event[key]
        try:
            return axes in self._stored
        except ProtocolError:
            return False  # no frame can have such axes: `put` tells what is wrong with them

    def _skip(self, event: Event) -> None:
        self.skipped += 1
        self._clock.skip(event.get("min_start_time"))
        self._settings.update({name: event[name] for name in _SETTINGS if event.get(name) is not None})
        self._properties.update({(device, name): value for device, name, value in event.get("properties") or ()})
