"""Moves frames from the feed into a view, as far as memory and the disk allow."""

from __future__ import annotations

from collections.abc import Callable

from acqstream.views.base import DigestingView, RangeView, RowView, View
from acqstream.views.disk_allowance import DiskAllowance
from acqstream.views.feed import FrameFeed


class FrameTaker:
    """The cursor of a view and counts of its frames.

    may_read returns whether the disk may be used now; allowance is its use while it may not. After `take`: is_held: the
    next frame needs the disk, which may not be used; is_waiting: it is being read.
    """

    def __init__(self, may_read: Callable[[], bool], allowance: DiskAllowance) -> None:
        self.cursor = self.from_memory = self.from_stack = self.overtaken = 0
        self.is_held = self.is_waiting = False
        self._may_read = may_read
        self._allowance = allowance

    def take(self, view: View, feed: FrameFeed, limit_bytes: int) -> bool:
        """Take published frames, about limit_bytes of pixels. False if nothing was done."""
        self.is_held = self.is_waiting = False
        if isinstance(view, RangeView) and self._allowance.is_free():
            cursor = view.take_range(self.cursor, len(feed.reader))
            if cursor is not None:
                self.from_stack, self.cursor = self.from_stack + cursor - self.cursor, cursor
                self.is_waiting = cursor < len(feed.reader)
                return False
        is_ready = feed.has(self.cursor) and self._make_ready(view, self.cursor)
        if isinstance(view, DigestingView):
            has_digested = feed.look_ahead(view.digest, view.max_digests, limit_bytes)
        else:  # no digest is made, but the feed notes the frames in memory: has_news then reports later ones only
            has_digested = feed.look_ahead(lambda _: None, 0, limit_bytes)
        if isinstance(view, RowView):
            return is_ready and self._take_rows(view, feed)
        return (is_ready and self._take_published(view, feed, limit_bytes)) or has_digested

    def _take_published(self, view: View, feed: FrameFeed, limit_bytes: int) -> bool:
        leases = feed.take(self.cursor, limit_bytes)
        self.is_held, self.is_waiting = feed.is_held, feed.is_reading
        for lease in leases:
            if lease is not leases[0] and not self._make_ready(view, lease.row):
                self.is_held = self.is_waiting = False
                break
            contribution = view.take(lease)
            if not lease.is_intact():
                self.overtaken += 1  # the log has overwritten the pixels; the next step reads the stack
                break
            view.keep(contribution)
            self.cursor += 1
            if lease.is_from_memory:
                self.from_memory += 1
            else:
                self.from_stack += 1
        return bool(leases)

    def _take_rows(self, view: RowView, feed: FrameFeed) -> bool:
        self.cursor = view.take_rows(self.cursor, len(feed.reader))
        return True

    def _make_ready(self, view: View, row: int) -> bool:
        """Prepare the view for this frame. False if it must wait, with the cause in is_held or is_waiting."""
        if view.is_ready(row):
            return True
        is_near = isinstance(view, DigestingView) and view.is_nearly_ready(row) and self._allowance.has_some()
        if not (is_near or self._may_read()):
            self.is_held = True
            return False
        with self._allowance.using():
            is_ready = view.make_ready(row)
        self.is_waiting = not is_ready
        return is_ready
