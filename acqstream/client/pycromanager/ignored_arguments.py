"""Arguments of `pycromanager.Acquisition` that have no effect here, but occur in scripts."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

# Source: the signatures of pycromanager 1.0, PythonBackendAcquisition and JavaBackendAcquisition.
_IGNORED = ("show_display", "napari_viewer", "saving_queue_size", "timeout", "port")
_CALLER_LEVEL = 3  # of the warning: the script that makes the Acquisition


def without_ignored(options: Mapping[str, Any]) -> dict[str, Any]:
    """options without the arguments that have no effect; one UserWarning names those with a value."""
    effectless = [name for name in _IGNORED if options.get(name) not in (None, False)]
    if effectless:
        text = (
            f"{', '.join(effectless)} has no effect on an acquisition that the acqstream daemon stores; "
            "look at the dataset with `acqstream view` while it grows"
        )
        warnings.warn(text, stacklevel=_CALLER_LEVEL)
    return {name: value for name, value in options.items() if name not in _IGNORED}
