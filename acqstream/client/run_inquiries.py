"""What a run asks of its daemon besides storing frames, and in which words it says how it stands."""

from __future__ import annotations

import threading
import time
import uuid
from array import array
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
import xxhash
import zmq
from numpy.typing import NDArray

from acqstream.client.connection import Connection
from acqstream.client.link import Link, no_daemon
from acqstream.client.plain_values import Changes, MicroManagerAxes, plain_axes, plain_metadata, plain_note
from acqstream.client.run_state import RunState
from acqstream.errors import (
    AcqStreamError,
    AcquisitionFailed,
    ConfigError,
    DaemonUnavailable,
    ProtocolError,
    WaitTimeout,
)
from acqstream.model.axes import Axes, AxisValue, axes_json
from acqstream.model.metadata import MAX_SUMMARY_BYTES
from acqstream.model.receipt import Receipt
from acqstream.model.run_summary import run_summary
from acqstream.model.units import count_text, duration_text
from acqstream.model.view_spec import MirrorResult
from acqstream.protocol.frame_batch import encode_request
from acqstream.protocol.replies import Error, MirrorsReply, StoredPage

POLL_S, MAX_POLL_S = 0.05, 1.0
FIRST_CONTACT_S = 0.25  # for a connection; doubled each time, as a refused one is not tried again
SILENCE_S = 3.0  # without a word of the daemon, which sends a status each second, before its numbers are old
ANSWER_S = 3.0  # a daemon that is silent for this time is contacted again
_PASSING_CODES = frozenset({"shutting_down", "internal"})


class StoredFrames(Collection[Mapping[str, AxisValue]]):
    """Axes of the frames stored before a run with resume=True was opened; empty for a new dataset.

    `axes in stored` asks for one frame, iterating gives the axes of all in order of arrival, `len` their number. Frames
    that this run puts do not count. The daemon is asked when the axes are first needed; look-ups keep 8 bytes a frame.

    Iterating, and the first look-up, wait for the daemon and raise the run's first error, and DaemonUnavailable where
    it does not answer within the patience.
    """

    def __init__(self, connection: Connection, micromanager: MicroManagerAxes | None) -> None:
        self._connection = connection
        self._micromanager = micromanager
        self._asking = threading.Lock()
        self._digests: NDArray[np.uint64] | None = None

    def __len__(self) -> int:
        return self._connection.state.stored_before

    def __iter__(self) -> Iterator[dict[str, AxisValue]]:
        at, count = 0, 0
        while count < len(self):
            page = self._ask(at)
            if not page.keys:
                return  # a daemon that was killed meanwhile has lost the last ones, which must be acquired again
            for key in page.keys[: len(self) - count]:
                yield dict(key)
            count, at = count + len(page.keys), page.next

    def __contains__(self, axes: object) -> bool:
        """True if a frame with these axes was stored. Raises ProtocolError if they are not axes."""
        if not len(self):
            return False
        plain = plain_axes(axes, {})  # type: ignore[arg-type]  # it checks the type
        if self._micromanager is not None:
            plain = self._micromanager.convert(plain)
        if self._digests is None:
            self._digests = np.sort(np.frombuffer(array("Q", map(_digest, self)), np.uint64))
        digest = np.uint64(_digest(plain))
        place = int(self._digests.searchsorted(digest))
        return place < len(self._digests) and bool(self._digests[place] == digest)

    def _ask(self, at: int) -> StoredPage:
        state, settings = self._connection.state, self._connection.state.settings
        if self._connection.inside:
            raise ConfigError("on_error must not wait for an answer of the daemon")
        with self._asking:
            replies = state.patches
            state.queue(replies.ask_stored, at)
            is_met = state.wait_until(
                lambda: replies.stored_answer is not None or state.failure is not None or state.ended,
                settings.patience_s,
            )
            answer = replies.stored_answer
        if isinstance(answer, StoredPage):
            return answer
        if is_met:
            closed = AcquisitionFailed(f"run {settings.name!r} is closed", code="closed")
            raise answer or (state.failure or closed).with_traceback(None)
        why = state.report.pause_reason or state.report.state
        text = f"has not listed the stored frames of {settings.name!r} within {settings.patience_s:g} s"
        endpoint = self._connection.opener.endpoint
        raise DaemonUnavailable(f"the daemon at {endpoint} {text}" + (f": {why}" if why else ""))


def _digest(axes: Axes) -> int:
    """64 bits for a set of axes in any order: two frames of ten million have the same with probability 3e-6."""
    return xxhash.xxh3_64_intdigest(axes_json({name: axes[name] for name in sorted(axes)}))


def add_note(connection: Connection, text: object, values: Mapping[str, Any], time_ns: int | None) -> Changes:
    """As `Run.note`; return what was changed in the values."""
    note, changes = plain_note(text, values, time_ns)
    state = connection.state
    with state.lock:
        state.raise_if_over()
        state.queue(state.patches.add_note, replace(note, frame=state.outbox.next, id=uuid.uuid4().hex))
    return changes


def add_patch(connection: Connection, kind: str, values: Mapping[str, Any]) -> Changes:
    """As `Run.patch`, of "summary" or "display"; return what was changed in the values."""
    plain, changes = plain_metadata(values, MAX_SUMMARY_BYTES)
    state = connection.state
    with state.lock:
        if kind == "summary" and (count := state.outbox.next) > 0:
            text = f"the summary can be patched before frame 0 only; {count_text(count, 'frame', 'were')} put"
            raise ProtocolError(text)
        state.raise_if_over()
        state.queue(state.patches.add_values, kind, plain)
    return changes


def wait_for_mirrors(connection: Connection, name: str, timeout_s: float | None) -> tuple[MirrorResult, ...]:
    """As `Run.wait_for_mirrors`, of the run with this connection, whose dataset is in the folder `name`."""
    return _MirrorWait(connection, name).wait(timeout_s)


class _MirrorWait:
    """Asks for the mirrors of one dataset.

    A daemon that does not answer has the patience of the settings to come back, counted from its last answer.
    """

    def __init__(self, connection: Connection, name: str) -> None:
        settings = connection.state.settings
        self.endpoint = connection.opener.daemon_endpoint
        self._name = name
        self._question = encode_request("mirrors", ds=connection.state.dataset_id, name=name)
        self._patience_s = settings.patience_s
        self._keys = settings.keys
        self._locate = settings.locate if settings.relocates else None
        self._release = settings.release
        self._answered_s = time.monotonic()
        self._contact_s = FIRST_CONTACT_S

    def wait(self, timeout_s: float | None) -> tuple[MirrorResult, ...]:
        """Results of all mirrors, once the run and they have ended. Raises as `Run.wait_for_mirrors`."""
        deadline = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        self._answered_s = time.monotonic()
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        try:
            while True:
                reply = self._ask_until(context, deadline)
                if reply is not None:
                    return reply.mirrors
                if time.monotonic() >= deadline:
                    raise WaitTimeout(f"the mirrors of {self._name} have not ended within {timeout_s:g} s")
                if time.monotonic() - self._answered_s >= self._patience_s:
                    raise self._unavailable()
                time.sleep(min(POLL_S, max(0.0, deadline - time.monotonic())))
        finally:
            context.destroy(linger=0)
            self._release()

    def _ask_until(self, context: zmq.Context[zmq.Socket[bytes]], deadline: float) -> MirrorsReply | None:
        """Ask over one connection until all have ended; None when the connection fails, or the time is over."""
        if self._locate is not None:
            self.endpoint = self._locate()  # the daemon of a directory may have ended when it was idle
        link = Link(context, self.endpoint, keys=self._keys)
        pause_s = POLL_S
        try:
            if not link.wait_writable(max(0.0, min(self._contact_s, self._remaining_s(), deadline - time.monotonic()))):
                self._contact_s = min(ANSWER_S, 2 * self._contact_s)
                return None
            while time.monotonic() < deadline:
                reply = self._ask(link, deadline)
                if reply is None:
                    return None
                self._answered_s, self._contact_s = time.monotonic(), FIRST_CONTACT_S
                if not reply.state.writing and all(mirror.ended for mirror in reply.mirrors):
                    return reply
                time.sleep(max(0.0, min(pause_s, deadline - time.monotonic())))
                pause_s = min(MAX_POLL_S, 1.5 * pause_s)
            return None
        finally:
            link.close()

    def _ask(self, link: Link, deadline: float) -> MirrorsReply | None:
        if not link.send(self._question):
            return None
        until = min(deadline, time.monotonic() + min(ANSWER_S, self._remaining_s()))
        while (reply := link.wait_reply(until)) is not None:
            if isinstance(reply, MirrorsReply):
                return reply
            if isinstance(reply, Error) and reply.code in _PASSING_CODES:
                return None
            if isinstance(reply, Error):
                text = f"the daemon at {self.endpoint} cannot report the mirrors of {self._name}: {reply.text}"
                raise ProtocolError(text, code=reply.code)
        return None

    def _remaining_s(self) -> float:
        return max(0.0, self._answered_s + self._patience_s - time.monotonic())

    def _unavailable(self) -> AcqStreamError:
        error = no_daemon(self.endpoint)
        return DaemonUnavailable(f"{error}; the mirrors of {self._name} had not ended")


def state_word(session: RunState) -> str:
    """How a run stands, in a word; without its lock, as a debugger may ask while another thread has it."""
    if session.failure is not None:
        return f"failed: {type(session.failure).__name__}"
    if session.receipt is not None:
        return session.receipt.status
    return "ended" if session.ended else "running"


def state_text(session: RunState, receipt: Receipt | None) -> str:
    """What a run means now, its receipt after the end; as above."""
    if session.failure is not None or receipt is not None:
        return str(receipt) if session.failure is None else f"failed: {session.failure}"
    words = run_summary(replace(session.report.status, sent=session.outbox.next))
    lines = [words.sentence(datetime.now().astimezone()), words.skipped_text]
    if (silence_s := time.monotonic() - session.contact.heard_at) >= SILENCE_S:
        lines.append(f"no word from the daemon for {duration_text(silence_s)}: these numbers are old")
    lines.append(words.alarm.sentence)
    return "\n".join(filter(None, lines))
