"""The events of a resumed run whose frames are not stored."""

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
# Settings that an event without them inherits from the events before it.
_SETTINGS = ("x", "y", "z", "stage_positions", "config_group", "exposure", "slm_pattern")


class PendingEvents:
    """Removes stored events from those to acquire with `run`; call it with the events of every `acquire`.

    The first event after skipped ones gets the settings that these would have made, and start times move
    forward by the skipped time. skipped counts the removed events.
    """

    def __init__(self, run: Run) -> None:
        self._stored = run.stored
        self._clock = EventClock()
        self._settings: dict[str, Any] = {}
        self._properties: dict[tuple[str, str], Any] = {}
        self._lock = threading.Lock()  # hooks may add events while others are acquired
        self.skipped = 0

    def __call__(self, events: Any) -> Any:
        """Remove stored events from an event, a list or a generator; returns a list (maybe empty) or a generator."""
        if isinstance(events, GeneratorType):
            return self._pending_of(events)
        return list(self._pending_of([events] if isinstance(events, Mapping) else events))

    def _pending_of(self, events: Any) -> Iterator[Any]:
        for event in events:
            if isinstance(event, list):  # a generator may give lists
                if pending := self(event):
                    yield pending
            elif (pending := self._pending(event)) is not None:
                yield pending

    def _pending(self, event: Any) -> Any:
        """The event with its inherited settings; None if its frame is stored."""
        if not self._stored or not isinstance(event, Mapping):
            return event  # an invalid event is refused where it is acquired
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
            return False  # no frame can have such axes: `put` raises the error

    def _skip(self, event: Event) -> None:
        self.skipped += 1
        self._clock.skip(event.get("min_start_time"))
        self._settings.update({name: event[name] for name in _SETTINGS if event.get(name) is not None})
        self._properties.update({(device, name): value for device, name, value in event.get("properties") or ()})
