"""The receipt: what was sent, what is stored, what is missing."""

from __future__ import annotations

import operator
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeVar, cast

import acqstream
from acqstream.model.fields import Fields
from acqstream.model.frame_header import MAX_NUMBER
from acqstream.model.state import AcquisitionState
from acqstream.model.units import count_text, duration_text, html_text, rate_text, shell_word, size_text
from acqstream.model.view_spec import MirrorResult

Status = Literal["completed", "canceled", "error", "interrupted", "failed"]
END_STATES: Mapping[str, AcquisitionState] = {
    "completed": AcquisitionState.COMPLETE,
    "canceled": AcquisitionState.CANCELED,
    "error": AcquisitionState.ERRORED,
    "interrupted": AcquisitionState.INTERRUPTED,
    "failed": AcquisitionState.FAILED,
}
"""The state that a receipt's status stands for."""
_REASONS = 3  # of frames without pixels, in a sentence
_UNDER_WAY = "under way"
ANSWER_S = 5.0  # for a dataset whose receipt is shown
_ELSEWHERE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_T = TypeVar("_T")
_WAITING: set[str] = set()  # paths of datasets that are asked
_MIRRORS = 3  # in a printed receipt, whose lines are at most ten
CTRL_C = "canceled by Ctrl-C"
"""The reason of runs that Ctrl-C ended. Their status is "error", as a canceled run cannot be resumed."""
UNFORCED = "written, but not forced to the disk"
"""The reason of missing frames that a failing disk may have lost: they were published and are not durable."""


@dataclass(frozen=True, slots=True)
class MissingFrames:
    """Frame numbers first .. first + count - 1 have no pixels, for this reason."""

    first: int
    count: int
    reason: str

    @staticmethod
    def of(fields: Fields) -> MissingFrames:
        """As it stands in a receipt or in acqstream.json. Raises FieldError."""
        return MissingFrames(
            fields.integer("first", maximum=MAX_NUMBER),
            fields.integer("count", maximum=MAX_NUMBER),
            fields.text("reason"),
        )


@dataclass(frozen=True, slots=True)
class Stall:
    """A disk call on a file that stalled, for `seconds`. began_at is ISO 8601 in UTC."""

    call: str
    file: str
    began_at: str
    seconds: float

    @staticmethod
    def of(fields: Fields) -> Stall:
        """As it stands in a receipt. Raises FieldError."""
        return Stall(fields.text("call"), fields.text("file"), fields.text("began_at"), fields.number("seconds"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The result of an acquisition.

    sent is the producer's own count at `close` (None if it reported none); stored counts frames in the dataset that are
    durable; skipped counts frame numbers declared as never coming, refused those of frames that the daemon refused;
    missing lists all numbers without pixels. payload_bytes are pixel bytes stored. status is the kind of its end, and
    reason its cause, if it has one.

    root_sha256 identifies the complete list of frames: SHA-256, in hex digits, of all journal records in their order,
    each of which has the checksum of a frame's pixels. Empty where the journal could not be kept. stalls are the times
    when the disk stalled. settings: how it was written; versions: the software that wrote it. mirrors is how far they
    were when this was written, results how they are now, as read beside it; no part of what is stored.
    """

    dataset_id: str
    path: str
    status: Status
    reason: str = ""
    sent: int | None = None
    stored: int = 0
    skipped: int = 0
    refused: int = 0
    missing: tuple[MissingFrames, ...] = ()
    payload_bytes: int = 0
    without_checksum: int = 0
    started_at: str = ""
    finished_at: str = ""
    mirrors: Mapping[str, str] = field(default_factory=dict)
    root_sha256: str = ""
    stalls: tuple[Stall, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    results: tuple[MirrorResult, ...] = field(default=(), compare=False)

    @property
    def is_forced(self) -> bool:
        """False if a failing disk may have lost frames that were published."""
        return all(gap.reason != UNFORCED for gap in self.missing)

    @property
    def complete(self) -> bool:
        """True when the producer closed the run in order and every frame is stored or was declared as skipped."""
        undeclared = sum(gap.count for gap in self.missing) - self.skipped
        return self.status == "completed" and undeclared <= 0 and self.sent in (None, self.stored + self.skipped)

    @property
    def is_canceled(self) -> bool:
        """True when its user ended it before its last frame."""
        return self.status == "canceled" or (self.status, self.reason) == ("error", CTRL_C)

    @property
    def sentence(self) -> str:
        """How the run ended, as page, commands and notices say it: "complete; 2 frames skipped: camera lost it"."""
        numbers = max(sum(gap.count for gap in self.missing), (self.sent or 0) - self.stored)
        counts = {"missing": max(0, numbers - self.skipped), "skipped": self.skipped}
        reasons = [gap.reason for gap in self.missing if gap.reason]
        known = dict.fromkeys(reasons) if 0 in counts.values() else {}  # they cannot be told apart
        why = f": {', '.join([*known][:_REASONS])}{' and more' if len(known) > _REASONS else ''}" if known else ""
        parts = [f"{count_text(count, 'frame')} {what}{why}" for what, count in counts.items() if count]
        head: str = "complete" if self.complete else "incomplete" if self.status == "completed" else self.status
        ending = self.reason if self.reason == CTRL_C else f"{head}: {self.reason}" if self.reason else head
        return "; ".join([ending, *parts])

    def __str__(self) -> str:
        sent = "" if self.sent is None else f" of {self.sent:,} sent"
        unproved = f", {self.without_checksum:,} without a checksum of their producer" if self.without_checksum else ""
        stored = f"{count_text(self.stored, 'frame')} stored{sent} and durable, {size_text(self.payload_bytes)}"
        lines = [self.sentence, f"{stored}{self._duration_text}{unproved}", f"in {self.path}", *self._mirror_lines()]
        if self.stalls:
            seconds = sum(stall.seconds for stall in self.stalls)
            lines.append(f"the disk stalled {count_text(len(self.stalls), 'time')}, {duration_text(seconds)} in all")
        if self.root_sha256:
            lines.append(f"SHA-256 of all frames {self.root_sha256}")
        lines += [f"prove it: acqstream verify {shell_word(self.path)}", f"open it: acqstream.open({self.path!r})"]
        return "\n".join(" ".join(line.splitlines()) for line in lines)

    @property
    def _duration_text(self) -> str:
        try:
            times = map(datetime.fromisoformat, (self.finished_at, self.started_at))
            seconds = operator.sub(*times).total_seconds()
        except (ValueError, TypeError):  # it has no times, or such of another form
            return ""
        return f" in {duration_text(seconds)}, {rate_text(self.payload_bytes / seconds)}" if seconds > 0 else ""

    def _mirror_lines(self) -> list[str]:
        is_old = any(text.startswith(_UNDER_WAY) for text in self.mirrors.values())
        results = self.results or (_recorded_results(self.path, self.dataset_id) if is_old else ())
        now = {result.name: result.text for result in results}
        then = {
            name: f"{text}, when this was written" if text.startswith(_UNDER_WAY) else text
            for name, text in self.mirrors.items()
        }
        lines = [f"{name}: {text}" for name, text in {**then, **now}.items()]
        more = len(lines) - _MIRRORS + 1
        return lines if more < 2 else [*lines[: _MIRRORS - 1], f"and {more} more mirrors"]

    def _repr_html_(self) -> str:
        return html_of(str(self), self.path, self.dataset_id)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as in receipt.json and in the `closed` message."""
        values = asdict(self)
        del values["results"]
        return values

    @staticmethod
    def of(fields: Fields) -> Receipt:
        """The inverse of `as_dict`; unknown keys are ignored. `status` may be one of a later version."""
        return Receipt(
            dataset_id=fields.text("dataset_id"),
            path=fields.text("path"),
            status=cast("Status", fields.text("status")),
            reason=fields.text("reason", ""),
            sent=fields.optional_integer("sent", maximum=MAX_NUMBER),
            stored=fields.integer("stored", 0, maximum=MAX_NUMBER),
            skipped=fields.integer("skipped", 0, maximum=MAX_NUMBER),
            refused=fields.integer("refused", 0, maximum=MAX_NUMBER),
            missing=tuple(map(MissingFrames.of, fields.children("missing"))) if "missing" in fields else (),
            payload_bytes=fields.integer("payload_bytes", 0),
            without_checksum=fields.integer("without_checksum", 0, maximum=MAX_NUMBER),
            started_at=fields.text("started_at", ""),
            finished_at=fields.text("finished_at", ""),
            mirrors=fields.text_map("mirrors"),
            root_sha256=fields.text("root_sha256", ""),
            stalls=tuple(map(Stall.of, fields.children("stalls"))) if "stalls" in fields else (),
            settings=fields.mapping("settings"),
            versions=fields.text_map("versions"),
        )


def _recorded_results(path: str, dataset_id: str) -> tuple[MirrorResult, ...]:
    """The results of the mirrors of a run, if its dataset is on this machine and can be read in time."""
    receipt = _asked(path, lambda dataset: dataset.receipt)[0]  # else the text says that it is of an earlier time
    return receipt.results if receipt is not None and receipt.dataset_id == dataset_id else ()


def _asked(path: str, ask: Callable[[Any], _T]) -> tuple[_T | None, str]:
    """What the dataset at `path` says, or why not: it is elsewhere, cannot be read, or takes more than ANSWER_S.

    While one question waits for a disk that stalls, the same path gets no other one.
    """
    answers: list[tuple[_T | None, str]] = []

    def answer() -> None:
        try:
            with acqstream.open(path) as dataset:
                answers.append((ask(dataset), ""))
        except Exception as error:  # noqa: BLE001 - a receipt is shown in any case
            answers.append((None, str(error)))
        finally:
            _WAITING.discard(path)

    if _ELSEWHERE.match(path):
        return None, f"{path} is on another machine"
    if path in _WAITING:
        return None, f"{path} has not answered yet"
    thread = threading.Thread(target=answer, name="receipt", daemon=True)  # a disk may stall for ever
    _WAITING.add(path)
    try:
        thread.start()
    except RuntimeError as error:  # Python is ending, or the system has no further thread
        _WAITING.discard(path)
        return None, f"{path} cannot be read now: {error}"
    thread.join(ANSWER_S)
    return answers[0] if answers else (None, f"{path} has not answered within {ANSWER_S:g} s")


def html_of(text: str, path: str, dataset_id: str) -> str:
    """HTML of a text about a run, for notebooks, with a picture if its dataset is on this machine."""
    card, why = _asked(path, lambda dataset: str(dataset.html_card(text, dataset_id)))
    return card or html_text(text, f"no picture: {why}")
