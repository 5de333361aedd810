"""Records a stream as datasets, one run after the other; a reset, a change or silence ends each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from acqstream.client.producer import create
from acqstream.client.run import Run
from acqstream.errors import AcquisitionFailed, ConfigError, FrameRefused, ProtocolError
from acqstream.model.frame_header import pixel_type_of
from acqstream.model.receipt import Receipt
from acqstream.receive.array_stream import ArrayHeader, parse_array_header
from acqstream.receive.frame_order import FrameOrder, StreamCounter

MAX_REORDER = 1024
Pattern = Literal["pull", "sub"]
StreamFormat = Literal["array", "dectris"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """stream is the endpoint of the stream, daemon that of the writer. bind: we bind it and the sender connects.

    idle_s without a message end a dataset. queue bounds the messages that wait in the socket. frames is how many to
    record before ending, None for no end. reorder is how many messages wait for one whose turn it is.
    """

    stream: str
    name: str
    daemon: str | None
    pattern: Pattern = "pull"
    format: StreamFormat = "array"
    bind: bool = False
    idle_s: float = 10.0
    queue: int = 64
    frames: int | None = None
    reorder: int = 16
    patience_s: float = 30.0
    buffer_mb: float = 256

    def __post_init__(self) -> None:
        if self.pattern not in ("pull", "sub"):
            raise ConfigError(f"pattern {self.pattern!r} must be 'pull' or 'sub'")
        if self.format not in ("array", "dectris"):
            raise ConfigError(f"format {self.format!r} must be 'array' or 'dectris'")
        if not self.idle_s > 0:
            raise ConfigError(f"idle_s={self.idle_s!r} must be a positive number of seconds")
        if not 0 <= self.reorder <= MAX_REORDER:
            raise ConfigError(f"reorder={self.reorder!r} must be a number of messages from 0 to {MAX_REORDER}")
        if self.queue < 1:
            raise ConfigError(f"queue={self.queue!r} must be at least one message")


UNACKNOWLEDGED = (
    "unacknowledged_stream: the sender gets no acknowledgements; frames that it dropped show only in its frame counter"
)
_ONE_DATASET = "let the sender send one dataset (dataset_name of Odin's LiveViewPlugin)"
_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class StreamTally:
    """Counts of a stream.

    sent counts frames of the sender, as far as is known: recorded, lost and refused ones. frames were recorded; lost
    frames never came, by the sender's counter; refused messages could not be stored, some were no frames; broken
    headers were not JSON, but their frames are recorded; repeated frames came again, and are not stored again.
    """

    sent: int = 0
    frames: int = 0
    lost: int = 0
    refused: int = 0
    broken_headers: int = 0
    repeated: int = 0
    receipts: list[Receipt] = field(default_factory=list)
    warnings: dict[str, str] = field(default_factory=dict)  # code -> its first text

    @property
    def complete(self) -> bool:
        return not self.lost and not self.refused and all(receipt.complete for receipt in self.receipts)

    def lose(self, count: int, text: str) -> None:
        """Count frames that were sent and never came."""
        self.lost += count
        self.sent += count
        self.warn("lost_frames", text)

    def warn(self, code: str, text: str) -> None:
        """Log a text. The first one of each code is kept and logged as a warning, others for debugging."""
        _LOG.log(logging.DEBUG if code in self.warnings else logging.WARNING, "%s: %s", code, text)
        self.warnings.setdefault(code, text)


class Recorder:
    """Writes the messages of one stream. Used by one thread; `end` closes the open dataset.

    closed is called with the receipt of every dataset that ended. silence_ends: silence is the only sign that a dataset
    has ended.
    """

    silence_ends = True

    def __init__(self, settings: StreamSettings, closed: Callable[[Receipt], None] | None = None) -> None:
        self.tally = StreamTally()
        self._settings = settings
        self._closed = closed
        self._counter = StreamCounter()
        self._order: FrameOrder[tuple[ArrayHeader, bytes | memoryview]] = FrameOrder(settings.reorder)
        self._run: Run | None = None
        self._kind: tuple[tuple[int, ...], str] | None = None  # shape and stored dtype of the open dataset
        self._source = ""  # the sender's dataset that it records

    @property
    def recording(self) -> bool:
        return self._run is not None

    def take(self, parts: Sequence[bytes | memoryview]) -> None:
        """Store one message, or count it as refused. Raises the run's error, which ends the recording."""
        try:
            if len(parts) != 2:
                raise ProtocolError(f"a message of {len(parts)} parts; expected a header and the pixels")
            header = parse_array_header(bytes(parts[0]))
        except ProtocolError as error:
            self._refuse(None, str(error))
            return
        if self._run is None and header.dataset != self._source:  # what waits is another one's first frame
            self.settle()
        if self._run is None:
            self._source = header.dataset
        elif header.dataset != self._source:
            self._take_in_turn(header, parts[1])
            return
        for message in self._order.add(header.frame, (header, parts[1])):
            self._take_in_turn(*message)
        if self._order.repeats > self.tally.repeated:
            self.tally.repeated = self._order.repeats
            text = f"stream frame {header.frame} or the one before it came again, or too late"
            self.tally.warn("repeated_frame", text)

    def settle(self) -> None:
        """Store what waits for its predecessors: they do not come."""
        for message in self._order.settle():
            self._take_in_turn(*message)

    @property
    def waits(self) -> bool:
        """True if messages wait for their predecessors."""
        return self._order.is_waiting

    def _take_in_turn(self, header: ArrayHeader, payload: bytes | memoryview) -> None:
        try:
            if self._run is not None and header.dataset != self._source:  # which has a counter of its own
                text = f"frame {header.frame} is of {header.dataset!r}, {self._source!r} is recorded; {_ONE_DATASET}"
                self._refuse(None, text)
                return
            image = _image(header, payload)
        except ProtocolError as error:
            self._refuse(header.frame, str(error))
            return
        run = self._run_for(header, image)
        if header.broken:
            self.tally.broken_headers += 1
            text = f"frame {header.frame}: the header is not JSON; its required fields were read all the same"
            self.tally.warn("broken_header", text)
        stream = {**header.metadata, **({} if header.frame is None else {"frame": header.frame})}
        try:
            run.put(image, time=run.next, meta={"Stream": stream} if stream else None)
        except (ProtocolError, FrameRefused) as error:
            self._refuse(header.frame, str(error))  # raises if the run itself has failed
            return
        self.tally.frames += 1
        self.tally.sent += 1
        self._counter.advance(header.frame)

    def _run_for(self, header: ArrayHeader, image: NDArray[Any]) -> Run:
        """Return the run that this frame belongs to, with the lost frames before it declared."""
        lost = self._counter.lost_before(header.frame)
        kind = (image.shape, image.dtype.newbyteorder("<").str)
        if self._run is not None and lost is None:
            self._close("the frame counter restarted")
        elif self._run is not None and lost:
            self._declare_lost(lost, header.frame)
            lost = 0
        elif lost:
            self._count_lost(lost, header.frame)  # in the silence between two datasets
        if self._run is not None and kind != self._kind:
            self._close("shape or pixel type changed")
        run = self._run or self._begin(header, kind, lost or 0)
        self._counter.advance(None if header.frame is None else header.frame - 1)
        return run

    def _begin(self, header: ArrayHeader, kind: tuple[tuple[int, ...], str], lost: int) -> Run:
        run = self._create(kind, {"first_frame": header.frame, "lost_before": lost})
        self._run, self._kind, self._source = run, kind, header.dataset
        if header.frame is None:
            self.tally.warn("no_counter", "the sender does not count frames; frames that it drops cannot be detected")
        return run

    def _create(self, kind: tuple[tuple[int, ...], str], facts: Mapping[str, Any]) -> Run:
        """Begin a run of frames of this shape and dtype. facts: of the stream, for the summary."""
        settings = self._settings
        stream = {"endpoint": settings.stream, "pattern": settings.pattern, "acknowledged": False, **facts}
        run = create(
            settings.name,
            endpoint=settings.daemon,
            summary={"Source": "acqstream receive", "Stream": stream},
            frame=kind,
            on_exists="number",
            patience_s=settings.patience_s,
            buffer_mb=settings.buffer_mb,
        )
        run.refused.is_raised = False
        self.tally.warn("unacknowledged_stream", UNACKNOWLEDGED.partition(": ")[2])
        return run

    def _declare_lost(self, count: int, next_frame: int | None) -> None:
        assert self._run is not None
        self._run.skip(count, reason=self._count_lost(count, next_frame))

    def _count_lost(self, count: int, next_frame: int | None) -> str:
        assert next_frame is not None  # without a counter nothing is known to be lost
        numbers = f"{next_frame - count} to {next_frame - 1}" if count > 1 else f"{next_frame - 1}"
        text = f"stream frame {numbers} did not arrive"
        self.tally.lose(count, text)
        return text

    def _refuse(self, frame: int | None, text: str) -> None:
        self.tally.refused += 1
        self.tally.warn("refused", f"stream frame {'?' if frame is None else frame}: {text}")
        if self._run is None:
            self.tally.sent += frame is not None and self._counter.last is None  # else the next frame shows the loss
            return
        if self._counter.last is not None:
            lost = self._counter.lost_before(frame)
            if frame is None or lost is None:
                return  # the next frame's counter shows the loss, or it came before the dataset started
            if lost:
                self._declare_lost(lost, frame)
            self._counter.advance(frame)
        self.tally.sent += 1
        self._run.skip(1, reason=f"stream frame {'?' if frame is None else frame} was refused: {text}")

    def end(self, why: str) -> None:
        """Close the open dataset, if any, with a receipt whose reason names the missing acknowledgement."""
        self.settle()
        self._close(why)

    def _close(self, why: str) -> None:
        run, self._run = self._run, None
        if run is None:
            return
        try:
            self._keep(run.close("completed", f"{UNACKNOWLEDGED}. Ended: {why}"))
        except AcquisitionFailed as error:
            if error.code != "incomplete" or run.receipt is None:
                raise
            self._keep(run.receipt)  # it lists the missing frames

    def fail(self, error: BaseException) -> None:
        """Close the open dataset because of `error`, which the caller raises."""
        run, self._run = self._run, None
        if run is not None:
            run.__exit__(type(error), error, error.__traceback__)
            if run.receipt is not None:
                self._keep(run.receipt)

    def _keep(self, receipt: Receipt) -> None:
        self.tally.receipts.append(receipt)
        if self._closed is not None:
            self._closed(receipt)


def _image(header: ArrayHeader, payload: bytes | memoryview) -> NDArray[Any]:
    """Return the pixels as an array that shares the message's memory. Raises ProtocolError if they cannot be stored."""
    if header.encoding:
        raise ProtocolError(f"encoding {header.encoding!r} is not supported; let the sender send raw pixels")
    dtype = np.dtype(header.dtype)
    try:
        pixel_type_of(dtype.newbyteorder("<").str, header.shape)
    except ValueError as error:
        raise ProtocolError(str(error), code="dtype_unsupported") from error
    if len(payload) != header.payload_bytes:
        expected = f"shape {list(header.shape)} of {header.dtype} has {header.payload_bytes}"
        raise ProtocolError(f"{len(payload)} bytes of pixels; {expected}", code="payload_size")
    return np.frombuffer(payload, dtype).reshape(header.shape)
