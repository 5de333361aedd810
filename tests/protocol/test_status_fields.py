"""The status of a daemon: both ways over the wire, and short enough for one message."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from acqstream.errors import FieldError
from acqstream.model import status as status_module
from acqstream.model.fields import Fields
from acqstream.model.status import (
    LATENCY_BOUNDS_S,
    AcquisitionStatus,
    DaemonStatus,
    DaemonTotals,
    EndedStatus,
    LatencyHistogram,
    LoadStatus,
    UnfinishedViewStatus,
    ViewProcessStatus,
    ViewStatus,
)
from acqstream.protocol.encoding import MAX_HEADER_BYTES, Encoding, decode_header, encode_header
from acqstream.protocol.replies import StatusReply, parse_reply
from acqstream.protocol.status_fields import daemon_fields, parse_daemon

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")


def acquisition(number: int, warnings: int) -> AcquisitionStatus:
    noted = [("disk_stalled", f"{one}: {'µ' * 200}", "2026-11-22T09:00:00.000+00:00") for one in range(warnings)]
    path = "/data/" + "p" * 400
    return AcquisitionStatus(name=f"run-{number}", path=path, dataset_id=f"{number:032x}", warnings=tuple(noted))


def mirror(number: int) -> UnfinishedViewStatus:
    return UnfinishedViewStatus(path=f"/data/{number}", mirror="n5", state="failed", behind=3, reason="r" * 500)


@pytest.mark.parametrize("encoding", list(Encoding))
@pytest.mark.parametrize(("acquisitions", "warnings", "mirrors"), [(60, 50, 0), (3, 50, 4000), (300, 5, 300)])
def test_a_long_status_says_what_it_leaves_out(
    encoding: Encoding, acquisitions: int, warnings: int, mirrors: int
) -> None:
    runs = tuple(acquisition(number, warnings) for number in range(acquisitions))
    views = ViewProcessStatus(pid=7, mirrors=tuple(mirror(number) for number in range(mirrors)))
    raw = encode_header(StatusReply(DaemonStatus(version="1", acquisitions=runs, views=views)).fields(), encoding)
    assert MAX_HEADER_BYTES * 0.6 < len(raw) < MAX_HEADER_BYTES or encoding is Encoding.MSGPACK
    reply = parse_reply(decode_header(raw)[0])
    assert isinstance(reply, StatusReply)
    assert isinstance(reply.status, DaemonStatus)
    received = reply.status
    assert received.acquisitions == tuple(
        replace(run, warnings=short.warnings) for run, short in zip(runs, received.acquisitions, strict=False)
    )
    assert len(received.acquisitions) + received.left_out["acquisitions"] == acquisitions
    assert len(received.views.mirrors) + received.left_out["mirrors"] == mirrors
    shown = [one.warnings for one in received.acquisitions]
    assert sum(map(len, shown)) + received.left_out["warnings"] == warnings * len(shown)
    assert all(latest == runs[0].warnings[warnings - len(latest) :] for latest in shown)
    assert (received.version, received.views.pid) == ("1", 7)


def test_a_short_status_is_complete() -> None:
    views = ViewProcessStatus(pid=3, restarts=1, memory="shared", kernels="compiled", mirrors=(mirror(1),))
    run = replace(acquisition(1, 50), mirrors={"n5": ViewStatus(cursor=7, state="running")}, seconds_left=3.5)
    load = LoadStatus(processors=4, processor_percent=12.5, disk="sda", priority="nice 0")
    ended = (EndedStatus(name="a", dataset_id="b0e1", path="/data/a", durable=5, finished_at="2026-11-22T09:00:00"),)
    endpoints = ("tcp://a", "ipc://b")
    status = DaemonStatus(endpoints=endpoints, acquisitions=(run,), ended=ended, views=views, load=load, free_bytes=7)
    message = StatusReply(status).fields()
    assert "left_out" not in message
    assert parse_reply(json.loads(json.dumps(message))) == StatusReply(status)


@pytest.mark.parametrize("encoding", list(Encoding))
def test_totals_go_both_ways(encoding: Encoding) -> None:
    latency = LatencyHistogram(counts=tuple(range(len(LATENCY_BOUNDS_S) + 1)), sum_s=7.5)
    totals = DaemonTotals(
        frames_received=7, stall_s=1.25, warnings={"disk_low": 2}, ended={"failed": 1}, publish_latency=latency
    )
    raw = encode_header(StatusReply(DaemonStatus(totals=totals)).fields(), encoding)
    assert parse_reply(decode_header(raw)[0]) == StatusReply(DaemonStatus(totals=totals))


def test_totals_of_another_version_are_read() -> None:
    latency = {"bounds_s": [0.5], "counts": [3, 4], "sum_s": 9.0, "news": 1}
    totals = parse_daemon(Fields({"totals": {"news": 1, "durable_latency": latency}})).totals
    assert totals == DaemonTotals(durable_latency=LatencyHistogram(bounds_s=(0.5,), counts=(3, 4), sum_s=9.0))


def test_every_field_of_the_wire_is_on_its_page() -> None:
    """`endpoint` is set by the client. Nothing is renamed but the dataset's id."""
    section = PAGE.split("\n### `status`\n")[1].split("\n### ")[0]
    kinds = [kind for kind in vars(status_module).values() if getattr(kind, "__dataclass_fields__", None)]
    names = {one.name for kind in kinds for one in fields(kind)} - {"endpoint", "dataset_id"}
    assert len(names) > 40
    assert {name for name in names if f"`{name}`" not in section} == set()


def test_a_mirror_of_an_acquisition_carries_no_path() -> None:
    run = AcquisitionStatus(dataset_id="b0e1", mirrors={"n5": ViewStatus(cursor=7)})
    (sent,) = daemon_fields(DaemonStatus(acquisitions=(run,)))["acquisitions"]
    assert sent["ds"] == "b0e1"
    assert set(sent["mirrors"]["n5"]) == {one.name for one in fields(ViewStatus)}


def test_unknown_fields_are_ignored_and_absent_ones_have_defaults() -> None:
    noted = ["disk_low", "2 GB", "2026-11-21T04:12:02"]
    run = {"name": "a", "ds": "d1", "received": 5, "odd": 2, "warnings": [noted]}
    status = parse_daemon(Fields({"version": "0.1", "uptime_s": 1.5, "news": 1, "acquisitions": [run]}))
    assert (status.version, status.uptime_s, status.data) == ("0.1", 1.5, "")
    expected = AcquisitionStatus(name="a", dataset_id="d1", received=5, warnings=(tuple(noted),))  # type: ignore[arg-type]
    assert status.acquisitions == (expected,)


@pytest.mark.parametrize(
    "values",
    [
        {"acquisitions": 7},
        {"acquisitions": [3]},
        {"acquisitions": [{"warnings": [1]}]},
        {"acquisitions": [{"received": "5"}]},
        {"uptime_s": True},
        {"version": 1},
        {"views": {"mirrors": [{"cursor": None}]}},
        {"totals": None},
        {"totals": {"frames_received": "1"}},
        {"totals": {"warnings": {"disk_low": 1.5}}},
        {"totals": {"publish_latency": {}}},
        {"totals": {"publish_latency": {"bounds_s": [1.0], "counts": [1], "sum_s": 0.0}}},
    ],
)
def test_a_field_of_another_type_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(FieldError):
        parse_daemon(Fields(values))
