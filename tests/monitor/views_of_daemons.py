"""Statuses, receipts and views for tests of what watches a daemon."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from acqstream.model.receipt import MissingFrames, Receipt
from acqstream.model.status import (
    LATENCY_BOUNDS_S,
    AcquisitionStatus,
    DaemonStatus,
    DaemonTotals,
    LatencyHistogram,
    ViewStatus,
)
from acqstream.monitor.daemon_watch import DaemonView


def run_status(name: str = "cells", **values: Any) -> AcquisitionStatus:
    known: dict[str, Any] = {
        "path": f"/data/{name}",
        "dataset_id": f"id-of-{name}",
        "state": "RUNNING",
        "received": 120,
        "published": 110,
        "durable": 100,
        "payload_bytes": 110 * 125_000,
        "queue_frames": 10,
        "queue_bytes": 81920,
        "bytes_per_s": 2.5e6,
        "seconds_since_frame": 0.25,
        "seconds_left": 7800.0,
        "frames_left": 156_000,
        "mirrors": {"n5": ViewStatus(cursor=90, behind=20, state="running", restarts=1)},
    }
    return AcquisitionStatus(name=name, **{**known, **values})


def totals(scale: int = 1) -> DaemonTotals:
    """Totals that are all different, and grow with `scale`."""
    counts = tuple(scale * (2 + place) for place in range(len(LATENCY_BOUNDS_S) + 1))
    return DaemonTotals(
        frames_received=1001 * scale,
        frames_published=1002 * scale,
        frames_durable=1003 * scale,
        frames_skipped=4 * scale,
        frames_missing=5 * scale,
        payload_bytes=6_000_000 * scale,
        stalls=7 * scale,
        stall_s=8.5 * scale,
        warnings={"disk_low": 9 * scale},
        ended={"completed": 10 * scale, "failed": scale},
        publish_latency=LatencyHistogram(counts=counts, sum_s=11.5 * scale),
        durable_latency=LatencyHistogram(counts=counts[::-1], sum_s=12.5 * scale),
    )


def daemon_status(*runs: AcquisitionStatus, **values: Any) -> DaemonStatus:
    known: dict[str, Any] = {
        "version": "1.0",
        "data": "/data",
        "uptime_s": 5.0,
        "memory_budget_bytes": 2**30,
        "memory_used_bytes": 2**28,
        "free_bytes": 10**12,
        "reserve_bytes": 2**29,
        "space": "enough",
        "totals": totals(),
    }
    return DaemonStatus(acquisitions=runs, **{**known, **values})


def receipt_of(run: AcquisitionStatus, status: str = "completed", **values: Any) -> Receipt:
    known: dict[str, Any] = {"sent": run.received, "stored": run.received, "root_sha256": "4f1c" * 16}
    return Receipt(dataset_id=run.dataset_id, path=run.path, status=status, **{**known, **values})  # type: ignore[arg-type]


def missing(first: int, count: int, reason: str = "camera timeout") -> MissingFrames:
    return MissingFrames(first, count, reason)


def view_of(*runs: AcquisitionStatus, **values: Any) -> DaemonView:
    return DaemonView(status=daemon_status(*runs, **values), running=runs)


def paused(run: AcquisitionStatus) -> AcquisitionStatus:
    return replace(run, state="PAUSED", paused="0.4 GB left on the disk of /data; the last 0.5 GB are kept")
