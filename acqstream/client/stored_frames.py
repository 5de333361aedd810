"""Axes of the frames that a dataset had when a run was opened, which a resuming program need not acquire again."""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Collection, Iterator, Mapping

import numpy as np
import xxhash
from numpy.typing import NDArray

from acqstream.client.connection import Connection
from acqstream.client.frame_axes import MicroManagerAxes, plain_axes
from acqstream.errors import AcquisitionFailed, AcquisitionRefused, ConfigError, DaemonUnavailable
from acqstream.model.axes import Axes, AxisValue, axes_json
from acqstream.protocol.frame_batch import encode_request
from acqstream.protocol.replies import StoredPage


class StoredFrames(Collection[Mapping[str, AxisValue]]):
    """Axes of the frames stored before a run with resume=True was opened; empty for a new dataset.

    `axes in stored` asks for one frame, iterating gives the axes of all in order of arrival, `len` their number. Frames
    that this run puts do not count. The daemon is asked when the axes are first needed; look-ups keep 8 bytes a frame.

    Iterating, and the first look-up, wait for the daemon and raise the run's first error, AcquisitionRefused from a
    daemon that is too old for this question, and DaemonUnavailable where it does not answer within the patience.
    """

    def __init__(self, connection: Connection, micromanager: MicroManagerAxes | None) -> None:
        self._connection = connection
        self._micromanager = micromanager
        self._asking = threading.Lock()
        self._digests: NDArray[np.uint64] | None = None

    def __len__(self) -> int:
        return self._connection.state.stored_before or 0

    def __iter__(self) -> Iterator[dict[str, AxisValue]]:
        at, count = 0, 0
        while count < self._checked_count():
            page = self._ask(at)
            if not page.keys:
                return  # a daemon that was killed meanwhile has lost the last ones, which must be acquired again
            for key in page.keys[: self._checked_count() - count]:
                yield dict(key)
            count, at = count + len(page.keys), page.next

    def __contains__(self, axes: object) -> bool:
        """True if a frame with these axes was stored. Raises ProtocolError if they are not axes."""
        if not self._checked_count():
            return False
        plain = plain_axes(axes, {})  # type: ignore[arg-type]  # it checks the type
        if self._micromanager is not None:
            plain = self._micromanager.convert(plain)
        if self._digests is None:
            self._digests = np.sort(np.frombuffer(array("Q", map(_digest, self)), np.uint64))
        digest = np.uint64(_digest(plain))
        place = int(self._digests.searchsorted(digest))
        return place < len(self._digests) and bool(self._digests[place] == digest)

    def _checked_count(self) -> int:
        state = self._connection.state
        if state.stored_before is None and state.opened is not None and state.opened.next > 0:
            text = "it is older than this client and cannot list the stored frames; update it"
            raise AcquisitionRefused(f"the daemon at {self._connection.opener.endpoint}: {text}", code="unsupported")
        return len(self)

    def _ask(self, at: int) -> StoredPage:
        connection, state = self._connection, self._connection.state
        if connection.inside:
            raise ConfigError("on_error must not wait for an answer of the daemon")
        header = encode_request("stored", ds=connection.dataset_id, at=at)
        with self._asking, state.condition:
            deadline = time.monotonic() + connection.settings.patience_s
            state.ask_stored(header)
            connection.wake()
            while state.stored_answer is None:
                if state.failure is not None:
                    raise state.failure.with_traceback(None)
                if state.ended or connection.is_stopped:
                    raise AcquisitionFailed(f"run {connection.settings.name!r} is closed", code="closed")
                if (remaining_s := deadline - time.monotonic()) <= 0:
                    raise self._no_answer()
                state.condition.wait(remaining_s)
            if not isinstance(state.stored_answer, StoredPage):
                raise state.stored_answer
            return state.stored_answer

    def _no_answer(self) -> DaemonUnavailable:
        settings, state = self._connection.settings, self._connection.state
        why = state.report.pause_reason or state.report.state
        text = f"has not listed the stored frames of {settings.name!r} within {settings.patience_s:g} s"
        return DaemonUnavailable(
            f"the daemon at {self._connection.opener.endpoint} {text}" + (f": {why}" if why else "")
        )


def _digest(axes: Axes) -> int:
    """64 bits for a set of axes in any order: two frames of ten million have the same with probability 3e-6."""
    return xxhash.xxh3_64_intdigest(axes_json({name: axes[name] for name in sorted(axes)}))
