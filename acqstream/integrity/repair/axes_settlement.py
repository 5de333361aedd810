"""Axes of rebuilt frames where index and page disagree, or where no page has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import Any

from acqstream.formats.ndtiff.entry_walk import EntryFacts
from acqstream.formats.ndtiff.pages import COUNTER_AXIS, guess_axes, on_level
from acqstream.integrity.repair.rebuilt_frame import RebuiltFrame, entry_of, key_of, show_axes
from acqstream.integrity.repair.repair_report import LevelReport
from acqstream.model.axes import AxisValue


def settle_conflicts(
    frames: Sequence[RebuiltFrame],
    conflicts: Sequence[RebuiltFrame],
    index: EntryFacts,
    level: int,
    report: LevelReport,
) -> None:
    """Choose the axes of frames whose old entry differs from their page; one of the two is damaged.

    The index counts, unless another frame has its axes, or the other frames have other axes altogether.
    """
    disputed = {id(frame) for frame in conflicts}
    others = [frame.axes() for frame in frames if id(frame) not in disputed and frame.entry]
    taken, names = set(map(key_of, others)), {frozenset(axes) for axes in others}
    for frame in conflicts:
        found = frame.found
        assert found is not None
        assert found.axes is not None
        axes_in_page, listed, chosen = on_level(found.axes, level), index.axes(frame.row), "the index"
        if not _fits(listed, taken, names) and _fits(axes_in_page, taken, names):
            kind, chosen = int(index.numbers["pixel_type"][frame.row]), "the page"
            frame.entry = entry_of(found, axes_in_page, frame.stack, kind, spaced=b'": ' in frame.entry)
        text = f"the index says {show_axes(listed)}, the page {show_axes(axes_in_page)}: taken from {chosen}"
        report.guessed.add(frame.stack, frame.offset, text)


def _fits(axes: Mapping[str, Any], taken: Set[object], names: Set[frozenset[str]]) -> bool:
    return key_of(axes) not in taken and frozenset(axes) in names


def doubt_odd_names(frames: Sequence[RebuiltFrame], report: LevelReport) -> None:
    """Frames whose axes are in the page alone, under other names than in most frames; perhaps damaged."""
    if all(frame.row >= 0 for frame in frames):
        return
    named = [(frame, frozenset(frame.axes())) for frame in frames if frame.entry]
    usual, count = Counter(names for _, names in named).most_common(1)[0] if named else (frozenset(), 0)
    for frame, names in named:
        if frame.row < 0 and names != usual and 2 * count > len(named):
            report.guessed.add(frame.stack, frame.offset, f"{show_axes(frame.axes())}: axes unlike those of the others")


def guess_missing(frames: Sequence[RebuiltFrame], summary: Mapping[str, Any], level: int, report: LevelReport) -> None:
    """Give axes to the frames that have no entry yet, in place."""
    numbers = [number for number, frame in enumerate(frames) if not frame.entry]
    if not numbers:
        return
    known = {number: frame.axes() for number, frame in enumerate(frames) if frame.entry}
    hints = [on_level(found.hints, level) for number in numbers if (found := frames[number].found) is not None]
    order = summary.get("AxisOrder")
    names = order if isinstance(order, list) and all(isinstance(name, str) for name in order) else []
    guesses = guess_axes(hints, list(known.values()), names)
    why = "axes by Micro-Manager's keys in the metadata"
    if guesses is None:
        name, first = _counting_axis(known)
        guesses = [{name: first + number} for number in numbers]
        why = "no metadata tell its axes: counted"
    for number, axes in zip(numbers, guesses, strict=True):
        frame = frames[number]
        assert frame.found is not None
        assert frame.found.pixel_type is not None
        frame.entry = entry_of(frame.found, axes, frame.stack, frame.found.pixel_type, spaced=False)
        report.guessed.add(frame.stack, frame.offset, f"{show_axes(axes)}: {why}")


def _counting_axis(known: Mapping[int, Mapping[str, AxisValue]]) -> tuple[str, int]:
    """The only axis of the other frames and its value at frame 0, if it counts them; else one of its own."""
    names = {tuple(axes) for axes in known.values()}
    if len(names) == 1 and len(only := names.pop()) == 1:
        distances = {value - number for number, axes in known.items() if isinstance(value := axes[only[0]], int)}
        if len(distances) == 1 and all(isinstance(axes[only[0]], int) for axes in known.values()):
            return only[0], distances.pop()
    return COUNTER_AXIS, 0
