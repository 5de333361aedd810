"""Frames of Pycro-Manager to a run: from its image hook, or from its engine, with a run in the place of its storage.

Wrong entries in their metadata are corrected. Events whose frames are stored are left out.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from types import GeneratorType
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from acqstream.client.hook_frames import CaptureClock, HookFrames, SkippedEvents, fitting_bits
from acqstream.client.plain_values import plain_scalar
from acqstream.client.run import Run
from acqstream.errors import AcqStreamError, ConfigError, ProtocolError
from acqstream.model.receipt import Receipt

logger = logging.getLogger(__name__)

# Settings that an event without them inherits from the events before it.
_SETTINGS = ("x", "y", "z", "stage_positions", "config_group", "exposure", "slm_pattern")
ABORT_S = 1.0
"""Delay after which Pycro-Manager has emptied its queue of events when the hook raised."""
ProcessFunction = Callable[[Any, dict[str, Any], Any], "tuple[Any, dict[str, Any]] | None"]
AXES_KEY = "Axes"
ELAPSED_KEY = "ElapsedTime-ms"
RECEIVED_KEY = "TimeReceivedByCore"
# Numbers that the core gives as text in hardware sequences.
_NUMBER_KEYS = frozenset({"Binning", "BitDepth", "ImageNumber", "ROI-X-start", "ROI-Y-start"})


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
    frames, recorder = HookFrames(run), FrameRecorder()

    def forward_frame(
        image: Any, metadata: dict[str, Any], event_queue: EventQueue | None
    ) -> tuple[Any, dict[str, Any]] | None:
        try:
            if not frames.put(*recorder.record(image, metadata)) and frames.n_dropped == 1:
                logger.warning("%s: frames that are stored come again; they are dropped", run.name)
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


class RunStorage:
    """The storage of the Python back end's engine; frames come in the engine's saving thread.

    verdict returns status and reason of the end, fail takes an error and ends the acquisition.
    """

    def __init__(self, run: Run, verdict: Callable[[], tuple[str, str]], fail: Callable[[BaseException], None]) -> None:
        self.run = run
        self._frames, self._recorder = HookFrames(run), FrameRecorder()
        self.receipt: Receipt | None = None
        self._verdict = verdict
        self._fail = fail
        self._finishing = False
        self._finished = threading.Event()

    def initialize(self, summary_metadata: Mapping[str, Any]) -> None:
        """Do nothing: an error here would keep threads of the engine for ever."""

    def put_image(self, axes: Mapping[str, Any], pixels: object, metadata: Mapping[str, Any]) -> None:
        """Send one frame. Waiting here slows the engine down; `await_completion` raises the error."""
        try:
            self._frames.put(*self._recorder.record(pixels, {**metadata, AXES_KEY: axes}))
        except BaseException as error:
            self._fail(error)
            raise

    def finish(self) -> None:
        """Close the run and wait until it is stored. The engine calls it once or twice and must not see an error."""
        if self._finishing:
            return
        self._finishing = True
        if count := self._frames.n_dropped:
            logger.warning("%s: %d frames came again that are stored; they were dropped", self.run.name, count)
        try:
            self.receipt = self.run.close(*self._verdict())
        except AcqStreamError as error:
            logger.warning("%s: %s", self.run.name, error)
            self._fail(error)
        finally:
            self._finished.set()

    def is_finished(self) -> bool:
        return self._finished.is_set()

    def block_until_finished(self, timeout: float | None = None) -> None:
        """Wait for the end of `finish`, at most `timeout` seconds."""
        self._finished.wait(timeout)

    def read_image(self, **axes: Any) -> NoReturn:
        """Refused: the daemon has the frames."""
        raise ConfigError(f"frames of {self.run.name!r} are read with acqstream.open({self.run.path!r})")

    read_metadata = read_image


class FrameRecord(NamedTuple):
    """One frame as `HookFrames.put` takes it: image is (Y, X) or (Y, X, 3), time_ns since 1970."""

    image: NDArray[Any]
    axes: Mapping[Any, Any]
    metadata: dict[str, Any]
    bits: int | None
    time_ns: int


class FrameRecorder:
    """Makes the records of one acquisition."""

    def __init__(self) -> None:
        self._clock = CaptureClock()
        self._first_ns: int | None = None

    def record(self, image: object, metadata: Mapping[str, Any]) -> FrameRecord:
        """The record of the next frame. Raises ProtocolError if the metadata have no axes."""
        axes = metadata.get(AXES_KEY)
        if not isinstance(axes, Mapping):
            raise ProtocolError(f"the image's metadata[{AXES_KEY!r}] is {axes!r:.60}; expected a map of its axes")
        pixels = np.asarray(image)
        stored = {
            str(key): plain_scalar(value) for key, value in metadata.items() if key != AXES_KEY and value is not None
        }
        for key in _NUMBER_KEYS & stored.keys():
            stored[key] = _number(stored[key])
        # Text in hardware sequences, and without pixel type for snaps, so the array decides.
        stored.update(_pixel_keys(pixels))
        stored = {**_viewer_keys(stored), **stored}
        time_ns = self._set_times(stored)
        return FrameRecord(pixels, axes, stored, fitting_bits(stored.get("BitDepth"), pixels), time_ns)

    def _set_times(self, stored: dict[str, Any]) -> int:
        """Capture time in ns; corrects the elapsed time in `stored`, which is the same for all frames of a sequence."""
        time_ns = self._clock.now_ns()
        if self._first_ns is None:
            self._first_ns = time_ns
        if RECEIVED_KEY in stored or ELAPSED_KEY not in stored:
            stored[ELAPSED_KEY] = (time_ns - self._first_ns) / 1e6
        return time_ns


def _viewer_keys(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Pixel size and stage positions, as measured or else as intended, under the names that viewers look for."""
    sources: dict[str, tuple[str, ...]] = {"PixelSizeUm": ("PixelSize_um",)}
    for axis in "XYZ":
        sources[f"{axis}PositionUm"] = (f"{axis}Position_um", f"{axis}Position_um_Intended")
    keys = {key: next((stored[name] for name in names if name in stored), None) for key, names in sources.items()}
    return {key: value for key, value in keys.items() if value is not None}


def _pixel_keys(image: NDArray[Any]) -> dict[str, Any]:
    if image.ndim < 2:
        return {}
    kind = "RGB32" if image.ndim == 3 else f"GRAY{image.dtype.itemsize * 8}"
    return {"Width": image.shape[1], "Height": image.shape[0], "PixelType": kind}


def _number(value: Any) -> Any:
    """An integer for its text; other values ("2x2") unchanged."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


class PendingEvents:
    """Removes stored events from those to acquire with `run`; call it with the events of every `acquire`.

    Others get settings and start times of those: see `SkippedEvents`.
    """

    def __init__(self, run: Run) -> None:
        self._stored = run.stored
        self._left_out = SkippedEvents(_SETTINGS)
        self.skipped = 0  # the number of removed events
        self._lock = threading.Lock()  # hooks may add events while others are acquired

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
                self.skipped += 1
                self._left_out.add(event.get, event.get("properties"), event.get("min_start_time"))
                return None
            start_s, _ = self._left_out.clock.start(event.get("min_start_time"))
            changed = self._left_out.take(event.get, event.get("properties"))
            if "properties" in changed:
                changed["properties"] = [list(one) for one in changed["properties"]]
            if start_s is not None:
                changed["min_start_time"] = start_s
            return {**event, **changed}

    def _is_stored(self, event: Mapping[str, Any]) -> bool:
        axes = dict(event.get("axes") or {})
        for key, axis in (("row", "row"), ("col", "column")):  # deprecated, and still taken by Pycro-Manager
            if key in event:
                axes[axis] = event[key]
        try:
            return axes in self._stored
        except ProtocolError:
            return False  # no frame can have such axes: `put` raises the error
