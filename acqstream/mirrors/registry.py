"""All views that can be made, one line each; besides, a mirror in every chunk format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acqstream.errors import ConfigError
from acqstream.views.base import View
from acqstream.views.checkpoint import view_folder
from acqstream.views.null_view import NullView
from acqstream.views.pyramid_view import PyramidView

if TYPE_CHECKING:
    from acqstream.formats.chunk_format import ChunkFormat

VIEWS: Mapping[str, type[View]] = {
    "null": NullView,
    "pyramid": PyramidView,
}
"""By name. The names are those of `model.acquisition_spec.VIEW_NAMES`."""


def view_maker(name: str, settings: Mapping[str, Any] | None = None, **more: Any) -> Callable[[], View]:
    """What makes an empty view; name is one of VIEWS, or any name of a mirror.

    settings: of a mirror, its "format" (None: its name) and the options of that. more: see MirrorView. Raises
    ConfigError for a name, a format or options that are not known.
    """
    if not settings and name in VIEWS:
        return VIEWS[name]
    from acqstream.mirrors.mirror_view import MirrorView

    settings = settings or {"format": name}
    make = partial(MirrorView, _format(settings), settings, **more)
    make()  # raises for options that cannot work
    return make


def mirror_container(dataset: Path, name: str, settings: Mapping[str, Any] | None = None) -> Path | None:
    """The folder of a mirror beside its dataset; None for other views. Raises ConfigError as `view_maker`."""
    if not settings and name in VIEWS:
        return None
    found = _format(settings or {"format": name})
    middle = "" if name == found.name else f".{name}"
    return dataset.with_name(f"{dataset.name}{middle}{found.suffix}")


def folder_of(dataset: Path, name: str, settings: Mapping[str, Any] | None = None) -> Path:
    """The view's own folder, with its checkpoint: beside the dataset, or beside the mirror that it makes."""
    container = mirror_container(dataset, name, settings)
    return view_folder(dataset, name) if container is None else view_folder(container, "view")


def _format(settings: Mapping[str, Any]) -> ChunkFormat[Any]:
    from acqstream.formats.registry import chunk_formats

    known = chunk_formats()
    found = known.get(str(settings.get("format")))
    if found is None:
        names = ", ".join(["pyramid", *known])  # `null` is there to try views with
        raise ConfigError(f"mirror {settings.get('format')!r:.60} is not known; {names} can be made")
    return found
