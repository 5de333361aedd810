"""Versions of the software that wrote a dataset, for its receipt."""

from __future__ import annotations

import functools
import platform
from collections.abc import Mapping

import numpy as np
import xxhash

from acqstream import __version__


@functools.cache
def writer_versions() -> Mapping[str, str]:
    """Names and versions of the software that decides what is on disk."""
    return {
        "acqstream": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "xxhash": xxhash.VERSION,
        "system": platform.platform(),
    }
