"""Folders of requested views, and checks of a request before anything is created.

The daemon uses it, so no view and no chunk format is imported before a request names a mirror.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from acqstream.errors import ConfigError
from acqstream.formats.chunk_format import ChunkFormat
from acqstream.formats.registry import chunk_format, chunk_format_names, mirror_folder
from acqstream.mirrors.mirror_plan import (
    Budget,
    check_references,
    has_separate_tiles,
    options_of,
    plan_chunks,
    plan_request,
)
from acqstream.model.view_spec import PYRAMID_KIND, ViewSpec
from acqstream.views.checkpoint import view_folder


def folder_of(dataset: Path, spec: ViewSpec) -> Path:
    """The view's own folder, with its checkpoint: beside the dataset, or beside the mirror that it makes.

    Raises ConfigError for an unknown format.
    """
    if not spec.is_mirror:
        return view_folder(dataset, spec.name)
    mirror_format(spec)
    return view_folder(mirror_folder(dataset, spec), "view")


def mirror_format(spec: ViewSpec) -> ChunkFormat[Any]:
    """The format of a mirror. Raises ConfigError if no such format is installed."""
    try:
        return chunk_format(spec.kind)
    except KeyError as error:
        names = ", ".join([PYRAMID_KIND, *chunk_format_names()])  # `null` is for tests of views
        raise ConfigError(f"mirror {spec.kind!r:.60} is not known; {names} can be made") from error


def check_view(spec: ViewSpec) -> None:
    """Raises ConfigError for an unknown kind or for options that the format refuses."""
    if spec.is_mirror:
        options_of(mirror_format(spec), spec.mirror_settings)


def check_request(spec: ViewSpec, request: Mapping[str, Any], budget: Budget) -> None:
    """Check whether a mirror can be made of an acquisition that is not open yet, as far as its request tells.

    request has the fields of acqstream.json. Raises ConfigError with the numbers if the budget is too small,
    DatasetError if the frames cannot be mirrored in this format.
    """
    if not spec.is_mirror:
        return
    target, settings, summary = mirror_format(spec), spec.mirror_settings, request.get("summary")
    options = options_of(target, settings)
    if target.is_by_reference(options):
        check_references(request)
        return
    is_separate = has_separate_tiles(settings)
    plan = plan_request(request, is_separate=is_separate, grows_picture=target.grows_picture)
    if plan is not None:
        plan_chunks(target, options, plan, summary if isinstance(summary, Mapping) else {}, budget)
