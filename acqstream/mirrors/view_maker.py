"""Makes the view that a ViewSpec names, for the program that runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from acqstream.mirrors.chunk_plan import options_of
from acqstream.mirrors.mirror_view import MirrorView
from acqstream.mirrors.reference_view import ReferenceView
from acqstream.mirrors.view_kinds import mirror_format
from acqstream.model.view_spec import NULL_KIND, PYRAMID_KIND, ViewSpec
from acqstream.views.base import View
from acqstream.views.null_view import NullView
from acqstream.views.pyramid_view import PyramidView

LOG_VIEWS: Mapping[str, type[View]] = {
    NULL_KIND: NullView,
    PYRAMID_KIND: PyramidView,
}
"""By kind. Its keys are `model.view_spec.LOG_VIEW_KINDS`; every other kind is a mirror in the chunk format so named."""


def view_maker(spec: ViewSpec, **options: Any) -> Callable[[], View]:
    """Return a function that makes an empty view. options are for its constructor: see MirrorView, PyramidView.

    Raises ConfigError for an unknown format or settings that the format refuses.
    """
    if not spec.is_mirror:
        return partial(LOG_VIEWS[spec.kind], **options)
    found, settings = mirror_format(spec), spec.mirror_settings
    kind = ReferenceView if found.is_by_reference(options_of(found, settings)) else MirrorView
    make: Callable[[], View] = partial(kind, found, settings, **options)
    make()  # raises for settings that the format refuses
    return make
