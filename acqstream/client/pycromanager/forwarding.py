"""Frames from Pycro-Manager's image hook to a run."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from acqstream.client.hook_frames import put_frame
from acqstream.client.pycromanager.frame_record import FrameRecorder

if TYPE_CHECKING:
    from acqstream.client.run import Run

logger = logging.getLogger(__name__)
ABORT_S = 1.0
"""Delay after which Pycro-Manager has emptied its queue of events when the hook raised."""

ProcessFunction = Callable[[Any, dict[str, Any], Any], "tuple[Any, dict[str, Any]] | None"]


class EventQueue(Protocol):
    """Pycro-Manager's queue of events; None is the mark of its end."""

    def put(self, item: None) -> None: ...


def forward(run: Run, *, keep_local: bool = False) -> ProcessFunction:
    """A function for `image_process_fn` of an acquisition, with either back end, that puts every frame into `run`.

    The frames are not stored by Pycro-Manager (the function returns None), unless keep_local requests both. An error of
    `put` ends the acquisition; Pycro-Manager raises it again as an `Exception` with its text.

    Frames that were stored before a run with resume=True was opened are dropped; `PendingEvents` leaves their events
    out, so that they are not acquired at all.
    """
    run.refused.is_raised = False
    recorder = FrameRecorder()
    has_dropped = False

    def forward_frame(
        image: Any, metadata: dict[str, Any], event_queue: EventQueue | None
    ) -> tuple[Any, dict[str, Any]] | None:
        nonlocal has_dropped
        try:
            frame = recorder.record(image, metadata)
            if frame.axes in run.stored:
                if not has_dropped:
                    logger.warning("%s: frames that are stored come again; they are dropped", run.name)
                has_dropped = True
            else:
                put_frame(run, frame.image, frame.axes, frame.metadata, bits=frame.bits, time_ns=frame.time_ns)
        except BaseException:
            if event_queue is not None:
                _mark_end(event_queue)
            raise
        return (image, metadata) if keep_local else None

    return forward_frame


def _mark_end(event_queue: EventQueue) -> None:
    """The abort empties the queue of events, with the mark of its end: without a new one the acquisition never ends."""
    timer = threading.Timer(ABORT_S, event_queue.put, (None,))
    timer.daemon = True
    timer.start()
