"""When the web face asks for a token."""

from __future__ import annotations

import pytest

from acqstream.daemon.child_process import needs_token
from acqstream.daemon.config import DaemonConfig, load_config


@pytest.mark.parametrize(
    ("web_token", "endpoints", "is_needed"),
    [
        (None, ["tcp://127.0.0.1:5271", "ipc:///run/a.sock"], False),
        (None, ["ipc:///run/acqstream/acqstream.sock"], True),  # of the system service: for a group
        (True, ["tcp://127.0.0.1:5271"], True),
        (False, ["ipc:///run/acqstream/acqstream.sock"], False),
    ],
)
def test_a_daemon_for_a_group_has_a_web_face_for_a_group(web_token, endpoints, is_needed):
    assert needs_token(load_config(web_token=web_token), endpoints) is is_needed


def test_a_port_that_needs_a_key_is_not_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DaemonConfig, "has_key", True)
    assert needs_token(load_config(), ["tcp://127.0.0.1:5271"])
