"""A view as it is requested (kind, settings, name), and how a mirror or another view of a dataset stands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from acqstream.model.fields import Fields
from acqstream.model.units import count_text

NULL_KIND = "null"
PYRAMID_KIND = "pyramid"
LOG_VIEW_KINDS = (NULL_KIND, PYRAMID_KIND)
"""Kinds that are not mirrors. Every other kind is the name of a chunk format."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")


@dataclass(frozen=True, slots=True)
class ViewSpec:
    """One requested view of a dataset.

    kind is one of LOG_VIEW_KINDS or the name of a chunk format. settings are those of a mirror as they were requested,
    with "format" and possibly "name"; empty where the request is the kind alone. name is unique among the views of a
    dataset and names its folder; the default is the kind.
    """

    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.kind)

    @property
    def is_mirror(self) -> bool:
        return bool(self.settings) or self.kind not in LOG_VIEW_KINDS

    @property
    def is_pyramid(self) -> bool:
        return self.kind == PYRAMID_KIND and not self.is_mirror

    @property
    def mirror_settings(self) -> dict[str, Any]:
        """The settings of a mirror, always with "format"."""
        return dict(self.settings) or {"format": self.kind}

    @staticmethod
    def of(name: str, settings: Mapping[str, Any]) -> ViewSpec:
        """From a name and its settings, as acqstream.json stores them. Raises ValueError for values never written."""
        kind = settings.get("format") if settings else name
        if not isinstance(name, str) or not is_view_name(name):
            raise ValueError(f"{name!r:.60} is not a name of a view")
        if not isinstance(kind, str):
            raise ValueError(f"the settings of view {name!r} have no 'format': {settings!r:.60}")
        return ViewSpec(kind, settings, name)


def is_view_name(text: str) -> bool:
    """Check for 1 to 32 letters, digits, _ and -, the first a letter or digit: safe as a part of a file name."""
    return _NAME.fullmatch(text) is not None


def requested_views(request: Mapping[str, Any]) -> tuple[ViewSpec, ...]:
    """Views in the request of acqstream.json, in order. Raises ValueError if the request is damaged.

    `mirrors` lists the names, `mirror_settings` has the settings of those that need more than a name.
    """
    names, settings = request.get("mirrors") or (), request.get("mirror_settings") or {}
    if not isinstance(names, list | tuple) or not isinstance(settings, Mapping):
        raise ValueError(f"'mirrors' must be a list and 'mirror_settings' a map, not {names!r:.60}, {settings!r:.60}")
    views = []
    for name in names:
        chosen = settings.get(name) if isinstance(name, str) else None
        if not isinstance(chosen, Mapping | None):
            raise ValueError(f"the settings of view {name!r:.60} must be a map, not {chosen!r:.60}")
        views.append(ViewSpec.of(name, chosen or {}))
    return tuple(views)


def stored_views(views: tuple[ViewSpec, ...]) -> dict[str, Any]:
    """The fields of a request in acqstream.json, which `requested_views` reads."""
    return {
        "mirrors": tuple(view.name for view in views),
        "mirror_settings": {view.name: dict(view.settings) for view in views if view.settings},
    }


MirrorState = Literal["running", "complete", "interrupted", "failed", "left_out", "unfinished", "removed"]
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
    unfinished: it has not all frames, and no process makes it;
    removed: it had ended, and its folder is gone since, or is a mirror of another dataset now. Never stored.
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
        if self.state == "removed":
            return state
        of = "" if self.complete else f"{self.frames:,} of "
        frames = count_text(self.frames if self.complete else self.published, "frame")
        count = f", {of}{frames}" if self.complete or self.published else ""
        return f"{state}{count}" + (f": {self.reason}" if self.reason else "")

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as in files and messages."""
        return asdict(self)

    @staticmethod
    def of(fields: Fields) -> MirrorResult:
        """The inverse of `as_dict`; unknown keys are ignored. Raises FieldError.

        A state of a later version reads as "unfinished".
        """
        state = fields.text("state")
        return MirrorResult(
            name=fields.text("name"),
            state=next((one for one in MIRROR_STATES if one == state), "unfinished"),
            frames=fields.integer("frames", 0),
            published=fields.integer("published", 0),
            path=fields.text("path", ""),
            reason=fields.text("reason", ""),
            warning=fields.text("warning", ""),
            changed_at=fields.text("changed_at", ""),
        )
