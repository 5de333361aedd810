"""All views that can be made, one line each."""

from __future__ import annotations

from collections.abc import Mapping

from acqstream.pipeline.views.base import View
from acqstream.pipeline.views.null_view import NullView
from acqstream.pipeline.views.pyramid_view import PyramidView

VIEWS: Mapping[str, type[View]] = {
    "null": NullView,
    "pyramid": PyramidView,
}
"""By name. The names are those of `model.acquisition_spec.VIEW_NAMES`."""
