"""Makes the view that a ViewSpec names, for the program that runs it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from acqstream.mirrors.mirror_view import MirrorView
from acqstream.mirrors.view_kinds import LOG_VIEWS, mirror_format
from acqstream.model.view_spec import ViewSpec
from acqstream.views.base import View


def view_maker(spec: ViewSpec, **options: Any) -> Callable[[], View]:
    """Return a function that makes an empty view. options are for its constructor: see MirrorView, PyramidView.

    Raises ConfigError for an unknown format or settings that the format refuses.
    """
    if not spec.is_mirror:
        return partial(LOG_VIEWS[spec.kind], **options)
    make = partial(MirrorView, mirror_format(spec), spec.mirror_settings, **options)
    make()  # raises for settings that the format refuses
    return make
