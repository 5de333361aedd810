"""All views that can be made, one line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from acqstream.pipeline.views.base import View
from acqstream.pipeline.views.null_view import NullView
from acqstream.pipeline.views.pyramid_view import PyramidView

VIEWS: Mapping[str, Callable[[], View]] = {
    "null": NullView,
    "pyramid": PyramidView,
}
"""Name to maker of an empty one. The names are those of `model.acquisition_spec.VIEW_NAMES`."""
