"""Who can connect, by the settings alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from acqstream.web.web_settings import WebSettings


@pytest.mark.parametrize(
    ("address", "socket", "is_local"),
    [
        ("127.0.0.1", None, True),
        ("localhost", None, True),
        ("0.0.0.0", None, False),
        ("192.168.7.4", None, False),
        ("0.0.0.0", Path("/run/web.sock"), True),
    ],
)
def test_local_is_what_only_programs_of_this_machine_reach(address: str, socket: Path | None, is_local: bool) -> None:
    settings = WebSettings(data=Path("/data"), address=address, socket=socket, token="a secret")
    assert settings.is_local is is_local
    assert "a secret" not in repr(settings)
