"""Targets of notices: what is accepted, and that no secret is in a name for logs."""

from __future__ import annotations

import pytest

from acqstream.errors import ConfigError
from acqstream.model.notice_target import AddressTarget, CommandTarget, parse_target


def test_a_command_has_arguments_and_no_shell() -> None:
    target = parse_target("command /usr/bin/page 'room 3' $HOME `id` ; rm -rf / \"a b\"")
    assert target == CommandTarget(("/usr/bin/page", "room 3", "$HOME", "`id`", ";", "rm", "-rf", "/", "a b"))
    assert target.label == "command /usr/bin/page"


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.example.org/T0/secret",
        "http://127.0.0.1:8080/x?y=1",
        "http://localhost/",
        "http://[::1]:9/",
        "https://10.0.0.1:8443",
    ],
)
def test_an_address(url: str) -> None:
    assert parse_target(url) == AddressTarget(url)
    assert "secret" not in parse_target(url).label


@pytest.mark.parametrize(
    "text",
    [
        "",
        "command",
        "command ",
        "command ''",
        "command 'open",
        "command a\0b",
        "page-me",
        "http://example.org/",
        "http://127.0.0.1.example.org/",
        "http://localhost.example.org/",
        "http://1270.0.1/",
        "ftp://127.0.0.1/",
        "https://",
        "https:///path",
        "https://user:word@example.org/",
        "https://example.org:99999/",
        "https://example.org/a b",
        "https://example.org/\r\nHost: evil",
        "file:///etc/passwd",
    ],
)
def test_what_is_no_target(text: str) -> None:
    with pytest.raises(ConfigError, match="notify: "):
        parse_target(text)
