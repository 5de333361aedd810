"""Metrics of a daemon for Prometheus and OpenMetrics, computed from its last status when they are asked for.

The formats are those of prometheus-client. Names, types and labels are those of docs/monitoring.md. No label names a
path, a dataset that has ended long ago, or anything else without a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from math import inf, isinf

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from acqstream import __version__
from acqstream.model.receipt import END_STATES
from acqstream.model.state import AcquisitionState
from acqstream.model.status import AcquisitionStatus, DaemonStatus, DaemonTotals, LatencyHistogram, WarningCode
from acqstream.monitor.daemon_watch import DaemonView, EndedRun

STAGES = ("received", "published", "durable")


class DaemonCollector(Collector):
    """Metrics of the daemon that `view` shows. A metric whose value is not known is left out."""

    def __init__(self, view: Callable[[], DaemonView]) -> None:
        self._view = view

    def collect(self) -> Iterator[Metric]:
        view = self._view()
        yield InfoMetricFamily("acqstream_build", "The version of this web face.", value={"version": __version__})
        yield GaugeMetricFamily("acqstream_up", "1 if the daemon answers.", value=float(view.status is not None))
        if view.status is not None:
            yield from _daemon_metrics(view.status)
            yield from _total_metrics(view.status.totals)
            yield from _acquisition_metrics(view.status.acquisitions)
            yield from _view_metrics(view.status.acquisitions)
            yield from _run_metrics(view.status.acquisitions, view.ended)

    def describe(self) -> Iterable[Metric]:
        return ()  # the names follow from the status


class WebMetrics:
    """Counts the requests to this face itself. Thread safe.

    layout: a fixed word for a kind of address, never a path.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "acqstream_web_requests", "Requests that were answered.", ["layout", "code"], registry=registry
        )
        self._sent = Counter("acqstream_web_sent_bytes", "Bytes of bodies.", ["layout", "code"], registry=registry)
        self._seconds = Histogram(
            "acqstream_web_request_seconds", "Time to answer a request.", ["layout"], registry=registry
        )
        self._series = cache(self._find_series)  # few words and codes, looked up for every request

    def note(self, layout: str, code: int, sent_bytes: int, seconds: float) -> None:
        """Count one answer."""
        requests, sent, times = self._series(layout, code)
        requests.inc()
        sent.inc(sent_bytes)
        times.observe(seconds)

    def _find_series(self, layout: str, code: int) -> tuple[Counter, Counter, Histogram]:
        labels = layout, str(code)
        return self._requests.labels(*labels), self._sent.labels(*labels), self._seconds.labels(layout)


def exposition(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """Return the metrics in the format that an Accept header asks for, and their Content-Type."""
    encoder, content_type = choose_encoder(accept)
    return encoder(registry), content_type


def _daemon_metrics(status: DaemonStatus) -> Iterator[Metric]:
    for name, text, value in (
        ("disk_free_bytes", "Free space on the disk of the data directory.", status.free_bytes),
        ("disk_reserve_bytes", "Free space at which runs are paused.", status.reserve_bytes),
        ("disk_seconds_left", "Time until the disk is full at the present rate.", status.seconds_left),
        ("disk_frames_left", "Frames until the disk is full.", status.frames_left),
        ("memory_used_bytes", "Memory for pixels that acquisitions have.", status.memory_used_bytes),
        ("memory_budget_bytes", "Memory for pixels in all.", status.memory_budget_bytes),
    ):
        if value is not None:
            yield GaugeMetricFamily(f"acqstream_{name}", text, value=value)


def _total_metrics(totals: DaemonTotals) -> Iterator[Metric]:
    for name, text, value in (
        ("frames_received", "Frames received since the daemon started.", totals.frames_received),
        ("frames_published", "Frames that readers may see.", totals.frames_published),
        ("frames_durable", "Frames that survive a power cut.", totals.frames_durable),
        ("frames_skipped", "Frame numbers declared as never coming.", totals.frames_skipped),
        ("frames_missing", "Frame numbers that had no frame at the end.", totals.frames_missing),
        ("payload_bytes", "Pixel bytes published.", totals.payload_bytes),
        ("disk_stalls", "Times when disk calls took longer than a second.", totals.stalls),
        ("disk_stall_seconds", "Time that these calls took.", totals.stall_s),
    ):
        yield CounterMetricFamily(f"acqstream_{name}", text, value=value)
    warnings = CounterMetricFamily("acqstream_warnings", "Warnings about acquisitions.", labels=["code"])
    for code in WarningCode:
        warnings.add_metric([code], totals.warnings.get(code, 0))
    yield warnings
    ended = CounterMetricFamily("acqstream_acquisitions_ended", "Acquisitions that have ended.", labels=["status"])
    for status in END_STATES:
        ended.add_metric([status], totals.ended.get(status, 0))
    yield ended
    yield _latency("acqstream_frame_publish_seconds", "Time from received to published.", totals.publish_latency)
    yield _latency("acqstream_frame_durable_seconds", "Time from received to durable.", totals.durable_latency)


def _latency(name: str, text: str, latency: LatencyHistogram) -> Metric:
    buckets, count = [], 0
    for bound, frames in zip((*latency.bounds_s, inf), latency.counts, strict=True):
        count += frames
        buckets.append(("+Inf" if isinf(bound) else repr(float(bound)), float(count)))
    return HistogramMetricFamily(name, text, buckets=buckets, sum_value=latency.sum_s)


def _acquisition_metrics(running: Iterable[AcquisitionStatus]) -> Iterator[Metric]:
    metrics = {
        name: GaugeMetricFamily(f"acqstream_acquisition_{name}", text, labels=["acquisition"])
        for name, text in (
            ("queue_frames", "Frames received and not published."),
            ("queue_bytes", "Pixel bytes received and not published."),
            ("bytes_per_second", "Rate of the last minute, or of the last ten frames."),
            ("seconds_since_frame", "Time since a frame was received."),
        )
    }
    for one in running:
        metrics["queue_frames"].add_metric([one.name], one.queue_frames)
        metrics["queue_bytes"].add_metric([one.name], one.queue_bytes)
        metrics["bytes_per_second"].add_metric([one.name], one.bytes_per_s)
        if one.seconds_since_frame is not None:
            metrics["seconds_since_frame"].add_metric([one.name], one.seconds_since_frame)
    yield from metrics.values()


def _run_metrics(running: Iterable[AcquisitionStatus], ended: Iterable[EndedRun]) -> Iterator[Metric]:
    """The metrics that stay for a while when a run has ended."""
    frames = GaugeMetricFamily(
        "acqstream_acquisition_frames", "Frame numbers up to a stage.", labels=["acquisition", "stage"]
    )
    states = GaugeMetricFamily(
        "acqstream_acquisition_state", "1 for the state of an acquisition.", labels=["acquisition", "state"]
    )
    latest = {run.last.name: (run.last, run.state) for run in ended}
    latest |= {one.name: (one, one.state) for one in running}  # a new run may have the name of one that has ended
    for name, (status, state) in latest.items():
        for stage in STAGES:
            frames.add_metric([name, stage], getattr(status, stage))
        for other in AcquisitionState:
            states.add_metric([name, other], float(other == state))
    yield from (frames, states)


def _view_metrics(running: Iterable[AcquisitionStatus]) -> Iterator[Metric]:
    labels = ["acquisition", "view"]
    behind = GaugeMetricFamily("acqstream_view_behind_frames", "Frames that a view has not taken yet.", labels=labels)
    restarts = CounterMetricFamily("acqstream_view_restarts", "Restarts of the view process.", labels=labels)
    for one in running:
        for name, view in one.mirrors.items():
            behind.add_metric([one.name, name], view.behind)
            restarts.add_metric([one.name, name], view.restarts)
    yield from (behind, restarts)
