"""The kinds of views that can be requested: one table of those made in the log's own format, and all chunk formats.

Where a view of each kind lies, and what of a request can be checked before anything is created.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from acqstream.errors import ConfigError
from acqstream.formats.chunk_format import ChunkFormat
from acqstream.formats.registry import chunk_formats
from acqstream.mirrors.chunk_plan import Budget, cut_array, options_of, plan_request
from acqstream.model.view_spec import NULL_KIND, PYRAMID_KIND, ViewSpec
from acqstream.views.base import View
from acqstream.views.checkpoint import view_folder
from acqstream.views.null_view import NullView
from acqstream.views.pyramid_view import PyramidView

LOG_VIEWS: Mapping[str, type[View]] = {
    NULL_KIND: NullView,
    PYRAMID_KIND: PyramidView,
}
"""By kind. Its keys are `model.view_spec.LOG_VIEW_KINDS`; every other kind is a mirror in the chunk format so named."""


def folder_of(dataset: Path, spec: ViewSpec) -> Path:
    """The view's own folder, with its checkpoint: beside the dataset, or beside the mirror that it makes.

    Raises ConfigError for an unknown format.
    """
    if not spec.is_mirror:
        return view_folder(dataset, spec.name)
    return view_folder(container_of_mirror(dataset, spec), "view")


def container_of_mirror(dataset: Path, spec: ViewSpec) -> Path:
    """The default folder of a mirror, beside its dataset. Raises ConfigError for an unknown format."""
    chunk_format = mirror_format(spec)
    middle = "" if spec.name == chunk_format.name else f".{spec.name}"
    return dataset.with_name(f"{dataset.name}{middle}{chunk_format.suffix}")


def mirror_format(spec: ViewSpec) -> ChunkFormat[Any]:
    """The format of a mirror. Raises ConfigError if no such format is installed."""
    formats = chunk_formats()
    chunk_format = formats.get(spec.kind)
    if chunk_format is None:
        names = ", ".join([PYRAMID_KIND, *formats])  # `null` is for tests of views
        raise ConfigError(f"mirror {spec.kind!r:.60} is not known; {names} can be made")
    return chunk_format


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
    plan = plan_request(request)
    if plan is not None:
        chunk_format, summary = mirror_format(spec), request.get("summary")
        options = options_of(chunk_format, spec.mirror_settings)
        cut_array(chunk_format, options, plan, summary if isinstance(summary, Mapping) else {}, budget)
