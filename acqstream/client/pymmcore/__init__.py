"""Frames of a Micro-Manager core (pymmcore-plus) go to the daemon: `streaming` for a block, `install` for good."""

from __future__ import annotations

from acqstream.extras import install_command

try:
    from pymmcore_plus.mda import FinishReason as _FinishReason  # noqa: F401 - this and more came with 0.18
except ImportError as error:
    raise ImportError(
        f"acqstream.client.pymmcore needs pymmcore-plus 0.18 or newer, which cannot be imported ({error}); "
        f"install it with: {install_command('pymmcore')}"
    ) from error

from acqstream.client.pymmcore.hooks import Installation, install, streaming
from acqstream.client.pymmcore.streamer import Streamer

__all__ = ["Installation", "Streamer", "install", "streaming"]
