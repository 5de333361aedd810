"""The axes of one dataset's frames: which were used already, and the kind of value of each axis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import xxhash
from numpy.typing import NDArray

from acqstream.errors import FrameRefused
from acqstream.model.axes import Axes, axes_json, axes_json_rows
from acqstream.model.frame_header import FrameRun

_RECENT = 65536
_MAX_ORDERS = 1024  # sets of axis names; a run has one or a few

MAX_NAMES = 4096  # axis names of one dataset; a run has a few
_WORDS: Mapping[type, str] = {int: "an integer", str: "a string"}


class FrameKeys:
    """A set of frame keys by their 64-bit hash, in any order of the axes.

    Recent hashes are a set; older ones sorted arrays that are merged when they reach equal size, so that adding
    costs O(log n) on average and a look-up O(log^2 n). Two different keys are taken for the same with probability
    n^2 / 2^65 in a run of n frames: 3e-6 for ten million.
    """

    def __init__(self) -> None:
        self._recent: set[int] = set()
        self._orders: dict[frozenset[str], tuple[str, ...]] = {}  # the order in which names are hashed
        self._canonical: dict[tuple[str, ...], tuple[str, ...]] = {}  # by the order they came in
        self._runs: list[NDArray[np.uint64]] = []

    def __len__(self) -> int:
        return len(self._recent) + sum(len(run) for run in self._runs)

    def add(self, axes: Axes) -> bool:
        """Add a key; False if it, or one with the same hash, is stored already."""
        digest = self._digest(axes)
        if digest in self._recent or any(_holds(run, digest) for run in self._runs):
            return False
        if len(self._recent) >= _RECENT:
            self._flush()  # before adding: the newest key can still be discarded
        self._recent.add(digest)
        return True

    def add_run(self, frames: FrameRun) -> bool:
        """Add the keys of these frames; False, with none added, if one is stored already or occurs twice."""
        digests = self._digests(frames)
        new = set(digests)
        if len(new) < len(digests) or not self._recent.isdisjoint(new):
            return False
        wanted = np.fromiter(new, np.uint64, len(new)) if self._runs else None
        if wanted is not None and any(_holds_any(run, wanted) for run in self._runs):
            return False
        if len(self._recent) + len(new) > _RECENT:
            self._flush()  # before adding: all of these can still be discarded
        self._recent |= new
        return True

    def discard(self, axes: Axes) -> None:
        """Take back a key (its frame was not stored)."""
        digest = self._digest(axes)
        self._recent.discard(digest)
        for at, run in enumerate(self._runs):
            if _holds(run, digest):
                self._runs[at] = np.delete(run, run.searchsorted(np.uint64(digest)))

    def discard_run(self, frames: FrameRun) -> None:
        """Take back what `add_run` has added just now."""
        self._recent.difference_update(self._digests(frames))

    def _digests(self, frames: FrameRun) -> list[int]:
        names = tuple(frames.axes)
        order = self._canonical.get(names) or self._order_of(names)
        texts = frames.axes_texts
        if order != names:
            texts = axes_json_rows({name: frames.axes[name] for name in order}, len(frames))
        return list(map(xxhash.xxh3_64_intdigest, texts))

    def _digest(self, axes: Axes) -> int:
        names = tuple(axes)
        order = self._canonical.get(names)
        if order is None:
            order = self._order_of(names)
        ordered = axes if order is names or order == names else {name: axes[name] for name in order}
        return xxhash.xxh3_64_intdigest(axes_json(ordered))

    def _order_of(self, names: tuple[str, ...]) -> tuple[str, ...]:
        if len(self._canonical) >= _MAX_ORDERS:
            self._canonical.clear()
        if len(self._orders) < _MAX_ORDERS:
            order = self._orders.setdefault(frozenset(names), names)
        else:
            order = self._orders.get(frozenset(names)) or tuple(sorted(names))
        self._canonical[names] = order
        return order

    def _flush(self) -> None:
        run = np.sort(np.fromiter(self._recent, np.uint64, len(self._recent)))
        self._recent.clear()
        while self._runs and len(self._runs[-1]) <= len(run):
            run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")
        self._runs.append(run)


def _holds_any(run: NDArray[np.uint64], digests: NDArray[np.uint64]) -> bool:
    positions = np.minimum(run.searchsorted(digests), len(run) - 1)
    return bool((run[positions] == digests).any())


def _holds(run: NDArray[np.uint64], digest: int) -> bool:
    position = int(run.searchsorted(np.uint64(digest)))
    return position < len(run) and int(run[position]) == digest


class AxisKinds:
    """The kinds of one dataset's axes."""

    def __init__(self) -> None:
        self._kinds: dict[str, type] = {}
        self._newest: tuple[int, list[str]] = (0, [])  # names that were new in the frame of this number

    def check(self, axes: Axes, number: int) -> None:
        """Check the axes of frame `number`, and remember the kinds that are new.

        Raises FrameRefused: axis_kind where an axis had the other kind before, bad_header for too many names.
        """
        kinds = self._kinds
        for name, value in axes.items():
            kind = kinds.get(name)
            if kind is not value.__class__:
                try:
                    self._check_new(name, kind, value, number)
                except FrameRefused:
                    self.forget(number)
                    raise

    def forget(self, number: int) -> None:
        """Forget the kinds that were new in this frame, the last one that was checked: it was not stored."""
        if self._newest[0] == number:
            for name in self._newest[1]:
                self._kinds.pop(name, None)
            self._newest = (0, [])

    def check_run(self, frames: FrameRun) -> None:
        """`check` for each of these frames."""
        kinds = self._kinds
        for name, column in frames.axes.items():
            if set(map(type, column)) == {kinds.get(name)}:
                continue
            for number, value in enumerate(column, frames.number):
                if kinds.get(name) is not value.__class__:
                    self._check_new(name, kinds.get(name), value, number)

    def in_order(self, frames: FrameRun) -> FrameRun:
        """Frames that were checked, with their axes in the order in which the dataset got them.

        tifffile warns of every index entry that has another order than the first one.
        """
        axes = {name: frames.axes[name] for name in self._kinds if name in frames.axes}
        if tuple(axes) == tuple(frames.axes):
            return frames
        return replace(frames, axes=axes, axes_texts=axes_json_rows(axes, len(frames)))

    def learn(self, axes: Axes) -> None:
        """The axes of a frame that is in the dataset already; what was known before stays as it is."""
        for name, value in axes.items():
            self._kinds.setdefault(name, str if isinstance(value, str) else int)

    def _check_new(self, name: str, kind: type | None, value: int | str, number: int) -> None:
        if kind is None:
            if len(self._kinds) >= MAX_NAMES:
                text = f"frame {number}: axis {name!r} is new, and the dataset has {len(self._kinds)} axes already"
                raise FrameRefused(text, code="bad_header", number=number)
            self._kinds[name] = str if isinstance(value, str) else int
            if self._newest[0] != number:
                self._newest = (number, [])
            self._newest[1].append(name)
            return
        if not isinstance(value, kind):
            text = f"frame {number}: axis {name!r} was {_WORDS[kind]} in the frames before, now it is {value!r:.60}"
            raise FrameRefused(f"{text}; an axis must not mix both", code="axis_kind", number=number)
