"""The frames of a rebuilt index, their axes where index and page disagree or no page has them, and the findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from acqstream.formats.ndtiff.entry_walk import EntryFacts, axes_of_entry
from acqstream.formats.ndtiff.index_entries import encode_entry
from acqstream.formats.ndtiff.page_walk import IntactPage
from acqstream.formats.ndtiff.pages import COUNTER_AXIS, axes_text, guess_axes, on_level
from acqstream.model.axes import Axes, AxisValue

MAX_FINDINGS = 10_000  # kept of each kind; all are counted


@dataclass(frozen=True, slots=True)
class Finding:
    """One frame or place. offset is bytes from the start of `file`, a name in the level's folder."""

    file: str
    offset: int
    text: str


@dataclass(slots=True)
class Findings:
    """Findings of one kind: how many, and the first of them."""

    count: int = 0
    first: list[Finding] = field(default_factory=list)

    def add(self, file: str, offset: int, text: str) -> None:
        self.count += 1
        if len(self.first) < MAX_FINDINGS:
            self.first.append(Finding(file, offset, text))

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.first)

    def __len__(self) -> int:
        return self.count


@dataclass(slots=True)
class LevelReport:
    """One folder with an index."""

    folder: str
    kept: int = 0  # entries that stay byte for byte
    recovered: int = 0  # entries that were rebuilt
    guessed: Findings = field(default_factory=Findings)  # frames of these two about which something is not certain
    lost: Findings = field(default_factory=Findings)  # frames that cannot be had back, with the reason
    dropped: Findings = field(default_factory=Findings)  # old entries that are left out, with the reason
    finished_stacks: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    changed: bool = False  # the index is another one now
    backup: str = ""  # the name under which the old one was kept


@dataclass(slots=True)
class RepairReport:
    """The whole dataset, level by level, full resolution first. With dry_run nothing was written."""

    path: str
    dry_run: bool
    levels: list[LevelReport] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    state_changed: bool = False

    @property
    def lost(self) -> int:
        """Frames lost in all levels."""
        return sum(level.lost.count for level in self.levels)

    @property
    def is_whole(self) -> bool:
        """Nothing was to be done."""
        return not self.state_changed and not any(level.changed or level.finished_stacks for level in self.levels)


@dataclass(slots=True)
class RebuiltFrame:
    """offset is that of the pixels in the stack file. row is that of its old entry, -1 without one.

    entry is empty until the axes are known; found is its page as long as they are not settled.
    """

    stack: str
    offset: int
    entry: bytes
    row: int = -1
    found: IntactPage | None = None

    def axes(self) -> dict[str, Any]:
        """The axes of the entry."""
        return axes_of_entry(self.entry)


def entry_of(found: IntactPage, axes: Axes, stack: str, pixel_type: int, *, spaced: bool) -> bytes:
    """An index entry made from a page. spaced: its JSON has blanks, as that of its writer."""
    return encode_entry(axes_text(axes, spaced=spaced), stack, found.page, pixel_type, found.metadata_bytes)


def key_of(axes: Mapping[str, Any]) -> frozenset[tuple[str, str]]:
    """Equal for equal axes, whatever their order."""
    return frozenset((name, repr(value)) for name, value in axes.items())


def show_axes(axes: Mapping[str, Any]) -> str:
    """Axes as a person reads them."""
    return ", ".join(f"{name}={value!r:.60}" for name, value in axes.items()) or "no axes"


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
