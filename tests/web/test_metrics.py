"""Metrics: names, values and formats, read back by the parsers of others; rules and dashboard name what exists."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from acqstream.model.receipt import Receipt
from acqstream.model.state import AcquisitionState
from acqstream.monitor.daemon_watch import DaemonView
from acqstream.web.metrics import DaemonCollector, WebMetrics, exposition
from tests.monitor.views_of_daemons import daemon_status, paused, receipt_of, run_status, totals, view_of
from tests.web.prometheus_tools import needs_promtool, promtool

ROOT = Path(__file__).resolve().parents[2]
MONITORING = files("acqstream.web") / "monitoring"
RULES = MONITORING / "acqstream.rules.yml"
DASHBOARD = MONITORING / "grafana-dashboard.json"
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
NAME = re.compile(r"\bacqstream_[a-z_]+\b")
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def exposed(view: DaemonView, accept: str = "", web: bool = False) -> str:
    registry = CollectorRegistry()
    registry.register(DaemonCollector(lambda: view))
    if web:
        WebMetrics(registry).note("page", 200, 1234, 0.25)
    body, content_type = exposition(registry, accept)
    assert content_type.startswith("application/openmetrics-text" if accept else "text/plain")
    return body.decode("utf-8")


def samples(seen: DaemonView, /, **labels: str) -> dict[str, float]:
    """Values by name of the samples with exactly these labels."""
    wanted = frozenset(labels.items())
    return {name: value for (name, has), value in all_samples(exposed(seen)).items() if has == wanted}


def all_samples(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in parse_text(text)
        for sample in family.samples
    }


def test_values_of_the_daemon() -> None:
    values = samples(view_of(run_status()))
    expected = {
        "acqstream_up": 1,
        "acqstream_frames_received_total": 1001,
        "acqstream_frames_published_total": 1002,
        "acqstream_frames_durable_total": 1003,
        "acqstream_frames_skipped_total": 4,
        "acqstream_frames_missing_total": 5,
        "acqstream_payload_bytes_total": 6_000_000,
        "acqstream_disk_stalls_total": 7,
        "acqstream_disk_stall_seconds_total": 8.5,
        "acqstream_disk_free_bytes": 1e12,
        "acqstream_disk_reserve_bytes": 2**29,
        "acqstream_disk_seconds_left": 7800,
        "acqstream_disk_frames_left": 156_000,
        "acqstream_memory_used_bytes": 2**28,
        "acqstream_memory_budget_bytes": 2**30,
        "acqstream_frame_publish_seconds_sum": 11.5,
        "acqstream_frame_durable_seconds_sum": 12.5,
        "acqstream_frame_publish_seconds_count": sum(totals().publish_latency.counts),
        "acqstream_frame_durable_seconds_count": sum(totals().durable_latency.counts),
    }
    assert values == expected


def test_histograms_are_cumulative() -> None:
    bound = {"le": "0.005"}
    assert samples(view_of(), **bound)["acqstream_frame_publish_seconds_bucket"] == 2 + 3 + 4
    assert samples(view_of(), **bound)["acqstream_frame_durable_seconds_bucket"] == 15 + 14 + 13
    assert samples(view_of(), le="+Inf")["acqstream_frame_publish_seconds_bucket"] == sum(range(2, 16))


def test_values_of_a_run_and_its_mirrors() -> None:
    view = view_of(run_status())
    assert samples(view, acquisition="cells") == {
        "acqstream_acquisition_queue_frames": 10,
        "acqstream_acquisition_queue_bytes": 81920,
        "acqstream_acquisition_bytes_per_second": 2.5e6,
        "acqstream_acquisition_seconds_since_frame": 0.25,
    }
    stages = [samples(view, acquisition="cells", stage=stage) for stage in ("received", "published", "durable")]
    assert stages == [{"acqstream_acquisition_frames": count} for count in (120, 110, 100)]
    assert samples(view, acquisition="cells", view="n5") == {
        "acqstream_view_behind_frames": 20,
        "acqstream_view_restarts_total": 1,
    }


def states(view: DaemonView, name: str = "cells") -> set[str]:
    """The states of a run whose value is 1; all states have a value."""
    values = {state: samples(view, acquisition=name, state=state) for state in AcquisitionState}
    assert all(set(value) == {"acqstream_acquisition_state"} for value in values.values())
    return {state for state, value in values.items() if value["acqstream_acquisition_state"] == 1}


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_the_state_of_a_run_that_runs_and_ends(status: str) -> None:
    run = run_status()
    view = view_of(run)
    assert states(view) == {"RUNNING"}
    assert states(view_of(paused(run))) == {"PAUSED"}
    ended = view.following(daemon_status(), 10.0, lambda one: receipt_of(one, status))
    assert states(ended) == {{"completed": "COMPLETE", "failed": "FAILED"}[status]}
    assert samples(ended, acquisition="cells") == {}
    assert samples(ended, acquisition="cells", stage="durable") == {"acqstream_acquisition_frames": 100}
    again = replace(ended, status=daemon_status(run_status(dataset_id="new")))
    assert states(again) == {"RUNNING"}


def test_without_a_daemon() -> None:
    assert samples(DaemonView(why="none")) == {"acqstream_up": 0}


def test_what_is_not_known_is_left_out() -> None:
    run = run_status(seconds_left=None, frames_left=None, seconds_since_frame=None)
    view = view_of(run, free_bytes=None)
    text = exposed(view)
    assert "acqstream_disk_reserve_bytes" in samples(view)
    assert "acqstream_disk_free_bytes" not in samples(view)
    assert "acqstream_acquisition_seconds_since_frame{" not in text
    assert "-1" not in text


def test_several_runs_share_the_disk() -> None:
    values = samples(
        view_of(
            run_status("a", seconds_left=300.0, frames_left=3000),
            run_status("b", seconds_left=600.0, frames_left=1200),
        )
    )
    assert values["acqstream_disk_seconds_left"] == pytest.approx(200.0)
    assert values["acqstream_disk_frames_left"] == 200 * (10 + 2)
    full = samples(view_of(run_status("a", seconds_left=0.0, frames_left=0), run_status("b")))
    assert (full["acqstream_disk_seconds_left"], full["acqstream_disk_frames_left"]) == (0, 0)


def test_counters_never_fall_and_series_do_not_grow_with_runs() -> None:
    """400 runs come and go, some at once; series that stay are bounded."""
    view, before = view_of(totals=totals(1)), all_samples(exposed(view_of(totals=totals(1))))

    def receipt(run: Any) -> Receipt:
        return receipt_of(run)

    peak = 0
    for number in range(400):
        runs = (run_status(f"run-{number}"), run_status(f"run-{number}-too"))
        view = view.following(daemon_status(*runs, totals=totals(number + 2)), number * 10.0, receipt)
        now = all_samples(exposed(view))
        counters = {key: value for key, value in before.items() if key[0].endswith(("_total", "_count", "_bucket"))}
        fallen = [key for key, value in counters.items() if "acquisition" not in dict(key[1]) and now[key] < value]
        assert fallen == []
        before = now
        peak = max(peak, len(now))
    assert peak < 2000
    text = "\n".join(exposed(view, web=True).splitlines())
    assert "run-1-too" not in text


def test_names_of_runs_are_escaped() -> None:
    name = 'a"b\\c µ'
    assert samples(view_of(run_status(name)), acquisition=name)["acqstream_acquisition_queue_frames"] == 10


def test_openmetrics_is_read_by_its_own_parser() -> None:
    text = exposed(view_of(run_status()), OPENMETRICS, web=True)
    assert text.endswith("# EOF\n")
    families = {family.name: family.type for family in parse_openmetrics(text)}
    assert families["acqstream_frames_received"] == "counter"
    assert families["acqstream_frame_publish_seconds"] == "histogram"
    assert families["acqstream_build"] == "info"
    plain = {family.name for family in parse_text(exposed(view_of(run_status()), web=True))}
    assert set(families) == {name.removesuffix("_info") for name in plain if not name.endswith("_created")}


def test_requests_to_the_face_are_counted() -> None:
    registry = CollectorRegistry()
    web = WebMetrics(registry)
    for code, size in ((200, 100), (200, 50), (404, 9)):
        web.note("n5", code, size, 0.02)
    values = all_samples(exposition(registry, "")[0].decode())
    labels = frozenset({"layout": "n5", "code": "200"}.items())
    assert (values["acqstream_web_requests_total", labels], values["acqstream_web_sent_bytes_total", labels]) == (
        2,
        150,
    )
    assert values["acqstream_web_request_seconds_count", frozenset({("layout", "n5")})] == 3


@needs_promtool
def test_promtool_finds_no_fault_in_the_metrics() -> None:
    promtool("check", "metrics", text=exposed(view_of(run_status()), web=True))


@needs_promtool
def test_promtool_accepts_the_rules() -> None:
    assert "8 rules found" in promtool("check", "rules", str(RULES))


ALERTS = {
    "AcqstreamDown": ("acqstream_up", "1 0x20", "1x20"),
    "AcqstreamPaused": (
        'acqstream_acquisition_state{acquisition="cells", state="PAUSED"}',
        "1x20",
        "0x20",
    ),
    "AcqstreamFailed": ('acqstream_acquisitions_ended_total{status="failed"}', "0x10 1x10", "1x20"),
    "AcqstreamDiskFullSoon": ("acqstream_disk_seconds_left", "3000x20", "4000x20"),
    "AcqstreamFramesMissing": ("acqstream_frames_missing_total", "0x10 3x10", "3x20"),
    "AcqstreamViewBehind": (
        'acqstream_view_behind_frames{acquisition="cells", view="n5"}',
        "11000+100x40",
        "20000-100x40",
    ),
}


@needs_promtool
@pytest.mark.parametrize("is_fired", [True, False])
@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_fires_when_it_should_and_then_only(alert: str, is_fired: bool, tmp_path: Path) -> None:
    series, bad, good = ALERTS[alert]
    count = f"count(ALERTS{{alertname='{alert}', alertstate='firing'}}) or vector(0)"
    values = bad if is_fired else good
    check_rules(tmp_path, [{"series": series, "values": values}], count, "15m", int(is_fired))


@needs_promtool
@pytest.mark.parametrize(("slow", "is_fired"), [(2, True), (0, False)])
def test_a_slow_disk_alerts(slow: int, is_fired: bool, tmp_path: Path) -> None:
    """Of 100 frames a minute, `slow` take more than a second."""
    fast = f"0+{100 - slow}x20"
    series = [
        {"series": f'acqstream_frame_publish_seconds_bucket{{instance="scope", le="{bound}"}}', "values": values}
        for bound, values in (("1.0", fast), ("2.5", "0+100x20"), ("+Inf", "0+100x20"))
    ]
    expression = "count(ALERTS{alertname='AcqstreamSlowDisk', alertstate='firing'}) or vector(0)"
    check_rules(tmp_path, series, expression, "18m", int(is_fired))


def check_rules(folder: Path, series: list[dict[str, str]], expression: str, at: str, value: int) -> None:
    """Evaluate our rules over these series, once a minute, and compare the value of an expression at a time."""
    test = {"expr": expression, "eval_time": at, "exp_samples": [{"value": value}]}
    check = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "30s",
        "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": [test]}],
    }
    path = folder / "check.yml"
    path.write_text(json.dumps(check), encoding="utf-8")
    promtool("test", "rules", str(path))


@needs_promtool
@pytest.mark.parametrize("state", ["RUNNING", "ORPHANED"])
def test_no_frames_alerts_for_running_acquisitions(state: str, tmp_path: Path) -> None:
    labels = 'instance="scope", acquisition="cells"'
    series = [
        {"series": f"acqstream_acquisition_seconds_since_frame{{{labels}}}", "values": "400x10"},
        {"series": f'acqstream_acquisition_state{{{labels}, state="{state}"}}', "values": "1x10"},
        {
            "series": 'acqstream_acquisition_state{instance="other", acquisition="cells", state="RUNNING"}',
            "values": "1x9",
        },
    ]
    expression = "count(ALERTS{alertname='AcqstreamNoFrames'}) or vector(0)"
    check_rules(tmp_path, series, expression, "3m", int(state == "RUNNING"))


def known_names() -> set[str]:
    return {name for name, _ in all_samples(exposed(view_of(run_status()), web=True))}


def test_rules_and_dashboard_name_metrics_that_exist() -> None:
    rules, dashboard = RULES.read_text(encoding="utf-8"), json.loads(DASHBOARD.read_text(encoding="utf-8"))
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    expressions += re.findall(r"expr: (.*)", rules)
    assert len(expressions) > 20
    assert {name for text in expressions for name in NAME.findall(text)} - known_names() == set()


def test_the_dashboard_has_no_overlap() -> None:
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_the_page_of_metrics_has_every_name() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    names = {re.sub(r"_(bucket|sum|count)$", "", name) for name in known_names() if not name.endswith("_created")}
    assert {name for name in names if f"`{name}`" not in page} == set()
    assert set(NAME.findall(page)) - names == set()
