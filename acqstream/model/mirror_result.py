"""State of a mirror, or of another view, of a dataset."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from acqstream.model.fields import Fields
from acqstream.model.units import count_text

MirrorState = Literal["running", "complete", "interrupted", "failed", "left_out", "unfinished"]
MIRROR_STATES: tuple[MirrorState, ...] = get_args(MirrorState)
MAX_REASON_CHARACTERS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorResult:
    """One mirror, or the levels of a tiled dataset.

    name is that of the request, e.g. "n5". path is the mirror's folder; relative paths start at the dataset's folder.
    frames: number of frames in it, of `published` ones. reason: why it is not complete. warning: what it says of
    distances that are not known or were asked for otherwise. changed_at is ISO 8601 in UTC, empty where no time was
    recorded.

    state is one of
    running: the mirror is being made, or a daemon or another program will make it;
    complete: it has all frames, and they survive a power cut;
    interrupted: it has all frames of an acquisition that was interrupted and can be resumed;
    failed: an error ended it;
    left_out: the daemon is configured for it, and did not make it;
    unfinished: it has not all frames, and no process makes it.
    """

    name: str
    state: MirrorState
    frames: int = 0
    published: int = 0
    path: str = ""
    reason: str = ""
    warning: str = ""
    changed_at: str = ""

    @property
    def complete(self) -> bool:
        """True when it has all frames of a dataset that will not grow."""
        return self.state == "complete"

    @property
    def ended(self) -> bool:
        """True when no process continues it by itself."""
        return self.state != "running"

    @property
    def text(self) -> str:
        """For people: "complete, 240 frames"."""
        state = self.state.replace("_", " ")
        if self.state == "left_out":
            return f"{state}: {self.reason}"
        of = "" if self.complete else f"{self.frames:,} of "
        frames = count_text(self.frames if self.complete else self.published, "frame")
        count = f", {of}{frames}" if self.complete or self.published else ""
        return f"{state}{count}" + (f": {self.reason}" if self.reason else "")

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as in files and messages."""
        return asdict(self)

    @staticmethod
    def of(fields: Fields) -> MirrorResult:
        """The inverse of `as_dict`; unknown keys are ignored. Raises FieldError."""
        return MirrorResult(
            name=fields.text("name"),
            state=fields.choice("state", MIRROR_STATES),
            frames=fields.integer("frames", 0),
            published=fields.integer("published", 0),
            path=fields.text("path", ""),
            reason=fields.text("reason", ""),
            warning=fields.text("warning", ""),
            changed_at=fields.text("changed_at", ""),
        )
