"""Sends late metadata of a run: patches of the summary before the first frame, and display settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from acqstream.client.connection import Connection
from acqstream.client.frame_buffer import FrameBuffer
from acqstream.client.open_request import patch_parts
from acqstream.client.plain_metadata import Changes, plain_metadata
from acqstream.errors import ProtocolError
from acqstream.model.metadata import MAX_SUMMARY_BYTES
from acqstream.model.units import count_text


class LatePatches:
    """Used by any thread. A patch of the summary has all entries of those before, which may still be unsent."""

    def __init__(self, connection: Connection, buffer: FrameBuffer) -> None:
        self._connection = connection
        self._state = connection.state
        self._buffer = buffer
        self._summary: dict[str, Any] = {}

    def patch(self, kind: str, values: Mapping[str, Any]) -> Changes:
        """Send "summary" or "display" as plain values; return what was changed. Raises as `Run.patch`."""
        plain, changes = plain_metadata(values, MAX_SUMMARY_BYTES)
        with self._state.lock:
            n_frames = self._state.outbox.next
            if kind == "summary" and n_frames > 0:
                raise ProtocolError(
                    f"the summary can be patched before frame 0 only; {count_text(n_frames, 'frame', 'were')} put"
                )
            self._buffer.raise_if_over()
            self.send(kind, plain)
        return changes

    def send(self, kind: str, values: dict[str, Any]) -> None:
        """Send plain values, whichever frames exist. Raises ConfigError for what the daemon does not take."""
        with self._state.lock:
            if kind == "summary":
                self._summary = values = {**self._summary, **values}
            welcome = self._connection.opener.welcome
            header, part = patch_parts(self._connection.dataset_id, kind, values, welcome.max_patch if welcome else 0)
            self._state.patches.add(kind, header, part)
            self._connection.wake()
