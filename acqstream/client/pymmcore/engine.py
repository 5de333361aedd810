"""An engine around the user's engine, which sends every frame before other listeners get it."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Generator, Iterable, Iterator
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from pymmcore_plus.mda import MDAEngine, PMDAEngine, SkipEvent

from acqstream.client.plain_values import plain_metadata
from acqstream.client.pymmcore.sequence_plan import CameraSelector, acquires
from acqstream.client.pymmcore.streamer import Streamer

if TYPE_CHECKING:
    from pymmcore_plus import CMMCorePlus
    from pymmcore_plus.metadata import SummaryMetaV1
    from useq import MDAEvent, MDASequence

logger = logging.getLogger(__name__)
Payload = Any  # (image, event, metadata), or None for a missing frame
_OWN = frozenset({"_acqstream_inner", "_acqstream_core", "_acqstream_streamer"})


class StreamingEngine(PMDAEngine):
    """Behaves as `inner` in every respect, attributes included, and gives each frame to the streamer.

    All of it happens in the thread of the acquisition: waiting there slows the run down, raising there ends it.
    """

    _acqstream_inner: PMDAEngine
    _acqstream_core: weakref.ref[CMMCorePlus]
    _acqstream_streamer: Streamer

    def __init__(self, inner: PMDAEngine, core: CMMCorePlus, streamer: Streamer) -> None:
        self._acqstream_inner = inner
        self._acqstream_core = weakref.ref(core)
        self._acqstream_streamer = streamer

    def __getattr__(self, name: str) -> Any:
        if name in _OWN:  # not set yet, as in a copy
            raise AttributeError(name)
        return getattr(self._acqstream_inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN:
            object.__setattr__(self, name, value)
        else:
            setattr(self._acqstream_inner, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._acqstream_inner, name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} around {self._acqstream_inner!r}>"

    def setup_sequence(self, sequence: MDASequence) -> SummaryMetaV1 | None:
        self._acqstream_streamer.prepare()
        meta = self._acqstream_inner.setup_sequence(sequence)
        selector = CameraSelector(self._acqstream_core())
        self._acqstream_streamer.begin(sequence, meta, selector, has_plain_engine=_is_plain(self._acqstream_inner))
        return meta

    def event_iterator(self, events: Iterable[MDAEvent]) -> Iterator[MDAEvent]:
        make = getattr(self._acqstream_inner, "event_iterator", iter)
        sink = self._acqstream_streamer.sink
        try:
            yield from make(sink.pending_events(events) if sink is not None else events)
            self._acqstream_streamer.complete()
        except Exception as error:
            self._acqstream_streamer.keep(error)
            raise

    def setup_event(self, event: MDAEvent) -> None:
        sink = self._acqstream_streamer.sink
        try:
            if sink is not None and (pending := sink.unfiltered) is not None:  # the runner reads iterators itself
                if pending.is_stored(event):
                    raise SkipEvent(reason="its frames are stored", num_frames=0)
                event = pending.with_settings(event)
            self._acqstream_inner.setup_event(event)
        except SkipEvent as skipped:
            if sink is not None:
                frames = skipped.num_frames * self._cameras()
                sink.skip(frames, reason=skipped.reason or "skipped by the engine")
            raise
        except Exception as error:
            self._acqstream_streamer.keep(error)
            raise

    def exec_event(self, event: MDAEvent) -> Generator[Payload, str | None, None]:
        if self._acqstream_streamer.sink is None:
            yield from _as_generator(self._acqstream_inner.exec_event(event))
            return
        try:
            yield from self._forward(event)
        except GeneratorExit:  # the runner itself failed
            self._stop_camera()
            raise
        except BaseException as error:  # also an interrupt from the keyboard
            self._acqstream_streamer.keep(error)
            self._stop_camera()
            raise

    def teardown_event(self, event: MDAEvent) -> None:
        inner = getattr(self._acqstream_inner, "teardown_event", None)
        if inner is not None:
            inner(event)

    def teardown_sequence(self, sequence: MDASequence) -> None:
        inner = getattr(self._acqstream_inner, "teardown_sequence", None)
        try:
            if inner is not None:
                inner(sequence)  # first, as it puts shutter and stages back
        finally:
            core = self._acqstream_core()
            self._acqstream_streamer.end(core.mda.status.finish_reason if core is not None else None)

    def _forward(self, event: MDAEvent) -> Generator[Payload, str | None, None]:
        """The payloads of the inner engine, each sent first; signals of the runner go to the inner engine."""
        expected = _frames_of(event) * self._cameras() if acquires(event) else 0
        depth = self._bit_depth()
        count = 0
        is_canceled = False
        stream = _as_generator(self._acqstream_inner.exec_event(event))
        try:
            payload = next(stream, ...)
            while payload is not ...:
                self._send_frame(payload, depth)
                count += 1
                signal = yield payload
                is_canceled = is_canceled or signal == "cancel"
                payload = _send(stream, signal)
        finally:
            stream.close()
        sink = self._acqstream_streamer.sink
        if sink is not None and count < expected and not is_canceled:
            index = plain_metadata(event.index)[0]
            sink.lose(expected - count, reason=f"no image came for the event with index {index}")

    def _send_frame(self, payload: Payload, depth: int) -> None:
        sink = self._acqstream_streamer.sink
        if sink is None:
            return
        if payload is None:
            sink.skip(1, reason="the camera did not deliver this frame")
            return
        image, event, meta = payload
        started = event.metadata.get("runner_t0")
        elapsed_ms = (time.perf_counter() - started) * 1000 if started else 0.0
        sink.append(image, event, meta, elapsed_ms=elapsed_ms, depth=depth)

    def _cameras(self) -> int:
        core = self._acqstream_core()
        return max(1, core.getNumberOfCameraChannels()) if core is not None else 1

    def _bit_depth(self) -> int:
        """Once per event, as properties may change it."""
        core = self._acqstream_core()
        return int(core.getImageBitDepth()) if core is not None else 0

    def _stop_camera(self) -> None:
        core = self._acqstream_core()
        if core is not None:
            stop_camera(core)


def stop_camera(core: CMMCorePlus) -> None:
    """End a hardware-timed sequence, if one runs."""
    try:
        core.stopSequenceAcquisition()
    except RuntimeError as error:  # the camera itself may be what failed
        logger.warning("the camera could not be stopped: %s", error)


def _is_plain(engine: PMDAEngine) -> bool:
    """True for the library's own way to make images, which is one per event and camera."""
    makers = ("exec_event", "exec_single_event", "exec_sequenced_event")
    return all(getattr(type(engine), name, None) is getattr(MDAEngine, name) for name in makers)


def _frames_of(event: MDAEvent) -> int:
    """Images of one camera: a hardware-timed event stands for many."""
    events = getattr(event, "events", None)
    return len(events) if events is not None else 1


def _as_generator(payloads: Iterable[Payload] | None) -> Generator[Payload, str | None, None]:
    return payloads if isinstance(payloads, GeneratorType) else _from_iterable(payloads or ())


def _from_iterable(payloads: Iterable[Payload]) -> Generator[Payload, str | None, None]:
    for payload in payloads:  # noqa: UP028 - what is sent must not go to an iterator that takes nothing
        yield payload


def _send(stream: Generator[Payload, str | None, None], signal: str | None) -> Payload:
    """The next payload, or Ellipsis after the last one."""
    try:
        return stream.send(signal)
    except StopIteration:
        return ...
