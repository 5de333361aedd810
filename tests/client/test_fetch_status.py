"""Asking a daemon how it is."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from acqstream.cli.output import error_line
from acqstream.client.daemon_requests import fetch_status
from acqstream.errors import DaemonUnavailable, ProtocolError


def test_a_daemon_answers(daemon):
    status = fetch_status(daemon.endpoint)
    assert (status.endpoint, status.version, status.acquisitions) == (daemon.endpoint, "fake", ())


def test_a_status_that_makes_no_sense_is_reported(daemon):
    daemon.behavior.status = SimpleNamespace(fields=lambda: {"t": "status", "acquisitions": 7})
    with pytest.raises(ProtocolError, match=f"cannot read the status of the daemon at {daemon.endpoint}"):
        fetch_status(daemon.endpoint)


def test_nobody_answers():
    with pytest.raises(DaemonUnavailable, match="start one with"):
        fetch_status("tcp://127.0.0.1:9", timeout_s=0.05)


def test_a_daemon_that_is_silent(daemon):
    daemon.behavior.silent = True
    with pytest.raises(DaemonUnavailable, match="does not answer; ask again") as error:
        fetch_status(daemon.endpoint, timeout_s=0.1)
    assert "start one with" not in error_line(error.value)
