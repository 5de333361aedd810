"""Asking a daemon how it is."""

from __future__ import annotations

import json

import pytest

from acqstream.cli.exit_code import error_line
from acqstream.client import status as status_module
from acqstream.client.status import fetch_status
from acqstream.errors import DaemonUnavailable, ProtocolError


def test_a_daemon_answers(daemon):
    status = fetch_status(daemon.endpoint)
    assert (status.endpoint, status.version, status.acquisitions) == (daemon.endpoint, "fake", ())


def test_all_fields_arrive_and_unknown_ones_are_ignored():
    values = {
        "version": "0.1",
        "uptime_s": 1.5,
        "news": 1,
        "acquisitions": [
            {
                "name": "a",
                "ds": "d1",
                "received": 5,
                "odd": 2,
                "warnings": [["disk_low", "2 GB", "2026-11-21T04:12:02"]],
            }
        ],
    }
    status = status_module._parse_status("e", values)
    (acquisition,) = status.acquisitions
    assert (status.version, status.uptime_s, status.data) == ("0.1", 1.5, "")
    assert (acquisition.dataset_id, acquisition.received, acquisition.published) == ("d1", 5, 0)
    assert acquisition.warnings == (("disk_low", "2 GB", "2026-11-21T04:12:02"),)
    assert json.loads(json.dumps(status.as_dict()))["acquisitions"][0]["name"] == "a"


@pytest.mark.parametrize("values", [{"acquisitions": 7}, {"acquisitions": [3]}, {"acquisitions": [{"warnings": [1]}]}])
def test_a_status_that_makes_no_sense_is_said_to_be_so(values):
    with pytest.raises(ProtocolError, match="cannot be read"):
        status_module._parse_status("e", values)


def test_nobody_answers():
    with pytest.raises(DaemonUnavailable, match="start one with"):
        fetch_status("tcp://127.0.0.1:9", timeout_s=0.05)


def test_a_daemon_that_is_silent(daemon):
    daemon.behavior.silent = True
    with pytest.raises(DaemonUnavailable, match="does not answer; ask again") as error:
        fetch_status(daemon.endpoint, timeout_s=0.1)
    assert "start one with" not in error_line(error.value)
