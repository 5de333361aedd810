"""The places of frames in the stack files, one after the other. Pure bookkeeping: no lock, no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from acqstream.errors import AcquisitionFailed, FrameRefused
from acqstream.formats.ndtiff.layout import STACK_LIMIT_BYTES, NDTiffLayout
from acqstream.formats.ndtiff.placement import Placement, RollOver
from acqstream.log.continuation import Continuation
from acqstream.model.frame_header import FrameRun
from acqstream.model.metadata import summary_json


class Placing:
    """Decides where each frame lies. The intake calls it under its lock and is its only writer.

    layout follows the summary until frame 0 fixes both; then stack_header holds the first bytes of every stack file,
    before it is empty. stack is the number of the current stack file and end the offset where the next group starts.
    axis_order names the axes of the dataset, by default those of frame 0.
    """

    def __init__(
        self,
        name: str,
        summary: Mapping[str, Any],
        *,
        overlap: tuple[int, int] | None = None,
        axis_order: Sequence[str] = (),
        stack_limit_bytes: int = STACK_LIMIT_BYTES,
    ) -> None:
        self._name = name
        self._overlap = overlap
        self._axis_order = axis_order
        self.stack_limit_bytes = stack_limit_bytes
        self.stack_header = b""
        self.stack = 0
        self.end = 0
        self._set_summary(summary)

    def _set_summary(self, summary: Mapping[str, Any]) -> None:
        self.summary = dict(summary)
        self.layout = NDTiffLayout(
            self._name, self.summary, overlap=self._overlap, stack_limit_bytes=self.stack_limit_bytes
        )

    def patch_summary(self, summary: Mapping[str, Any], *, keeps: bool) -> Mapping[str, Any]:
        """Merge into the summary metadata; return the result.

        Raises AcquisitionFailed for too much, and once frame 0 has a place; if `keeps`, nothing changes then.
        """
        if self.stack_header and keeps:
            return self.summary
        if self.stack_header:
            raise AcquisitionFailed("the summary is fixed: frame 0 has come", code="too_late")
        merged = {**self.summary, **summary}
        try:
            summary_json(merged)
        except ValueError as error:
            raise AcquisitionFailed(str(error), code="bad_header") from error
        self._set_summary(merged)
        return self.summary

    def resume(self, continuation: Continuation) -> None:
        """Before the first frame: continue in a new stack file after those of an earlier run."""
        if continuation.summary:
            self._set_summary(continuation.summary)
        self.stack_header = continuation.stack_header
        self.stack = continuation.next_stack
        self.end = len(self.stack_header)

    def header_without_frames(self) -> bytes:
        """The first bytes of the stack file of a dataset without frames; empty if there was a frame."""
        return b"" if self.stack_header else self.layout.stack_header(self._axis_order)

    def place(self, frames: FrameRun, previous: Placement | None) -> Placement | RollOver:
        """The place of a frame after `previous` in its group, or of a new group; RollOver if the file is full."""
        if not self.stack_header:
            self._axis_order = self._axis_order or tuple(frames.axes)
            self.stack_header = self.layout.stack_header(self._axis_order)
            self.end = len(self.stack_header)
        return self.layout.place(frames, self.end, previous)

    def place_run(self, frames: FrameRun, previous: Placement | None) -> Placement | None:
        """As `place`, for frames side by side in one group; None where they cannot lie so."""
        return self.layout.place_run(frames, self.end, previous)

    def place_in_next_stack(self, frames: FrameRun) -> Placement:
        """The place of a frame at the start of the next stack file. Raises FrameRefused if it fits in no file."""
        self.stack += 1
        self.end = len(self.stack_header)
        placement = self.layout.place(frames, self.end, None)
        if isinstance(placement, RollOver):
            raise FrameRefused("the frame fits no stack file", code="payload_size", number=frames.number)
        return placement
