"""Frames of Pycro-Manager go to the daemon: `forward` for its image hook, `Acquisition` in the place of its storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acqstream.client.pycromanager.forwarding import PendingEvents, forward

if TYPE_CHECKING:
    from acqstream.client.pycromanager.acquisition import Acquisition

__all__ = ["Acquisition", "PendingEvents", "forward"]


def __getattr__(name: str) -> object:
    """`Acquisition` on first use, as only that loads Pycro-Manager."""
    if name != "Acquisition":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from acqstream.client.pycromanager.acquisition import Acquisition

    globals()[name] = Acquisition
    return Acquisition
