"""Runs tests on a disk that behaves like one of Windows, in their own process and in all that they start.

ACQSTREAM_TEST_DISK=windows python -m pytest tests/log tests/views
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def is_chosen() -> bool:
    """True if the environment asks for this disk."""
    return os.environ.get("ACQSTREAM_TEST_DISK") == "windows"


def begin() -> None:
    """Switch the disk of this process and of its children if the environment asks for it."""
    if not is_chosen():
        return
    from tests.storage import windows_like_disk  # it needs Linux

    windows_like_disk.take_over()
    here = Path(__file__).parent
    # Python runs the sitecustomize.py of this folder in each child. In sys.path too: the process that forks daemons
    # passes that on (tests/live/nursery.py).
    places = [str(here), str(here.parents[1])]
    sys.path += [place for place in places if place not in sys.path]
    os.environ["PYTHONPATH"] = os.pathsep.join([*places, *filter(None, [os.environ.get("PYTHONPATH")])])
