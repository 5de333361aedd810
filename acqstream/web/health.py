"""The readiness of a daemon for service monitors. Pure."""

from __future__ import annotations

from acqstream.model.status import SpaceLevel
from acqstream.monitor.daemon_watch import DaemonView


def trouble_of(view: DaemonView) -> str:
    """Return one line about what keeps the daemon from recording; "" if nothing does."""
    status = view.status
    if status is None:
        return (view.why if view.is_starting else f"no daemon answers: {view.why}").splitlines()[0]
    for one in status.acquisitions:
        if one.stall:
            return f"{one.name}: the disk stalls: {one.stall}".splitlines()[0]
    if status.space == SpaceLevel.FULL:
        return f"the disk of {status.data} is full: {status.free_bytes} bytes are free".splitlines()[0]
    return ""
