"""XXH3-64 of pixels and metadata, in a thread of its own: beside the writing, never in its way."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

import xxhash

from acqstream.errors import FrameRefused
from acqstream.log.group import Group
from acqstream.log.threads import make_thread


class ChecksumWorker:
    """Computes the checksums of groups in the order they come and compares them with the producer's.

    A group's `checksums` and `metadata_checksums` are complete once its `checked` is set; differences are kept in its
    `refused`.
    """

    def __init__(self, name: str, on_error: Callable[[BaseException], None]) -> None:
        self._queue: deque[Group] = deque()
        self._condition = threading.Condition()
        self._stopped = False
        self._on_error = on_error
        self._thread = make_thread("checksums", name, self._run)
        self._thread.start()

    def submit(self, group: Group) -> None:
        """Take a closed group, or take it again; its memory must stay until it is checked."""
        if group.is_checking:
            group.checked.wait()
            group.checked.clear()
            group.checksums.clear()
            group.metadata_checksums.clear()
            group.refused.clear()
        group.is_checking = True
        with self._condition:
            self._queue.append(group)
            self._condition.notify()

    def stop(self) -> None:
        """Finish what was submitted and end the thread."""
        with self._condition:
            self._stopped = True
            self._condition.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._queue and not self._stopped:
                    self._condition.wait()
                if not self._queue:
                    return
                group = self._queue.popleft()
            try:
                _check(group)
            except BaseException as error:  # noqa: BLE001 - the thread's edge: it reaches the producer
                self._on_error(error)
            finally:
                group.checked.set()


def _check(group: Group) -> None:
    digest = xxhash.xxh3_64_intdigest
    for placement in group.placements:
        frames, pixels, size = placement.frames, group.pixels_of(placement), placement.frames.frame_bytes
        digests = [digest(pixels[start : start + size]) for start in range(0, len(pixels), size)]
        of_metadata = list(map(digest, frames.metadata))
        group.checksums += digests
        group.metadata_checksums += of_metadata
        refused: dict[int, FrameRefused] = {}
        for what, ours, sent in (
            ("pixels", digests, frames.checksums),
            ("metadata", of_metadata, frames.metadata_checksums),
        ):
            if ours != sent:
                _note_differences(group, frames.number, what, (ours, sent), refused)
        group.refused.update(sorted(refused.items()))  # receipts list them in order


def _note_differences(
    group: Group,
    first: int,
    what: str,
    checksums: tuple[Sequence[int], Sequence[int | None]],
    refused: dict[int, FrameRefused],
) -> None:
    """Add the frames from number `first` on whose checksums are not those that were sent with them, by position."""
    for number, (ours, sent) in enumerate(zip(*checksums, strict=True), first):
        if sent is None or ours == sent:
            continue
        text = f"frame {number}: {what} have checksum {ours:016x}, the producer sent {sent:016x}"
        if group.outside is not None and what == "pixels":
            text += "; its place in shared memory was changed before it was acknowledged"
        refused.setdefault(number - group.first_number, FrameRefused(text, code="checksum", number=number))
