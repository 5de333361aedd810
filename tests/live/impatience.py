"""Runs that lose their patience sooner than a daemon may need to open them."""

from __future__ import annotations

from dataclasses import replace

from acqstream.client.run import Run


def make_impatient(run: Run, patience_s: float) -> None:
    """From now on. A test waits as long as it takes until a run is open, and no longer than it must for its error."""
    run._state.settings = replace(run._state.settings, patience_s=patience_s)
