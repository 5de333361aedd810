"""Settings that a resumed run keeps from its first `open`, where a later one asks for others."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from acqstream.model.acquisition_spec import AcquisitionSpec
from acqstream.model.view_spec import ViewSpec

_MAX_NAMED = 8
_MAX_CHARACTERS = 60
_OF_A_START = frozenset({"StartTime", "datetime", "uid"})  # of the summary: they differ at each start
_MISSING = object()


def kept_settings(
    spec: AcquisitionSpec, first: Mapping[str, Any], views: Sequence[ViewSpec], *, is_running: bool = False
) -> str:
    """The text of a warning that names what `spec` asks for and does not get; empty if it gets everything.

    first is the request of acqstream.json, views are its views. is_running: the log of the first one goes on.
    """
    summary = list(kept_entries(spec.summary, first.get("summary")))
    texts = [*kept_summary(summary)]
    settings = _plain(spec.as_request())
    names = {"axes": "axes", "tiles": "tiles", "duplicates": "replace_duplicates"}
    if is_running:
        names |= {"durability": "durability", "expect": "expect"}
    for key, name in names.items():
        kept, asked = _plain(first.get(name)), settings[name]
        if key in spec.given and kept != asked:
            if key == "duplicates":
                kept, asked = ("replace" if one else "error" for one in (kept, asked))
            texts.append(_of_one(key, kept, asked))
    asked_views = {view.name: view for view in spec.views}
    for view in views:
        asked_view = asked_views.get(view.name)
        if asked_view is not None and asked_view.mirror_settings != view.mirror_settings:
            texts.append(_of_one(f"mirror {view.name}", view.mirror_settings, asked_view.mirror_settings))
        elif asked_view is None and view.is_mirror and not spec.default_mirrors:
            texts.append(f"mirror {view.name}, which is not asked for")
    return f"resume keeps the first {'; '.join(texts)}" if texts else ""


def kept_entries(asked: Mapping[str, Any], kept: Any) -> Iterator[str]:
    """A text for each entry of a summary that is asked for and differs from what is kept."""
    kept = kept if isinstance(kept, Mapping) else {}
    for key, value in asked.items():
        if key not in _OF_A_START and _without_start(kept.get(key, _MISSING)) != _without_start(value):
            yield _of_one(key, kept.get(key, _MISSING), value)


def kept_summary(entries: Iterable[str]) -> Iterator[str]:
    """One text of the first entries, and how many others there are; none without entries."""
    texts = list(entries)
    if texts:
        more = f"; and {len(texts) - _MAX_NAMED} more entries" if len(texts) > _MAX_NAMED else ""
        yield f"summary: {'; '.join(texts[:_MAX_NAMED])}{more}"


def new_mirrors(spec: AcquisitionSpec, views: Sequence[ViewSpec]) -> bool:
    """True if `spec` itself asks for mirrors that are not among the views of a run."""
    known = {view.name for view in views}
    return not spec.default_mirrors and any(view.is_mirror and view.name not in known for view in spec.views)


def _of_one(key: str, kept: object, asked: object) -> str:
    return f"{key} {_shown(kept)}, not {_shown(asked)}"


def _shown(value: object) -> str:
    if value is _MISSING or value is None:
        return "none"
    text = repr(value)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}..."


def _without_start(value: Any) -> Any:
    return {key: one for key, one in value.items() if key not in _OF_A_START} if isinstance(value, Mapping) else value


def _plain(value: Any) -> Any:
    """As JSON gives it back."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
