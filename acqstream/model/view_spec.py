"""A view as it is requested: its kind, its settings, and its name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
