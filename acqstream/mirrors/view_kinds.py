"""Folders of requested views, checks of a request before anything is created, and the memory that views should find.

The daemon uses it, so no view and no chunk format is imported before a request names a mirror.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from acqstream.errors import ConfigError
from acqstream.formats.chunk_format import ChunkFormat
from acqstream.formats.registry import chunk_format, chunk_format_names
from acqstream.mirrors.mirror_plan import (
    MIB,
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
    return view_folder(container_of_mirror(dataset, spec), "view")


def container_of_mirror(dataset: Path, spec: ViewSpec) -> Path:
    """The default folder of a mirror, beside its dataset. Raises ConfigError for an unknown format."""
    target = mirror_format(spec)
    middle = "" if spec.name == target.name else f".{spec.name}"
    return dataset.with_name(f"{dataset.name}{middle}{target.suffix}")


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


UNKNOWN_BYTES = 768 * MIB  # at most, where it is not known what will come
_UNKNOWN_SHARE = 32  # at most a thirty-second of the RAM then,
_KNOWN_SHARE = 16  # and a sixteenth for mirrors that are certain to come
_STACK = 1024  # planes: longer than slabs usually are
# The whole picture of an sCMOS camera. The kind of frames that will come is not known when the daemon starts.
_REQUEST = {
    "frame": {"shape": [2048, 2048], "dtype": "uint16"},
    "axes": [{"name": "time", "kind": "index", "size": 1}, {"name": "z", "kind": "index", "size": _STACK}],
}
_LOG = logging.getLogger("acqstream.mirrors")


def ready_bytes(specs: Sequence[ViewSpec], budget: Budget, ram_bytes: int) -> int:
    """Bytes to take before a run needs them. specs: the mirrors and levels of the configuration; budget: of a mirror.

    The sum of what the mirrors need, and of UNKNOWN_BYTES where that cannot be said: for levels of tiles, and without
    mirrors.
    """
    unknown = min(UNKNOWN_BYTES, ram_bytes // _UNKNOWN_SHARE)
    needs = [mirror_bytes(spec, budget) if spec.is_mirror else None for spec in specs]
    needed = sum(unknown if one is None else one for one in needs)
    return min(needed, ram_bytes // _KNOWN_SHARE) or unknown


def mirror_bytes(spec: ViewSpec, budget: Budget) -> int | None:
    """Bytes of the slabs of a mirror that keeps up, for frames of 2048 x 2048 uint16; 0 if it keeps no frames.

    A slab of the frames for each thread and one that is being filled, and one of each lower level: these are small, and
    leave soon after the slab that they are made of. A mirror of which the budget holds fewer slabs writes one while it
    fills the next. None if no mirror of such frames can be planned: then others will come.
    """
    try:
        found = mirror_format(spec)
        options = options_of(found, spec.mirror_settings)
        if found.is_by_reference(options):
            return 0
        plan = plan_request(_REQUEST)
        assert plan is not None  # only pictures of tiles can have no size yet
        chunks = plan_chunks(found, options, plan, {}, budget)
    except Exception as error:  # noqa: BLE001 - a format of another package must not keep the daemon from starting
        _LOG.info("memory of mirror %s is not known before its frames: %s", spec.name, error)
        return None
    full, *lower = (grid.slab_bytes for grid in chunks.grids)
    return min(chunks.need.slabs, budget.threads + 1) * full + sum(lower)
